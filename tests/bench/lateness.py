"""How late waits are answered, from the batches that reached their positions. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from bench.histogram import Times


@dataclass(frozen=True, slots=True)
class Answered:
    """A wait that was satisfied. Positions as numbers, times in seconds since 1970; `applied`: the position that the answer reports."""

    position: int
    applied: int
    asked_at: float
    answered_at: float
    waited_s: float
    """Duration of the wait by the server."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch: its end, and the time of its commit on the target."""

    end: int
    at: float


class Lateness:
    """Two measures of the same delay, and what is known of its parts.

    `after_commit`: from the commit of the batch that reached the position until the answer arrived. The server received the report of that
    batch after the commit, so the delay after the report is at most that. `after_first`: from the first answer to any client that reports
    the position as applied; the server had the report then, so the delay after the report is at least that.
    """

    def __init__(self, answers: Sequence[Answered], batches: Sequence[Committed]) -> None:
        self.after_commit = Times()
        self.after_first = Times()
        self.outside_the_wait = Times()
        self.without_batch = 0
        """Waits of positions that were reached before the batch that contains them ended: nothing of the tables was between."""
        ordered = sorted(batches, key=lambda batch: (batch.end, batch.at))
        ends = [batch.end for batch in ordered]
        by_time = sorted(answers, key=lambda one: one.answered_at)
        reached = list(accumulate((one.applied for one in by_time), max))
        for one in answers:
            at = bisect_left(ends, one.position)
            # What was applied when it was requested was late for other reasons.
            if at == len(ends) or ordered[at].at > one.answered_at:
                self.without_batch += 1
            else:
                self.after_commit.record((one.answered_at - max(ordered[at].at, one.asked_at)) * 1000)
            first = by_time[bisect_left(reached, one.position)].answered_at
            self.after_first.record((one.answered_at - max(first, one.asked_at)) * 1000)
            self.outside_the_wait.record((one.answered_at - one.asked_at - one.waited_s) * 1000)

    def document(self) -> dict[str, Any]:
        return {
            "after_commit": short(self.after_commit),
            "after_first_answer": short(self.after_first),
            "outside_the_wait": short(self.outside_the_wait),
            "without_batch": self.without_batch,
        }


def short(times: Times) -> dict[str, Any]:
    """Count and percentiles, without the histogram."""
    most = times.percentile(100)
    shares = {f"p{share:g}_ms": round(times.percentile(share), 1) for share in (50, 95, 99)}
    return {"count": times.count, **shares, "max_ms": round(most, 1)}


def slope_per_minute(samples: Sequence[tuple[float, float]]) -> float:
    """Least-squares slope of (seconds, value) per minute; 0 for fewer than three samples."""
    if len(samples) < 3:
        return 0.0
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return 60 * sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0
