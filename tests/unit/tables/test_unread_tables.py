"""Tables that the source cannot be read of: they park after what was read of them, and continue from there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.batch import TablePart
from engine.model.fault import FaultKind
from engine.model.identity import BatchId, TableId
from engine.model.position import Lsn
from engine.model.subscription_state import Reason
from engine.model.table_state import TableStateKind
from engine.records.unread import Unread, unread_record
from engine.tables.planner import PlannedBatch
from engine.tables.registry import TableEntry
from engine.tables.state import (
    AskResume,
    AwaitSource,
    CaughtUp,
    CopyStarted,
    Live,
    Parked,
    Pause,
    Paused,
    Registered,
    Resume,
    Unreadable,
    is_unread,
)
from tests.unit.tables.test_planner import A_ADDED, A_RETYPED, PAYLOADS, A, Bench, live, spec, versions

TA = TableId("ta")
WHY = Unread(FaultKind.SOURCE_PRIVILEGE, "permission denied for table a (42501)")
NOT = unread_record(A.relation, A.name, WHY)
KIND = FaultKind.TABLE_NOT_READ.value


@pytest.fixture(autouse=True)
def _known_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAYLOADS, NOT, A)


def entry(bench: Bench) -> TableEntry:
    found = bench.book.get(TA)
    assert found is not None
    return found


def commit(bench: Bench, planned: PlannedBatch) -> None:
    """What the commit stage makes of the table's state."""
    for table in planned.resumed:
        state, part = entry(bench).state, planned.part(table)
        if isinstance(state, Paused) and state.resuming and part is not None and part.after == state.applied:
            bench.book.apply(table, Resume())
            bench.book.apply(table, CaughtUp())


def assert_waits(bench: Bench, since: int) -> None:
    state = entry(bench).state
    assert isinstance(state, Parked)
    assert state.then == AwaitSource(BatchId(since))
    assert (state.reason.code, state.reason.reason) == (KIND, f"source_privilege: {WHY.detail}")


def test_it_parks_after_its_changes_and_goes_on_with_the_next_ones() -> None:
    bench = Bench(live("a", A))
    first = bench.plan(b"A", NOT)
    assert (first.unread, first.parked, versions(first, "a")) == ({TA}, {}, [A, A, A])
    assert_waits(bench, 2)
    assert not first.is_outdated(entry(bench)), "its changes before are applied"
    second = bench.plan(NOT, b"B")
    assert (second.unread, second.part(TA), second.resumed) == (frozenset(), None, frozenset())
    third = bench.plan(b"A")
    assert (third.resumed, third.unread, versions(third, "a")) == ({TA}, frozenset(), [A, A])
    part = third.part(TA)
    assert part is not None
    assert part.after == third.batch.after
    commit(bench, third)
    assert entry(bench).kind is TableStateKind.LIVE


def test_the_last_record_of_a_batch_counts() -> None:
    bench = Bench(live("a", A))
    planned = bench.plan(NOT, b"A")
    assert (planned.unread, planned.resumed, entry(bench).kind) == (frozenset(), frozenset(), TableStateKind.LIVE)
    planned = bench.plan(NOT, b"A", NOT)
    assert planned.unread == {TA}
    planned = bench.plan(b"A", NOT)
    assert (planned.resumed, planned.unread) == ({TA}, {TA})
    assert_waits(bench, 4)
    planned = bench.plan(b"A")
    assert (planned.resumed, planned.unread) == ({TA}, frozenset())
    part = planned.part(TA)
    assert part is not None
    assert part.after == planned.batch.after


def test_a_structure_that_changed_meanwhile_is_followed() -> None:
    bench = Bench(live("a", A))
    bench.plan(NOT)
    planned = bench.plan(b"A+")
    assert (planned.resumed, planned.restructured, versions(planned, "a")) == ({TA}, {TA}, [A, A_ADDED])


