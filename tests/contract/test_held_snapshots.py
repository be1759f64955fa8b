"""A held snapshot shows one batch boundary over all tables, whatever is committed, replaced, altered, dropped or attempted afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from engine.model.identity import TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.schema import Column
from engine.model.target import (
    CHANGED,
    ENDED,
    HeldSnapshot,
    JudgeReads,
    QueryLimits,
    QueryRefused,
    TableCommit,
    any_reads,
)
from engine.targets.duckdb.held import HELD_SCANS, DuckDbHeld
from engine.targets.duckdb.scans import Snapshot
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, inserts, keys, source_type, structure
from tests.contract.targets import OpenTarget

pytestmark = pytest.mark.pg

LEFT, RIGHT = TableId("t0a"), TableId("t0b")
left = structure(TableName("public", "lefts"), {"id": "int4", "amount": "int8"}, ["id"])
right = structure(TableName("public", "rights"), {"id": "int4", "amount": "int8"}, ["id"])
ROWS = [(number, 100) for number in range(50)]
SUMS = (
    "SELECT (SELECT CAST(sum(amount) AS bigint) FROM public.lefts) AS l,"
    " (SELECT CAST(sum(amount) AS bigint) FROM public.rights) AS r"
)
EVERYTHING = (
    "SELECT 'l' AS side, id, amount FROM public.lefts UNION ALL SELECT 'r', id, amount FROM public.rights ORDER BY 1, 2"
)
HOSTILE = (
    "COMMIT",
    "ROLLBACK",
    "ROLLBACK; SELECT 1",
    "COMMIT; DELETE FROM public.lefts",
    "SELECT 1; ROLLBACK",
    "BEGIN",
    "SET TRANSACTION READ WRITE",
    "SET TRANSACTION SNAPSHOT '00000003-00000002-1'",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "ABORT",
    "DELETE FROM public.lefts RETURNING id",
    "INSERT INTO public.lefts VALUES (99, 1) RETURNING id",
    "CREATE TABLE public.more AS SELECT 1 AS x",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
    "SELECT id / 0, nothing FROM public.lefts",
    "SELECT CAST('x' AS integer) FROM public.lefts",
)


@pytest.fixture
def pipeline(opened: OpenTarget) -> Iterator[Pipeline]:
    target = opened()
    made = Pipeline(target).claim()
    made.load(LEFT, left, ROWS)
    made.load(RIGHT, right, ROWS)
    yield made
    target.close()


def hold(pipeline: Pipeline) -> HeldSnapshot:
    held = pipeline.target.hold(SUBSCRIPTION, 600.0)
    assert held is not None
    return held


def rows(held: HeldSnapshot, sql: str, judge: JudgeReads = any_reads, timeout_s: float = 30.0) -> list[tuple[Any, ...]]:
    with held.query(sql, QueryLimits(timeout_s), judge) as answer:
        assert answer.position == held.state.position
        table = pa.Table.from_batches(list(answer.batches), answer.schema)
    return [tuple(row.values()) for row in table.to_pylist()]


def refusal(held: HeldSnapshot, sql: str) -> str:
    with pytest.raises(QueryRefused) as caught:
        rows(held, sql)
    return caught.value.code


def move(pipeline: Pipeline, number: int) -> None:
    """Move an amount from one table to the other, in one batch: the sum of both stays."""
    changed = {
        LEFT: (left, [(number % 50, 100 - number)]),
        RIGHT: (right, [(number % 50, 100 + number)]),
    }
    pipeline.commit(
        *(
            TableCommit(
                table, schema, schema.name, [changes(table, delete=keys(schema, new), insert=inserts(schema, new))]
            )
            for table, (schema, new) in changed.items()
        )
    )


def test_queries_during_a_load_see_the_same_rows_of_all_tables(pipeline: Pipeline) -> None:
    move(pipeline, 7)
    before, expected = pipeline.end, pipeline.select(EVERYTHING)
    held = hold(pipeline)
    done = threading.Event()

    def load() -> int:
        number = 0
        while not done.is_set() or number < 20:
            number += 1
            move(pipeline, number)
        return number

    with ThreadPoolExecutor(3) as threads:
        loading = threads.submit(load)
        try:
            for _ in range(5):
                asked = [threads.submit(rows, held, EVERYTHING) for _ in range(2)]
                assert [one.result() for one in asked] == [expected, expected]
        finally:
            done.set()
        assert loading.result() >= 20
    assert held.state.position == Lsn(before) < Lsn(pipeline.end)
    assert pipeline.select(EVERYTHING) != expected
    assert rows(held, EVERYTHING) == expected
    assert rows(held, SUMS) == [(5000 - 7, 5000 + 7)]
    assert held.lost() is None
    held.end("over")


def test_what_it_shows_is_described(pipeline: Pipeline) -> None:
    pipeline.commit(TableCommit(RIGHT, right, right.name, parked="row_refused"))
    pipeline.commit(last=LastCommit(Lsn(1), Lsn(pipeline.end + 100), 1_700_000_000_000_000))
    held = hold(pipeline)
    assert held.state.committed_us == 1_700_000_000_000_000
    assert {one.target.name: one.complete for one in held.state.tables} == {"lefts": True, "rights": False}
    seen: list[str] = []
    rows(held, SUMS, lambda reads: seen.extend(f"{read.target.name} {read.complete}" for read in reads))
    assert sorted(seen) == ["lefts True", "rights False"]
    held.end("over")


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        ("altered", False),
        ("reloaded", False),
        ("truncated", False),
        ("cleared by rows", True),
        ("removed", True),
        ("dropped", False),
    ],
)
def test_a_table_that_changes_is_shown_as_it_was_or_refused(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, how: str, kept: bool
) -> None:
    """PostgreSQL's snapshots do not have what a table was before TRUNCATE, DROP and ALTER; DuckDB's have it."""
    expected = rows(held := hold(pipeline), "SELECT * FROM public.lefts ORDER BY id")
    assert expected == ROWS
    if how == "altered":
        wider = replace(left, columns=(*left.columns, Column("note", source_type("text"), 3)))
        pipeline.commit(TableCommit(LEFT, wider, left.name))
    elif how == "reloaded":
        pipeline.load(LEFT, left, [(1, 1)])
    elif how in {"truncated", "cleared by rows"}:
        monkeypatch.setattr(
            "engine.targets.postgres.tables.TRUNCATE_ABOVE_BYTES", -1 if how == "truncated" else 1 << 30
        )
        pipeline.change(LEFT, left, changes(LEFT, truncated=True, insert=inserts(left, [(1, 1)])))
    else:
        pipeline.commit(removed=[LEFT], dropped=[LEFT] if how == "dropped" else [])
    for sql in ("SELECT * FROM public.lefts ORDER BY id", "SELECT id, amount FROM public.lefts ORDER BY id"):
        if kept or isinstance(pipeline.target, DuckDbTarget):
            assert rows(held, sql) == expected
        else:
            assert refusal(held, sql) == CHANGED
    assert rows(held, "SELECT CAST(sum(amount) AS bigint) AS r FROM public.rights") == [(5000,)]
    held.end("over")


def test_no_statement_ends_or_changes_the_transaction(pipeline: Pipeline) -> None:
    held = hold(pipeline)
    expected = rows(held, EVERYTHING)
    move(pipeline, 3)
    for sql in HOSTILE:
        code = refusal(held, sql)
        assert code in {"query_not_a_read", "query_invalid", "query_unavailable"}, (sql, code)
        assert rows(held, EVERYTHING) == expected, sql
    held.end("over")


def test_statements_that_are_cut_off_leave_it_as_it_is(pipeline: Pipeline) -> None:
    held = hold(pipeline)
    endless = "SELECT count(*) FROM public.lefts a, public.lefts b, public.lefts c, public.lefts d, public.rights e, public.rights f"
    for _ in range(3):
        with pytest.raises(QueryRefused) as caught:
            rows(held, endless, timeout_s=0.5)
        assert caught.value.code == "query_timeout"
        with held.query(EVERYTHING, QueryLimits(30.0, max_rows=1)) as answer:
            next(answer.batches)
        assert rows(held, SUMS) == [(5000, 5000)]
    held.end("over")


def test_its_end_ends_the_statements_that_read(pipeline: Pipeline) -> None:
    held = hold(pipeline)
    endless = "SELECT count(*) FROM public.lefts a, public.lefts b, public.lefts c, public.lefts d, public.rights e, public.rights f"
    begun = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(rows, held, endless, lambda _: begun.set())
        assert begun.wait(30)
        held.end("an operator asked")
        with pytest.raises(QueryRefused) as caught:
            asked.result(30)
    assert caught.value.code == ENDED
    assert "an operator asked" in caught.value.detail
    assert refusal(held, SUMS) == ENDED
    assert pipeline.select(SUMS) == [(5000, 5000)]


def test_it_ends_with_its_target(pipeline: Pipeline) -> None:
    held = hold(pipeline)
    pipeline.target.close()
    assert held.lost() == "the target was closed"
    assert refusal(held, SUMS) == ENDED
    assert pipeline.select(SUMS) == [(5000, 5000)]


def test_without_rows_there_is_none(opened: OpenTarget) -> None:
    target = opened()
    with pytest.raises(QueryRefused) as caught:
        target.hold(SUBSCRIPTION, 1.0)
    assert caught.value.code == "query_unavailable"
    target.close()


@pytest.mark.parametrize("opened", ["duckdb"], indirect=True)
def test_a_batch_gets_the_memory_of_a_duckdb_target(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    assert isinstance(pipeline.target, DuckDbTarget)
    held, commit, failures = hold(pipeline), pipeline.target._commit_once, [duckdb.OutOfMemoryException("full")]

    def short(batch: Any) -> Any:
        if failures:
            raise failures.pop()
        return commit(batch)

    monkeypatch.setattr(pipeline.target, "_commit_once", short)
    move(pipeline, 1)
    assert held.lost() == "a batch needed the target's memory"


@pytest.mark.parametrize("opened", ["duckdb"], indirect=True)
def test_a_statement_waits_for_connections_and_is_refused_beyond_all(pipeline: Pipeline) -> None:
    held = hold(pipeline)
    many = " UNION ALL ".join(["SELECT amount FROM public.lefts"] * (HELD_SCANS + 1))
    assert refusal(held, many) == "query_too_large"
    some = " UNION ALL ".join(["SELECT id FROM public.lefts"] * (HELD_SCANS // 4 + 1))
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(rows, held, some) for _ in range(4)]
        assert [len(one.result()) for one in asked] == [50 * (HELD_SCANS // 4 + 1)] * 4
    held.end("over")


@pytest.mark.parametrize("opened", ["duckdb"], indirect=True)
def test_scans_are_interrupted_at_its_end_only(pipeline: Pipeline) -> None:
    """An interrupt aborts the transaction of its connection."""
    held = hold(pipeline)
    assert isinstance(held, DuckDbHeld)
    interrupted = []
    lease = held._lease

    @contextmanager
    def observed(*asked: Any) -> Iterator[Snapshot]:
        with lease(*asked) as found:
            interrupted.append(found._interrupted)
            yield found

    held._lease = observed  # type: ignore[method-assign]
    rows(held, SUMS)
    assert [each() for each in interrupted] == [False] * len(interrupted) != []
    assert len(held._free) == HELD_SCANS
    held.end("over")
    assert all(each() for each in interrupted)
