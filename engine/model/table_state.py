"""Kinds of states of a replicated table and the arrows between them; `engine.tables.state` has the data of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TableStateKind(StrEnum):
    """State of a table. The values are those of REST, CLI and console."""

    REGISTERED = "registered"
    COPYING = "copying"
    CATCHING_UP = "catching_up"
    LIVE = "live"
    PAUSED = "paused"
    RELOADING = "reloading"
    PARKED = "parked"
    REMOVED = "removed"


class TableEventKind(StrEnum):
    """Events of a table."""

    COPY_STARTED = "copy_started"
    COPY_FINISHED = "copy_finished"
    CAUGHT_UP = "caught_up"
    COPY_LOST = "copy_lost"
    """The copy's snapshot or process was lost; the copy is restarted."""
    PAUSE = "pause"
    RESUME = "resume"
    RELOAD = "reload"
    FAULT = "fault"
    APPROVE = "approve"
    """A user approves the schema change that a parked table waits for."""
    READABLE = "readable"
    """The source of a parked table can be read again."""
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Refused:
    """The event is not valid in this state; `reason` explains it to the user."""

    reason: str


_S = TableStateKind
_E = TableEventKind

ARROWS: dict[tuple[TableStateKind, TableEventKind], TableStateKind] = {
    (_S.REGISTERED, _E.COPY_STARTED): _S.COPYING,
    (_S.REGISTERED, _E.PAUSE): _S.PAUSED,
    (_S.REGISTERED, _E.FAULT): _S.PARKED,
    (_S.REGISTERED, _E.REMOVE): _S.REMOVED,
    (_S.COPYING, _E.COPY_FINISHED): _S.CATCHING_UP,
    (_S.COPYING, _E.COPY_LOST): _S.REGISTERED,
    (_S.COPYING, _E.FAULT): _S.PARKED,
    (_S.COPYING, _E.REMOVE): _S.REMOVED,
    (_S.CATCHING_UP, _E.CAUGHT_UP): _S.LIVE,
    (_S.CATCHING_UP, _E.COPY_LOST): _S.REGISTERED,
    (_S.CATCHING_UP, _E.FAULT): _S.PARKED,
    (_S.CATCHING_UP, _E.REMOVE): _S.REMOVED,
    (_S.LIVE, _E.PAUSE): _S.PAUSED,
    (_S.LIVE, _E.RELOAD): _S.RELOADING,
    (_S.LIVE, _E.FAULT): _S.PARKED,
    (_S.LIVE, _E.REMOVE): _S.REMOVED,
    (_S.PAUSED, _E.RESUME): _S.CATCHING_UP,
    (_S.PAUSED, _E.RELOAD): _S.RELOADING,
    (_S.PAUSED, _E.FAULT): _S.PARKED,
    (_S.PAUSED, _E.REMOVE): _S.REMOVED,
    (_S.RELOADING, _E.COPY_STARTED): _S.RELOADING,
    (_S.RELOADING, _E.COPY_FINISHED): _S.CATCHING_UP,
    (_S.RELOADING, _E.COPY_LOST): _S.RELOADING,
    (_S.RELOADING, _E.FAULT): _S.PARKED,
    (_S.RELOADING, _E.REMOVE): _S.REMOVED,
    (_S.PARKED, _E.RELOAD): _S.RELOADING,
    (_S.PARKED, _E.APPROVE): _S.PAUSED,
    (_S.PARKED, _E.READABLE): _S.PAUSED,
    (_S.PARKED, _E.FAULT): _S.PARKED,
    (_S.PARKED, _E.REMOVE): _S.REMOVED,
}


def next_state(state: TableStateKind, event: TableEventKind) -> TableStateKind | Refused:
    """The state after `event`, or why it is refused. Total over all pairs."""
    after = ARROWS.get((state, event))
    if after is not None:
        return after
    if state is TableStateKind.REMOVED:
        return Refused("the table was removed from the subscription; add it again")
    return Refused(f"a table that is {state.value} cannot accept '{event.value}'")
