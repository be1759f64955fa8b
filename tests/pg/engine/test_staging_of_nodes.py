"""Staging tables of several nodes: each transaction once, global ones with id and type; an applier rebuilds the tables."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.model.subscription import BatchPolicy, CaptureSpec, ConnectionSpec, QueueMode
from engine.platform.failpoints import Failpoint
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import subscription_spec, table
from tests.fixtures.staging_applier import StagingApplier
from tests.pg.bad_days.conftest import BadDay, Circumstances
from tests.pg.engine.killed_engines import arm, engine, wait_for
from tests.pg.engine.test_staging_tables import Target, applier_of, target

__all__ = ["target"]

pytestmark = pytest.mark.pg

COUNT = 3
OWN = "shop.gtid"
KEYS = {"accounts": ["id"], "marks": ["node", "n"], "drafts": ["id"]}
TABLES = [table(name, staging=True) for name in KEYS]
SCHEMA = """
CREATE TABLE accounts (id int PRIMARY KEY, amount int, big text);
CREATE TABLE marks (node int, n bigserial, xid bigint, gtid text, PRIMARY KEY (node, n));
INSERT INTO accounts SELECT {node} * 100 + i, 100, (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 300) AS j)
  FROM generate_series(1, 10) AS i;
"""
DRAFTS = "CREATE TABLE drafts (id int PRIMARY KEY, body text); INSERT INTO drafts SELECT i, 'draft' FROM generate_series(1, 9) AS i"
"""Of the first node only."""
LOCAL_MARK = "INSERT INTO marks (node, xid) SELECT {node}, pg_current_xact_id()::text::bigint"


class Shop:
    """Databases, and what was committed on them: local transactions by (node, id), global ones by id with their type."""

    def __init__(self, databases: Sequence[Database], seed: int) -> None:
        self.databases = databases
        self.rng = random.Random(seed)
        self.globals: dict[str, str | None] = {}
        self._count = 0

    def change(self, count: int) -> None:
        for _ in range(count):
            if self.rng.random() < 0.5:
                self._local()
            else:
                self._spread()

    def _local(self) -> None:
        node = self.rng.randrange(COUNT)
        with self.databases[node].connect() as session:
            session.execute("BEGIN")
            session.execute(LOCAL_MARK.format(node=node).encode())
            for statement in self._statements(node):
                session.execute(statement.encode())
            if node == 0 and self.rng.random() < 0.3:
                session.execute("TRUNCATE drafts")
            if node == 0:
                session.execute(
                    "INSERT INTO drafts SELECT n, 'new' FROM generate_series(1, 5) AS n ON CONFLICT DO NOTHING"
                )
            session.execute("ROLLBACK" if self.rng.random() < 0.1 else "COMMIT")

    def _spread(self) -> None:
        """A global transaction. The first node may be the coordinator, whose part is an ordinary one."""
        members = self.rng.sample(range(COUNT), self.rng.randint(1, COUNT))
        own, committed = self.rng.random() < 0.4, self.rng.random() < 0.8
        self._count += 1
        gtid = f"order-{self._count}"
        with ExitStack() as opened:
            sessions = {node: opened.enter_context(self.databases[node].connect()) for node in members}
            for node, session in sessions.items():
                session.execute("BEGIN")
                session.execute("INSERT INTO marks (node, gtid) VALUES (%s, %s)", [node, gtid])
                for statement in self._statements(node):
                    session.execute(statement.encode())
            prepared = members[1:] if own else members
            for node in prepared:
                sessions[node].execute(f"PREPARE TRANSACTION '{gtid}@{node}'".encode())
            if own:
                if committed:
                    sessions[members[0]].execute("SELECT pg_logical_emit_message(true, %s, %s)", [OWN, gtid])
                sessions[members[0]].execute("COMMIT" if committed else "ROLLBACK")
            for node in self.rng.sample(prepared, len(prepared)):
                sessions[node].execute(f"{'COMMIT' if committed else 'ROLLBACK'} PREPARED '{gtid}@{node}'".encode())
        if committed:
            self.globals[gtid] = "global 1" if len(members) > 1 else None if own else "global 2"

    def _statements(self, node: int) -> list[str]:
        key = node * 100 + self.rng.randrange(1, 11)
        choices = [
            f"UPDATE accounts SET amount = amount + 1 WHERE id = {key}",
            f"DELETE FROM accounts WHERE id = {key}",
            f"INSERT INTO accounts VALUES ({key}, 0, 'short') ON CONFLICT (id) DO UPDATE SET amount = -1",
            f"UPDATE accounts SET id = {key} + 50 WHERE id = {key} AND NOT EXISTS (SELECT FROM accounts WHERE id = {key} + 50)",
        ]
        return self.rng.choices(choices, k=self.rng.randint(1, 4))


@pytest.fixture
def shop(pg18: EmbeddedPostgres, database_on: Callable[..., Database]) -> Shop:
    databases = [database_on(pg18) for _ in range(COUNT)]
    for node, database in enumerate(databases):
        database.execute(SCHEMA.format(node=node))
    databases[0].execute(DRAFTS)
    return Shop(databases, 11)


@pytest.fixture
def replica(shop: Shop, target: Target, tmp_path: Path) -> Iterator[BadDay]:
    listed = [{"name": f"n{number}", "settings": dict(one.settings)} for number, one in enumerate(shop.databases)]
    capture = CaptureSpec("postgres_logs", {"gid_pattern": "^(?P<gtid>.+)@", "own_prefix": OWN})
    source = ConnectionSpec("shop", "partitioned", {"nodes": json.dumps(listed)}, capture=capture)
    spec = subscription_spec(shop.databases[0], target[0], TABLES, source=source, batch=BatchPolicy(max_transactions=5))
    found = BadDay(shop.databases[0], tmp_path, [], Circumstances(spec=spec))
    try:
        found.wait_live(timeout_s=60)
        yield found
    finally:
        found.release()


def assert_each_once(applier: StagingApplier, shop: Shop) -> None:
    marks = [row for database in shop.databases for row in database.execute("SELECT xid, gtid FROM marks")]
    expected: Counter[tuple[object, ...]] = Counter((xid, None, "local") for xid, gtid in marks if gtid is None)
    expected.update((None, gtid, kind) for gtid, kind in shop.globals.items() if kind is not None)
    with applier.session() as run:
        found = run('SELECT "transaction", gtid, type FROM applied.units')
    alone = sum(kind is None for kind in shop.globals.values())
    different = Counter(found) - expected
    assert not expected - Counter(found)
    # A coordinator without others is local; which id it had on its node was not noted.
    assert sum(different.values()) == alone
    assert all(kind == "local" and gtid is None and xid for xid, gtid, kind in different)


def assert_rebuilt(applier: StagingApplier, shop: Shop) -> None:
    for name in KEYS:
        on_target = Counter(applier.rows(name, applied=False))
        having = shop.databases[:1] if name == "drafts" else shop.databases
        assert Counter(applier.rows(name, applied=True)) == on_target, name
        assert Counter(row for one in having for row in one.execute(f"SELECT * FROM {name}")) == on_target, name


def test_tables_of_nodes_are_rebuilt(shop: Shop, replica: BadDay, target: Target, armed: Path) -> None:
    applier = applier_of(replica, target, KEYS)
    shop.change(20)
    replica.catch_up(60)
    replica.close()
    applier.apply(3)
    for point in (Failpoint.COMMIT_BEFORE, Failpoint.COMMIT_AFTER):
        with engine(replica, QueueMode.PERSIST, armed) as process:
            wait_for(process, "accounts live")
            arm(armed, point, 2)
            shop.change(25)
            process.wait(60.0)
        applier.apply(2)
    replica.again()
    shop.change(20)
    replica.wait_live(timeout_s=60)
    replica.catch_up(60)
    replica.assert_equal()
    replica.close()
    applier.apply(4)
    assert_rebuilt(applier, shop)
    assert_each_once(applier, shop)
    assert {"global 1", "global 2", None} <= set(shop.globals.values())
