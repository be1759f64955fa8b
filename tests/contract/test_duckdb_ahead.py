"""Rows inserted into the target before their commit: invisible until then, and rolled back in any doubt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from engine.model.batch import StagedRows
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.target import BatchCommit, LogStart, SpeculativeTransaction, TableCommit
from engine.targets.duckdb import speculative_insert
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, inserts, keys, structure

T, OTHER = TableId("t0a"), TableId("t0b")
pairs = structure(TableName("public", "pairs"), {"id": "int4", "word": "text"}, ["id"])
twins = structure(TableName("public", "twins"), {"id": "int4", "word": "text"}, ["id"])
MANY = 130_000
"""Enough for DuckDB to write most of it to the file before the commit."""


@pytest.fixture
def target(tmp_path: Path) -> Iterator[DuckDbTarget]:
    made = DuckDbTarget(tmp_path / "mart.duckdb")
    yield made
    made.close()


@pytest.fixture
def pipeline(target: DuckDbTarget) -> Pipeline:
    pipeline = Pipeline(target).claim()
    pipeline.load(T, pairs, [(-1, "old")])
    pipeline.load(OTHER, twins, [])
    return pipeline


def commit_of(first: int, count: int, table: TableId = T, schema: TableSchema = pairs) -> TableCommit:
    rows = [(i, f"word {i}") for i in range(first, first + count)]
    return TableCommit(table, schema, schema.name, (changes(table, insert=inserts(schema, rows)),))


def begun(pipeline: Pipeline, count: int = 10) -> SpeculativeTransaction:
    """Rows 0 … count - 1 are in."""
    rows = pipeline.target.begin_speculative_insert(pipeline.subscription)
    assert rows is not None
    assert rows.insert(commit_of(0, count))
    return rows


def batch(pipeline: Pipeline, *tables: TableCommit) -> BatchCommit:
    return BatchCommit(
        pipeline.subscription, pipeline.epoch, BatchId(pipeline.batch + 1), Lsn(pipeline.end + 100), tables
    )


def nothing_more(table: TableId = T, schema: TableSchema = pairs) -> TableCommit:
    return TableCommit(table, schema, schema.name)


def count(pipeline: Pipeline, name: str = "pairs") -> int:
    assert isinstance(pipeline.target, DuckDbTarget)
    with pipeline.target._reading() as (connection, _):
        return int(connection.execute(f"SELECT count(*) FROM public.{name}").fetchall()[0][0])


def stands_at(pipeline: Pipeline) -> tuple[int, Lsn]:
    progress = pipeline.target.progress(pipeline.subscription)
    assert progress is not None
    return progress.batch, progress.end


def test_nobody_sees_them_before_the_commit_and_everybody_with_it(pipeline: Pipeline) -> None:
    rows = begun(pipeline, MANY)
    assert count(pipeline) == 1
    with pipeline.target.pin(SUBSCRIPTION) as before:
        assert rows.commit(batch(pipeline, commit_of(MANY, 5)))
        assert before.position == Lsn(pipeline.end)
    assert rows.over
    assert count(pipeline) == 1 + MANY + 5
    assert stands_at(pipeline) == (pipeline.batch + 1, Lsn(pipeline.end + 100))
    record = pipeline.target.progress(SUBSCRIPTION)
    assert record is not None
    assert record.tables[T].applied == Lsn(pipeline.end + 100)


def test_batches_beside_them_go_on_and_leave_one_row_of_progress(pipeline: Pipeline) -> None:
    rows = begun(pipeline)
    for n in range(1, 30):
        drop = changes(T, delete=keys(pairs, [(-n,)]), insert=inserts(pairs, [(-n - 1, "new")]))
        pipeline.commit(TableCommit(T, pairs, pairs.name, (drop,)), commit_of(n, 1, OTHER, twins))
    assert rows.insert(commit_of(1, 1, OTHER, twins))
    assert rows.commit(batch(pipeline, nothing_more(), commit_of(2, 1, OTHER, twins)))
    pipeline.batch, pipeline.end = pipeline.batch + 1, pipeline.end + 100
    assert sorted(row[0] for row in pipeline.rows(pairs)) == [-30, *range(10)]
    assert count(pipeline, "twins") == 31
    assert pipeline.look("SELECT batch FROM penstock.progress") == [(pipeline.batch,)]
    assert len(pipeline.look("SELECT * FROM penstock.tables")) == 2
    pipeline.commit(commit_of(100, 1))
    assert stands_at(pipeline) == (pipeline.batch, Lsn(pipeline.end))


def test_a_rollback_leaves_nothing_and_makes_room_for_the_next(pipeline: Pipeline) -> None:
    rows = begun(pipeline, MANY)
    assert pipeline.target.begin_speculative_insert(SUBSCRIPTION) is None
    rows.roll_back()
    rows.roll_back()
    assert rows.over
    assert not rows.insert(commit_of(0, 1))
    assert not rows.commit(batch(pipeline, nothing_more()))
    assert (count(pipeline), stands_at(pipeline)[0]) == (1, pipeline.batch)
    assert begun(pipeline).commit(batch(pipeline, nothing_more()))
    assert count(pipeline) == 11


def swap(pipeline: Pipeline) -> None:
    pipeline.target.begin_copy(SUBSCRIPTION, T, pairs.name, pairs)
    pipeline.commit(TableCommit(T, pairs, pairs.name, handover=True))


def restructure(pipeline: Pipeline) -> None:
    wider = structure(pairs.name, {"id": "int4", "word": "text", "more": "int4"}, ["id"])
    pipeline.commit(TableCommit(T, wider, wider.name))


def clear(pipeline: Pipeline) -> None:
    pipeline.change(T, pairs, changes(T, truncated=True))


CHANGES_OF_THE_TABLE: dict[str, Callable[[Pipeline], object]] = {
    "swap": swap,
    "restructure": restructure,
    "clear": clear,
    "park": lambda p: p.commit(TableCommit(T, pairs, pairs.name, parked="value_out_of_domain")),
    "remove": lambda p: p.commit(removed=[T]),
    "stale": lambda p: p.commit(stale=[T]),
    "claim": lambda p: p.claim(),
    "rebase": lambda p: p.target.rebase(SUBSCRIPTION, p.epoch, LogStart("7", 1, "s", Lsn(p.end))),
    "forget": lambda p: p.target.forget(SUBSCRIPTION),
}


@pytest.mark.parametrize("what", CHANGES_OF_THE_TABLE)
def test_what_happens_to_the_table_itself_ends_them(pipeline: Pipeline, what: str) -> None:
    rows = begun(pipeline)
    CHANGES_OF_THE_TABLE[what](pipeline)
    assert rows.over
    assert not rows.insert(commit_of(0, 1))
    assert count(pipeline) == (0 if what in {"swap", "clear"} else 1)


@pytest.mark.parametrize("what", ["swap", "restructure", "park", "remove", "stale"])
def test_a_table_that_changed_before_its_first_rows_is_not_taken_for_the_old_one(pipeline: Pipeline, what: str) -> None:
    rows = pipeline.target.begin_speculative_insert(SUBSCRIPTION)
    assert rows is not None
    assert rows.insert(commit_of(0, 5, OTHER, twins))
    CHANGES_OF_THE_TABLE[what](pipeline)
    before = count(pipeline)
    taken = rows.insert(commit_of(0, 5))
    assert not rows.commit(batch(pipeline, nothing_more(), nothing_more(OTHER, twins)))
    assert rows.over
    assert taken in {True, False}
    assert (count(pipeline), count(pipeline, "twins")) == (before, 0)
    assert stands_at(pipeline)[0] == pipeline.batch


def test_a_batch_that_does_more_or_less_than_was_inserted_is_refused(pipeline: Pipeline) -> None:
    deletes = TableCommit(T, pairs, pairs.name, (changes(T, delete=keys(pairs, [(-1,)])),))
    wider = structure(pairs.name, {"id": "int4", "word": "text", "more": "int4"}, ["id"])
    for wrong in (
        batch(pipeline, deletes),
        batch(pipeline),
        batch(pipeline, replace(nothing_more(), schema=wider)),
        replace(batch(pipeline, nothing_more()), stale=(OTHER,)),
        replace(batch(pipeline, nothing_more()), removed=(OTHER,)),
    ):
        assert not begun(pipeline).commit(wrong)
        assert (count(pipeline), stands_at(pipeline)[0]) == (1, pipeline.batch)


def test_only_inserts_into_complete_tables_are_taken(pipeline: Pipeline) -> None:
    for wrong in (
        TableCommit(T, pairs, pairs.name, (changes(T, delete=keys(pairs, [(-1,)])),)),
        TableCommit(T, pairs, pairs.name, (changes(T, truncated=True),)),
        replace(commit_of(0, 1), handover=True),
        commit_of(0, 1, TableId("t0c")),
        TableCommit(T, pairs, pairs.name, (replace(changes(T), inserts=StagedRows("/nowhere/at/all.arrows", 0, 1)),)),
    ):
        rows = begun(pipeline)
        assert not rows.insert(wrong)
        assert rows.over
    assert count(pipeline) == 1


def test_the_fence_holds(pipeline: Pipeline) -> None:
    rows = begun(pipeline)
    with pytest.raises(EngineFault) as caught:
        rows.commit(replace(batch(pipeline, nothing_more()), epoch=type(pipeline.epoch)(7)))
    assert caught.value.kind is FaultKind.EPOCH_LOST
    with pytest.raises(EngineFault):
        rows.commit(replace(batch(pipeline, nothing_more()), end=Lsn(pipeline.end - 1)))
    assert count(pipeline) == 1
    assert rows.commit(batch(pipeline, nothing_more()))


def test_another_connection_that_alters_the_table_makes_the_commit_fail(
    pipeline: Pipeline, target: DuckDbTarget
) -> None:
    rows = begun(pipeline, MANY)
    writer = target._open().writer
    writer.execute("ALTER TABLE public.pairs ADD COLUMN more INTEGER")
    writer.execute("ALTER TABLE public.pairs DROP COLUMN more")
    assert not rows.commit(batch(pipeline, nothing_more()))
    assert (count(pipeline), stands_at(pipeline)[0]) == (1, pipeline.batch)
    pipeline.commit(commit_of(0, 10))
    assert count(pipeline) == 11


class Failing:
    """A connection whose COMMIT reports a failure, after the commit itself or instead of it."""

    def __init__(self, inner: object, *, durable: bool) -> None:
        self._inner = inner
        self._durable = durable

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def execute(self, sql: str, parameters: object = None) -> object:
        if sql == "COMMIT":
            if self._durable:
                self._inner.execute(sql)  # type: ignore[attr-defined]
            raise duckdb.TransactionException("a conflict")
        return self._inner.execute(sql, parameters)  # type: ignore[attr-defined]

    def commit(self) -> None:
        self.execute("COMMIT")


@pytest.mark.parametrize("durable", [True, False])
def test_a_commit_in_doubt_is_looked_up(pipeline: Pipeline, *, durable: bool) -> None:
    rows = begun(pipeline)
    assert isinstance(rows, speculative_insert.DuckDbSpeculativeInsert)
    rows._connection = Failing(rows._connection, durable=durable)  # type: ignore[assignment]
    whole = batch(pipeline, nothing_more())
    assert rows.commit(whole) is durable
    assert count(pipeline) == (11 if durable else 1)
    assert stands_at(pipeline)[0] == pipeline.batch + durable


def test_closing_the_file_ends_them(pipeline: Pipeline, target: DuckDbTarget) -> None:
    rows = begun(pipeline, MANY)
    target.close()
    assert rows.over
    assert not rows.commit(batch(pipeline, nothing_more()))
    assert count(pipeline) == 1
    assert not (target.path.with_name(target.path.name + ".wal")).exists()


def test_an_insert_under_way_is_stopped_for_a_rollback(pipeline: Pipeline) -> None:
    rows = begun(pipeline)
    taken: list[bool] = []

    def insert() -> None:
        while rows.insert(commit_of(0, 50_000)):
            taken.append(True)

    thread = threading.Thread(target=insert)
    thread.start()
    while not taken:
        thread.join(0.01)
    rows.roll_back()
    thread.join(20)
    assert not thread.is_alive()
    assert count(pipeline) == 1


def test_a_log_that_grows_too_long_meanwhile_makes_them_overdue(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = begun(pipeline)
    assert not rows.overdue
    monkeypatch.setattr(speculative_insert, "LOG_BYTES", 100_000)
    for n in range(10):
        pipeline.commit(commit_of(n * 1000, 1000, OTHER, twins))
    assert rows.overdue


def test_records_of_the_layout_before_are_read_and_brought_to_this_one(tmp_path: Path) -> None:
    path = tmp_path / "mart.duckdb"
    target = DuckDbTarget(path)
    Pipeline(target).claim()
    target.close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE penstock.layout SET version = 2")
        connection.execute("ALTER TABLE penstock.copies DROP COLUMN standing")
        connection.execute("DROP TABLE penstock.refused_rows")
        connection.execute("ALTER TABLE penstock.progress DROP COLUMN publications")
        connection.execute("ALTER TABLE penstock.progress DROP COLUMN last_commit")
    target = DuckDbTarget(path)
    pipeline = Pipeline(target, epoch=2)
    progress = target.progress(SUBSCRIPTION)
    assert progress is not None
    assert (progress.end, progress.last) == (Lsn(1000), None)
    pipeline.claim()
    assert pipeline.look("SELECT version FROM penstock.layout") == [(7,)]
    assert target.refused_rows(SUBSCRIPTION, T) == []
    target.close()


def test_a_crash_before_the_rows_of_progress_were_made_one_is_read_rightly(tmp_path: Path) -> None:
    path = tmp_path / "mart.duckdb"
    target = DuckDbTarget(path)
    pipeline = Pipeline(target).claim()
    pipeline.load(T, pairs, [])
    target.close()
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "INSERT INTO penstock.progress SELECT * REPLACE (batch + 1 AS batch, '0/999' AS position) FROM penstock.progress"
        )
    target = DuckDbTarget(path)
    again = Pipeline(target, epoch=2)
    assert stands_at(again) == (pipeline.batch + 1, Lsn.parse("0/999"))
    again.claim()
    assert again.look("SELECT epoch, batch, position FROM penstock.progress") == [(2, pipeline.batch + 1, "0/999")]
    target.close()
