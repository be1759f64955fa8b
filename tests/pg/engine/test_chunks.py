"""Large tables that are copied chunk by chunk along their key, under load, and events between the chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from engine.connectors import open_source
from engine.copy.split_task import CopyTask
from engine.model.batch import PlacedMessage
from engine.model.ddl import DdlMessage
from engine.model.subscription import ConnectionSpec
from engine.model.subscription_state import DesiredState
from engine.sources.postgres_log.published_tables import PostgresPublications
from engine.tables.ddl_messages import DdlMessageTracker
from tests.fixtures import replication
from tests.fixtures.local_runner import LocalRunner
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]
CHUNK = 64 * 1024
SMALL = {"copy_stretch_bytes": CHUNK}
ROWS = 6000
SHOP = f"""
CREATE TABLE orders (id bigint PRIMARY KEY, note text);
INSERT INTO orders SELECT i, repeat('o', 50) FROM generate_series(1, {ROWS}) i;
ANALYZE orders;
"""


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class BusyRunner(LocalRunner):
    """Calls `between` after each run of a copy's tasks, to change the source. `read`: the statements of all pieces so far."""

    def __init__(self, tasks: int) -> None:
        super().__init__(tasks)
        self.read: list[str] = []

    between: ClassVar[Callable[[BusyRunner], None]] = staticmethod(lambda _: None)
    made: ClassVar[list[BusyRunner]] = []

    def run(self, function: Callable[[Any], Any], descriptors: Sequence[Any], group: str) -> list[Any]:
        found = super().run(function, descriptors, group)
        if group.startswith("copy-"):
            self.read += [part.split.sql for task in descriptors if isinstance(task, CopyTask) for part in task.parts]
            type(self).between(self)
        return found


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> type[BusyRunner]:
    class Runner(BusyRunner):
        made: ClassVar[list[BusyRunner]] = []

        def __init__(self, tasks: int) -> None:
            super().__init__(tasks)
            type(self).made.append(self)

    monkeypatch.setattr(replication, "LocalRunner", Runner)
    return Runner


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def test_a_table_copied_in_chunks_is_equal(shop: Database, replicate: Replicate, runner: type[BusyRunner]) -> None:
    replica = replicate(shop, [table("orders")], **SMALL)
    replica.assert_equal()
    assert len(runner.made[0].read) >= 5
    assert len(set(runner.made[0].read)) == len(runner.made[0].read)


def test_changes_between_the_chunks_are_in_the_copy(
    shop: Database, replicate: Replicate, runner: type[BusyRunner]
) -> None:
    statements = [
        "UPDATE orders SET note = note || 'u' WHERE id % 7 = 0",
        "DELETE FROM orders WHERE id % 11 = 0",
        "INSERT INTO orders SELECT -i, 'new' FROM generate_series(1, 20) i ON CONFLICT DO NOTHING",
        "UPDATE orders SET id = id + 100000 WHERE id % 13 = 0 AND id < 100000",
        "UPDATE orders SET id = id - 100000 WHERE id % 26 = 4 AND id > 100000",
    ]

    def between(which: BusyRunner) -> None:
        with shop.connect() as connection:
            connection.execute(statements[len(which.read) % len(statements)])

    runner.between = staticmethod(between)  # type: ignore[method-assign, assignment]
    replica = replicate(shop, [table("orders")], **SMALL)
    replica.assert_equal()
    assert len(runner.made[0].read) >= 5


IMAGES = """
CREATE TABLE images (id bigint, note text);
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO images SELECT (o).* FROM unnest(ARRAY[OLD, NEW]) AS o WHERE (o).id IS NOT NULL; RETURN NULL; END $$;
CREATE TRIGGER kept AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION keep();
"""
"""Keeps all rows that there ever were."""


