"""The copy task alone, the consequences of faults, and progress."""

from __future__ import annotations

import errno
import pickle
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.copy import split_task
from engine.copy.fault_handling import Consequence, consequence, last_consequence
from engine.copy.progress import Course, ProgressMeter
from engine.copy.rate_limit import write_pace
from engine.copy.split_task import CopyTask, ReadLimits, SplitPart, StagedFile, copy_task, decoded, staging_fault
from engine.copy.staging import read_staged
from engine.model.copies import CopyProgress
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Epoch, TableId
from engine.model.subscription import ConnectionSpec, CopyPolicy
from tests.unit.copy.copy_fakes import CONNECTION, FakeSource, decode_lines, table_of


def task_over(source: FakeSource, folder: Path, limits: ReadLimits) -> CopyTask:
    parts = tuple(
        SplitPart(TableId(f"t{name}"), number, 1, table_of(name).schema, split)
        for name in source.tables
        for number, split in enumerate(source.copies.splits(table_of(name).schema, table_of(name).spec, 0))
    )
    return CopyTask(Epoch(7), CONNECTION, "snap", str(folder), parts, limits)


def test_files_are_bounded_and_hold_the_rows_in_order(tmp_path: Path) -> None:
    source = FakeSource({"a": [list(range(1000))]})
    result = copy_task(source.open, decode_lines, task_over(source, tmp_path, ReadLimits(400, 1000)))
    (part,) = result.parts
    assert part.rows == 1000
    assert len(part.files) > 1
    assert [Path(file.path).name for file in part.files[:2]] == ["e7-ta-c0-a1-0.arrows", "e7-ta-c0-a1-1.arrows"]
    read = [value for file in part.files for value in read_staged(file).column("c0").to_pylist()]
    assert read == list(range(1000))


def test_a_failed_attempt_leaves_no_file_and_spares_the_next_part(tmp_path: Path) -> None:
    source = FakeSource({"a": [[1, 2, 3, -1]], "b": [[5]]})
    limits = ReadLimits(batch_bytes=1, file_bytes=1)
    bad, good = copy_task(source.open, decode_lines, task_over(source, tmp_path, limits)).parts
    assert bad.fault is not None
    assert bad.fault.code == "value_out_of_domain"
    assert bad.files == ()
    assert [Path(file.path).name for file in good.files] == sorted(path.name for path in tmp_path.iterdir())


def test_a_defect_in_the_decoder_is_that_tables_fault_and_shows_no_value(tmp_path: Path) -> None:
    source = FakeSource({"a": [[1]]})

    def broken(text: bytes, schema: object) -> object:
        raise ValueError(text)

    (part,) = copy_task(source.open, broken, task_over(source, tmp_path, ReadLimits())).parts
    assert part.fault is not None
    assert (part.fault.code, part.fault.detail) == ("internal", "reading the rows failed with ValueError")


def test_a_source_that_cannot_be_opened_fails_every_part(tmp_path: Path) -> None:
    source = FakeSource({"a": [[1]], "b": [[2]]})

    def unreachable(connection: ConnectionSpec) -> FakeSource:
        raise EngineFault(FaultKind.SOURCE_UNREACHABLE, connection.name, "refused")

    result = copy_task(unreachable, decode_lines, task_over(source, tmp_path, ReadLimits()))  # type: ignore[arg-type]
    assert [part.fault and part.fault.code for part in result.parts] == ["source_unreachable"] * 2


def test_the_task_travels(tmp_path: Path) -> None:
    task = task_over(FakeSource({"a": [[1]]}), tmp_path, ReadLimits())
    assert pickle.loads(pickle.dumps(task)) == task
    function = pickle.loads(pickle.dumps(partial(copy_task, table_of, decode_lines)))  # type: ignore[arg-type]
    assert function.func is copy_task


def test_no_secret_shows_in_a_printed_task(tmp_path: Path) -> None:
    connection = ConnectionSpec("shop", "postgres", {"host": "h"}, {"password": "open sesame"})
    task = CopyTask(Epoch(1), connection, "snap", str(tmp_path), ())
    assert "sesame" not in repr(task)


def test_pieces_are_joined_up_to_the_limit_and_none_is_cut() -> None:
    schema = table_of("a").schema
    pieces = [b"1\n", b"2\n", b"3\n", b"44444444\n", b"", b"5\n"]
    batches = list(decoded(pieces, schema, decode_lines, batch_bytes=4))
    assert [(batch.column("c0").to_pylist(), size) for batch, size in batches] == [
        ([1, 2], 4),
        ([3], 2),
        ([44444444], 9),
        ([5], 2),
    ]


def test_a_full_staging_disk_is_told_from_other_trouble() -> None:
    assert staging_fault(OSError(errno.ENOSPC, "full"), "f").kind is FaultKind.QUEUE_DISK_FULL
    assert staging_fault(OSError(errno.EACCES, "no"), "f").kind is FaultKind.COPY_FAILED


