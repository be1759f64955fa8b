"""What takes the time of a stage: a wait for a processor, one task or key with most of the batch, or too many small batches."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from engine.model.batch import LogRange, SealedBatch
from engine.model.identity import Ordinal, TableId, TableName
from engine.model.lag import LagCause, LagSpan
from engine.model.position import ZERO, Lsn
from engine.model.subscription import TableSpec
from engine.model.tasks import Unfinished
from engine.pipeline import stage_times
from engine.pipeline.skew import Skew
from engine.pipeline.stage_times import ALONE_MS, SMALL_COUNT, SMALL_RECORDS, StageTimes, processor_wait_ns
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.state import Live
from tests.fixtures.manual_clock import ManualEngineClock

BEGAN_MS = 1_000.0


@pytest.mark.parametrize(
    ("cause", "began_ns", "now_ns", "judged"),
    [
        (LagCause.COMPUTING, 7_000_000, 66_000_000, LagCause.CPU_STARVED),
        (LagCause.HOT_TABLE, 0, 50_000_000, LagCause.CPU_STARVED),
        (LagCause.SLOW_COMMIT, 7_000_000, 56_000_000, LagCause.SLOW_COMMIT),
        (LagCause.HUGE_TRANSACTION, 0, 99_000_000, LagCause.HUGE_TRANSACTION),
        (LagCause.COMPUTING, None, 99_000_000, LagCause.COMPUTING),
        (LagCause.COMPUTING, 0, None, LagCause.COMPUTING),
    ],
)
def test_a_stage_is_judged_by_its_wait(
    monkeypatch: pytest.MonkeyPatch, cause: LagCause, began_ns: int | None, now_ns: int | None, judged: LagCause
) -> None:
    monkeypatch.setattr(stage_times, "processor_wait_ns", lambda thread: now_ns if thread == 5 else None)
    stage = stage_times._Stage(cause, {"stage": "some"}, BEGAN_MS, 5, began_ns)
    found = stage.judged(BEGAN_MS + 100)
    assert (found.cause, found.evidence["stage"]) == (judged, "some")
    assert ("waiting_share" in found.evidence) == (judged is LagCause.CPU_STARVED)


def test_a_stage_without_a_length_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_times, "processor_wait_ns", lambda _: 1_000_000)
    assert stage_times._Stage(LagCause.COMPUTING, {}, BEGAN_MS, 5, 0).judged(BEGAN_MS).cause is LagCause.COMPUTING


def test_the_system_says_how_long_a_thread_waited() -> None:
    mine = processor_wait_ns(threading.get_native_id())
    assert mine is not None
    assert mine >= 0
    assert processor_wait_ns(-1) is None


ORDERS, LINES = TableId("t1"), TableId("t2")


class Bench:
    """Stages over two tables, with a clock, and parallel tasks, of the test's own. No stage waits for a processor."""

    def __init__(self) -> None:
        self.clock = ManualEngineClock()
        self.tasks: Unfinished | None = None
        book = TableRegistry()
        for table, name in ((ORDERS, "orders"), (LINES, "lines")):
            qualified = TableName("public", name)
            book.add(TableEntry(TableSpec(table, qualified, qualified), Live()))
        self.times = StageTimes(book, self.clock, self)

    def unfinished(self) -> Unfinished | None:
        return self.tasks

    def run(
        self,
        cause: LagCause,
        batch: SealedBatch,
        rows: Mapping[TableId, int] | None = None,
        *,
        ms: float = 100,
        skew: Skew | None = None,
    ) -> LagSpan:
        """A stage of this length; as it was named while it worked."""
        with self.times.stage(cause, batch, rows) as work:
            work.skewed(skew)
            self.clock.ms += ms
            return self.times.recent(1e9)[-1]

    def ended(self) -> list[LagSpan]:
        return self.times.recent(1e9)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(stage_times, "processor_wait_ns", lambda _: 0)
    return Bench()


def batch(records: int, *, xid: int = 0, demanded: bool = False) -> SealedBatch:
    one = LogRange(Ordinal(0), Ordinal(records), Lsn(9), xid=xid)
    return SealedBatch(ZERO, Lsn(9), 1, (one,), (), 0, 0, demanded=demanded)


@pytest.mark.parametrize(
    ("rows", "cause"),
    [
        ({ORDERS: 800, LINES: 200}, LagCause.HOT_TABLE),
        ({ORDERS: 799, LINES: 201}, LagCause.SLOW_COMMIT),
        ({ORDERS: 999}, LagCause.SLOW_COMMIT),
        ({TableId("gone"): 5000}, LagCause.SLOW_COMMIT),
        ({}, LagCause.SLOW_COMMIT),
    ],
)
def test_a_table_with_most_rows_is_hot(bench: Bench, rows: dict[TableId, int], cause: LagCause) -> None:
    found = bench.run(LagCause.SLOW_COMMIT, batch(5_000), rows)
    assert found.cause is cause
    assert (found.evidence.get("table") == "public.orders") is (cause is LagCause.HOT_TABLE)


