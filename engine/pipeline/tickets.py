"""Tickets: markers in the source's log whose way to the target is timed. Tracks the open tickets of a subscription through its runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog

from engine.model.batch import SealedBatch, TicketSeen
from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TicketId
from engine.model.position import ZERO, Lsn
from engine.model.source import Landed
from engine.model.ticket import TicketMarker, TicketState, TicketWritten
from engine.platform.clock import Clock
from engine.platform.fault_policy import policy
from engine.records.messages import OwnMessage
from engine.tables.reporter import Reporter, TicketPassage

ENDED_KEPT = 1000
"""Number of ended tickets that are remembered, so that a repeated request reports their result instead of another marker."""
_MISSED = (
    "ticket_missed",
    "everything up to its marker is on the target, but the marker itself was not seen: the engine ended before it reported it, or"
    " the subscription began again with a new reader of the log",
    "Make another ticket.",
)
_NO_WRITES = (
    "Let the source's user write markers to its log (on PostgreSQL: EXECUTE on pg_logical_emit_message, or INSERT on penstock.changes if"
    " triggers capture it; MariaDB and SQLite take no tickets); a standby or a read-only database takes no tickets."
)
Problem = tuple[str, str, str]
"""Code, detail and remedy."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Open:
    claimed: bool = False
    """Whether its marker was written or is being written."""
    claimed_in: int | None = None
    """The session in which it was claimed last."""
    passage: TicketPassage = field(default_factory=TicketPassage)


@dataclass(frozen=True, slots=True)
class _Ended:
    state: TicketState
    passage: TicketPassage
    problem: Problem | None