def test_a_missing_staged_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(EngineFault) as raised:
        read_staged(StagedFile(str(tmp_path / "gone"), 1))
    assert raised.value.kind is FaultKind.COPY_FAILED


@pytest.mark.parametrize("kind", list(FaultKind))
def test_without_attempts_left_every_kind_ends_something(kind: FaultKind) -> None:
    assert last_consequence(kind) is not Consequence.READ_AGAIN
    if consequence(kind) is not Consequence.READ_AGAIN:
        assert last_consequence(kind) is consequence(kind)


@pytest.mark.parametrize(
    "kind", [kind for kind in FaultKind if kind.value.startswith(("target_", "queue_", "log_", "slot_", "epoch_"))]
)
def test_what_is_not_about_one_table_stops_the_copy(kind: FaultKind) -> None:
    assert consequence(kind) is Consequence.STOP


def test_progress_is_throttled_and_estimates_the_rest() -> None:
    seen: list[CopyProgress] = []
    now = [100.0]
    meter = ProgressMeter(seen.append, lambda: now[0], interval_s=1.0)
    table = TableId("ta")
    meter.expect(table, 1000, 4)
    meter.started(table)
    for seconds, size in ((0.4, 250), (0.4, 250), (0.4, 250), (0.4, 250)):
        now[0] += seconds
        meter.add(table, size, 10, 99)
    assert [(each.percent, each.rows) for each in seen] == [(0.0, 0), (0.0, 0), (75.0, 30), (100.0, 40)]
    assert [each.begun for each in seen] == [False, True, True, True]
    assert seen[1].eta_seconds is None
    assert seen[2].eta_seconds == pytest.approx(0.4)
    assert seen[3].eta_seconds == 0
    assert [(each.bytes, each.total_bytes) for each in seen] == [(0, 1000), (0, 1000), (750, 1000), (1000, 1000)]
    assert [each.total_rows for each in seen] == [None, None, 40, 40]
    assert seen[2].rows_per_second == pytest.approx(25.0)


def test_the_time_left_follows_the_pace_of_late() -> None:
    course = Course(TableId("ta"))

    def at(now: float, share: float) -> CopyProgress:
        return course.at(now, rows=round(1000 * share), share=share, total_rows=1000, total_bytes=10_000)

    at(0.0, 0.0)
    fast = at(10.0, 0.5)
    assert (fast.rows_per_second, fast.eta_seconds) == (50.0, 10.0)
    for second in range(11, 60):
        slow = at(float(second), 0.5 + (second - 10) * 0.001)
    assert slow.rows_per_second == pytest.approx(1.0)
    assert slow.eta_seconds == pytest.approx(451.0, rel=0.01)


def test_what_is_read_again_lets_no_figure_run_back() -> None:
    course = Course(TableId("ta"))
    told = [
        course.at(float(n), rows=rows, share=rows / total, total_rows=total, total_bytes=size)
        for n, (rows, total, size) in enumerate(
            [(0, 100, 1000), (40, 100, 1000), (20, 100, 1000), (30, 150, 1500), (120, 150, 900), (90, 200, 1600)]
        )
    ]
    done = course.at(9.0, rows=180, share=1.0, total_rows=200, total_bytes=1600)
    for each, after in pairwise([*told, done]):
        assert (each.rows, each.bytes, each.percent) <= (after.rows, after.bytes, after.percent)
        assert each.rows <= after.rows
        assert each.bytes <= after.bytes
        assert each.percent <= after.percent
        assert each.bytes <= (each.total_bytes or 0)
        assert each.rows <= (each.total_rows or 0)
    assert (done.rows, done.total_rows, done.bytes, done.total_bytes, done.percent) == (180, 180, 1600, 1600, 100.0)


def test_progress_stays_below_the_end_while_estimates_are_too_low() -> None:
    seen: list[CopyProgress] = []
    meter = ProgressMeter(seen.append, lambda: 0.0, interval_s=0.0)
    meter.expect(TableId("ta"), 10, 3)
    for _ in range(3):
        meter.add(TableId("ta"), 10, 1, 1)
    assert [each.percent for each in seen] == [0.0, 99.9, 99.9, 100.0]


@pytest.mark.parametrize("gives_way", [True, False])
def test_a_task_reads_behind_others_where_copies_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, gives_way: bool
) -> None:
    source = FakeSource({"a": [[1, 2]]})
    began: list[object] = []

    def watched(work: Any) -> Any:
        began.append(work)
        return work()

    monkeypatch.setattr(split_task, "at_lower_priority", watched)
    write_pace(tmp_path / "pace", CopyPolicy(give_way=gives_way))
    task = replace(task_over(source, tmp_path, ReadLimits()), pace=str(tmp_path / "pace"))
    assert copy_task(source.open, decode_lines, task).parts[0].fault is None
    assert bool(began) == gives_way
