"""Three databases as one source, from the initial copy to the target: every transaction over several nodes arrives whole, whatever ends."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.model.subscription import BatchPolicy, CaptureSpec, ConnectionSpec
from engine.sort.merge_records import Order
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.fixtures.senders import SENDERS, stopped
from tests.fixtures.waiting import wait_until
from tests.pg.postgres_logs.nodes import ACCOUNTS, OWN, OWN_TABLE, Nodes
from tests.pg.two_phase.node import Node

pytestmark = pytest.mark.pg
COUNT = 3
SHARED_ON = (0, 2)
SHARED = 4
"""Rows of the table that is on two nodes, on each."""
SUMS = (
    "SELECT ((SELECT sum(amount) FROM accounts) + (SELECT sum(amount) FROM shared))::BIGINT,"
    " (SELECT count(*) FROM accounts), (SELECT count(*) FROM shared)"
)
EXPECTED = (100 * (COUNT * ACCOUNTS + len(SHARED_ON) * SHARED), COUNT * ACCOUNTS, len(SHARED_ON) * SHARED)
CUT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE 'penstock%'"
)
Shop = tuple[list[Database], Nodes]


@pytest.fixture
def shop(pg18: EmbeddedPostgres, database_on: Callable[..., Database], *, rows: bool) -> Iterator[Shop]:
    """Databases, and transactions over them. `rows`: in place of messages they name the coordinator's own part."""
    databases = [database_on(pg18) for _ in range(COUNT)]
    for number, database in enumerate(databases):
        first = number * ACCOUNTS
        database.execute("CREATE TABLE accounts (id int PRIMARY KEY, amount int)")
        if rows:
            database.execute(OWN_TABLE)
            database.execute(f"ALTER SEQUENCE global_transactions_no_seq RESTART WITH {1 + 100_000 * number}")
        database.execute(
            f"INSERT INTO accounts SELECT n, 100 FROM generate_series({first}, {first + ACCOUNTS - 1}) AS n"
        )
        if number in SHARED_ON:
            database.execute("CREATE TABLE shared (id int PRIMARY KEY, amount int)")
            first = number * SHARED
            database.execute(
                f"INSERT INTO shared SELECT n, 100 FROM generate_series({first}, {first + SHARED - 1}) AS n"
            )
    nodes = Nodes([Node(database) for database in databases], random.Random(1))
    if rows:
        nodes.named_by = "INSERT INTO global_transactions (gtid) VALUES (%s)"
    try:
        yield databases, nodes
    finally:
        nodes.close()


@pytest.fixture
def replica(shop: Shop, replicate: Callable[..., Replica], order: Order, *, rows: bool) -> Replica:
    databases, _ = shop
    listed = [{"name": f"n{number}", "settings": dict(one.settings)} for number, one in enumerate(databases)]
    own = {"own_table": "public.global_transactions"} if rows else {"own_prefix": OWN}
    capture = CaptureSpec("postgres_logs", {"gid_pattern": "^(?P<gtid>.+)@", "order": order.value, **own})
    source = ConnectionSpec("shop", "partitioned", {"nodes": json.dumps(listed)}, capture=capture)
    batch = BatchPolicy(max_transactions=1)
    tables = [table(name) for name in ("accounts", "shared", *(["global_transactions"] if rows else []))]
    return replicate(databases[0], tables, source=source, batch=batch)