class TicketTracker:
    """Open tickets of a subscription, over all its runs in this engine. Any thread may use it.

    Two engines may each write a marker for the same ticket, without knowing of the other; the first marker in the log counts.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()
        self._open: dict[TicketId, _Open] = {}
        self._ended: dict[TicketId, _Ended] = {}
        self._sessions = 0

    def begin_run(self) -> None:
        """A run begins. A marker that an earlier one has read is in the log still only if that is known (see `ask`)."""
        with self._lock:
            self._sessions += 1
            for one in self._open.values():
                if one.passage.until is None:
                    one.passage = replace(one.passage, position=None)

    def begin_session(self) -> None:
        """A log reader begins. It has no markers that were given to an earlier one."""
        with self._lock:
            self._sessions += 1

    def ask(self, ticket: TicketId, until: Lsn | None) -> None:
        """Register a requested ticket. If it has ended already, report its result again. Idempotent.

        `until`: set if its marker is in the log already; it was committed at or before this position.
        """
        with self._lock:
            ended = self._ended.get(ticket)
            if ended is None:
                self._open.setdefault(ticket, _Open(claimed=until is not None, passage=TicketPassage(until=until)))
        if ended is not None:
            self._reporter.ticket(ticket, ended.state, ended.passage, ended.problem)

    def open(self) -> list[TicketId]:
        """The tickets that have not ended, in the order of the requests."""
        with self._lock:
            return list(self._open)

    def marker_bound(self, ticket: TicketId) -> Lsn | None:
        """The position at or before which its marker was committed; None if it is not known, or if the ticket has ended."""
        with self._lock:
            found = self._open.get(ticket)
            return None if found is None else found.passage.until

    def claim(self, ticket: TicketId) -> bool:
        """Reserve the writing of its marker. Returns True to the first caller only, and False if the ticket has ended or its marker was
        read."""
        with self._lock:
            found = self._open.get(ticket)
            if found is None or found.claimed or found.claimed_in == self._sessions:
                return False
            if found.passage.position is not None:
                return False
            found.claimed, found.claimed_in = True, self._sessions
            return True

    def given(self, ticket: TicketId) -> None:
        """Its marker was given to the log reader, if there is one. It may be claimed again for a later session than that of the claim."""
        with self._lock:
            found = self._open.get(ticket)
            if found is not None:
                found.claimed = False

    def written(self, ticket: TicketId, written: TicketWritten) -> None:
        """Its marker was committed on the source. The run may have read it already."""

        def known(passage: TicketPassage) -> TicketPassage:
            at_us = written.at_us if passage.position is None else passage.written_us
            return replace(passage, until=written.until, written_us=at_us)

        self._go_on(ticket, known)

    def captured(self, marker: TicketMarker, passage: TicketPassage) -> None:
        """The current run read its marker. `passage` replaces the times of an earlier run. A second marker of the ticket is ignored."""

        def known(before: TicketPassage) -> TicketPassage | None:
            is_second = before.position is not None and marker.position > before.position
            return None if is_second else replace(passage, until=before.until)

        self._go_on(marker.ticket, known)

    def sealed(self, marker: TicketMarker, at_us: int) -> None:
        """The batch with this marker was sealed at `at_us` (µs since 1970)."""
        self._go_on(marker.ticket, lambda before: _if_timed_by(marker, before, replace(before, sealed_us=at_us)))

    def computed(self, marker: TicketMarker, at_us: int) -> None:
        """The net changes of the batch with this marker were computed at `at_us` (µs since 1970)."""
        self._go_on(marker.ticket, lambda before: _if_timed_by(marker, before, replace(before, computed_us=at_us)))

    def applied(self, marker: TicketMarker, at_us: int) -> None:
        """The batch with this marker was committed on the target at `at_us` (µs since 1970). The ticket ends."""

        def known(before: TicketPassage) -> TicketPassage | None:
            return _if_timed_by(marker, before, replace(before, applied_us=at_us))

        self._end(marker.ticket, TicketState.APPLIED, known)

    def passed(self, visible: Lsn) -> None:
        """Everything up to `visible` is on the target and its tickets were reported: open tickets with a marker before it end as missed."""
        if not self._open:
            return
        with self._lock:
            late = [
                ticket
                for ticket, one in self._open.items()
                if one.passage.until is not None and one.passage.until <= visible
            ]
        for ticket in late:
            self.lose(ticket, _MISSED)

    def lose(self, ticket: TicketId, problem: Problem) -> None:
        """End a ticket that was not timed to the end, with the reason."""
        self._end(ticket, TicketState.LOST, lambda before: before, problem)

    def _go_on(self, ticket: TicketId, known: Callable[[TicketPassage], TicketPassage | None]) -> None:
        with self._lock:
            found = self._open.get(ticket)
            after = None if found is None else known(found.passage)
            if found is None or after is None:
                return
            found.passage = after
        self._reporter.ticket(ticket, TicketState.UNDER_WAY, after)

    def _end(
        self,
        ticket: TicketId,
        state: TicketState,
        known: Callable[[TicketPassage], TicketPassage | None],
        problem: Problem | None = None,
    ) -> None:
        with self._lock:
            found = self._open.get(ticket)
            after = None if found is None else known(found.passage)
            if after is None:
                return
            del self._open[ticket]
            self._ended[ticket] = _Ended(state, after, problem)
            if len(self._ended) > ENDED_KEPT:
                del self._ended[next(iter(self._ended))]
        self._reporter.ticket(ticket, state, after, problem)


class RunTickets:
    """Times the tickets of one run at each stage.

    `landed` and `sealed` are called by the intake's thread, `computed` by the job stage, `applied` by the commit stage, each with the
    batches in the same order; `send` by any thread. Without tickets, the cost is one count for each landing.
    """

    def __init__(
        self,
        book: TicketTracker,
        clock: Clock,
        write: Callable[[TicketId], TicketWritten | None],
        demand: Callable[[Lsn], None],
        after: Lsn,
    ) -> None:
        """`write`: as TicketWriter.write. `demand`: makes the run reach a position soon. `after`: where the run begins."""
        self._book = book
        self._clock = clock
        self._write = write
        self._demand = demand
        self._reported = after
        """Tickets in batches up to here were reported."""
        self._since_us = clock.wall_us()
        self._known = ZERO
        self._transactions = 0
        self._commands = 0
        book.begin_run()

    def send_all(self) -> None:
        """Call `send` for every open ticket. Blocks."""
        for ticket in self._book.open():
            self.send(ticket)

    def send(self, ticket: TicketId) -> None:
        """Write the ticket's marker, unless another thread does; if it is in the log already, demand its position.

        Blocks for a round trip to the source. If the marker cannot be written, the ticket ends as lost.
        """
        until = self._book.marker_bound(ticket)
        if until is not None:
            self._demand(until)
            self._book.passed(self._reported)
            return
        # Again if the log reader was replaced meanwhile.
        while self._book.claim(ticket):
            try:
                written = self._write(ticket)
                if written is None:
                    self._book.given(ticket)
                else:
                    self._book.written(ticket, written)
            except EngineFault as fault:
                self._lose(ticket, fault)
            except Exception as error:  # A ticket without an end would be shown as pending forever.
                log.exception("ticket_failed", error=type(error).__name__)
                self._lose(ticket, EngineFault(FaultKind.INTERNAL, "ticket", type(error).__name__))

    def _lose(self, ticket: TicketId, fault: EngineFault) -> None:
        detail = f"its marker could not be written: {fault.subject}: {fault.detail}"
        remedy = _NO_WRITES if fault.kind is FaultKind.SOURCE_PRIVILEGE else policy(fault.kind).remedy
        self._book.lose(ticket, (fault.kind.value, detail, remedy))

    def begin_session(self, known: Lsn) -> None:
        """The log reader has a new session. Markers before `known` may be sent again, and are ignored. Those that a log reader writes are
        given to it."""
        self._known = known
        self._book.begin_session()
        if self._book.open():
            threading.Thread(target=self.send_all, name="tickets", daemon=True).start()

    def landed(self, landed: Landed, messages: Sequence[OwnMessage]) -> None:
        """Count the transactions and row changes of a landing, and time the markers among its `messages`."""
        kinds = landed.controls["kind"]
        for seen in messages:
            if isinstance(seen, TicketSeen) and seen.marker.position >= self._known:
                before = landed.controls["ordinal"] < seen.ordinal
                self._captured(seen.marker, *_counts(landed, kinds[before], seen.ordinal))
        end = 0 if landed.block is None else landed.block.first + landed.block.count
        transactions, commands = _counts(landed, kinds, end)
        self._transactions += transactions
        self._commands += commands

    def sealed(self, batch: SealedBatch, at_us: int) -> None:
        """The batch was sealed, at `at_us` (µs since 1970)."""
        for marker in batch.tickets:
            self._book.sealed(marker, at_us)

    def computed(self, batch: SealedBatch) -> None:
        """The batch's net changes were computed."""
        for marker in batch.tickets:
            self._book.computed(marker, self._clock.wall_us())

    def applied(self, batch: SealedBatch, at_us: int) -> None:
        """The batch was committed on the target, at `at_us` (µs since 1970)."""
        for marker in batch.tickets:
            self._book.applied(marker, at_us)
        self._reported = batch.end
        self._book.passed(batch.end)

    def _captured(self, marker: TicketMarker, transactions: int, commands: int) -> None:
        passage = TicketPassage(
            position=marker.position,
            written_us=marker.written_us,
            captured_us=self._clock.wall_us(),
            transactions=self._transactions + transactions,
            commands=self._commands + commands,
            counted_since_us=self._since_us,
        )
        self._book.captured(marker, passage)


def _if_timed_by(marker: TicketMarker, before: TicketPassage, after: TicketPassage) -> TicketPassage | None:
    """`after` if the ticket is timed by this marker, else None."""
    return after if before.position == marker.position else None


def _counts(landed: Landed, kinds: npt.NDArray[Any], end: int) -> tuple[int, int]:
    """The number of commits among `kinds`, which are the control records before the ordinal `end`, and of row changes before it.

    Every record that is not a control record counts as a row change, including announcements of types and origins.
    """
    commits = np.count_nonzero((kinds == ControlKind.COMMIT) | (kinds == ControlKind.STREAM_COMMIT))
    if landed.block is None:
        return int(commits), 0
    others = len(kinds) - np.count_nonzero(kinds == ControlKind.TRUNCATE)
    return int(commits), int(end - landed.block.first - others)
