"""The outstanding freshness waits of one subscription, and the rules by which they end. No I/O, no clock."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count

from engine.model.position import Lsn
from engine.model.positions import Mark, Marks, Reached, first_uncovered
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from server.freshness.subscription_status import HALTED_STATES, SubscriptionStatus, TableView


class WaitStatus(StrEnum):
    """State of a wait; all but `waiting` are final."""

    WAITING = "waiting"
    SATISFIED = "satisfied"
    TIMED_OUT = "timed_out"
    STALE = "stale"
    """The deadline passed, and the wait asked for what is visible then."""
    UNREACHABLE = "unreachable"
    FAILED = "failed"
    """The current position of the source could not be read."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Why a wait cannot be satisfied, and the remedy."""

    detail: str
    remedy: str | None
    cause: str | None = None
    """The cause, if no declaration prevents it: that of the absence (`Absence.cause`)."""


Verdict = Unreachable | None
"""None: satisfied."""


@dataclass(eq=False, slots=True)
class Wait:
    """One outstanding wait. `tables`: ids of the tables it covers; `named` with no tables: the marks alone.

    `ended` is called once, with the verdict. `patient`: it continues to wait while engine or source are unavailable.
    """

    marks: Marks
    tables: set[str]
    named: bool
    ended: Callable[[Verdict], None]
    patient: bool = False
    open: bool = True
    due: bool = field(default=False)
    """Its marks are applied; only tables delay it."""


Heap = list[tuple[int, int, Wait]]
"""Position in one log, number of the wait, wait."""


