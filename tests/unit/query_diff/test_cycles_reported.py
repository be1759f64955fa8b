"""Cycles are listed as the folder of a subscription has them: ended, running and requested; and as the engine answers for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.connectors import open_source
from engine.control.cycles import begun_cycle, listed_cycles
from engine.link.cycles import Cycles, CyclesBody
from engine.model.cycles import CycleState, LastCycle
from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.model.positions.windows import end_of
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec
from engine.sources.query_diff.cycle import Folder
from engine.sources.query_diff.cycle_files import CycleFailed, CycleFound, TableFound
from engine.sources.query_diff.cycle_numbers import locked

_SETTINGS = {"host": "nowhere.test", "port": "1", "dbname": "shop", "user": "p"}
ORDERS = TableFound("public", "orders", 7, b"R", 2, (0,), "incremental", rows_read=9, bytes_read=80, inserted=3)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "reader")
    made.files.make()
    return made


def spec(folder: Folder, kind: str = "query_diff") -> ConnectionSpec:
    capture = CaptureSpec(kind, {"every_seconds": 60, "method": "incremental", FOLDER: str(folder.path)})
    return ConnectionSpec("shop", "postgres", _SETTINGS, capture=capture)


def end_cycle(folder: Folder, tables: tuple[TableFound, ...] = (ORDERS,)) -> int:
    """A cycle that is published, as its process does it."""
    number = folder.numbers.begin(folder.files.last + 1)
    at_us = number * 1_000_000
    folder.files.begin(number).finish(CycleFound(number, folder.files.last, at_us, at_us + 500_000, True, tables))
    folder.files.publish(number)
    return number


def pipeline(folder: Folder, applied: int | None = None, kind: str = "query_diff") -> Any:
    """A subscription that runs where `applied` is given: the last cycle that is on the target."""
    run = None
    if applied is not None:
        run = SimpleNamespace(applied=SimpleNamespace(visible=end_of(applied)), ended=False)
    return SimpleNamespace(spec=SimpleNamespace(source=spec(folder, kind), name="mart"), run=run)


def listed(folder: Folder, applied: int | None = None, **asked: int) -> CyclesBody:
    return listed_cycles(pipeline(folder, applied), Cycles(request_id="r", subscription="mart", **asked))


def states(body: CyclesBody) -> Sequence[tuple[int, CycleState]]:
    return [(cycle.number, cycle.state) for cycle in body.cycles]


def test_a_cycle_is_captured_until_its_changes_are_on_the_target(folder: Folder) -> None:
    for _ in range(3):
        end_cycle(folder)
    found = listed(folder, applied=2)
    assert states(found) == [(3, CycleState.CAPTURED), (2, CycleState.APPLIED), (1, CycleState.APPLIED)]
    newest = found.cycles[0]
    assert (newest.position, newest.taken_us, newest.ended_us) == (end_of(3), 3_000_000, 3_500_000)
    [table] = newest.tables
    assert (table.schema_name, table.name, table.rows_read, table.inserted) == ("public", "orders", 9, 3)
    # What is on the target is as old as the snapshot of the last cycle there; the next one is due by schedule after the last that began.
    assert (found.as_of_us, found.due_us) == (2_000_000, 63_000_000)


def test_what_is_durable_counts_while_the_subscription_does_not_run(folder: Folder) -> None:
    for _ in range(2):
        end_cycle(folder)
    folder.files.confirm(1)
    found = listed(folder)
    assert states(found) == [(2, CycleState.CAPTURED), (1, CycleState.APPLIED)]
    assert (found.as_of_us, found.due_us) == (1_000_000, None)


def test_a_cycle_runs_while_its_process_has_the_lock(folder: Folder) -> None:
    end_cycle(folder)
    with locked(folder.path / "cycle.lock"):
        assert folder.numbers.begin(2) == 2
        assert folder.numbers.request() == 3
        found = listed(folder, applied=1)
        running = [(3, CycleState.REQUESTED), (2, CycleState.RUNNING), (1, CycleState.APPLIED)]
        assert states(found) == running
        assert (found.cycles[0].taken_us, found.cycles[0].tables) == (None, ())
        assert states(listed(folder, applied=1, most=1, upto=2)) == running[1:2]
    # One whose process was killed is gone; what was requested remains.
    assert states(listed(folder, applied=1)) == [running[0], running[2]]


def test_a_page_begins_below_a_number(folder: Folder) -> None:
    for _ in range(5):
        end_cycle(folder)
    folder.files.confirm(3)
    assert [cycle.number for cycle in listed(folder, applied=5, most=2, upto=4).cycles] == [4, 3]
    assert listed(folder, applied=5, upto=0).cycles == ()


def test_nothing_was_read_yet(folder: Folder) -> None:
    assert listed(folder, applied=0) == CyclesBody()


def test_requests_before_a_cycle_begins_are_for_the_same_one(folder: Folder) -> None:
    end_cycle(folder)
    first, second = (begun_cycle(pipeline(folder, applied=1)) for _ in range(2))
    assert (first.number, first.position) == (2, end_of(2))
    assert second == first
    assert end_cycle(folder) == 2
    assert begun_cycle(pipeline(folder, applied=1)).number == 3


def test_no_cycle_is_requested_that_would_not_begin(folder: Folder) -> None:
    end_cycle(folder)
    with pytest.raises(EngineFault) as refused:
        begun_cycle(pipeline(folder))
    assert refused.value.kind is FaultKind.TARGET_UNAVAILABLE
    assert folder.numbers.read() == (1, 0)


@pytest.mark.parametrize("kind", ["postgres_log", "triggers"])
def test_other_captures_have_none(folder: Folder, kind: str) -> None:
    for ask in (
        lambda: listed_cycles(pipeline(folder, 1, kind), Cycles(request_id="r", subscription="mart")),
        lambda: begun_cycle(pipeline(folder, 1, kind)),
        lambda: open_source(spec(folder, kind)).cycles.position(1),
        lambda: open_source(spec(folder, kind)).cycles.applied(Lsn(1)),
        lambda: open_source(spec(folder, kind)).cycles.ended(None, 1),
        lambda: open_source(spec(folder, kind)).cycles.failed(None, 1),
        open_source(spec(folder, kind)).cycles.request,
    ):
        with pytest.raises(EngineFault) as refused:
            ask()
        assert refused.value.kind is FaultKind.NOT_WITH_THIS_CAPTURE


def test_the_reader_reports_the_last_cycle_in_figures(folder: Folder) -> None:
    reader = open_source(spec(folder)).reader
    folder.files.confirm(0)
    assert reader.status("reader").last_cycle is None
    for _ in range(2):
        end_cycle(folder)
    assert reader.status("reader").last_cycle == LastCycle(2, end_of(2), 2_000_000, 0.5, 80)


def fail_cycle(folder: Folder, table: str | None = None) -> int:
    number = folder.numbers.begin(folder.files.last + 1)
    at_us = number * 1_000_000
    folder.files.fail(CycleFailed(number, at_us, at_us + 250_000, "source_unreachable", "shop", "closed", table))
    return number


def test_cycles_that_failed_are_listed_with_the_others(folder: Folder) -> None:
    folder.files.confirm(0)
    end_cycle(folder)
    fail_cycle(folder, "public.orders")
    fail_cycle(folder)
    end_cycle(folder)
    fail_cycle(folder)
    found = listed(folder, applied=4)
    assert states(found) == [(4, CycleState.APPLIED), (1, CycleState.APPLIED)]
    assert [each.number for each in found.failed] == [5, 3, 2]
    second = found.failed[2]
    assert (second.fault, second.detail, second.table) == ("source_unreachable", "shop: closed", "public.orders")
    assert (second.began_us, second.ended_us, second.position) == (2_000_000, 2_250_000, end_of(2))
    assert found.failed[1].table is None
    # What readers see, and what is due, is of cycles that had an effect.
    assert (found.as_of_us, found.due_us) == (4_000_000, 64_000_000)
    assert [each.number for each in listed(folder, applied=4, most=2, upto=4).failed] == [3, 2]
    last = open_source(spec(folder)).reader.status("reader").last_cycle
    assert last is not None
    assert (last.number, last.failures, last.unread) == (4, 1, 0)


def test_a_cycle_that_was_published_after_all_did_not_fail(folder: Folder) -> None:
    number = fail_cycle(folder)
    folder.files.begin(number).finish(CycleFound(number, 0, 1, 2, True, ()))
    folder.files.publish(number)
    found = listed(folder, applied=number)
    assert (states(found), found.failed) == ([(number, CycleState.APPLIED)], ())


def test_only_the_newest_failures_are_kept(folder: Folder) -> None:
    for _ in range(203):
        fail_cycle(folder)
    assert [each.number for each in folder.files.failures(1_000)] == list(range(203, 3, -1))
    assert [each.number for each in folder.files.failures(1_000, upto=7, above=4)] == [7, 6, 5]


def test_a_table_that_was_not_read_is_reported_with_its_fault(folder: Folder) -> None:
    lines = replace(ORDERS, name="lines", fault="source_privilege", detail="permission denied", rows_read=0)
    folder.files.confirm(0)
    end_cycle(folder, (ORDERS, lines))
    [cycle] = listed(folder, applied=1).cycles
    assert [(t.name, t.fault, t.detail) for t in cycle.tables] == [
        ("orders", None, ""),
        ("lines", "source_privilege", "permission denied"),
    ]
    last = open_source(spec(folder)).reader.status("reader").last_cycle
    assert last is not None
    assert (last.failures, last.unread) == (0, 1)


def test_a_report_that_is_trimmed_meanwhile_is_left_out(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        end_cycle(folder)
    folder.files.confirm(2)
    read_bytes = Path.read_bytes

    def gone(path: Path) -> bytes:
        if path.name == "1.json":
            raise FileNotFoundError
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", gone)
    assert [found.number for found in folder.files.reports(5)] == [2]