@pytest.mark.parametrize("operations", [("insert",), ("insert", "update"), ("insert", "delete", "truncate")])
@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"])
def test_operations_that_are_not_followed_leave_rows_that_were_there(
    shop: Database, replicate: Replicate, runner: type[BusyRunner], operations: tuple[str, ...], target_kind: str
) -> None:
    """A copy in chunks does not say which rows without delete are kept that were deleted before their chunk; all others are certain."""
    shop.execute(IMAGES + "ALTER TABLE orders REPLICA IDENTITY FULL")
    runner.between = meanwhile(  # type: ignore[assignment]
        shop,
        {
            1: "UPDATE orders SET note = note || 'u' WHERE id % 7 = 0; DELETE FROM orders WHERE id % 11 = 0",
            2: "UPDATE orders SET id = id + 100000 WHERE id % 13 = 0; INSERT INTO orders SELECT -i, 'new' FROM generate_series(1, 20) AS i",
            4: "UPDATE orders SET id = id - 100000 WHERE id % 2 = 0 AND id > 100000; DELETE FROM orders WHERE id % 17 = 0",
            5: "INSERT INTO orders SELECT i, 'back' FROM generate_series(1, 6000) AS i ON CONFLICT DO NOTHING;"
            " DELETE FROM orders WHERE id < 50",
        },
    )
    replica = replicate(shop, [table("orders", operations=frozenset(operations))], **SMALL)
    replica.catch_up()
    assert len(runner.made[0].read) >= 5
    held = {(int(row[0]), str(row[1])) for row in replica.query("SELECT id, note FROM orders")}
    there = {(int(row[0]), str(row[1])) for row in shop.execute("SELECT id, note FROM orders")}
    images = there | {(int(row[0]), str(row[1])) for row in shop.execute("SELECT id, note FROM images")}
    keys, keys_there = {key for key, _ in held}, {key for key, _ in there}
    assert held <= images
    assert len(keys) == len(held)
    if "delete" in operations:
        assert keys == keys_there
    else:
        assert keys > keys_there
    if "update" in operations:
        assert there <= held
    else:
        assert not there <= held


@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"])
def test_columns_that_the_log_does_not_carry_are_in_the_copy(
    shop: Database, replicate: Replicate, runner: type[BusyRunner], target_kind: str
) -> None:
    shop.execute("ALTER TABLE orders ADD COLUMN made text GENERATED ALWAYS AS (note || id) VIRTUAL, ADD COLUMN n int")
    runner.between = meanwhile(  # type: ignore[assignment]
        shop,
        {
            2: "UPDATE orders SET note = note || 'u' WHERE id % 7 = 0; DELETE FROM orders WHERE id % 11 = 0",
            4: "UPDATE orders SET id = id + 100000 WHERE id % 13 = 0; UPDATE orders SET n = id; INSERT INTO orders VALUES (-1, 'x')",
        },
    )
    replica = replicate(shop, [table("orders")], **SMALL)
    replica.assert_equal()
    assert len(runner.made[0].read) >= 5
    assert replica.query("SELECT made, n FROM orders WHERE id IN (-1, 14) ORDER BY id") == [
        ("x-1", None),
        (f"{'o' * 50}u14", 14),
    ]


def meanwhile(shop: Database, statements: dict[int, str]) -> Callable[[BusyRunner], None]:
    """A `between` that executes a statement on the source once this number of pieces was read."""

    def between(which: BusyRunner) -> None:
        if statement := statements.get(len(which.read)):
            shop.execute(statement)

    return staticmethod(between)  # type: ignore[return-value]


SOME = {
    "truncate": "TRUNCATE orders; INSERT INTO orders SELECT i, 'again' FROM generate_series(1, 2000) i",
    "add": "ALTER TABLE orders ADD COLUMN more int DEFAULT 7; UPDATE orders SET more = 8 WHERE id % 2 = 0",
    "add unseen": "ALTER TABLE orders ADD COLUMN more int DEFAULT 7",
    "recreate": "DROP TABLE orders; CREATE TABLE orders (id bigint PRIMARY KEY, other text); INSERT INTO orders VALUES (1, 'x')",
}
MORE = {
    "drop": "ALTER TABLE orders DROP COLUMN note; INSERT INTO orders VALUES (-1)",
    "rename column": "ALTER TABLE orders RENAME COLUMN id TO number; DELETE FROM orders WHERE number < 100",
    "retype": "ALTER TABLE orders ALTER COLUMN id TYPE numeric(20, 0); DELETE FROM orders WHERE id < 100",
    "rewrite": "VACUUM FULL orders",
}