class WaitRegistry:
    """Outstanding waits of one subscription, ended in the order of their positions.

    `status` is shared with the tracker, which changes it and then calls `end_reached_waits` or `end_decided_waits`. Not
    thread-safe: used on the event loop only. `Wait.ended` is called from within these methods and must not call back
    into the registry.
    """

    def __init__(self, status: SubscriptionStatus) -> None:
        self.status = status
        self.report_received_s: float | None = None
        """While the waits decided by reports are ended: the time at which the server received the reports. Set by the tracker."""
        self._order = count()
        self._by_position: dict[str, Heap] = defaultdict(list)
        """By log, the waits of which the first unreached mark is in that log."""
        self._far: dict[str, Heap] = defaultdict(list)
        """By log, marks of waits that are too far ahead to be demanded."""
        self._waits: dict[int, Wait] = {}
        self._numbers: dict[Wait, int] = {}
        self._wanted: set[Mark] = set()
        self._demanded: dict[str, list[Lsn]] = defaultdict(list)
        """By log, positions that were demanded and are not yet applied, in order."""

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, wait: Wait) -> bool:
        """Register a wait.

        Returns False if it is satisfied or unreachable already: then it is not registered, and `ended` has been called.
        """
        verdict = self._verdict_on(wait)
        if verdict is not _PENDING:
            wait.open = False
            wait.ended(verdict)
            return False
        number = next(self._order)
        self._waits[number] = wait
        self._numbers[wait] = number
        wait.due = not self._await_next_mark(number, wait, self.status.confirmed_marks)
        for mark in wait.marks:
            if self._is_near(mark):
                self._wanted.add(mark)
            else:
                heapq.heappush(self._far[mark.log], (mark.position.value, number, wait))
        return True

    def judge(self, wait: Wait) -> tuple[bool, Unreachable | None]:
        """Whether this wait, which is not registered, is satisfied now; and why it cannot be, if so."""
        verdict = self._verdict_on(wait)
        return verdict is None, verdict if isinstance(verdict, Unreachable) else None

    def unreachable_reason(self, wait: Wait) -> Unreachable | None:
        """Why this wait, registered or not, cannot be satisfied whatever its position; None if it can."""
        if self.status.is_halted:
            return why_halted(self.status)
        return self._trouble_with_tables(wait) or self._absence_verdict(wait)

    def remove(self, wait: Wait) -> None:
        """Forget a wait whose deadline passed or that was cancelled; its `ended` is not called."""
        number = self._numbers.pop(wait, None)
        if number is not None:
            wait.open = False
            del self._waits[number]
            for heap in (*self._by_position.values(), *self._far.values()):
                if len(heap) > 64 and len(heap) > 2 * len(self._waits):
                    _compact(heap)

    def end_reached_waits(self) -> int:
        """The applied position moved: end the waits that it satisfies, lowest position first. Returns their number."""
        ended, reached = 0, self.status.confirmed_marks
        for log, at in reached.items():
            heap = self._by_position[log]
            while heap and heap[0][0] <= at.value:
                _, number, wait = heapq.heappop(heap)
                if wait.open and not self._await_next_mark(number, wait, reached):
                    wait.due = True
                    ended += self._end_if_decided(wait)
        self._bring_near()
        return ended

    def reopen_reached_waits(self) -> None:
        """The applied position went back: waits whose position it had reached are no longer reached."""
        self._demanded.clear()
        reached = self.status.confirmed_marks
        for number, wait in self._waits.items():
            if wait.due:
                wait.due = not self._await_next_mark(number, wait, reached)

    def end_decided_waits(self, tables: Collection[str] | None = None) -> int:
        """End the waits that are satisfied or unreachable after a change of states; lowest position first. Returns their number.

        `tables`: ids of those whose state changed, so that only waits for one of them are examined. None: the
        subscription's own state changed, or any table's.
        """
        affected = [w for w in self._waits.values() if tables is None or not w.tables.isdisjoint(tables)]
        return sum(self._end_if_decided(wait) for wait in sorted(affected, key=lambda w: w.marks))

    def take_demand(self) -> list[Mark]:
        """The marks to demand of the engine now, in ascending order; the next call does not return them again.

        A position that is known to exist covers those before it. One beyond may never be reached, so it covers only
        itself.
        """
        for log, applied in self.status.applied_marks.items():
            del self._demanded[log][: bisect_left(self._demanded[log], applied)]
        fresh: list[Mark] = []
        for mark in sorted(self._wanted, reverse=True):
            if not self._is_covered(mark):
                insort(self._demanded[mark.log], mark.position)
                fresh.append(mark)
        self._wanted.clear()
        return fresh[::-1]

    def reset_demand(self) -> None:
        """The engine or its stream was replaced: the next `take_demand` returns the marks of all outstanding waits."""
        outstanding = (mark for wait in self._waits.values() if not wait.due for mark in wait.marks)
        self._wanted = {mark for mark in outstanding if self._is_near(mark)}
        self._demanded.clear()

    def end_all(self, verdict: Verdict) -> None:
        """End every wait, because the subscription was deleted."""
        for wait in list(self._waits.values()):
            self.remove(wait)
            wait.ended(verdict)

    def _end_if_decided(self, wait: Wait) -> int:
        verdict = self._verdict_on(wait)
        if verdict is _PENDING:
            return 0
        self.remove(wait)
        wait.ended(verdict)
        return 1

    def _verdict_on(self, wait: Wait) -> Verdict | _Pending:
        status = self.status
        if status.state is SubscriptionState.FAILED and status.is_halted:
            return why_halted(status)
        trouble = self._trouble_with_tables(wait)
        if trouble is not None:
            return trouble
        reached = first_uncovered(status.confirmed_marks, wait.marks) is None
        if reached and all(status.tables[table].state is TableStateKind.LIVE for table in wait.tables):
            return None
        if status.is_halted:
            return why_halted(status)
        return self._absence_verdict(wait) or _PENDING

    def _absence_verdict(self, wait: Wait) -> Unreachable | None:
        absence = None if wait.patient else self.status.lasting_absence()
        if absence is None:
            return None
        detail = f"Nothing is applied to subscription {self.status.name!r}: {absence.detail}."
        return Unreachable(detail, absence.remedy, absence.cause)

    def _trouble_with_tables(self, wait: Wait) -> Unreachable | None:
        tables = self.status.tables
        for table in list(wait.tables):
            view = tables.get(table)
            if view is not None and not view.left_out:
                continue
            if not wait.named and (view is None or view.state is TableStateKind.REMOVED):
                wait.tables.discard(table)
                continue
            return table_left_out(view)
        return None if wait.tables or wait.named else nothing_to_wait_for(self.status)

    def _await_next_mark(self, number: int, wait: Wait, reached: Reached) -> bool:
        """Put the wait to its first mark that is not reached. Returns False if there is none: then it is in no heap."""
        mark = first_uncovered(reached, wait.marks)
        if mark is not None:
            heapq.heappush(self._by_position[mark.log], (mark.position.value, number, wait))
        return mark is not None

    def _is_near(self, mark: Mark) -> bool:
        furthest = self.status.highest_marks.get(mark.log)
        return furthest is None or mark.position.value <= furthest.value + self.status.form.horizon

    def _bring_near(self) -> None:
        for log, heap in self._far.items():
            while heap and self._is_near(mark := Mark(log, Lsn(heap[0][0]))):
                if heapq.heappop(heap)[2].open:
                    self._wanted.add(mark)

    def _is_covered(self, mark: Mark) -> bool:
        demanded = self._demanded[mark.log]
        at = bisect_left(demanded, mark.position)
        if at == len(demanded):
            return False
        following, furthest = demanded[at], self.status.highest_marks.get(mark.log)
        return following == mark.position or (furthest is not None and following <= furthest)