def test_rows_that_cannot_be_compared_any_more_are_copied_again() -> None:
    bench = Bench(live("a", A))
    bench.plan(NOT)
    planned = bench.plan(b"A!")
    assert A_RETYPED.columns != A.columns
    assert planned.parked[TA][0] == FaultKind.TABLE_STRUCTURE_CHANGED.value
    assert (planned.resumed, planned.part(TA)) == (frozenset(), None)


def test_a_table_parked_for_another_reason_stays_so() -> None:
    reason = Reason("table_missing", "gone", "create it")
    bench = Bench(TableEntry(spec("a"), Parked(reason), A))
    for record in (NOT, b"A", NOT):
        planned = bench.plan(record)
        assert (planned.unread, planned.resumed, planned.parked) == (frozenset(), frozenset(), {})
        assert entry(bench).state == Parked(reason)


def test_after_a_restart_the_reason_is_found_again() -> None:
    then = AwaitSource(BatchId(1))
    bench = Bench(TableEntry(spec("a"), Parked(Reason(KIND, "parked before the last start", "", known=False), then), A))
    bench.plan(NOT)
    assert_waits(bench, 1)
    assert bench.plan(b"A").resumed == {TA}


def test_a_copy_that_lacks_what_was_not_read_is_given_up() -> None:
    bench = Bench(TableEntry(spec("a"), Registered(), A))
    assert bench.plan(NOT).parked == {}, "its copy is still to come"
    bench.book.apply(TA, CopyStarted(BatchId(2)))
    assert bench.plan(NOT).parked == {}
    planned = bench.plan(b"B")
    assert planned.unread == frozenset()


def test_what_was_not_read_while_it_was_paused_counts_when_it_resumes() -> None:
    bench = Bench(live("a", A))
    bench.planner.leave(TA)
    bench.book.apply(TA, Pause(BatchId(1), Lsn(100)))
    bench.plan(b"A")
    bench.plan(NOT)
    assert entry(bench).kind is TableStateKind.PAUSED
    bench.book.apply(TA, AskResume())
    planned = bench.plan()
    assert (planned.resumed, planned.unread) == ({TA}, {TA})
    assert is_unread(entry(bench).state)


def test_batches_that_were_planned_before_the_commit_agree_with_it() -> None:
    """Two batches are planned before the first of them is committed."""
    bench = Bench(live("a", A))
    bench.plan(NOT)
    resumed = bench.plan(b"A")
    again = bench.plan(NOT)
    assert (resumed.resumed, again.unread, versions(again, "a")) == ({TA}, {TA}, [A, A])
    commit(bench, resumed)
    assert_waits(bench, 4)
    last = bench.plan(b"A")
    assert last.resumed == {TA}
    commit(bench, last)
    assert entry(bench).kind is TableStateKind.LIVE


@given(st.lists(st.lists(st.booleans(), max_size=3), min_size=1, max_size=8), st.data())
def test_every_change_is_in_exactly_one_batch_whenever_batches_are_committed(
    batches: list[list[bool]], data: st.DataObject
) -> None:
    """True: the table was read, with a change; False: it could not be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PAYLOADS, NOT, A)
        bench = Bench(live("a", A))
        waiting: list[PlannedBatch] = []
        readable = True
        for records in batches:
            planned = bench.plan(*(b"A" if read else NOT for read in records))
            part: TablePart | None = planned.part(TA)
            if any(records):
                assert part is not None
                assert part.after == planned.batch.after
                assert (TA in planned.resumed) is not readable
            readable = records[-1] if records else readable
            assert (TA in planned.unread) is (not readable and part is not None)
            assert is_unread(entry(bench).state) is not readable
            waiting.append(planned)
            while waiting and data.draw(st.booleans()):
                commit(bench, waiting.pop(0))
        for planned in waiting:
            commit(bench, planned)
        assert isinstance(entry(bench).state, Live) is readable
        refused = bench.book.apply(TA, Unreadable(Reason(KIND, "", ""), BatchId(9)))
        assert isinstance(refused, TableEntry)