@pytest.mark.parametrize(
    "statement",
    [*SOME.values(), *(pytest.param(more, marks=pytest.mark.chaos) for more in MORE.values())],
    ids=[*SOME, *MORE],
)
def test_what_is_done_to_the_table_in_the_middle(
    shop: Database, replicate: Replicate, runner: type[BusyRunner], statement: str
) -> None:
    runner.between = meanwhile(shop, {4: statement})  # type: ignore[assignment]
    replica = replicate(shop, [table("orders")], **SMALL)
    replica.assert_equal()


TOLD = {
    3: "BEGIN; UPDATE orders SET note = 'before' WHERE id % 5 = 0; ALTER TABLE orders ADD COLUMN more int DEFAULT 7;"
    " UPDATE orders SET more = 8 WHERE id % 3 = 0; COMMIT",
    5: "BEGIN; DELETE FROM orders WHERE id % 7 = 0; ALTER TABLE orders RENAME note TO remark; ALTER TABLE orders ADD COLUMN note text;"
    " INSERT INTO orders VALUES (-1, 'remark', 1, 'note'); ALTER TABLE orders DROP COLUMN more; COMMIT",
    7: "ALTER TABLE orders ADD COLUMN made text GENERATED ALWAYS AS (id::text || coalesce(remark, '')) STORED",
}


def test_changes_that_the_source_tells_by_itself_in_the_middle(
    shop: Database, replicate: Replicate, runner: type[BusyRunner], monkeypatch: pytest.MonkeyPatch, target_kind: str
) -> None:
    told: list[int] = []
    read_message = DdlMessageTracker.read_message

    def noted(book: DdlMessageTracker, placed: PlacedMessage) -> tuple[DdlMessage, bool] | None:
        found = read_message(book, placed)
        if found is not None and found[0].table is not None and replica.states()["orders"] != "live":
            told.append(found[0].table.relation)
        return found

    monkeypatch.setattr(DdlMessageTracker, "read_message", noted)
    with closing(open_source(ConnectionSpec("shop", "postgres", shop.settings))) as source:
        assert source.ddl.install().current
    runner.between = meanwhile(shop, TOLD)  # type: ignore[assignment]
    replica = replicate(shop, [table("orders")], live=False, **SMALL)
    replica.wait_live()
    replica.assert_equal()
    assert len(runner.made[0].read) > max(TOLD)
    # One for each ALTER TABLE, and no others.
    assert told == list(shop.execute("SELECT 'orders'::regclass::oid")[0]) * 5
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'orders' ORDER BY 1"
    assert replica.query(columns) == [("id",), ("made",), ("note",), ("remark",)]


def test_a_table_that_gets_another_name_in_the_middle_goes_on(
    shop: Database, replicate: Replicate, runner: type[BusyRunner]
) -> None:
    statement = "ALTER TABLE orders RENAME TO purchases; DELETE FROM purchases WHERE id < 100"
    runner.between = meanwhile(shop, {4: statement})  # type: ignore[assignment]
    replica = replicate(shop, [table("orders")], live=False, **SMALL)
    replica.wait_live("purchases")
    replica.assert_equal()
    assert len(replica.events_of("table_copied")) == 1


def test_a_paused_copy_waits_and_goes_on_where_it_was(
    shop: Database, replicate: Replicate, runner: type[BusyRunner]
) -> None:
    orders = table("orders")

    def between(which: BusyRunner) -> None:
        if len(which.read) == 3:
            replica.replace(replace(orders, paused=True))

    runner.between = staticmethod(between)  # type: ignore[method-assign, assignment]
    replica = replicate(shop, [orders], live=False, **SMALL)
    replica.reports.wait(lambda _: runner.made and len(runner.made[0].read) == 3, "three reads")
    shop.execute("UPDATE orders SET note = 'meanwhile' WHERE id % 3 = 0")
    replica.catch_up()
    replica.catch_up()
    assert len(runner.made[0].read) == 3
    assert replica.states()["orders"] == "copying"
    replica.replace(orders)
    replica.wait_live()
    replica.assert_equal()
    assert len(set(runner.made[0].read)) == len(runner.made[0].read)


