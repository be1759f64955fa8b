"""Measures one freshness goal: judges time by what the engine reports. Pure.

A report of the lag L at the time T proves how the copy was up to T: the oldest change that was not visible was committed at T - L. Without
a further report the lag is at most L plus the time since T.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import Enum

from server.goals.timeline import Outcome


class Condition(Enum):
    """FOLLOWING: the lag decides. HALTED: it is late whatever was reported. EXCLUDED: the goal does not apply."""

    FOLLOWING = "following"
    HALTED = "halted"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class Span:
    """Time that was judged, in seconds of a monotonic clock. `revises`: it was counted as fresh before."""

    begin_s: float
    end_s: float
    outcome: Outcome
    revises: bool = False


class Meter:
    """One goal of at most `lag_s` seconds. Times are those of a monotonic clock, in seconds, and do not decrease.

    `silent_s`: the longest time between two reports of an engine that reports whatever happens. Until so long after the begin, time
    without a report is unknown; later, and after a report, it is judged by what the last report proves, and is late otherwise.
    """

    def __init__(self, lag_s: float, silent_s: float, at_s: float, condition: Condition) -> None:
        self.judged_s = at_s
        """Everything before was judged."""
        self.late_from_s: float | None = None
        """The copy was late from then to `judged_s`; None if it was not at the end."""
        self.unbroken = True
        """All that was judged so far was late."""
        self._lag_s = lag_s
        self._silent_s = silent_s
        self._condition = condition
        self._heard_s = at_s
        self._origin: Hashable = None
        self._proved_s: float | None = None
        """Until then, the last report proves that the copy is fresh; None: there was no report."""

    def observe(self, now_s: float, condition: Condition) -> list[Span]:
        """The condition is `condition` from now on. Returns what this judges of the time before."""
        waits = condition is self._condition is Condition.FOLLOWING and now_s - self._heard_s <= self._silent_s
        found = [] if waits else self._judge(now_s)
        self._condition = condition
        return found

    def report(self, now_s: float, lag_s: float, origin: Hashable) -> list[Span]:
        """The engine reports a lag. `origin`: its run and connection; between two reports of the same one, none is missing."""
        found: list[Span] = []
        heard = origin == self._origin and now_s - self._heard_s <= self._silent_s
        if self._condition is Condition.FOLLOWING:
            late_from_s = now_s - lag_s + self._lag_s
            found += self._revised(late_from_s)
            found += self._judge(now_s, late_from_s if heard else None)
        else:
            found += self._judge(now_s)
        self._heard_s, self._origin = now_s, origin
        self._proved_s = now_s - lag_s + self._lag_s
        return found

    def _revised(self, late_from_s: float) -> Iterator[Span]:
        """A change that was committed long ago was not known before: a large transaction, for example, is read for some time."""
        end_s = self.judged_s if self.late_from_s is None else self.late_from_s
        if late_from_s < end_s:
            self.late_from_s = late_from_s
            yield Span(late_from_s, end_s, Outcome.LATE, revises=True)

    def _judge(self, now_s: float, late_from_s: float | None = None) -> list[Span]:
        """Judge the time up to now. `late_from_s`: from when on it was late, if that is proved."""
        begin_s, self.judged_s = self.judged_s, max(self.judged_s, now_s)
        if self._condition is Condition.HALTED:
            return self._noted([Span(begin_s, now_s, Outcome.LATE)])
        if self._condition is Condition.EXCLUDED:
            return self._noted([Span(begin_s, now_s, Outcome.EXCLUDED)])
        turn_s = self._proved_s if late_from_s is None else late_from_s
        if turn_s is None:
            return self._noted([Span(max(begin_s, self._heard_s + self._silent_s), now_s, Outcome.LATE)])
        turn_s = min(max(begin_s, turn_s), now_s)
        return self._noted([Span(begin_s, turn_s, Outcome.FRESH), Span(turn_s, now_s, Outcome.LATE)])

    def _noted(self, spans: list[Span]) -> list[Span]:
        found = [span for span in spans if span.begin_s < span.end_s]
        for span in found:
            if span.outcome is not Outcome.LATE:
                self.late_from_s, self.unbroken = None, False
            elif self.late_from_s is None:
                self.late_from_s = span.begin_s
        return found
