"""Lets readers' scans give way while a commit is waited for: all of them together would take every processor from it."""

from __future__ import annotations

import threading
import time

from engine.model.identity import SubscriptionName
from engine.model.position import ZERO, Lsn

_PAUSE_S = 0.025
"""Longest pause of a scan before a batch of rows, in seconds. It bounds a scan's rate while commits are always waited for: with batches of
20,480 rows to 800,000 rows a second. The 99th percentile of waits next to ten scanning sessions, on two cores: 284 ms with neither pauses
nor a lower priority of scans, 136 ms with the priority alone, 75 ms with both, at the same number of scans; 51 ms without scans."""
_EXPECTED_S = 0.5
"""How long a position is expected at most, in seconds: one that the source has not reached would slow scans down for nothing."""


class ScanPace:
    """The pace of all scans of one file. From any thread."""

    def __init__(self, pause_s: float = _PAUSE_S, expected_s: float = _EXPECTED_S) -> None:
        self._pause_s, self._expected_s = pause_s, expected_s
        self._changed = threading.Condition()
        self._reached: dict[SubscriptionName, Lsn] = {}
        self._expected: dict[SubscriptionName, tuple[Lsn, float]] = {}
        """Position that is waited for, and until when that counts, by the monotonic clock."""

    def expect(self, subscription: SubscriptionName, position: Lsn) -> None:
        """A commit up to `position` is waited for."""
        with self._changed:
            if position > self._reached.get(subscription, ZERO):
                before = self._expected.get(subscription, (position, 0.0))[0]
                self._expected[subscription] = max(before, position), time.monotonic() + self._expected_s

    def reached(self, subscription: SubscriptionName, position: Lsn) -> None:
        """Everything up to `position` is committed."""
        with self._changed:
            self._reached[subscription] = position
            expected = self._expected.get(subscription)
            if expected is not None and expected[0] <= position:
                del self._expected[subscription]
                self._changed.notify_all()

    def give_way(self) -> None:
        """Return when no commit is waited for, or after the longest pause."""
        deadline = time.monotonic() + self._pause_s
        with self._changed:
            while True:
                now = time.monotonic()
                ends = [until for _, until in self._expected.values() if until > now]
                if not ends or now >= deadline:
                    return
                self._changed.wait(min(deadline, max(ends)) - now)
