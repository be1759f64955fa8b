"""A node's server is stopped while its subscription runs: the others continue, and everything is there once it is back."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.link.messages import Progress
from engine.model.fault import EngineFault, FaultKind
from engine.model.subscription import BatchPolicy, CaptureSpec, ConnectionSpec
from engine.sort.merge_records import Order
from server.demo.embedded import EmbeddedPostgres, server_folder
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until
from tests.pg.postgres_logs.nodes import ACCOUNTS, OWN, Nodes
from tests.pg.two_phase.node import Node

pytestmark = pytest.mark.pg
COUNT = 3
AWAY = 0
"""The node that is stopped: the first one, whose catalog gives tables their numbers."""
SUM = "SELECT sum(amount)::BIGINT, count(*) FROM accounts"
WHOLE = [(100 * COUNT * ACCOUNTS, COUNT * ACCOUNTS)]


class Shop:
    """Servers with a database each, and transactions over them."""

    def __init__(self, clusters: list[EmbeddedPostgres], databases: list[Database]) -> None:
        self.clusters = clusters
        self.databases = databases
        self.rng = random.Random(1)
        self.nodes = Nodes([Node(database) for database in databases], self.rng)

    def stop(self, number: int = AWAY) -> None:
        self.clusters[number].stop("immediate")

    def start(self, number: int = AWAY) -> None:
        self.clusters[number].start()
        self.connect(number)

    def connect(self, number: int = AWAY) -> None:
        """Begin another session for the transactions of a node that was stopped."""
        self.nodes.sessions[number].close()
        self.nodes.sessions[number] = self.databases[number].connect()

    def move(self) -> None:
        """Some transactions, on one node and over several."""
        for _ in range(4):
            self.nodes.local()
            self.nodes.spread(own=self.rng.random() < 0.5, ends=self.rng.choice(["commit", "commit", "roll back"]))

    def prepare(self, gid: str, amounts: dict[int, int]) -> None:
        """Prepare parts that add these amounts to the last account of nodes."""
        for number, amount in amounts.items():
            with self.databases[number].connect() as session:
                session.execute("BEGIN")
                account = number * ACCOUNTS + ACCOUNTS - 1
                session.execute("UPDATE accounts SET amount = amount + %s WHERE id = %s", [amount, account])
                session.execute(f"PREPARE TRANSACTION '{gid}@{number}'".encode())

    def commit(self, gid: str, number: int) -> None:
        self.databases[number].execute(f"COMMIT PREPARED '{gid}@{number}'")

    def amount(self, number: int, account: int) -> int:
        key = number * ACCOUNTS + account
        return int(self.databases[number].execute("SELECT amount FROM accounts WHERE id = %s", [key])[0][0])


@pytest.fixture
def shop(private_cluster: Callable[..., EmbeddedPostgres]) -> Iterator[Shop]:
    clusters = [private_cluster(18, logical_decoding_work_mem="'64kB'") for _ in range(COUNT)]
    databases = [Database(cluster, "postgres") for cluster in clusters]
    for number, database in enumerate(databases):
        first = number * ACCOUNTS
        database.execute("CREATE TABLE accounts (id int PRIMARY KEY, amount int)")
        database.execute(
            f"INSERT INTO accounts SELECT n, 100 FROM generate_series({first}, {first + ACCOUNTS - 1}) AS n"
        )
    made = Shop(clusters, databases)
    try:
        yield made
    finally:
        for session in made.nodes.sessions:
            session.close()
        for node in made.nodes.nodes:
            node.connector.close()


@pytest.fixture
def order() -> Order:
    return Order.CAUSAL


@pytest.fixture
def replica(shop: Shop, replicate: Callable[..., Replica], order: Order) -> Replica:
    listed = [{"name": f"n{number}", "settings": dict(one.settings)} for number, one in enumerate(shop.databases)]
    capture = CaptureSpec("postgres_logs", {"gid_pattern": "^(?P<gtid>.+)@", "own_prefix": OWN, "order": order.value})
    source = ConnectionSpec("shop", "partitioned", {"nodes": json.dumps(listed)}, capture=capture)
    replica = replicate(shop.databases[0], [table("accounts")], source=source, batch=BatchPolicy(max_transactions=1))
    replica.wait_live()
    shop.move()
    replica.catch_up()
    return replica


def copied(replica: Replica, number: int, account: int) -> int:
    return int(replica.query(f"SELECT amount FROM accounts WHERE id = {number * ACCOUNTS + account}")[0][0])


def assert_copied(replica: Replica, shop: Shop, number: int) -> None:
    """A change of this node alone becomes visible."""
    shop.nodes.on(number)
    wait_until(lambda: copied(replica, number, 0) == shop.amount(number, 0), 20, f"the change on node {number}")


def assert_equal(replica: Replica, shop: Shop) -> None:
    replica.catch_up()
    rows = [row for one in shop.databases for row in one.execute("SELECT id, amount FROM accounts")]
    assert sorted(replica.query("SELECT id, amount FROM accounts")) == sorted(rows)
    assert replica.query(SUM) == WHOLE


def wait_event(replica: Replica, code: str, count: int = 1) -> None:
    wait_until(lambda: len(replica.events_of(code)) >= count, 20, f"event {code}")


def test_others_continue_while_a_node_is_stopped_and_all_is_there_afterwards(shop: Shop, replica: Replica) -> None:
    run = replica.pipeline.run
    for times in (1, 2):
        shop.prepare(f"across {times}", {AWAY: -7, 1: 7})
        replica.catch_up()
        shop.stop()
        for number in (1, 2, 1):
            assert_copied(replica, shop, number)
        shop.commit(f"across {times}", 1)
        after = copied(replica, 1, 0)
        shop.nodes.on(1)
        assert_copied(replica, shop, 2)
        assert copied(replica, 1, 0) == after, "what follows a global transaction waits with it"
        assert replica.query(SUM) == WHOLE
        wait_event(replica, "node_silent", times)
        shop.start()
        shop.commit(f"across {times}", AWAY)
        shop.move()
        assert_equal(replica, shop)
        wait_event(replica, "node_heard", times)
    assert replica.pipeline.run is run
    assert [len(replica.events_of(code)) for code in ("node_silent", "node_heard")] == [2, 2]
    replica.assert_equal()


@pytest.mark.parametrize("order", [Order.STRICT])
def test_in_the_order_of_commits_everything_waits_for_a_stopped_node(shop: Shop, replica: Replica) -> None:
    run = replica.pipeline.run
    shop.stop()
    wait_event(replica, "node_silent")
    before = copied(replica, 1, 0)
    shop.nodes.on(1)
    wait_event(replica, "node_silent")
    assert copied(replica, 1, 0) == before
    shop.start()
    assert_equal(replica, shop)
    assert replica.pipeline.run is run


@pytest.mark.parametrize("order", Order)
def test_waits_end_if_they_need_no_log_of_the_stopped_node(shop: Shop, replica: Replica, order: Order) -> None:
    shop.stop()
    wait_event(replica, "node_silent")
    shop.nodes.on(1)
    end = shop.nodes.nodes[1].now()
    if order is Order.CAUSAL:
        wait_until(lambda: reports_of(replica)[-1].applied_of_logs["n1"] >= end, 20, "n1 applied")
    run = replica.pipeline.run
    assert run is not None
    with pytest.raises(EngineFault) as caught:
        run.nows.read_now()
    assert (caught.value.kind, caught.value.subject) == (FaultKind.SOURCE_UNREACHABLE, "shop/n0")
    late = reports_of(replica)[-1]
    assert late.late_logs == ("n0",)
    assert late.away_logs["n0"].code == "source_unreachable"
    assert late.lag_seconds is not None
    assert late.lag_seconds > 1
    shop.start()
    assert_equal(replica, shop)
    wait_until(lambda: not reports_of(replica)[-1].late_logs, 20, "no node is late")
    assert run is replica.pipeline.run


@pytest.mark.parametrize("what", ["reader", "engine"])
def test_what_is_killed_while_a_node_is_stopped_begins_once_it_is_back(shop: Shop, replica: Replica, what: str) -> None:
    shop.prepare("across", {AWAY: -7, 1: 7})
    replica.catch_up()
    shop.stop()
    shop.commit("across", 1)
    assert_copied(replica, shop, 2)
    if what == "reader":
        replica.kill_reader()
    else:
        replica.restart()
    reported = replica.wait_state("starting")
    wait_until(lambda: (replica.wait_state("starting").reason or "").startswith("shop/n0: "), 20, "the reason")
    assert reported.state == "starting"
    shop.start()
    shop.commit("across", AWAY)
    shop.move()
    replica.wait_live()
    assert_equal(replica, shop)


@pytest.mark.parametrize("how", ["immediate", "kill -9"])
def test_a_large_transaction_that_was_read_in_part_comes_as_a_whole(shop: Shop, replica: Replica, how: str) -> None:
    """The server ends while it sends an ordinary transaction, and while it sends a part of a global one."""
    run = replica.pipeline.run
    shop.databases[AWAY].execute("ALTER TABLE accounts ADD note text")
    for number in (1, 2):
        shop.databases[number].execute("ALTER TABLE accounts ADD note text")
    # The last known catalog of the node that will be away has the column, or the table would be parked until it is back.
    for node in range(3):
        shop.nodes.on(node)
    replica.catch_up()
    for times, prepared in enumerate((False, True)):
        first = 1000 + 100_000 * times
        rows = (
            f"INSERT INTO accounts SELECT n, 0, repeat('x', 500) FROM generate_series({first}, {first + 79_999}) AS n"
        )
        with shop.databases[AWAY].connect() as session:
            session.execute("BEGIN")
            session.execute(rows.encode())
            session.execute(b"PREPARE TRANSACTION 'large@0'" if prepared else b"COMMIT")
        if how == "immediate":
            shop.stop()
        else:
            shop.clusters[AWAY].kill9()
        assert_copied(replica, shop, 1)
        shop.start()
        if prepared:
            shop.commit("large", AWAY)
        replica.catch_up()
        assert replica.query(f"SELECT count(*) FROM accounts WHERE id >= {first}") == [(80_000,)]
    assert run is replica.pipeline.run
    replica.assert_equal()


def test_a_node_that_comes_back_as_an_older_copy_is_a_gap(shop: Shop, replica: Replica, tmp_path: Path) -> None:
    """Its slot is there, and its log grows past what was read."""
    cluster, backup = shop.clusters[AWAY], tmp_path / "backup"
    shop.stop()
    shutil.copytree(cluster.data, backup, symlinks=True)
    shop.start()
    shop.nodes.on(AWAY)
    replica.catch_up()
    shop.stop()
    wait_event(replica, "node_silent")
    owner = cluster.data.stat()
    shutil.rmtree(cluster.data)
    shutil.copytree(backup, cluster.data, symlinks=True)
    for path in [cluster.data, *cluster.data.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    cluster.data.chmod(0o700)
    cluster.start()
    shop.connect()
    for _ in range(20):
        shop.nodes.on(AWAY)
    assert replica.wait_state("failed").code == "log_gap"


def test_a_standby_in_place_of_its_primary_is_a_gap_that_names_the_timelines(shop: Shop, replica: Replica) -> None:
    primary = shop.clusters[AWAY]
    standby = EmbeddedPostgres(server_folder("penstock-test-standby-"), port=primary.port)
    copy = [primary.program("pg_basebackup"), "-D", str(standby.data), "-R", "-d", primary.dsn()]
    subprocess.run(copy, check=True, capture_output=True)
    for path in [standby.folder, standby.data, *standby.data.rglob("*")]:
        os.chown(path, primary.data.stat().st_uid, primary.data.stat().st_gid, follow_symlinks=False)
    primary.stop()
    standby.start()
    try:
        standby.execute("SELECT pg_promote()")
        failed = replica.wait_state("failed")
        assert failed.code == "log_gap"
        # Whichever is seen first: that the session is on another timeline, or that the standby has no slot.
        seen = ("it is on timeline 2, and timeline 1 was read", "node n0: the replication slot is gone")
        assert any(each in (failed.reason or "") for each in seen)
        replica.restart()
        assert "node n0 is on timeline 2, the copy is of timeline 1" in (replica.wait_state("failed").reason or "")
    finally:
        standby.destroy()


def reports_of(replica: Replica) -> list[Progress]:
    return [each for each in replica.reports.all() if isinstance(each, Progress)]
