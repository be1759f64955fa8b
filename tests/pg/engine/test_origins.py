"""Two databases that replicate one table to each other, and one that follows the second: what goes round and what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.model.fault import FaultKind
from engine.model.position import Lsn
from engine.model.subscription import ConnectionSpec, OriginFilter
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

STREAMED_ROWS = 3000
"""Of one transaction, which is then larger than what the source may hold of it."""


def test_a_change_goes_over_once_and_back_never(
    pg18: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database], replicate: Callable[..., Replica]
) -> None:
    first, second = database_on(pg18), database_on(pg18)
    for one in (first, second):
        one.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
        one.execute(f"ALTER DATABASE {one.name} SET logical_decoding_work_mem = '64kB'")

    def direction(source: Database, target: Database) -> Replica:
        end = ConnectionSpec(target.name, "postgres", target.settings)
        tables = [table("items", into_existing=True)]
        return replicate(source, tables, origin=OriginFilter.NONE, target=end, live=False)

    over, back = direction(first, second), direction(second, first)
    everything = replicate(second, [table("items")], live=False)
    for replica in (over, back, everything):
        replica.wait_live()

    first.execute("INSERT INTO items VALUES (1, 'new'), (2, 'first')")
    over.catch_up()
    first.execute("UPDATE items SET note = 'first' WHERE id = 1")
    first.execute("INSERT INTO items SELECT n, repeat('x', 40) FROM generate_series(11, %s) n", [10 + STREAMED_ROWS])
    over.catch_up()
    written = first.execute("SELECT id, xmin FROM items ORDER BY id")
    # No record of ours follows: only the position shows that the omitted changes were passed.
    back.wait_applied(Lsn.parse(second.execute("SELECT pg_current_wal_flush_lsn()::text")[0][0]))
    second.execute("INSERT INTO items VALUES (3, 'new'); UPDATE items SET note = 'second' WHERE id = 2")
    second.execute("UPDATE items SET note = 'second' WHERE id = 3")
    for replica in (everything, back, over):
        replica.catch_up()
    rows = [(1, "first"), (2, "second"), (3, "second")]
    few = "SELECT id, note FROM items WHERE id < 11 ORDER BY id"
    assert first.execute(few) == second.execute(few) == everything.query(few) == rows
    count = "SELECT count(*) FROM items"
    assert first.execute(count) == second.execute(count) == everything.query(count) == [(3 + STREAMED_ROWS,)]
    assert {(id_, xmin) for id_, xmin in written if id_ != 2} <= set(first.execute("SELECT id, xmin FROM items"))
    assert [replica.states()["items"] for replica in (over, back, everything)] == ["live"] * 3


@pytest.mark.pg15
def test_a_source_that_cannot_tell_origins_apart_is_refused(
    pg15: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database], replicate: Callable[..., Replica]
) -> None:
    source = database_on(pg15)
    source.execute("CREATE TABLE items (id int PRIMARY KEY)")
    replica = replicate(source, [table("items")], origin=OriginFilter.NONE, live=False)
    failed = replica.wait_state("failed")
    assert failed.code == FaultKind.ORIGIN_UNSUPPORTED.value
    assert "any" in (failed.remedy or "")
    assert source.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]