class Sums:
    """Reads the sums of the copy all the time."""

    def __init__(self, replica: Replica) -> None:
        self.seen: list[tuple[object, ...]] = []
        self._replica = replica
        self._stopping = threading.Event()

    @contextmanager
    def read(self) -> Iterator[None]:
        """For the duration of the block, in which the copy runs."""
        self._stopping.clear()
        thread = threading.Thread(target=self._read, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def _read(self) -> None:
        while not self._stopping.is_set():
            self.seen += self._replica.query(SUMS)


def move(shop: Shop, rng: random.Random) -> None:
    """Some transactions, of which some wait for a decision that an earlier one left."""
    databases, nodes = shop
    for _ in range(rng.randint(2, 5)):
        nodes.local()
        if not nodes.left and not nodes.undecided:
            nodes.spread(
                own=rng.random() < 0.5, ends=rng.choice(["commit", "commit", "commit", "roll back", "half", "wait"])
            )
        elif rng.random() < 0.6:
            nodes.decide()
    if not nodes.left and not nodes.undecided:
        move_shared(databases, rng)


def move_shared(databases: list[Database], rng: random.Random) -> None:
    """From an account of a node to the table that is on two nodes."""
    gid = f"shared {rng.random()}"
    node = rng.choice(SHARED_ON)
    parts = {
        1: f"UPDATE accounts SET amount = amount - 9 WHERE id = {ACCOUNTS}",
        node: f"UPDATE shared SET amount = amount + 9 WHERE id = {node * SHARED}",
    }
    for number, statement in parts.items():
        with databases[number].connect() as session:
            for each in ("BEGIN", statement, f"PREPARE TRANSACTION '{gid}@{number}'"):
                session.execute(each.encode())
    for number in rng.sample(list(parts), len(parts)):
        databases[number].execute(f"COMMIT PREPARED '{gid}@{number}'")


@contextmanager
def silent(database: Database) -> Iterator[None]:
    """The log of this node is not sent."""
    with stopped([pid for (pid,) in database.execute(SENDERS)]):
        yield


def move_while_late(shop: Shop, sums: Sums, rng: random.Random) -> None:
    """While the log of a node that has a part is not sent, and until the copy was read a few times more."""
    databases, nodes = shop
    nodes.decide()
    with silent(databases[1]):
        move_shared(databases, rng)
        seen = len(sums.seen)
        wait_until(lambda: len(sums.seen) > seen + 3, 30, "reads of the sums")


def move_by_own_part_while_late(shop: Shop, sums: Sums) -> None:
    """From the coordinator's own part to a node whose log is not sent, twice: the second time its table is announced already."""
    databases, nodes = shop
    nodes.decide()
    for number in range(2):
        gid = f"own {number}"
        with databases[1].connect() as session:
            for each in ("BEGIN", f"UPDATE accounts SET amount = amount + 4 WHERE id = {ACCOUNTS}"):
                session.execute(each.encode())
            session.execute(f"PREPARE TRANSACTION '{gid}@1'".encode())
        with silent(databases[1]):
            with databases[0].connect() as session, session.transaction():
                session.execute("UPDATE accounts SET amount = amount - 4 WHERE id = 0")
                session.execute(nodes.named_by.encode(), [gid])
            seen = len(sums.seen)
            wait_until(lambda seen=seen: len(sums.seen) > seen + 20, 30, "reads of the sums")  # type: ignore[misc]
        databases[1].execute(f"COMMIT PREPARED '{gid}@1'")


def catch_up(replica: Replica) -> None:
    """Asked for again where the log reader has just ended."""

    def is_asked() -> bool:
        try:
            found.append(replica.now())
        except EngineFault as fault:
            if fault.kind is not FaultKind.SOURCE_TIMEOUT:
                raise
        return bool(found)

    found: list[Lsn] = []
    wait_until(is_asked, 30, "a position")
    replica.wait_applied(found[0])


def assert_like_the_nodes(shop: Shop, replica: Replica) -> None:
    databases, nodes = shop
    catch_up(replica)
    copied = dict(replica.query("SELECT id, amount FROM accounts"))
    shared = [row for node in SHARED_ON for row in databases[node].execute("SELECT id, amount FROM shared")]
    undecided = bool(nodes.left)
    assert undecided or copied == nodes.values()
    assert sorted(replica.query("SELECT id, amount FROM shared")) == sorted(shared)


@pytest.mark.parametrize(
    ("order", "faults", "rows"),
    [
        (Order.CAUSAL, ["node", "reader", "engine"], False),
        (Order.STRICT, ["node"], False),
        (Order.CAUSAL, ["reader", "engine"], True),
        (Order.STRICT, ["node"], True),
    ],
    ids=["causal", "strict", "causal-rows", "strict-rows"],
)
def test_transactions_over_nodes_are_whole_at_every_batch(
    shop: Shop, replica: Replica, faults: list[str], *, rows: bool
) -> None:
    databases, nodes = shop
    rng, sums = random.Random(7), Sums(replica)
    assert replica.query(SUMS) == [EXPECTED]
    for ends in (*faults, "nothing"):
        with sums.read():
            for _ in range(2):
                move(shop, rng)
                assert_like_the_nodes(shop, replica)
            move_while_late(shop, sums, rng)
            assert_like_the_nodes(shop, replica)
            move_by_own_part_while_late(shop, sums)
            assert_like_the_nodes(shop, replica)
        if ends == "node":
            assert databases[rng.randrange(COUNT)].execute(CUT)[0][0] > 0
        elif ends == "reader":
            replica.kill_reader()
        elif ends == "engine":
            replica.restart()
            replica.wait_live()
    nodes.decide()
    assert_like_the_nodes(shop, replica)
    replica.assert_equal()
    assert len(sums.seen) > 10
    assert set(sums.seen) == {EXPECTED}
    if rows:
        assert replica.query("SELECT count(*) > 3 FROM global_transactions") == [(True,)]
