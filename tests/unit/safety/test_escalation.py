"""The guard's ladder: when each rung is reached; it is reported once, and left only well below its threshold."""

from __future__ import annotations

from typing import Any

import pytest

from engine.model.subscription import GuardPolicy
from engine.safety.escalation import (
    CLEAR_PART,
    EscalationLevel,
    EscalationState,
    EscalationStep,
    Growth,
    Look,
    budget_of,
    escalate,
    share_of,
)

POLICY = GuardPolicy()
BUDGET = 1000
EVERYTHING = {"may_persist": True, "copying": True, "open_s": 60.0}


class Climber:
    """A ladder that is evaluated once a second."""

    def __init__(self, policy: GuardPolicy = POLICY, patience_s: float = 3.0) -> None:
        self.policy = policy
        self.patience_s = patience_s
        self.standing = EscalationState()
        self.at_s = 0.0

    def look(self, retained: int, **under_way: Any) -> EscalationStep:
        self.at_s += 1.0
        look = Look(self.at_s, retained, BUDGET, **under_way)
        step = escalate(self.standing, look, self.policy, self.patience_s)
        self.standing = step.standing
        return step


def test_rungs_are_reached_in_order_and_each_once() -> None:
    climber = Climber()
    reached = [climber.look(retained, **EVERYTHING).reached for retained in range(0, 1001, 50)]
    told = [rung for each in reached for rung in each]
    assert told == [
        EscalationLevel.WARN,
        EscalationLevel.PERSIST_QUEUE,
        EscalationLevel.STOP_COPIES,
        EscalationLevel.NAME_TRANSACTION,
    ]
    more = [climber.look(1000, **EVERYTHING).reached for _ in range(5)]
    assert [rung for each in more for rung in each] == [EscalationLevel.DROP_READER]


def test_a_leap_tells_every_rung_but_the_last_at_once() -> None:
    climber = Climber(patience_s=0.0)
    assert climber.look(2000, **EVERYTHING).reached == tuple(EscalationLevel)[:-1]
    assert climber.look(2000, **EVERYTHING).reached == (EscalationLevel.DROP_READER,)


@pytest.mark.parametrize("rung", list(EscalationLevel)[:-1])
def test_a_rung_comes_again_only_after_the_share_has_fallen_well_below_it(rung: EscalationLevel) -> None:
    climber = Climber()
    at = round(share_of(POLICY, rung) * BUDGET)
    assert rung in climber.look(at, **EVERYTHING).reached
    assert rung not in climber.look(round(at * CLEAR_PART) + 1, **EVERYTHING).left
    assert rung not in climber.look(at, **EVERYTHING).reached
    assert rung in climber.look(round(at * CLEAR_PART) - 1, **EVERYTHING).left
    assert rung in climber.look(at, **EVERYTHING).reached


def test_what_a_paused_subscription_cannot_do_is_not_told() -> None:
    climber = Climber(patience_s=1.0)
    told = [rung for _ in range(5) for rung in climber.look(1000).reached]
    assert told == [EscalationLevel.WARN, EscalationLevel.DROP_READER]


def test_a_rung_that_begins_to_apply_later_is_reached_then() -> None:
    climber = Climber()
    assert climber.look(850).reached == (EscalationLevel.WARN,)
    assert climber.look(850, may_persist=True).reached == (EscalationLevel.PERSIST_QUEUE,)
    assert climber.look(850, copying=True).reached == (EscalationLevel.STOP_COPIES,)
    assert climber.look(850, open_s=0.5).reached == ()
    assert climber.look(850, open_s=60.0).reached == (EscalationLevel.NAME_TRANSACTION,)


def test_copies_are_stopped_for_the_log_that_they_alone_hold_back() -> None:
    climber = Climber()
    step = climber.look(10, copying=True, copy_retained_bytes=900)
    assert step.reached == (EscalationLevel.STOP_COPIES,)
    assert climber.look(10, copying=True, copy_retained_bytes=0).left == (EscalationLevel.STOP_COPIES,)


def test_the_slot_stays_while_the_log_it_holds_comes_down() -> None:
    climber = Climber(patience_s=3.0)
    falling = [climber.look(5000 - 10 * n).reached for n in range(100)]
    assert [rung for each in falling for rung in each] == [EscalationLevel.WARN]
    standing = [climber.look(4500).reached for _ in range(5)]
    assert [rung for each in standing for rung in each] == [EscalationLevel.DROP_READER]


def test_patience_begins_anew_when_the_share_was_below_the_last_rung() -> None:
    climber = Climber(patience_s=3.0)
    for _ in range(10):
        assert EscalationLevel.DROP_READER not in climber.look(960).reached
        assert EscalationLevel.DROP_READER not in climber.look(960).reached
        assert EscalationLevel.DROP_READER not in climber.look(940).reached


def test_another_rung_that_is_reached_comes_before_the_drop() -> None:
    climber = Climber(patience_s=0.0)
    climber.look(1000)
    assert climber.look(1000, may_persist=True).reached == (EscalationLevel.PERSIST_QUEUE,)
    assert climber.look(1000, may_persist=False).reached == (EscalationLevel.DROP_READER,)


def test_the_last_rung_can_be_turned_off() -> None:
    climber = Climber(GuardPolicy(drop_slot=False), patience_s=0.0)
    told = [rung for _ in range(50) for rung in climber.look(10_000, **EVERYTHING).reached]
    assert told == [
        EscalationLevel.WARN,
        EscalationLevel.PERSIST_QUEUE,
        EscalationLevel.STOP_COPIES,
        EscalationLevel.NAME_TRANSACTION,
    ]


@pytest.mark.parametrize(
    ("configured", "retained", "safe", "budget"),
    [(1000, 10, None, 1000), (1000, 10, 5000, 1000), (1000, 10, 90, 100), (1000, 10, -5, 10), (1000, 0, 0, 1)],
)
def test_the_budget_is_the_smaller_of_the_configured_one_and_what_the_source_leaves(
    configured: int, retained: int, safe: int | None, budget: int
) -> None:
    assert budget_of(configured, retained, safe) == budget


def test_the_forecast_is_from_the_measured_rate() -> None:
    growth = Growth()
    assert growth.full_in_s(BUDGET) is None
    growth.add(0.0, 100)
    assert growth.full_in_s(BUDGET) is None
    growth.add(10.0, 200)
    assert (growth.bytes_per_s, growth.full_in_s(BUDGET)) == (10.0, 80.0)
    growth.add(20.0, 100)
    assert growth.full_in_s(BUDGET) is None


def test_the_forecast_forgets_what_was_long_ago() -> None:
    growth = Growth()
    growth.add(0.0, 1_000_000)
    growth.add(1000.0, 0)
    growth.add(1010.0, 100)
    assert growth.bytes_per_s == 10.0
