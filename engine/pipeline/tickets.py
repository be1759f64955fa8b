"""Tickets in the engine: which are open in a subscription, and how far the run under way has taken each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog

from engine.model.batch import MessageSeen, SealedBatch, TicketSeen
from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TicketId
from engine.model.position import ZERO, Lsn
from engine.model.source import Landed
from engine.model.ticket import TicketMarker, TicketState, TicketWritten
from engine.platform.clock import Clock
from engine.platform.fault_policy import policy
from engine.tables.reporter import Reporter, TicketPassage

ENDED_KEPT = 1000
"""How many of the last tickets that ended are known, so that none is begun again."""
_MISSED = (
    "ticket_missed",
    "everything up to its marker is on the target, but the marker itself was not seen: the engine ended before it reported it, or"
    " the subscription began again with a new slot",
    "Make another ticket.",
)
_NO_WRITES = "Grant EXECUTE on the source's function pg_logical_emit_message; a standby or a read-only database takes no tickets."
Problem = tuple[str, str, str]
"""Code, detail and remedy."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Open:
    claimed: bool = False
    """Its marker is being written, or was."""
    passage: TicketPassage = field(default_factory=TicketPassage)


@dataclass(frozen=True, slots=True)
class _Ended:
    state: TicketState
    passage: TicketPassage
    problem: Problem | None