def test_a_copy_does_not_go_on_whose_table_is_unpublished_while_the_next_run_starts(
    shop: Database, replicate: Replicate, runner: type[BusyRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is unpublished between the check whether it is published and the update of the publications."""

    def between(which: BusyRunner) -> None:
        if len(which.read) == 3:
            replica.desire(DesiredState.PAUSED)

    runner.between = staticmethod(between)  # type: ignore[method-assign, assignment]
    replica = replicate(shop, [table("orders")], live=False, **SMALL)
    replica.wait_state("paused")
    real = PostgresPublications.unpublished
    looks: list[str] = []

    def unpublished(source: PostgresPublications, *rest: Any) -> tuple[str, ...]:
        found = real(source, *rest)
        if rest[0] and not looks:
            looks.append(rest[1])
            shop.execute(f'ALTER PUBLICATION "{rest[1]}" DROP TABLE orders')
            shop.execute("UPDATE orders SET note = 'unseen' WHERE id < 50")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(PostgresPublications, "unpublished", unpublished)
        replica.desire(DesiredState.RUNNING)
        assert replica.wait_state("failed").code == "publication_changed"
    assert looks
    replica.pipeline.reload("whole", None)
    replica.wait_state("running")
    replica.wait_live()
    replica.assert_equal()


def test_a_table_that_leaves_in_the_middle_and_comes_back_is_copied_anew(
    shop: Database, replicate: Replicate, runner: type[BusyRunner]
) -> None:
    shop.execute("CREATE TABLE lines (id int PRIMARY KEY); INSERT INTO lines VALUES (1)")
    orders, lines = table("orders"), table("lines")

    def between(which: BusyRunner) -> None:
        if len(which.read) == 4:
            replica.replace(lines)

    runner.between = staticmethod(between)  # type: ignore[method-assign, assignment]
    replica = replicate(shop, [orders, lines], live=False, **SMALL)
    replica.wait_table("orders", "removed")
    replica.wait_live("lines")
    replica.replace(lines, table("orders"))
    replica.wait_live("orders", "lines")
    replica.assert_equal()


def test_a_row_that_cannot_be_completed_begins_the_copy_anew(
    shop: Database, replicate: Replicate, runner: type[BusyRunner]
) -> None:
    shop.execute("ALTER TABLE orders ALTER COLUMN note SET STORAGE EXTERNAL")
    shop.execute("UPDATE orders SET note = repeat('long', 2000) WHERE id = 5990")
    runner.between = meanwhile(shop, {4: "UPDATE orders SET id = 0 WHERE id = 5990"})  # type: ignore[assignment]
    replica = replicate(shop, [table("orders")], **SMALL)
    replica.assert_equal()
    assert len(replica.events_of("copy_begins_anew")) == 1


def test_a_reload_keeps_the_old_rows_until_the_last_chunk(
    shop: Database, replicate: Replicate, runner: type[BusyRunner]
) -> None:
    replica = replicate(shop, [table("orders")], **SMALL)
    counts: list[int] = []

    def between(which: BusyRunner) -> None:
        counts.append(int(replica.query("SELECT count(*) FROM public.orders")[0][0]))
        shop.execute(f"INSERT INTO orders VALUES ({-len(which.read)}, 'new')")

    runner.between = staticmethod(between)  # type: ignore[method-assign, assignment]
    replica.pipeline.reload("r1", [replica.table_id("orders")])
    replica.wait_table("orders", "reloading")
    replica.wait_live()
    replica.assert_equal()
    assert len(counts) >= 5
    assert set(counts) == {ROWS}
