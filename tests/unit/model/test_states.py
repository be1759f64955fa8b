"""Every pair of state and event is either a listed arrow or a refusal with a reason."""

from __future__ import annotations

from itertools import product

import pytest

from engine.model import subscription_state as subscriptions
from engine.model import table_state as tables
from engine.model.table_state import Refused


@pytest.mark.parametrize(("state", "event"), list(product(tables.TableStateKind, tables.TableEventKind)))
def test_table_pair(state: tables.TableStateKind, event: tables.TableEventKind) -> None:
    after = tables.next_state(state, event)
    if (state, event) in tables.ARROWS:
        assert after is tables.ARROWS[state, event]
    else:
        assert isinstance(after, Refused)
        assert after.reason


@pytest.mark.parametrize(
    ("state", "event"), list(product(subscriptions.SubscriptionState, subscriptions.SubscriptionEvent))
)
def test_subscription_pair(state: subscriptions.SubscriptionState, event: subscriptions.SubscriptionEvent) -> None:
    after = subscriptions.next_state(state, event)
    if (state, event) in subscriptions.ARROWS:
        assert after is subscriptions.ARROWS[state, event]
    else:
        assert isinstance(after, Refused)
        assert after.reason


@pytest.mark.parametrize("state", [s for s in tables.TableStateKind if s is not tables.TableStateKind.REMOVED])
def test_every_table_can_be_removed(state: tables.TableStateKind) -> None:
    allowed = tables.next_state(state, tables.TableEventKind.REMOVE)
    assert allowed is tables.TableStateKind.REMOVED


def test_every_table_state_is_reached_from_registered() -> None:
    reached = {tables.TableStateKind.REGISTERED}
    while True:
        more = {after for (before, _), after in tables.ARROWS.items() if before in reached} | reached
        if more == reached:
            break
        reached = more
    assert reached == set(tables.TableStateKind)


def test_failed_subscription_starts_again() -> None:
    after = subscriptions.next_state(subscriptions.SubscriptionState.FAILED, subscriptions.SubscriptionEvent.START)
    assert after is subscriptions.SubscriptionState.STARTING
