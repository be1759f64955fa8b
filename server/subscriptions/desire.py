"""Turns a user's desired state into the next state of the subscription; and names its slot."""

from __future__ import annotations

import re
import secrets

from engine.model.subscription_state import DesiredState, SubscriptionEvent, SubscriptionState, next_state
from engine.model.table_state import Refused
from server.db.models.subscription import SubscriptionRow
from server.db.session import WriteSession
from server.events.service import record_event
from server.tables.service import TransitionRefused

_EVENTS = {
    DesiredState.RUNNING: SubscriptionEvent.START,
    DesiredState.PAUSED: SubscriptionEvent.PAUSE,
    DesiredState.STOPPED: SubscriptionEvent.STOP,
}
_UNDER_WAY = {
    DesiredState.RUNNING: {SubscriptionState.CREATED, SubscriptionState.STARTING, SubscriptionState.RUNNING},
    DesiredState.PAUSED: {SubscriptionState.PAUSING, SubscriptionState.PAUSED},
    DesiredState.STOPPED: {SubscriptionState.STOPPING, SubscriptionState.STOPPED},
}
_LONGEST = 63 - len("penstock__") - 8 - len("_ins")


def slot_name(subscription: str) -> str:
    """A new name for the slot and publications of a subscription. PostgreSQL also accepts it with the suffix `_ins`."""
    plain = re.sub(r"[^a-z0-9_]", "_", subscription.lower())[:_LONGEST]
    return f"penstock_{plain}_{secrets.token_hex(4)}"


def declare_desired(session: WriteSession, row: SubscriptionRow, desired: DesiredState) -> bool:
    """Store the desired state and start the transition to it. Returns whether anything changed.

    A failed subscription is retried even if its desired state stays the same.

    Raises:
        TransitionRefused: there is no transition from the current state.
    """
    state = SubscriptionState(row.state)
    if desired.value == row.desired_state and state is not SubscriptionState.FAILED:
        return False
    if state not in _UNDER_WAY[desired]:
        after = next_state(state, _EVENTS[desired])
        if isinstance(after, Refused):
            raise TransitionRefused(f"'{row.name}' cannot become {desired.value} now: {after.reason}.")
        row.state = after.value
        row.state_at = session.now()
        row.code = row.reason = row.remedy = None
    row.desired_state = desired.value
    session.add(row)
    session.touch(row.name)
    record_event(
        session,
        kind="desired_state_changed",
        subscription=row.name,
        detail=f"'{row.name}' shall be {desired.value}; it is {row.state}.",
    )
    return True
