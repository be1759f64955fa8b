"""Which table a schedule of verifications compares next, and when. Pure: the time is given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

FIRST_DELAY = timedelta(minutes=5)
"""Before the second attempt to compare a table; each further attempt without a result doubles it."""
LONGEST_DELAY = timedelta(days=1)
PAUSE_AFTER_FAILURE = timedelta(minutes=1)
"""Least time after an attempt without a result, whatever the budget: its engine may not have measured how long it read."""
LEAST_LIMIT = timedelta(hours=6)
"""An attempt is given up after this time at the earliest."""
_TIMES_THE_LONGEST = 4
_MOST_DOUBLINGS = 4
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live table. `compared_at`: the last comparison of its present rows; `tried_at`: the end of the last attempt; None: never."""

    table: str
    compared_at: datetime | None = None
    tried_at: datetime | None = None
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last attempt of a schedule. `seconds`: the time for which it compared."""

    ended_at: datetime
    seconds: float
    failed: bool = False


def is_due(candidate: Candidate, every: timedelta, now: datetime) -> bool:
    """Whether a table is to be compared. Times that a clock which was set back has left in the future do not count."""
    wait = candidate.retry_at
    if wait is not None and now < wait <= now + LONGEST_DELAY:
        return False
    last = candidate.compared_at
    return last is None or not timedelta(0) <= now - last < every


def choose(candidates: Iterable[Candidate], every: timedelta, now: datetime) -> Candidate | None:
    """The due table whose last attempt was the longest ago, so that tables which fail or are interrupted again and again do not keep
    the others waiting; tables that were never tried come first."""
    due = [candidate for candidate in candidates if is_due(candidate, every, now)]
    return min(due, key=_turn, default=None)


def _turn(candidate: Candidate) -> tuple[bool, datetime, str]:
    return candidate.tried_at is not None, candidate.tried_at or _LONG_AGO, candidate.table


def may_begin(last: Attempt | None, budget: float, now: datetime) -> bool:
    """Whether the last attempt was long enough ago that comparisons take at most the share `budget` of the time."""
    if last is None or now < last.ended_at:
        return True
    pause = timedelta(seconds=last.seconds * (1 - budget) / budget)
    return now - last.ended_at >= max(pause, PAUSE_AFTER_FAILURE if last.failed else timedelta(0))


def limit_of(seconds: Iterable[float], failures: int) -> timedelta:
    """The time after which an attempt is given up that neither ends nor fails: several times what the longest of the last comparisons of
    the table took, and twice as long after each attempt without a result, so that a table which needs longer gets it."""
    longest = max(seconds, default=0.0)
    limit = max(LEAST_LIMIT, timedelta(seconds=_TIMES_THE_LONGEST * longest))
    return limit * int(2 ** min(max(failures, 0), _MOST_DOUBLINGS))


def delay_after(failures: int) -> timedelta:
    """The time until the next attempt, after so many without a result."""
    doublings = min(max(failures, 1) - 1, 16)
    return min(FIRST_DELAY * int(2**doublings), LONGEST_DELAY)
