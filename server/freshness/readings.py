"""Readings of a source's current position, and what they prove about times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from engine.model.positions import Marks, Reached, first_uncovered
from server.freshness.subscription_status import SubscriptionStatus

MOST_READINGS = 1000
"""Readings kept of one subscription."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of the source's current position: `marks` are at or after every commit that was acknowledged before `began`.

    It counts for the run during which it was made, and for the tables that were live then: of others it is not known whether their
    structure at `marks` is the catalog's.
    """

    began: datetime
    marks: Marks
    run: tuple[int, int]
    live: frozenset[str]


def earliest_since(
    readings: Iterable[Reading], moment: datetime, status: SubscriptionStatus, table: str
) -> Reading | None:
    """The first reading that proves something about everything before `moment` for the table."""
    usable = (one for one in readings if one.began >= moment and one.run == status.current_run and table in one.live)
    return min(usable, key=lambda one: one.began, default=None)


def latest_reached(
    readings: Iterable[Reading], reached: Reached, status: SubscriptionStatus, table: str
) -> datetime | None:
    """The time before which all acknowledged commits are visible in the table; None if no reading proves any."""
    proven = (
        one.began
        for one in readings
        if one.run == status.current_run and table in one.live and first_uncovered(reached, one.marks) is None
    )
    return max(proven, default=None)