@pytest.mark.parametrize("stage", [LagCause.COMPUTING, LagCause.SLOW_COMMIT])
def test_a_stage_with_a_skew_is_named_so_from_then_on(bench: Bench, stage: LagCause) -> None:
    skew = Skew(4, 900, 1_000, LINES)
    while_it_worked = bench.run(stage, batch(1_000), {ORDERS: 5_000}, skew=skew)
    (ended,) = bench.ended()
    for found in (while_it_worked, ended):
        assert found.cause is LagCause.KEY_SKEW
        wanted = {"table": "public.lines", "rows": 900, "of_rows": 1_000, "tasks": 4, "stage": stage.value}
        assert found.evidence.items() >= wanted.items()


def test_a_huge_transaction_stays_one_whatever_its_skew(bench: Bench) -> None:
    found = bench.run(LagCause.COMPUTING, batch(20_000, xid=7), skew=Skew(4, 900, 1_000, LINES))
    assert found.cause is LagCause.HUGE_TRANSACTION


def test_a_skew_of_a_table_that_was_removed_is_not_named(bench: Bench) -> None:
    assert (
        bench.run(LagCause.COMPUTING, batch(9), skew=Skew(4, 900, 1_000, TableId("gone"))).cause is LagCause.COMPUTING
    )


@pytest.mark.parametrize(
    ("stage", "tasks", "ms", "cause"),
    [
        (LagCause.COMPUTING, Unfinished(4, 1), ALONE_MS, LagCause.KEY_SKEW),
        (LagCause.COMPUTING, Unfinished(4, 1), ALONE_MS - 1, LagCause.COMPUTING),
        (LagCause.COMPUTING, Unfinished(4, 2), ALONE_MS, LagCause.COMPUTING),
        (LagCause.COMPUTING, Unfinished(4, 0), ALONE_MS, LagCause.COMPUTING),
        (LagCause.COMPUTING, Unfinished(1, 1), ALONE_MS, LagCause.COMPUTING),
        (LagCause.COMPUTING, None, ALONE_MS, LagCause.COMPUTING),
        (LagCause.SLOW_COMMIT, Unfinished(4, 1), ALONE_MS, LagCause.SLOW_COMMIT),
    ],
)
def test_a_stage_that_waits_for_its_last_task_is_named_while_it_does(
    bench: Bench, stage: LagCause, tasks: Unfinished | None, ms: float, cause: LagCause
) -> None:
    bench.tasks = tasks
    assert bench.run(stage, batch(500), ms=ms).cause is cause
    assert [one.cause for one in bench.ended()] == [stage]


def small_batches(bench: Bench, small: int, others: int, *, ms: float = 100) -> None:
    for number in range(small + others):
        one = batch(SMALL_RECORDS, demanded=True) if number < small else batch(SMALL_RECORDS)
        bench.run(LagCause.COMPUTING, one, ms=ms / 10)
        bench.run(LagCause.SLOW_COMMIT, one, ms=ms)


def test_many_small_batches_that_waits_had_sealed_are_the_cause(bench: Bench) -> None:
    small_batches(bench, SMALL_COUNT, 0)
    found = bench.ended()
    assert {one.cause for one in found} == {LagCause.SMALL_BATCHES}
    assert found[-1].evidence.items() >= {"batches": SMALL_COUNT, "small_batches": SMALL_COUNT, "seconds": 2.2}.items()


@pytest.mark.parametrize(
    ("small", "others", "ms"), [(SMALL_COUNT - 1, 0, 100), (SMALL_COUNT, 6, 100), (SMALL_COUNT, 0, 600)]
)
def test_few_small_batches_are_not(bench: Bench, small: int, others: int, ms: float) -> None:
    small_batches(bench, small, others, ms=ms)
    assert LagCause.SMALL_BATCHES not in {one.cause for one in bench.ended()}


def test_a_large_batch_among_small_ones_keeps_its_cause(bench: Bench) -> None:
    small_batches(bench, SMALL_COUNT, 0)
    assert bench.run(LagCause.SLOW_COMMIT, batch(SMALL_RECORDS + 1, demanded=True)).cause is LagCause.SLOW_COMMIT


def test_a_stage_that_fails_has_ended(bench: Bench) -> None:
    def fail() -> None:
        with bench.times.stage(LagCause.COMPUTING, batch(1)):
            bench.clock.ms += 100
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    bench.clock.ms += 50
    (found,) = bench.ended()
    assert (found.from_ms, found.to_ms) == (150, 50)
