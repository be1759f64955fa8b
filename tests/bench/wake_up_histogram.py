"""The server's histogram of wake-ups over a period: the difference of two readings of `/metrics`. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

_METRIC = "penstock_freshness_wake_up_seconds"


@dataclass(frozen=True, slots=True)
class WakeUpHistogram:
    """By upper bound in seconds, in ascending order, how many wake-ups took at most that; the last bound is infinite. Empty: none yet."""

    buckets: tuple[tuple[float, int], ...]

    @classmethod
    def parse(cls, metrics: str, subscription: str) -> Self:
        """Of a subscription, from the text of `/metrics`."""
        found = [
            (float(sample.labels["le"]), int(sample.value))
            for family in text_string_to_metric_families(metrics)
            for sample in family.samples
            if sample.name == f"{_METRIC}_bucket" and sample.labels["subscription"] == subscription
        ]
        return cls(tuple(sorted(found)))

    def since(self, before: WakeUpHistogram) -> WakeUpHistogram:
        """What came after `before`."""
        earlier = dict(before.buckets)
        return WakeUpHistogram(tuple((bound, count - earlier.get(bound, 0)) for bound, count in self.buckets))

    @property
    def count(self) -> int:
        return self.buckets[-1][1] if self.buckets else 0

    def within(self, seconds: float) -> int:
        """How many took at most so long.

        Raises:
            KeyError: it is not the bound of a bucket, so that is not known.
        """
        return dict(self.buckets)[seconds] if self.buckets else 0

    def percentile_ms(self, share: float) -> float:
        """What `share` percent did not exceed, interpolated within its bucket; at most the last finite bound."""
        rank = share / 100 * self.count
        for (low, below), (high, up_to) in pairwise(((0.0, 0), *self.buckets)):
            if up_to >= rank and up_to > below:
                return 1000 * (low if math.isinf(high) else low + (high - low) * (rank - below) / (up_to - below))
        return 0.0

    def meets(self, share: float, seconds: float) -> bool:
        """Whether `share` percent took at most so long; false if there were none. Exact, if a bucket has this bound."""
        return self.count > 0 and self.within(seconds) >= share / 100 * self.count

    def document(self, goal_ms: float) -> dict[str, Any]:
        """`p50_ms` and `p99_ms` are interpolated; `above_goal` is exact."""
        return {
            "count": self.count,
            "p50_ms": round(self.percentile_ms(50), 1),
            "p99_ms": round(self.percentile_ms(99), 1),
            "above_goal": self.count - self.within(goal_ms / 1000),
            "goal_met": self.meets(99, goal_ms / 1000),
        }
