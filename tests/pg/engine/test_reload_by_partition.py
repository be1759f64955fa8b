"""Reloads of partitions of a live table: only these are read, readers see old rows until the swap, and the table ends equal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from engine.control.partitions import listed_partitions
from engine.copy.reload_requests import PartitionChoice
from engine.copy.split_task import CopyTask
from engine.link.messages import EventReport, ReloadReport
from engine.model.partitions import LoadReason, Loads, generation_of
from engine.model.subscription import ApplyMode, ApplyPolicy
from engine.platform import failpoints
from engine.platform.failpoints import Failpoint
from tests.fixtures import replication
from tests.fixtures.local_runner import LocalRunner
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]
SALES = """
CREATE TABLE sales (id int, day date NOT NULL, note text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE sales_may PARTITION OF sales FOR VALUES FROM ('2024-05-01') TO ('2024-06-01');
CREATE TABLE sales_june PARTITION OF sales FOR VALUES FROM ('2024-06-01') TO ('2024-07-01') PARTITION BY LIST (id);
CREATE TABLE sales_june_few PARTITION OF sales_june FOR VALUES IN (1, 2, 3);
CREATE TABLE sales_june_more PARTITION OF sales_june DEFAULT;
CREATE TABLE sales_rest PARTITION OF sales DEFAULT;
ALTER TABLE sales_may ALTER note SET STORAGE EXTERNAL;
INSERT INTO sales SELECT i, date '2024-05-01' + i % 90, 'note ' || i FROM generate_series(1, 300) i;
INSERT INTO sales VALUES (1, '2024-06-30', 'few'), (1000, '2024-05-09', repeat('long', 3000));
"""
LOG = """
CREATE TABLE log (kind text, note text) PARTITION BY LIST (kind);
CREATE TABLE log_a PARTITION OF log FOR VALUES IN ('a', NULL);
CREATE TABLE log_b PARTITION OF log FOR VALUES IN ('b''s', 'c');
ALTER TABLE log REPLICA IDENTITY FULL; ALTER TABLE log_a REPLICA IDENTITY FULL; ALTER TABLE log_b REPLICA IDENTITY FULL;
INSERT INTO log SELECT CASE i % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b''s' END, 'n' || i / 9 FROM generate_series(1, 60) i;
"""


BOTH = pytest.mark.parametrize("target_kind", ["duckdb", "postgres"])


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class WatchedRunner(LocalRunner):
    """Records what copies read, and calls `behind` after each of their runs."""

    read: ClassVar[set[str]] = set()
    behind: ClassVar[Callable[[], None]] = staticmethod(lambda: None)

    def run(self, function: Callable[[Any], Any], descriptors: Sequence[Any], group: str) -> list[Any]:
        found = super().run(function, descriptors, group)
        for task in descriptors:
            if isinstance(task, CopyTask):
                type(self).read |= {part.split.reads.name for part in task.parts if part.split.reads}
                type(self).behind()
        return found


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> type[WatchedRunner]:
    class Runner(WatchedRunner):
        read: ClassVar[set[str]] = set()

    monkeypatch.setattr(replication, "LocalRunner", Runner)
    return Runner


def spoil(replica: Replica, *statements: str) -> None:
    """Change the target's rows without the engine's knowledge."""
    target: Any = replica.pipeline.target
    if replica.spec.target.kind == "duckdb":
        with target.writing():
            for statement in statements:
                target._open().writer.execute(statement)
        return
    with target._writer.transaction() as connection:
        for statement in statements:
            connection.execute(statement)


def reload(replica: Replica, request: str, name: str, *partitions: str) -> None:
    """Ask for these partitions; for those that differ where none is named."""
    choice = PartitionChoice(partitions or None)
    replica.pipeline.reload(request, [replica.table_id(name)], choice)


def succeeded(replica: Replica, request: str) -> dict[str, tuple[str, int]]:
    report = replica.wait_reload(request)
    assert report.state == "succeeded", report
    return {part.name: (part.reason.value, part.generation) for part in report.partitions or ()}


def refused(replica: Replica, request: str) -> tuple[str, str]:
    report = replica.wait_reload(request)
    assert report.problem is not None, report
    return report.problem.code, report.problem.detail


def loads(replica: Replica, name: str) -> Loads:
    target = replica.pipeline.target
    assert target is not None
    progress = target.progress(replica.spec.name)
    assert progress is not None
    return progress.loads.get(replica.table_id(name), {})


def notes(replica: Replica, where: str) -> set[str]:
    return {row[0] for row in replica.query(f"SELECT note FROM sales WHERE {where}")}


@BOTH
def test_only_the_named_partition_is_read_and_replaced_while_rows_move(
    database: Database, replicate: Replicate, runner: type[WatchedRunner]
) -> None:
    database.execute(SALES)
    replica = replicate(database, [table("sales")])
    spoil(
        replica,
        "UPDATE public.sales SET note = 'wrong' WHERE day < '2024-06-01' AND id < 1000",
        "DELETE FROM public.sales WHERE day < '2024-06-01' AND id > 80 AND id < 1000",
        "INSERT INTO public.sales VALUES (7777, '2024-05-05', 'never there')",
    )
    runner.read.clear()

    def changes() -> None:
        runner.behind = staticmethod(lambda: None)
        assert notes(replica, "day < '2024-06-01' AND id < 20") == {"wrong"}
        database.execute("UPDATE sales SET day = '2024-05-31', note = 'moved in' WHERE id IN (31, 60)")
        database.execute("UPDATE sales SET day = '2024-08-01', note = 'moved out' WHERE id = 2")
        database.execute("UPDATE sales SET id = 1001 WHERE id = 1000")
        database.execute("UPDATE sales SET note = 'changed' WHERE id = 3; DELETE FROM sales WHERE id = 4")
        database.execute("INSERT INTO sales VALUES (2000, '2024-05-07', 'new'), (2001, '2025-01-01', 'new')")
        database.execute("UPDATE sales SET id = id + 5000 WHERE id IN (6, 7)")
        replica.catch_up()
        assert notes(replica, "id = 4") == set()

    runner.behind = staticmethod(changes)
    reload(replica, "r1", "sales", "public.sales_may")
    assert succeeded(replica, "r1") == {"public.sales_may": ("asked", 2)}
    assert runner.read == {"sales_may"}
    replica.assert_equal()
    assert notes(replica, "id = 2000") == {"new"}
    known = loads(replica, "sales")
    assert generation_of(known, "public.sales_may") == 2
    assert generation_of(known, "public.sales_rest") == 1


def test_rows_of_other_partitions_are_left_as_they_are(
    database: Database, replicate: Replicate, runner: type[WatchedRunner]
) -> None:
    database.execute(SALES)
    replica = replicate(database, [table("sales")])
    spoil(replica, "UPDATE public.sales SET note = 'spoilt'")
    runner.read.clear()
    reload(replica, "r1", "sales", "public.sales_june", "public.sales_rest")
    few, more = "public.sales_june_few", "public.sales_june_more"
    loaded = dict.fromkeys(("public.sales_june", few, more, "public.sales_rest"), ("asked", 2))
    assert succeeded(replica, "r1") == loaded
    assert runner.read == {"sales_june_few", "sales_june_more", "sales_rest"}
    assert notes(replica, "day < '2024-06-01'") == {"spoilt"}
    assert "spoilt" not in notes(replica, "day >= '2024-06-01'")
    reload(replica, "r2", "sales", "public.sales_june_few")
    assert succeeded(replica, "r2") == {few: ("asked", 3)}
    reload(replica, "r3", "sales", few)
    assert succeeded(replica, "r3") == {few: ("asked", 4)}


def test_those_that_differ_are_found_and_loaded(
    database: Database, replicate: Replicate, runner: type[WatchedRunner]
) -> None:
    database.execute(SALES + LOG)
    replica = replicate(database, [table("sales"), table("log")])
    spoil(
        replica,
        "UPDATE public.sales SET note = 'wrong' WHERE day = '2024-06-30' AND id = 1",
        "DELETE FROM public.sales WHERE day > '2024-07-15'",
        "UPDATE public.log SET note = 'wrong' WHERE kind IS NULL",
    )
    runner.read.clear()
    reload(replica, "r1", "sales")
    assert succeeded(replica, "r1") == {"public.sales_june_few": ("changed", 2), "public.sales_rest": ("changed", 2)}
    reload(replica, "r2", "log")
    assert succeeded(replica, "r2") == {"public.log_a": ("changed", 2)}
    assert runner.read == {"sales_june_few", "sales_rest", "log_a"}
    replica.assert_equal()
    reload(replica, "r3", "log")
    assert succeeded(replica, "r3") == {}


@BOTH
def test_a_table_without_a_key_by_whole_rows(
    database: Database, replicate: Replicate, runner: type[WatchedRunner]
) -> None:
    database.execute(LOG)
    replica = replicate(database, [table("log")])
    spoil(replica, "INSERT INTO public.log VALUES ('a', 'too many'), (NULL, 'too many')")

    def changes() -> None:
        runner.behind = staticmethod(lambda: None)
        database.execute("DELETE FROM log WHERE note = 'n1'; UPDATE log SET kind = 'c' WHERE note = 'n2'")
        database.execute(
            "UPDATE log SET kind = NULL WHERE note = 'n3'; INSERT INTO log VALUES ('a', 'n3'), ('c', 'n4')"
        )

    runner.behind = staticmethod(changes)
    reload(replica, "r1", "log", "public.log_a")
    assert succeeded(replica, "r1") == {"public.log_a": ("asked", 2)}
    replica.assert_equal()


def test_where_bounds_mean_nothing_elsewhere_the_whole_table_is_copied(
    database: Database, replicate: Replicate
) -> None:
    database.execute("CREATE TABLE hashed (id int PRIMARY KEY, note text) PARTITION BY HASH (id)")
    database.execute("CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 0)")
    database.execute("CREATE TABLE hashed_1 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 1)")
    database.execute("CREATE TABLE plain (id int PRIMARY KEY)")
    database.execute("INSERT INTO hashed SELECT i FROM generate_series(1, 50) i")
    replica = replicate(database, [table("hashed"), table("plain")])
    spoil(replica, "UPDATE public.hashed SET note = 'wrong'")
    reload(replica, "named", "hashed", "public.hashed_0")
    assert refused(replica, "named") == (
        "partition_not_comparable",
        "which rows are in public.hashed_0 cannot be determined on the target: public.hashed is partitioned by hash",
    )
    reload(replica, "typo", "hashed", "public.hashed_2")
    code, detail = refused(replica, "typo")
    assert code == "partition_unknown"
    assert "public.hashed_0, public.hashed_1" in detail
    reload(replica, "plain", "plain", "public.plain_1")
    assert refused(replica, "plain")[0] == "partition_unknown"
    reload(replica, "differing", "hashed")
    assert succeeded(replica, "differing") == {"public.hashed_0": ("unknown", 2), "public.hashed_1": ("unknown", 2)}
    replica.assert_equal()
    assert generation_of(loads(replica, "hashed"), "public.hashed_0") == 2


def test_after_a_new_start_it_begins_again_and_what_is_done_is_not_repeated(
    database: Database, replicate: Replicate, runner: type[WatchedRunner]
) -> None:
    database.execute(SALES)
    replica = replicate(database, [table("sales")])
    spoil(replica, "UPDATE public.sales SET note = 'wrong' WHERE day < '2024-06-01'")
    runner.read.clear()

    def dies() -> None:
        runner.behind = staticmethod(lambda: None)
        database.execute("UPDATE sales SET note = 'meanwhile' WHERE id = 5; DELETE FROM sales WHERE id = 8")
        run = replica.pipeline.run
        assert run is not None
        run.stop()

    runner.behind = staticmethod(dies)
    reload(replica, "r1", "sales", "public.sales_may")
    replica.reports.wait(lambda _: replica.pipeline.run is None, "the end of the run")
    replica.restart()
    replica.wait_live()
    assert "wrong" in notes(replica, "day < '2024-06-01'")
    reload(replica, "r1", "sales", "public.sales_may")
    assert succeeded(replica, "r1") == {"public.sales_may": ("asked", 2)}
    replica.assert_equal()
    # No server received the report of the end, and so it sends the request again.
    runner.read.clear()
    replica.restart()
    replica.wait_live()
    count = len(replica.reports.all())
    reload(replica, "r1", "sales", "public.sales_may")
    replica.reports.wait(
        lambda reports: any(isinstance(r, ReloadReport) and r.state == "succeeded" for r in reports[count:]), "its end"
    )
    assert runner.read == set()
    assert generation_of(loads(replica, "sales"), "public.sales_may") == 2


@contextmanager
def armed(point: Failpoint) -> Iterator[None]:
    failpoints.arm(f"{point.value}=raise")
    try:
        yield
    except AssertionError as error:
        running = [thread.name for thread in threading.enumerate()]
        error.add_note(f"not reached yet: {list(failpoints._armed)}; threads: {running}")
        raise
    finally:
        failpoints._armed.clear()


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(Failpoint.PARTITIONS_READ, marks=pytest.mark.chaos),
        pytest.param(Failpoint.COMMIT_BEFORE, marks=pytest.mark.chaos),
        Failpoint.COMMIT_AFTER,
    ],
)
def test_whatever_ends_the_run_the_next_one_goes_on(database: Database, replicate: Replicate, point: Failpoint) -> None:
    database.execute(SALES)
    replica = replicate(database, [table("sales")])
    spoil(replica, "UPDATE public.sales SET note = 'wrong' WHERE day < '2024-06-01'")
    with armed(point):
        reload(replica, "r1", "sales", "public.sales_may")
        assert succeeded(replica, "r1") == {"public.sales_may": ("asked", 2)}
        replica.reports.wait(
            lambda reports: [r for r in reports if isinstance(r, EventReport) and r.code == "internal"], "the run's end"
        )
    replica.assert_equal()


def test_a_change_of_structure_on_the_way_has_it_read_again(
    database: Database, replicate: Replicate, runner: type[WatchedRunner]
) -> None:
    database.execute(SALES)
    replica = replicate(database, [table("sales")])
    spoil(replica, "UPDATE public.sales SET note = 'wrong' WHERE day < '2024-06-01'")

    def changes() -> None:
        runner.behind = staticmethod(lambda: None)
        database.execute("ALTER TABLE sales ADD COLUMN more int; INSERT INTO sales VALUES (3000, '2024-05-02', 'x', 7)")

    runner.behind = staticmethod(changes)
    reload(replica, "r1", "sales", "public.sales_may")
    assert succeeded(replica, "r1") == {"public.sales_may": ("asked", 2)}
    replica.assert_equal()
    assert replica.query("SELECT more FROM sales WHERE id = 3000") == [(7,)]


def test_a_truncate_on_the_way_counts(database: Database, replicate: Replicate, runner: type[WatchedRunner]) -> None:
    database.execute(SALES)
    replica = replicate(database, [table("sales")])

    def changes() -> None:
        runner.behind = staticmethod(lambda: None)
        database.execute("TRUNCATE sales")
        database.execute("INSERT INTO sales VALUES (1, '2024-05-02', 'first'), (1, '2024-06-02', 'first')")

    runner.behind = staticmethod(changes)
    reload(replica, "r1", "sales", "public.sales_may")
    replica.wait_reload("r1")
    replica.wait_live("sales")
    replica.assert_equal()


def test_cancelled_it_leaves_the_table_as_it_was(
    database: Database, replicate: Replicate, runner: type[WatchedRunner]
) -> None:
    database.execute(SALES)
    replica = replicate(database, [table("sales")])
    spoil(replica, "UPDATE public.sales SET note = 'wrong' WHERE day < '2024-06-01'")

    def cancel() -> None:
        runner.behind = staticmethod(lambda: None)
        replica.pipeline.cancel_reload("r1")

    runner.behind = staticmethod(cancel)
    reload(replica, "r1", "sales", "public.sales_may")
    replica.reports.wait(lambda _: not replica.pipeline._reloads.wanted and not _loading(replica), "the cancel")
    database.execute("INSERT INTO sales VALUES (3000, '2024-05-02', 'x')")
    replica.catch_up()
    assert notes(replica, "day < '2024-06-01'") == {"wrong", "x"}
    assert generation_of(loads(replica, "sales"), "public.sales_may") == 1


def _loading(replica: Replica) -> bool:
    return any(entry.reload is not None for entry in replica.pipeline.book.all())


def test_partitions_are_listed_with_bounds_and_loads(database: Database, replicate: Replicate) -> None:
    database.execute(SALES)
    replica = replicate(database, [table("sales")])
    reload(replica, "r1", "sales", "public.sales_june_few")
    succeeded(replica, "r1")
    listed = {part.name: part for part in listed_partitions(replica.pipeline, replica.table_id("sales")).partitions}
    assert list(listed) == [f"public.sales_{name}" for name in ("june", "june_few", "june_more", "may", "rest")]
    few = listed["public.sales_june_few"]
    assert (few.parent, few.leaf, few.bound) == ("public.sales_june", True, "FOR VALUES IN (1, 2, 3)")
    assert (few.generation, few.reason, few.obstacle) == (2, LoadReason.ASKED, None)
    may = listed["public.sales_may"]
    assert (may.generation, may.reason) == (1, LoadReason.COPIED)
    assert may.position is not None
    assert may.position < (few.position or may.position)
    assert (may.loaded_us or 0) <= (few.loaded_us or 0)


@pytest.mark.parametrize("target_kind", ["postgres"])
def test_source_transactions_that_are_kept_apart_go_on_beside_it(
    database: Database, replicate: Replicate, runner: type[WatchedRunner]
) -> None:
    database.execute(SALES)
    replica = replicate(database, [table("sales")], apply=ApplyPolicy(mode=ApplyMode.TRANSACTIONAL))
    spoil(replica, "UPDATE public.sales SET note = 'wrong' WHERE day < '2024-06-01'")

    def changes() -> None:
        runner.behind = staticmethod(lambda: None)
        for number in range(20):
            database.execute("UPDATE sales SET note = note || 'x' WHERE id = %s", [number])
            database.execute("INSERT INTO sales VALUES (%s, '2024-05-20', 'new')", [4000 + number])

    runner.behind = staticmethod(changes)
    reload(replica, "r1", "sales", "public.sales_may")
    assert succeeded(replica, "r1") == {"public.sales_may": ("asked", 2)}
    replica.assert_equal()
