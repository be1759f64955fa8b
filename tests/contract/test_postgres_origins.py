"""What is written to a PostgreSQL target carries a replication origin, where that can be had; where not, it is written all the same."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from engine.model.identity import TableId, TableName
from engine.model.subscription import ConnectionSpec, LanePolicy
from engine.model.target import InOrderPlan
from engine.net.copy_text import decode_copy_text
from engine.targets.postgres.origins import drop_unused, take_origin
from engine.targets.postgres.target import PostgresTarget
from server.demo.embedded import EmbeddedPostgres
from tests.contract.in_order_material import INSERT, Change, write_in_order
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, inserts, structure
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

ORDERS = TableId("t0a")
orders = structure(TableName("public", "orders"), {"id": "int4", "state": "text"}, ["id"])
LANES = InOrderPlan(LanePolicy.PESSIMISTIC, lanes=2)


class Written(NamedTuple):
    """A transaction with inserts, as who follows the log sees it."""

    origin: str | None
    committed: datetime


class Follower:
    """Follows the log of a database from here on; after the test nothing of it is left."""

    def __init__(self, mart: Database) -> None:
        self._mart = mart
        self._slot = f"follower_{mart.name}"
        mart.execute("CREATE PUBLICATION followed FOR ALL TABLES WITH (publish = 'insert')")
        mart.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self._slot])

    def sees(self, origin: str = "any") -> list[Written]:
        records = self._mart.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1', 'publication_names',"
            " 'followed', 'origin', %s)",
            [self._slot, origin],
        )
        seen: list[Written] = []
        for (record,) in records:
            if record[:1] == b"B":
                since_2000_us = struct.unpack(">q", record[9:17])[0]
                seen.append(Written(None, datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=since_2000_us)))
            elif record[:1] == b"O":
                seen[-1] = seen[-1]._replace(origin=record[9:-1].decode())
        return seen


@pytest.fixture
def opened() -> Iterator[Callable[..., PostgresTarget]]:
    made: list[PostgresTarget] = []

    def open_one(mart: Database, **settings: Any) -> PostgresTarget:
        spec = ConnectionSpec("mart", "postgres", {**mart.settings, **settings})
        made.append(PostgresTarget(spec, decode_copy_text))
        return made[-1]

    yield open_one
    for target in made:
        target.close()


def added(at: int) -> Any:
    return changes(ORDERS, insert=inserts(orders, [(at, "new")]))


def names(mart: Database) -> set[str]:
    return {row[0] for row in mart.execute("SELECT roname FROM pg_replication_origin")}


@pytest.mark.parametrize("pg", [16, 18], indirect=True)
def test_copies_batches_and_lanes_write_with_an_origin_and_their_own_commit_times(
    pg: EmbeddedPostgres,
    database_on: Callable[[EmbeddedPostgres], Database],
    opened: Callable[..., PostgresTarget],
) -> None:
    mart = database_on(pg)
    began = mart.execute("SELECT clock_timestamp()")[0][0]
    follower = Follower(mart)
    pipeline = Pipeline(opened(mart)).claim()
    pipeline.load(ORDERS, orders, [(1, "new"), (2, "new")])
    pipeline.change(ORDERS, orders, added(3))
    write_in_order(pipeline, {ORDERS: orders}, [[Change(ORDERS, INSERT, row=(n, "new"))] for n in range(4, 10)], LANES)
    ours = follower.sees()
    mart.execute("INSERT INTO orders VALUES (10, 'mine')")
    (mine,) = follower.sees("none")
    assert mine.origin is None
    assert follower.sees() == [*ours, mine]
    assert len(ours) >= 8
    assert len({written.origin for written in ours} - {None}) == 4, "the writer, who loads copies, and two lanes"
    assert None not in {written.origin for written in ours}
    times = [began, *(written.committed for written in ours), mine.committed]
    assert times == sorted(set(times)), "each is later than the one before"


def test_a_user_without_the_right_writes_without_an_origin_until_it_is_granted(
    database: Database, opened: Callable[..., PostgresTarget]
) -> None:
    role = f"writer_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN CREATEROLE")
    database.execute(f"GRANT CREATE ON DATABASE {database.name} TO {role}; GRANT CREATE ON SCHEMA public TO {role}")
    follower = Follower(database)
    try:
        target = opened(database, user=role)
        (finding,) = target.check([orders.name])
        pipeline = Pipeline(target).claim()
        pipeline.load(ORDERS, orders, [(1, "new")])
        unmarked = follower.sees()
        target.close()
        database.execute(finding[3].removesuffix(", in this database"))
        assert target.check([]) == []
        pipeline.change(ORDERS, orders, added(2))
        marked = follower.sees()[len(unmarked) :]
        target.close()
    finally:
        database.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")
    assert finding[:2] == ("info", "origin_not_permitted")
    assert {written.origin for written in unmarked} == {None}
    assert len(marked) == 1
    assert marked[0].origin is not None


def test_where_origins_are_used_up_replication_goes_on_and_others_have_room(
    database: Database, opened: Callable[..., PostgresTarget]
) -> None:
    follower = Follower(database)
    with ExitStack() as stack:
        while take_origin(stack.enter_context(database.connect())) is not None:
            pass
        most = int(database.execute("SELECT current_setting('max_active_replication_origins')")[0][0])
        room = most - len(names(database))
        target = opened(database)
        (finding,) = (found for found in target.check([]) if found[1] != "target_superuser")
        pipeline = Pipeline(target).claim()
        pipeline.load(ORDERS, orders, [(1, "new")])
        assert pipeline.rows(orders) == [(1, "new")]
        target.close()
    assert finding[:2] == ("warning", "origins_used_up")
    assert room >= most // 3
    assert {written.origin for written in follower.sees()} == {None}


def test_a_subscription_that_is_forgotten_takes_its_origins_along(
    database: Database, opened: Callable[..., PostgresTarget]
) -> None:
    with database.connect() as other:
        drop_unused(other)
        held = take_origin(other)
        before = names(database)
        pipeline = Pipeline(opened(database)).claim()
        pipeline.load(ORDERS, orders, [(1, "new")])
        assert len(names(database) - before) == 2
        pipeline.target.forget(SUBSCRIPTION)
        assert names(database) == before
        assert held in before
