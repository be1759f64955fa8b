"""The transition of a table's state: the arrows of the kinds, with data, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from engine.model.copies import KeyBound
from engine.model.identity import BatchId
from engine.model.position import Lsn
from engine.model.subscription_state import Reason
from engine.model.table_state import ARROWS, Refused, TableEventKind, TableStateKind
from engine.tables.state import (
    Approve,
    AskResume,
    AwaitApproval,
    AwaitSource,
    CatchingUp,
    CaughtUp,
    Chunk,
    ChunkBegun,
    ChunkPlanned,
    ChunkRead,
    ChunkTaken,
    ChunkVoided,
    Copy,
    CopyAltered,
    Copying,
    CopyLost,
    CopyStarted,
    CopyVoided,
    Fault,
    Hold,
    KeptReleased,
    Live,
    Parked,
    PartitionReload,
    Partitions,
    PartitionsBegun,
    Pause,
    Paused,
    Readable,
    ReadProgress,
    Recopy,
    Registered,
    Reload,
    Reloading,
    Remove,
    Removed,
    Resume,
    TableEvent,
    TableState,
    Unreadable,
    copy_of,
    kept_from,
    kind_of,
    outdates_plans,
    transition,
)
from tests.unit.tables.test_planner import A, B

FIVE, NINE = BatchId(5), BatchId(9)
AT, LATER = Lsn(100), Lsn(200)
WHY = Reason("table_structure_changed", "a column changed its type", "reload it")
CHUNK = Chunk(3, A, AT, KeyBound(("10",)), first=False)
FIRST, LAST = Chunk(3, A, AT, KeyBound(("10",)), first=True), Chunk(3, A, AT, None, first=False)
WHOLE = Chunk(3, A, AT, None, first=True)
OF_PARTITIONS = Chunk(3, A, AT, None, first=False, partitions=Partitions("r", (), {}))
FOLLOWED = Copy(A, AT, followed=True)
COPIES = [None, FOLLOWED, *(Copy(A, AT, not one.first, one) for one in (CHUNK, FIRST, LAST, WHOLE))]
STATES: list[TableState] = [
    *(Registered(copy) for copy in (None, FOLLOWED)),
    Registered(covered=AT),
    *(Copying(copy, FIVE) for copy in COPIES),
    Copying(FOLLOWED),
    *(CatchingUp(AT, Copy(A, AT, not one, Chunk(3, A, AT, None, first=one)), FIVE) for one in (False, True)),
    CatchingUp(AT, kept_from=FIVE),
    Live(AT),
    *(Live(AT, PartitionReload("r", FIVE, chunk)) for chunk in (None, OF_PARTITIONS)),
    Paused(),
    *(Paused(AT, FIVE, resuming=resuming) for resuming in (False, True)),
    *(Reloading(FIVE, copy, WHY) for copy in COPIES),
    *(Parked(WHY, then) for then in (None, Recopy(), AwaitApproval(AT), AwaitApproval(AT, FIVE), AwaitSource(FIVE))),
    Removed(),
]
ARROW_EVENTS: list[tuple[TableEventKind, TableEvent]] = [
    (TableEventKind.COPY_STARTED, CopyStarted(NINE)),
    (TableEventKind.COPY_FINISHED, ChunkRead(3, 1, 1)),
    (TableEventKind.CAUGHT_UP, CaughtUp()),
    (TableEventKind.COPY_LOST, CopyLost()),
    (TableEventKind.COPY_LOST, CopyLost(NINE)),
    (TableEventKind.COPY_LOST, CopyVoided()),
    (TableEventKind.COPY_LOST, ChunkVoided()),
    (TableEventKind.PAUSE, Pause(NINE, LATER)),
    (TableEventKind.PAUSE, Pause(NINE, LATER, taken_in=True)),
    (TableEventKind.RESUME, Resume()),
    (TableEventKind.RELOAD, Reload(NINE)),
    (TableEventKind.FAULT, Fault(WHY)),
    (TableEventKind.FAULT, Fault(WHY, recopy=True)),
    (TableEventKind.FAULT, Hold(WHY, B, NINE, LATER)),
    (TableEventKind.FAULT, Unreadable(WHY, NINE)),
    (TableEventKind.READABLE, Readable(NINE, LATER)),
    (TableEventKind.APPROVE, Approve()),
    (TableEventKind.REMOVE, Remove()),
]
"""Each kind of event, and the events that are of it: where these change the kind of the state, then so."""
DATA_EVENTS: list[TableEvent] = [
    KeptReleased(),
    CopyAltered(B),
    ChunkBegun(CHUNK),
    ChunkBegun(FIRST),
    ChunkPlanned(3),
    ChunkTaken(3),
    ChunkTaken(4),
    ChunkRead(4, 1, 1),
    AskResume(),
    ChunkBegun(OF_PARTITIONS),
    PartitionsBegun("s", NINE),
]
"""These never change it."""


def moves(kind: TableStateKind, event: TableEventKind) -> Iterator[TableState]:
    """Where the events of a kind lead from the states of a kind."""
    for state, (of, one) in product(STATES, ARROW_EVENTS):
        if kind_of(state) is kind and of is event:
            after = transition(state, one)
            if not isinstance(after, Refused):
                yield after


@pytest.mark.parametrize(("kind", "event"), list(product(TableStateKind, TableEventKind)))
def test_every_pair_of_kinds_goes_where_its_arrow_does(kind: TableStateKind, event: TableEventKind) -> None:
    found = {kind_of(after) for after in moves(kind, event)}
    arrow = ARROWS.get((kind, event))
    assert found - {kind} == ({arrow} if arrow is not None else set()) - {kind}
    assert arrow is None or arrow in found


def test_what_only_adds_data_changes_no_kind() -> None:
    taken = 0
    for state, event in product(STATES, DATA_EVENTS):
        after = transition(state, event)
        if not isinstance(after, Refused):
            taken += 1
            assert kind_of(after) is kind_of(state), (state, event)
    assert taken > len(DATA_EVENTS)


def test_a_removed_table_takes_nothing() -> None:
    events = [*(event for _, event in ARROW_EVENTS), *DATA_EVENTS]
    assert all(isinstance(transition(Removed(), event), Refused) for event in events)


def test_what_is_refused_says_why() -> None:
    for state, (_, event) in product(STATES, ARROW_EVENTS):
        after = transition(state, event)
        assert not isinstance(after, Refused) or after.reason


def moved(state: TableState, *events: TableEvent) -> TableState:
    for event in events:
        after = transition(state, event)
        assert not isinstance(after, Refused), (state, event)
        state = after
    return state


def test_the_life_of_a_copy_under_one_snapshot() -> None:
    copying = moved(Registered(), CopyStarted(FIVE), ChunkBegun(WHOLE))
    assert copying == Copying(Copy(A, AT, chunk=WHOLE), FIVE)
    read = moved(copying, ChunkRead(3, 7, 0))
    assert (kind_of(read), kept_from(read)) == (TableStateKind.CATCHING_UP, FIVE)
    assert moved(read, ChunkPlanned(3), ChunkTaken(3), CaughtUp()) == Live(AT)
    for event in (CopyLost(), CopyVoided(), ChunkVoided()):
        assert copy_of(moved(copying, event)) is None
        assert copy_of(moved(moved(read, ChunkPlanned(3)), event)) is None


def test_the_life_of_a_copy_in_chunks() -> None:
    first = moved(Registered(), CopyStarted(FIVE), ChunkBegun(FIRST), ChunkRead(3, 7, 70), ChunkPlanned(3))
    assert copy_of(first) == Copy(A, AT, True, Chunk(3, A, AT, FIRST.upto, True, ReadProgress.PLANNED, 7, 70))
    between = moved(first, ChunkTaken(3))
    assert between == Copying(FOLLOWED)
    last = moved(between, CopyStarted(NINE), ChunkBegun(LAST), ChunkRead(3, 7, 70))
    assert (kind_of(last), kept_from(last)) == (TableStateKind.CATCHING_UP, NINE)
    assert moved(last, ChunkVoided()) == Registered(FOLLOWED, AT)
    assert moved(last, ChunkPlanned(3), ChunkTaken(3), CaughtUp()) == Live(AT)


@pytest.mark.parametrize("begin", [Copying(FOLLOWED, FIVE), Reloading(FIVE, FOLLOWED)])
def test_a_lost_chunk_leaves_the_copy_and_a_void_copy_leaves_nothing(begin: Copying | Reloading) -> None:
    reading = moved(begin, ChunkBegun(CHUNK))
    for event in (CopyLost(), ChunkVoided()):
        after = moved(reading, event)
        assert copy_of(after) == FOLLOWED
        assert not outdates_plans(reading, event, after)
    after = moved(reading, CopyVoided())
    assert copy_of(after) is None
    assert outdates_plans(reading, CopyVoided(), after)


def test_a_first_chunk_that_is_void_leaves_nothing() -> None:
    reading = moved(Copying(kept_from=FIVE), ChunkBegun(FIRST), ChunkRead(3, 1, 1), ChunkPlanned(3))
    after = moved(reading, ChunkVoided())
    assert after == Copying(covered=AT)
    assert outdates_plans(reading, ChunkVoided(), after)


def test_a_pause_keeps_what_comes_and_outdates_nothing() -> None:
    pause = Pause(FIVE, AT)
    assert moved(Live(), pause) == Paused(AT, FIVE)
    assert not outdates_plans(Live(), pause, Paused(AT, FIVE))
    again = Pause(NINE, LATER, taken_in=True)
    assert moved(Live(), pause, AskResume(), again) == Paused(LATER, NINE)
    assert moved(Live(), pause, AskResume(), Pause(NINE, LATER)) == Paused(AT, FIVE)
    assert moved(Live(), pause, AskResume(), Resume()) == CatchingUp(AT, kept_from=FIVE)
    assert isinstance(transition(moved(Registered(), pause), AskResume()), Refused)


def test_what_waits_for_approval_waits_for_more_and_is_applied_as_kept_first() -> None:
    more = Reason("schema_change_waiting", "two columns were added", "approve it")
    held = moved(Live(), Hold(WHY, A, FIVE, AT), Hold(more, A, NINE, LATER))
    assert held == Parked(more, AwaitApproval(AT, FIVE))
    assert not outdates_plans(Live(), Hold(WHY, A, FIVE, AT), held)
    assert moved(held, Approve()) == Paused(AT, FIVE, resuming=True)
    assert moved(Paused(AT, FIVE), Hold(WHY, A, NINE, LATER)) == Parked(WHY, AwaitApproval(AT, FIVE))
    taken_in = Hold(WHY, A, NINE, LATER, taken_in=True)
    assert moved(Paused(AT, FIVE, resuming=True), taken_in) == Parked(WHY, AwaitApproval(LATER, NINE))


@pytest.mark.parametrize("then", [None, Recopy()])
def test_a_reload_says_what_it_is_for_where_it_was_not_asked_for(then: Recopy | None) -> None:
    reason = WHY if then is not None else None
    assert moved(Parked(WHY, then), Reload(FIVE)) == Reloading(FIVE, reason=reason)
    assert moved(Parked(WHY, then), Reload(FIVE), CopyStarted(NINE), CopyLost()) == Reloading(NINE, reason=reason)


def test_another_reload_of_partitions_is_not_ended() -> None:
    live = moved(Live(AT), PartitionsBegun("r", FIVE), ChunkBegun(OF_PARTITIONS), ChunkRead(3, 7, 0), ChunkPlanned(3))
    assert isinstance(live, Live)
    assert live.reload is not None
    assert live.reload.chunk == replace(OF_PARTITIONS, progress=ReadProgress.PLANNED, rows=7)
    for event in (ChunkTaken(4), ChunkVoided(4), ChunkBegun(OF_PARTITIONS), ChunkBegun(WHOLE), CopyStarted(NINE)):
        assert isinstance(transition(live, event), Refused)
    for event in (ChunkTaken(3), ChunkVoided(3), ChunkVoided()):
        assert moved(live, event) == Live(AT)


@pytest.mark.parametrize("event", [Fault(WHY), Reload(NINE), Remove()])
def test_what_takes_a_table_out_outdates_its_plans(event: TableEvent) -> None:
    assert outdates_plans(Live(), event, moved(Live(), event))
