"""A whole copy on fakes: the rows that reach the target, the consequences of faults, and that nothing remains."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.copy.job import CopySettings
from engine.copy.rate_limit import write_pace
from engine.copy.split_task import ReadLimits
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.subscription import CopyPolicy
from tests.unit.copy.copy_fakes import POSITION, Bench, FakeSource, InlineRunner

T = TableId


def rows(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


def fault(kind: FaultKind) -> EngineFault:
    return EngineFault(kind, "public.a", "scripted")


def test_every_row_of_every_table_arrives_once(tmp_path: Path) -> None:
    tables = {"a": [rows(0, 50), rows(50, 50), rows(100, 7)], "b": [rows(0, 3)], "c": []}
    bench = Bench(FakeSource(tables), tmp_path, CopySettings(limits=ReadLimits(batch_bytes=20, file_bytes=300)))
    outcome = bench.coordinator().run()
    assert set(outcome.copied) == {"ta", "tb", "tc"}
    assert (outcome.failed, outcome.lost, outcome.cancelled) == ((), (), ())
    assert bench.rows("a") == rows(0, 107)
    assert bench.rows("b") == rows(0, 3)
    assert bench.rows("c") == []
    assert bench.notes.copied == {T("ta"): (POSITION, 107), T("tb"): (POSITION, 3), T("tc"): (POSITION, 0)}
    assert bench.target.discarded == []
    assert set(bench.target.finished) == set(bench.notes.copied)
    assert bench.target.without_turn == 0


def test_nothing_stays_in_the_staging_folder_and_older_leftovers_go(tmp_path: Path) -> None:
    (tmp_path / "e2-left").mkdir()
    (tmp_path / "e2-left" / "e2-ta-c0-a1-0.arrows").write_bytes(b"x")
    bench = Bench(FakeSource({"a": [rows(0, 10)]}), tmp_path)
    bench.coordinator().run()
    assert bench.leftovers() == []


def test_every_task_closes_the_source_it_opened(tmp_path: Path) -> None:
    bench = Bench(FakeSource({"a": [rows(0, 10), rows(10, 5)], "b": [[-1]]}), tmp_path, CopySettings(split_bytes=1))
    bench.coordinator().run()
    assert bench.source.opened == bench.source.closed == 3


def test_small_tables_are_finished_first(tmp_path: Path) -> None:
    tables = {"big": [rows(i * 10, 10) for i in range(20)], "small": [rows(0, 1)], "middle": [rows(0, 5), rows(5, 5)]}
    settings = CopySettings(split_bytes=1, tasks_per_wave=1, lanes=1)
    bench = Bench(FakeSource(tables), tmp_path, settings)
    bench.coordinator().run()
    assert bench.notes.order == ["tsmall", "tmiddle", "tbig"]
    assert bench.source.reads[1][0] != bench.source.reads[2][0], "open tables take turns"


class CountingRunner(InlineRunner):
    """Runs two tasks concurrently; records how many tasks each run had."""

    parallelism = 2

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[int] = []

    def run(self, function: Callable[[Any], Any], descriptors: Sequence[Any], group: str) -> list[Any]:
        self.tasks.append(len(descriptors))
        return super().run(function, descriptors, group)


@pytest.mark.parametrize(("share", "tasks"), [(0.1, 1), (0.5, 1), (0.6, 2), (1.0, 3)])
def test_where_reading_rests_for_most_of_the_time_fewer_read_beside_each_other(
    tmp_path: Path, share: float, tasks: int
) -> None:
    write_pace(tmp_path / "pace", CopyPolicy(max_time_share=share))
    settings = CopySettings(split_bytes=1, tasks_per_wave=3, lanes=1, pace=tmp_path / "pace")
    source = FakeSource({"a": [rows(at, 1) for at in range(6)]})
    bench = Bench(source, tmp_path / "staging", settings, runner=CountingRunner())
    assert bench.coordinator().run().copied == ("ta",)
    assert bench.runner.tasks == [tasks] * (6 // tasks)


def test_all_calls_back_come_from_one_thread(tmp_path: Path) -> None:
    tables = {name: [rows(0, 5), rows(5, 5)] for name in "abcdef"}
    bench = Bench(FakeSource(tables), tmp_path, CopySettings(split_bytes=60))
    bench.coordinator().run()
    assert bench.notes.threads == {threading.get_ident()}


def test_a_value_out_of_domain_fails_only_its_table(tmp_path: Path) -> None:
    bench = Bench(FakeSource({"a": [rows(0, 4), [1, 2, -1, 4], rows(9, 4)], "b": [rows(0, 9)]}), tmp_path)
    outcome = bench.coordinator().run()
    assert outcome.failed == ("ta",)
    assert outcome.copied == ("tb",)
    assert bench.notes.failed[T("ta")].code == "value_out_of_domain"
    assert T("ta") not in bench.target.hidden
    assert bench.rows("b") == rows(0, 9)
    assert bench.leftovers() == []


def test_a_table_that_may_not_be_read_fails_alone(tmp_path: Path) -> None:
    source = FakeSource({"a": [rows(0, 4)], "b": [rows(0, 9)]}, plan_faults={"a": fault(FaultKind.SOURCE_PRIVILEGE)})
    bench = Bench(source, tmp_path)
    outcome = bench.coordinator().run()
    assert (outcome.failed, outcome.copied) == (("ta",), ("tb",))


def test_a_lost_connection_is_read_again_without_doubling_rows(tmp_path: Path) -> None:
    source = FakeSource({"a": [rows(0, 40), rows(40, 40)]}, {("a", 1): [fault(FaultKind.SOURCE_UNREACHABLE)] * 2})
    bench = Bench(source, tmp_path, CopySettings(split_bytes=1, limits=ReadLimits(batch_bytes=10, file_bytes=100)))
    outcome = bench.coordinator().run()
    assert outcome.copied == ("ta",)
    assert bench.rows("a") == rows(0, 80)
    assert source.reads.count(("a", 1)) == 3
    assert bench.notes.copied[T("ta")] == (POSITION, 80)


def test_a_source_that_stays_away_starts_all_tables_again(tmp_path: Path) -> None:
    source = FakeSource({"a": [rows(0, 4)], "b": [rows(0, 99)]}, {("a", 0): [fault(FaultKind.SOURCE_UNREACHABLE)] * 3})
    bench = Bench(source, tmp_path, CopySettings(split_bytes=1, tasks_per_wave=1, lanes=1, open_tables=1))
    outcome = bench.coordinator().run()
    assert set(outcome.lost) == {"ta", "tb"}
    assert bench.target.hidden == {}


def test_a_lost_snapshot_starts_unfinished_tables_again(tmp_path: Path) -> None:
    tables = {"a": [rows(0, 1)], "b": [rows(0, 9), rows(9, 9)], "c": [rows(0, 99)]}
    source = FakeSource(tables, {("b", 1): [fault(FaultKind.COPY_LOST)]})
    bench = Bench(source, tmp_path, CopySettings(split_bytes=1, tasks_per_wave=1, lanes=1, open_tables=1))
    outcome = bench.coordinator().run()
    assert outcome.copied == ("ta",)
    assert set(outcome.lost) == {"tb", "tc"}
    assert set(bench.target.hidden) == {"ta"}
    assert ("c", 0) not in source.reads


def test_a_changed_structure_starts_that_table_again(tmp_path: Path) -> None:
    source = FakeSource({"a": [rows(0, 9)], "b": [rows(0, 3)]}, {("a", 0): [fault(FaultKind.TABLE_STRUCTURE_CHANGED)]})
    bench = Bench(source, tmp_path)
    outcome = bench.coordinator().run()
    assert (outcome.lost, outcome.copied) == (("ta",), ("tb",))


@pytest.mark.parametrize("kind", [FaultKind.TARGET_DISK_FULL, FaultKind.EPOCH_LOST, FaultKind.TARGET_UNAVAILABLE])
def test_a_target_that_cannot_write_ends_the_copy_and_leaves_nothing(tmp_path: Path, kind: FaultKind) -> None:
    bench = Bench(FakeSource({"a": [rows(0, 9)], "b": [rows(0, 9), rows(9, 9)]}), tmp_path)
    bench.target.append_fault = fault(kind)
    with pytest.raises(EngineFault) as raised:
        bench.coordinator().run()
    assert raised.value.kind is kind
    assert bench.target.hidden == {}
    assert bench.leftovers() == []


def test_a_target_that_takes_fewer_rows_fails_the_table(tmp_path: Path) -> None:
    bench = Bench(FakeSource({"a": [rows(0, 9)]}), tmp_path)
    bench.target.append_copy = lambda table, given: given.num_rows - 1  # type: ignore[method-assign]
    outcome = bench.coordinator().run()
    assert outcome.failed == ("ta",)
    assert bench.notes.failed[T("ta")].code == "copy_failed"


class FailingRunner(InlineRunner):
    """Loses its worker in the first `times` runs."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def run(self, function: Callable[[Any], Any], descriptors: Sequence[Any], group: str) -> list[Any]:
        answers = super().run(function, descriptors, group)
        self.times -= 1
        if self.times >= 0:
            raise EngineFault(FaultKind.SPARK_FAILED, group, "a worker died")
        return answers