def _compact(heap: Heap) -> None:
    heap[:] = [entry for entry in heap if entry[2].open]
    heapq.heapify(heap)


class _Pending(StrEnum):
    PENDING = "pending"


_PENDING = _Pending.PENDING


def why_halted(status: SubscriptionStatus) -> Unreachable:
    """Why a subscription that is halted (`SubscriptionStatus.is_halted`) applies nothing, with the remedy."""
    if status.deleting:
        return Unreachable(f"Subscription {status.name!r} is being deleted.", "Wait on one that stays.")
    remedy = f"Set desired_state of subscription {status.name!r} to 'running', then wait again."
    if status.state not in HALTED_STATES:
        return Unreachable(f"Subscription {status.name!r} has the desired_state '{status.desired.value}'.", remedy)
    because = f": {status.reason}" if status.reason else ""
    return Unreachable(f"Subscription {status.name!r} is {status.state.value}{because}.", status.remedy or remedy)


def table_left_out(view: TableView | None) -> Unreachable:
    """The verdict for a wait that covers a table which does not follow the source."""
    if view is None:
        return Unreachable("A table of this wait was removed.", "Wait again for tables that the subscription has.")
    remedy = view.remedy or f"{how_to_follow(view)}, or leave the table out of the wait."
    return Unreachable(what_is_left_out(view), remedy)


_REMEDIES = {
    TableStateKind.PARKED: "Reload the table",
    TableStateKind.REMOVED: "Add the table to the subscription again",
}


def what_is_left_out(view: TableView) -> str:
    """One sentence: the table, its state, and why it does not follow."""
    why = why_left_out(view)
    return f"Table {view.schema}.{view.name} is {view.state.value}{f': {why}' if why else ''}."


def how_to_follow(view: TableView) -> str:
    """How to make the table follow its source, as a sentence without its full stop."""
    paused = "Set the table's desired_state to 'running'"
    return (view.remedy or _REMEDIES.get(view.state, paused)).rstrip(".")


def why_left_out(view: TableView) -> str | None:
    """Why a table does not follow the source."""
    lags = view.paused and view.state not in {TableStateKind.PAUSED, TableStateKind.PARKED, TableStateKind.REMOVED}
    return "its desired_state is 'paused'" if lags else view.reason


def nothing_to_wait_for(status: SubscriptionStatus) -> Unreachable:
    """The verdict for a wait without named tables when no table follows the source."""
    return Unreachable(
        f"Subscription {status.name!r} has no table that follows its source: each is paused or parked, or there is none.",
        "Resume or reload a table, then wait again.",
    )
