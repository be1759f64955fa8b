"""The error budget of a freshness goal, from what was measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from server.declarations.freshness_goals import FreshnessGoal
from server.goals.timeline import HOUR_MS, MINUTE_MS, Interval, Shares, Timeline

SHORT_H, LONG_H = 1, 6
"""Hours over which the burn rate is computed."""
FAST_RATE, SLOW_RATE = 14.4, 6.0
"""Burn rates that give an alert, over the short and the long time: the usual ones of error budgets. At the first, a budget of 7 days is
spent in 12 hours, at the second in 28."""


class BudgetAlarm(StrEnum):
    """What of a budget is to be reported."""

    FAST_BURN = "fast_burn"
    SLOW_BURN = "slow_burn"
    SPENT = "spent"


@dataclass(frozen=True, slots=True)
class Standing:
    """A goal's window that ends at `measured.end_ms`, and begins with a full minute at most `window_ms` before, or when the measurement
    began. `unmeasured_ms` completes the shares to `window_ms`."""

    goal: FreshnessGoal
    measured: Interval
    shares: Shares
    unknown_ms: int
    burn_short: float
    burn_long: float
    worst: Interval | None

    @property
    def window_ms(self) -> int:
        return self.goal.window_hours * HOUR_MS

    @property
    def unmeasured_ms(self) -> int:
        return self.window_ms - self.measured.length_ms

    @property
    def used_ms(self) -> int:
        """Late time, and time of which nothing is known."""
        return self.shares.late_ms + self.unknown_ms

    @property
    def budget_ms(self) -> float:
        return self.goal.allowed_share * self.window_ms

    @property
    def left_ms(self) -> float:
        """Negative: more was used than the budget."""
        return self.budget_ms - self.used_ms

    @property
    def compliance(self) -> float | None:
        """The share of the time in which the goal applied and the copy was fresh; None if it has not applied yet."""
        applied = self.shares.fresh_ms + self.used_ms
        return self.shares.fresh_ms / applied if applied else None

    @property
    def alarms(self) -> tuple[BudgetAlarm, ...]:
        """A goal that allows much time may not reach the usual burn rates: for it, all of the time late is enough."""
        most = 1 / self.goal.allowed_share
        found = {
            BudgetAlarm.FAST_BURN: self.burn_short >= min(FAST_RATE, most),
            BudgetAlarm.SLOW_BURN: self.burn_long >= min(SLOW_RATE, most),
            BudgetAlarm.SPENT: self.left_ms <= 0,
        }
        return tuple(alarm for alarm, lasts in found.items() if lasts)


def judge(goal: FreshnessGoal, since_ms: int, end_ms: int, timeline: Timeline) -> Standing:
    """The standing of a goal that has been measured from `since_ms` to `end_ms`.

    Of the timeline's hours, the minutes are needed of `needed_hours`.
    """
    measured = Interval(min(end_ms, max(since_ms, _begin_ms(end_ms, goal.window_hours))), end_ms)
    shares, unknown_ms = _measured(measured, timeline)
    return Standing(
        goal=goal,
        measured=measured,
        shares=shares,
        unknown_ms=unknown_ms,
        burn_short=_burn(goal, SHORT_H, measured, timeline),
        burn_long=_burn(goal, LONG_H, measured, timeline),
        worst=timeline.longest_late(measured),
    )


def needed_hours(goal: FreshnessGoal, since_ms: int, end_ms: int) -> set[int]:
    """The hours whose minutes `judge` needs."""
    begins = (_begin_ms(end_ms, goal.window_hours), *(_burn_begin_ms(end_ms, hours) for hours in (SHORT_H, LONG_H)))
    return {at // HOUR_MS for at in (*begins, since_ms, end_ms)}


def first_hour(goal: FreshnessGoal, end_ms: int) -> int:
    """The hour in which the window begins."""
    return _begin_ms(end_ms, goal.window_hours) // HOUR_MS


def _begin_ms(end_ms: int, hours: int) -> int:
    """The first full minute of the last `hours`."""
    return -(-(end_ms - hours * HOUR_MS) // MINUTE_MS) * MINUTE_MS


def _burn_begin_ms(end_ms: int, hours: int) -> int:
    """The last full minute before the last `hours`."""
    return (end_ms - hours * HOUR_MS) // MINUTE_MS * MINUTE_MS


def _measured(span: Interval, timeline: Timeline) -> tuple[Shares, int]:
    """What is known of the span, and the milliseconds of which nothing is known."""
    found = timeline.shares(span.begin_ms // MINUTE_MS, -(-span.end_ms // MINUTE_MS)).capped(span.length_ms)
    return found, span.length_ms - found.known_ms


def _burn(goal: FreshnessGoal, hours: int, measured: Interval, timeline: Timeline) -> float:
    """The budget used in the last hours, in multiples of what uses it up exactly by the end of a window."""
    span = Interval(max(measured.begin_ms, _burn_begin_ms(measured.end_ms, hours)), measured.end_ms)
    shares, unknown_ms = _measured(span, timeline)
    return (shares.late_ms + unknown_ms) / max(span.length_ms, hours * HOUR_MS) / goal.allowed_share