def test_a_killed_worker_is_made_good_by_another_attempt(tmp_path: Path) -> None:
    bench = Bench(FakeSource({"a": [rows(0, 9), rows(9, 9)]}), tmp_path, CopySettings(lanes=1), runner=FailingRunner(2))
    outcome = bench.coordinator().run()
    assert outcome.copied == ("ta",)
    assert bench.rows("a") == rows(0, 18)
    assert bench.leftovers() == []


def test_workers_that_keep_dying_end_the_copy(tmp_path: Path) -> None:
    bench = Bench(FakeSource({"a": [rows(0, 9)]}), tmp_path, runner=FailingRunner(99))
    with pytest.raises(EngineFault) as raised:
        bench.coordinator().run()
    assert raised.value.kind is FaultKind.SPARK_FAILED
    assert bench.target.hidden == {}


def test_cancel_ends_a_copy_that_is_being_read(tmp_path: Path) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def hold(table: str, split: int) -> None:
        if (table, split) == ("b", 1):
            reading.set()
            assert go_on.wait(20)

    source = FakeSource({"a": [rows(0, 3)], "b": [rows(0, 9), rows(9, 9), rows(18, 9)]}, before_read=hold)
    bench = Bench(source, tmp_path, CopySettings(split_bytes=1, tasks_per_wave=1, lanes=1, open_tables=1))
    coordinator = bench.coordinator()
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(coordinator.run()))
    thread.start()
    assert reading.wait(20)
    coordinator.cancel()
    thread.join(20)
    go_on.set()
    assert not thread.is_alive()
    assert outcomes[0].copied == ("ta",)
    assert outcomes[0].cancelled == ("tb",)
    assert set(bench.target.hidden) == {"ta"}
    assert ("b", 2) not in source.reads