class TicketTracker:
    """Open tickets of a subscription, over all its runs in this engine. Safe to use from any thread.

    Where an engine has written a second marker of a ticket, not knowing that another had written one, the first in the log counts.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()
        self._open: dict[TicketId, _Open] = {}
        self._ended: dict[TicketId, _Ended] = {}

    def ask(self, ticket: TicketId, until: Lsn | None) -> None:
        """Somebody wants it. May come twice; how one ended is told again.

        `until`: its marker is in the log already, and was committed at or before this position.
        """
        with self._lock:
            ended = self._ended.get(ticket)
            if ended is None:
                self._open.setdefault(ticket, _Open(until is not None, TicketPassage(until=until)))
        if ended is not None:
            self._reporter.ticket(ticket, ended.state, ended.passage, ended.problem)

    def open(self) -> list[TicketId]:
        """Those that have not ended, in the order in which they were asked for."""
        with self._lock:
            return list(self._open)

    def until(self, ticket: TicketId) -> Lsn | None:
        """Where its marker was committed at the latest; None where that is not known, or the ticket has ended."""
        with self._lock:
            found = self._open.get(ticket)
            return None if found is None else found.passage.until

    def claim(self, ticket: TicketId) -> bool:
        """Whether the caller is the one who writes its marker."""
        with self._lock:
            found = self._open.get(ticket)
            if found is None or found.claimed:
                return False
            found.claimed = True
            return True

    def written(self, ticket: TicketId, written: TicketWritten) -> None:
        """Its marker was committed. It may have come by already."""

        def known(passage: TicketPassage) -> TicketPassage:
            at_us = written.at_us if passage.position is None else passage.written_us
            return replace(passage, until=written.until, written_us=at_us)

        self._go_on(ticket, known)

    def captured(self, marker: TicketMarker, passage: TicketPassage) -> None:
        """Its marker came by in the run under way; what is known from an earlier run no longer counts."""

        def known(before: TicketPassage) -> TicketPassage | None:
            is_second = before.position is not None and marker.position > before.position
            return None if is_second else replace(passage, until=before.until)

        self._go_on(marker.ticket, known)

    def sealed(self, marker: TicketMarker, at_us: int) -> None:
        self._go_on(marker.ticket, lambda before: _of(marker, before, replace(before, sealed_us=at_us)))

    def computed(self, marker: TicketMarker, at_us: int) -> None:
        self._go_on(marker.ticket, lambda before: _of(marker, before, replace(before, computed_us=at_us)))

    def applied(self, marker: TicketMarker, at_us: int) -> None:
        def known(before: TicketPassage) -> TicketPassage | None:
            return _of(marker, before, replace(before, applied_us=at_us))

        self._end(marker.ticket, TicketState.APPLIED, known)

    def passed(self, visible: Lsn) -> None:
        """Everything committed up to here is on the target, and the tickets in it were told of: who is open still was missed."""
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
        """It ends without having been timed to the end."""
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
    """Tickets on their way through one run.

    `landed` and `sealed` are the intake's thread's, `computed` the job's, `applied` the commit's; `send` may be called from any. Batches
    come in the same order everywhere. Without tickets nothing is done but counting, once for each landing and not for each record.
    """

    def __init__(
        self,
        book: TicketTracker,
        clock: Clock,
        write: Callable[[TicketId], TicketWritten],
        demand: Callable[[Lsn], None],
        after: Lsn,
    ) -> None:
        """`write` puts a marker into the source's log; `demand` has the run reach a position soon; it begins behind `after`."""
        self._book = book
        self._clock = clock
        self._write = write
        self._demand = demand
        self._told = after
        """Tickets in batches up to here were told of."""
        self._since_us = clock.wall_us()
        self._known = ZERO
        self._transactions = 0
        self._commands = 0

    def send_all(self) -> None:
        """The run begins: see to every open ticket. Blocks for a round trip to the source for each that waited."""
        for ticket in self._book.open():
            self.send(ticket)

    def send(self, ticket: TicketId) -> None:
        """Write the ticket's marker; where it is in the log already, see to it that its end is known soon. Blocks for a round trip."""
        until = self._book.until(ticket)
        if until is not None:
            self._demand(until)
            self._book.passed(self._told)
        elif self._book.claim(ticket):
            try:
                self._book.written(ticket, self._write(ticket))
            except EngineFault as fault:
                self._lose(ticket, fault)
            except Exception as error:  # a ticket without an end would be shown as pending for ever
                log.exception("ticket_failed", error=type(error).__name__)
                self._lose(ticket, EngineFault(FaultKind.INTERNAL, "ticket", type(error).__name__))

    def _lose(self, ticket: TicketId, fault: EngineFault) -> None:
        detail = f"its marker could not be written: {fault.subject}: {fault.detail}"
        remedy = _NO_WRITES if fault.kind is FaultKind.SOURCE_PRIVILEGE else policy(fault.kind).remedy
        self._book.lose(ticket, (fault.kind.value, detail, remedy))

    def begin_session(self, known: Lsn) -> None:
        """The log reader has a new session. What lies before `known` comes once more, if it does."""
        self._known = known

    def landed(self, landed: Landed, messages: Sequence[MessageSeen | TicketSeen]) -> None:
        """Count what reached the run, and time the markers among its `messages`."""
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
        """The batch goes to the job stage."""
        for marker in batch.tickets:
            self._book.sealed(marker, at_us)

    def computed(self, batch: SealedBatch) -> None:
        """The batch's net changes are known."""
        for marker in batch.tickets:
            self._book.computed(marker, self._clock.wall_us())

    def applied(self, batch: SealedBatch, at_us: int) -> None:
        """The batch was committed on the target."""
        for marker in batch.tickets:
            self._book.applied(marker, at_us)
        self._told = batch.end
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


def _of(marker: TicketMarker, before: TicketPassage, after: TicketPassage) -> TicketPassage | None:
    """`after`, where the ticket is timed by this marker of it."""
    return after if before.position == marker.position else None


def _counts(landed: Landed, kinds: npt.NDArray[Any], end: int) -> tuple[int, int]:
    """Commits among `kinds`, the control records before the ordinal `end`, and how many records before it are row changes.

    Whatever is no control record counts as a row change: announcements of types, and of origins, do too.
    """
    commits = np.count_nonzero((kinds == ControlKind.COMMIT) | (kinds == ControlKind.STREAM_COMMIT))
    if landed.block is None:
        return int(commits), 0
    others = len(kinds) - np.count_nonzero(kinds == ControlKind.TRUNCATE)
    return int(commits), int(end - landed.block.first - others)
