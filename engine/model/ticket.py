"""Tickets (end-to-end probes): markers in a source's log, which are timed at each stage on the way to the target."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.model.identity import TicketId
from engine.model.position import Lsn

PREFIX = "penstock.ticket"
"""Prefix of the logical message that is a marker. Its content is the ticket's id, a blank, and when it was written by the source's
clock, in microseconds since 1970 UTC."""


class TicketState(StrEnum):
    """State of a ticket. The values are those of the REST interface."""

    PENDING = "pending"
    """Its marker is not in the source's log, as far as is known."""
    UNDER_WAY = "under_way"
    APPLIED = "applied"
    """Everything committed on the source before it is readable on the target."""
    LOST = "lost"
    """It could not be timed."""


UNENDED_TICKET = (TicketState.PENDING, TicketState.UNDER_WAY)


@dataclass(frozen=True, slots=True)
class TicketMarker:
    """A marker in the log: its position, and the time when it was written by the source's clock, in microseconds since 1970 UTC."""

    ticket: TicketId
    position: Lsn
    written_us: int


@dataclass(frozen=True, slots=True)
class TicketWritten:
    """The time when a marker was written, by the source's clock in microseconds since 1970 UTC; its commit ends at or before `until`."""

    at_us: int
    until: Lsn
