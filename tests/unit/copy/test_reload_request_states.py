"""Tables that are copied again automatically."""

from __future__ import annotations

import threading

import pytest

from engine.model.identity import BatchId, TableId
from engine.model.position import Lsn
from engine.model.subscription import SchemaPolicy
from engine.model.table_state import Refused, TableStateKind
from engine.tables.copy_admission import CopyAdmission
from engine.tables.parking import RENEWALS, TableParking
from engine.tables.registry import TableChange, TableEntry, TableRegistry
from engine.tables.state import (
    CaughtUp,
    CopyStarted,
    Pause,
    Registered,
    Reload,
    awaits_recopy,
    holds_up_to,
)
from tests.fixtures.table_copies import finish_copy
from tests.unit.tables.test_planner import A, live, spec

CODE, T = "table_structure_changed", TableId("ta")


class Told:
    """A registry and its reports: state and code."""

    def __init__(self, entry: TableEntry, policy: SchemaPolicy = SchemaPolicy.APPLY) -> None:
        self.states: list[tuple[str, str | None]] = []
        self.ended: list[TableEntry] = []
        self.book = TableRegistry()
        self.admission, self.parking = CopyAdmission(self.book), TableParking(self.book, policy)
        self.book.subscribe(self._take)
        self.book.add(entry)

    def _take(self, change: TableChange) -> None:
        entry = change.entry
        if change.shown:
            self.states.append((entry.shown.value, entry.reason.code if entry.reason else None))
        if change.ended:
            self.ended.append(entry)

    @property
    def entry(self) -> TableEntry:
        found = self.book.get(T)
        assert found is not None
        return found


def test_a_new_copy_is_shown_from_the_moment_that_calls_for_it() -> None:
    told = Told(live("a", A))
    told.parking.park(T, CODE, "column c2 changed its type")
    assert (told.entry.kind, awaits_recopy(told.entry.state)) == (TableStateKind.PARKED, True)
    assert [awaits_recopy(entry.state) for entry in told.ended] == [True]
    told.book.apply(T, Reload(BatchId(3)))
    told.book.apply(T, CopyStarted(BatchId(3)))
    assert (told.entry.kind, awaits_recopy(told.entry.state)) == (TableStateKind.RELOADING, False)
    assert told.states == [("live", None), *[("reloading", CODE)] * 3]
    told.admission.begin_chunk(T, A, Lsn(1), None)
    finish_copy(told.book, T)
    told.book.apply(T, CaughtUp())
    assert told.states[-2:] == [("catching_up", None), ("live", None)]


@pytest.mark.parametrize("policy", [SchemaPolicy.ASK, SchemaPolicy.IGNORE])
def test_where_changes_are_not_followed_the_table_parks(policy: SchemaPolicy) -> None:
    told = Told(live("a", A), policy)
    told.parking.park(T, CODE, "column c2 changed its type")
    assert told.states[-1] == ("parked", CODE)
    assert told.entry.reason is not None
    assert "reloads" in told.entry.reason.remedy


def test_the_end_of_a_copy_does_not_count_for_the_next_one() -> None:
    told = Told(live("a", A))
    told.parking.park(T, CODE, "column c2 changed its type")
    told.book.apply(T, Reload(BatchId(1)))
    told.admission.begin_chunk(T, A, Lsn(1), None)
    told.parking.park(T, CODE, "it changed again while the last rows were written")
    told.book.apply(T, Reload(BatchId(1)))
    assert isinstance(finish_copy(told.book, T), Refused)
    assert told.entry.kind is TableStateKind.RELOADING
    told.admission.begin_chunk(T, A, Lsn(2), None)
    finish_copy(told.book, T)
    assert told.entry.kind is TableStateKind.CATCHING_UP
    assert (holds_up_to(told.entry.state), told.entry.keeps_from) == (Lsn(2), BatchId(1))


def test_how_tables_stand_is_told_before_what_moves_meanwhile() -> None:
    """Otherwise a state that is outdated could be the last one that the server receives."""
    told = Told(live("a", A))
    moving: list[threading.Thread] = []

    def slow(_: TableChange) -> None:
        if not moving:
            moving.append(threading.Thread(target=lambda: told.book.apply(T, Pause(BatchId(1), Lsn(1)))))
            moving[0].start()
            moving[0].join(0.2)  # It has to wait for the lock; without a lock it would have finished by now.

    told.book._listeners.insert(0, slow)
    told.book.report()
    moving[0].join(5)
    assert told.states == [("live", None), ("live", None), ("paused", None)]


def test_what_no_copy_puts_right_parks() -> None:
    told = Told(live("a", A))
    told.parking.park(T, "value_out_of_domain", "column n")
    assert told.states[-1] == ("parked", "value_out_of_domain")


def test_copies_that_never_get_it_live_end() -> None:
    told = Told(TableEntry(spec("a"), Registered()))
    for _ in range(RENEWALS):
        told.parking.park(T, CODE, "it changed again")
        assert told.entry.shown is TableStateKind.RELOADING
        told.book.apply(T, Reload(BatchId(1)))
        for _ in range(RENEWALS):
            told.parking.park(T, CODE, "and again before the copy began")
            told.book.apply(T, Reload(BatchId(1)))
        told.admission.begin_chunk(T, A, Lsn(1), None)
    told.parking.park(T, CODE, "it changed again")
    assert told.entry.shown is TableStateKind.PARKED
    told.book.apply(T, Reload(BatchId(1)))
    told.admission.begin_chunk(T, A, Lsn(1), None)
    finish_copy(told.book, T)
    told.book.apply(T, CaughtUp())
    told.parking.park(T, CODE, "and again")
    assert told.entry.shown is TableStateKind.RELOADING


def test_what_was_found_of_a_table_that_moved_on_is_forgotten() -> None:
    told = Told(live("a", A), SchemaPolicy.ASK)
    told.parking.park(T, "table_missing", "it was dropped")
    known = told.entry
    told.book.apply(T, Reload(BatchId(1)))
    told.parking.park(T, CODE, "the table is there again", known=known)
    assert told.entry.kind is TableStateKind.RELOADING
    told.parking.park(T, CODE, "the table was dropped and created again", known=told.entry)
    assert told.entry.kind is TableStateKind.PARKED
