"""States of a subscription, and the transition function."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.model.table_state import Refused


class SubscriptionState(StrEnum):
    """State of a subscription. The values are those of REST, CLI and console."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class SubscriptionEvent(StrEnum):
    """Events of a subscription."""

    START = "start"
    STARTED = "started"
    PAUSE = "pause"
    PAUSED = "paused"
    STOP = "stop"
    STOPPED = "stopped"
    FAULT = "fault"
    LOST = "lost"
    """Its engine was lost; another engine, or the same one again, starts it."""


class DesiredState(StrEnum):
    """The state that the user declared."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a subscription failed or a table is parked, and the remedy."""

    code: str
    reason: str
    remedy: str
    known: bool = True
    """False: an earlier process found it, and only its code was stored; the server has the reason that was reported then."""


_S = SubscriptionState
_E = SubscriptionEvent

ARROWS: dict[tuple[SubscriptionState, SubscriptionEvent], SubscriptionState] = {
    (_S.CREATED, _E.START): _S.STARTING,
    (_S.CREATED, _E.PAUSE): _S.PAUSED,
    (_S.CREATED, _E.STOP): _S.STOPPED,
    (_S.CREATED, _E.FAULT): _S.FAILED,
    (_S.STARTING, _E.STARTED): _S.RUNNING,
    (_S.STARTING, _E.PAUSE): _S.PAUSING,
    (_S.STARTING, _E.STOP): _S.STOPPING,
    (_S.STARTING, _E.FAULT): _S.FAILED,
    (_S.STARTING, _E.LOST): _S.CREATED,
    (_S.RUNNING, _E.PAUSE): _S.PAUSING,
    (_S.RUNNING, _E.STOP): _S.STOPPING,
    (_S.RUNNING, _E.FAULT): _S.FAILED,
    (_S.RUNNING, _E.LOST): _S.STARTING,
    (_S.RUNNING, _E.START): _S.STARTING,
    (_S.PAUSING, _E.PAUSED): _S.PAUSED,
    (_S.PAUSING, _E.START): _S.STARTING,
    (_S.PAUSING, _E.STOP): _S.STOPPING,
    (_S.PAUSING, _E.FAULT): _S.FAILED,
    (_S.PAUSING, _E.LOST): _S.PAUSED,
    (_S.PAUSED, _E.START): _S.STARTING,
    (_S.PAUSED, _E.STOP): _S.STOPPING,
    (_S.PAUSED, _E.FAULT): _S.FAILED,
    (_S.STOPPING, _E.STOPPED): _S.STOPPED,
    (_S.STOPPING, _E.START): _S.STARTING,
    (_S.STOPPING, _E.FAULT): _S.FAILED,
    (_S.STOPPING, _E.LOST): _S.STOPPED,
    (_S.STOPPED, _E.START): _S.STARTING,
    (_S.STOPPED, _E.PAUSE): _S.PAUSED,
    (_S.FAILED, _E.START): _S.STARTING,
    (_S.FAILED, _E.PAUSE): _S.PAUSED,
    (_S.FAILED, _E.STOP): _S.STOPPING,
    (_S.FAILED, _E.FAULT): _S.FAILED,
}


def next_state(state: SubscriptionState, event: SubscriptionEvent) -> SubscriptionState | Refused:
    """The state after `event`, or why the event is rejected. Defined for all pairs."""
    after = ARROWS.get((state, event))
    if after is not None:
        return after
    return Refused(f"a subscription that is {state.value} cannot accept '{event.value}'")