def test_one_table_can_be_cancelled_while_the_others_go_on(tmp_path: Path) -> None:
    bench = Bench(
        FakeSource({"a": [rows(0, 1)], "b": [rows(0, 9), rows(9, 9)], "c": [rows(0, 30)]}),
        tmp_path,
        CopySettings(split_bytes=1, tasks_per_wave=1, lanes=1, open_tables=1),
    )
    coordinator = bench.coordinator()
    bench.notes.on_copied = lambda table: coordinator.cancel([T("tb")])
    outcome = coordinator.run()
    assert set(outcome.copied) == {"ta", "tc"}
    assert outcome.cancelled == ("tb",)
    assert T("tb") not in bench.target.hidden


def test_a_copy_cancelled_before_it_runs_reads_nothing(tmp_path: Path) -> None:
    bench = Bench(FakeSource({"a": [rows(0, 3)]}), tmp_path)
    coordinator = bench.coordinator()
    coordinator.cancel()
    outcome = coordinator.run()
    assert outcome.cancelled == ("ta",)
    assert bench.source.reads == []


def test_a_listener_that_raises_ends_the_copy_cleanly(tmp_path: Path) -> None:
    bench = Bench(FakeSource({"a": [rows(0, 3)], "b": [rows(0, 30)]}), tmp_path, CopySettings(split_bytes=1))

    def refuse(table: TableId) -> None:
        raise EngineFault(FaultKind.INTERNAL, table, "the pipeline is gone")

    bench.notes.on_copied = refuse
    with pytest.raises(EngineFault, match="the pipeline is gone"):
        bench.coordinator().run()
    assert set(bench.target.hidden) <= {"ta", "tb"}
    assert bench.leftovers() == []


def test_progress_ends_at_one_hundred_percent_with_all_rows(tmp_path: Path) -> None:
    bench = Bench(FakeSource({"a": [rows(i * 10, 10) for i in range(10)]}), tmp_path, CopySettings(split_bytes=1))
    bench.coordinator().run()
    percents = [each.percent for each in bench.notes.progress]
    assert percents == sorted(percents)
    last = bench.notes.progress[-1]
    assert (last.percent, last.rows, last.eta_seconds) == (100.0, 100, 0.0)
    assert last.bytes == last.total_bytes
    assert last.total_rows == 100
    assert last.read_bytes == sum(len(f"{row}\n") for row in rows(0, 100))
