"""Copies give way: they read for less of the time while others' commits take longer to become readable than without them.

A copy and the changes of other tables share processors, disks and the target. What a copy costs those others shows in how long
their commits take to become readable, so that is what decides.
"""

from __future__ import annotations

import threading
from collections import deque
from math import inf

LEAST_SHARE = 0.1
"""Copies go on for so much of the time, whatever they cost others. Each begins with it where it may cost them something: to begin is work
enough for the source and for Spark, and how much more there can be is found out from there."""
LOOK_SHARE = 0.25
"""For so much of the time the source is asked what there is to copy, before anything is read."""
RISE = 0.3
"""So much longer than without copies a commit may take, of what it takes without."""
LEAST_RISE_MS, MOST_RISE_MS = 15.0, 150.0
LOOK_MS = 500.0
WINDOW_MS = 2000.0
"""What lies further back says nothing of now."""
BEHIND_MS = 5000.0
"""So long behind a copy's last row what it costs others may still show."""
_SLOWER, _FASTER = 0.7, 1.2
_QUIET = 400
_ENOUGH = 20
"""Batches without copies that must have been seen before anything is concluded."""


class AdaptiveThrottle:
    """Decides for which share of the time copies read. `note` is called for each batch with commits, `begin` before rows of a copy are
    read, `share` now and then.

    `copying`: rows of copies are being read. Times are milliseconds of the monotonic clock. Lags may be wrong by the difference of
    two machines' clocks; what counts is how they differ from each other.
    """

    def __init__(self) -> None:
        self._quiet: deque[float] = deque(maxlen=_QUIET)
        """Lags without copies."""
        self._recent: deque[tuple[float, float]] = deque(maxlen=_QUIET)
        """When, and how long commits had taken then."""
        self._share = LEAST_SHARE
        self._copied_ms = -inf
        self._looked_ms = -inf
        self._lock = threading.Lock()

    def note(self, now_ms: float, lag_ms: float, *, copying: bool) -> None:
        """A batch was committed; its oldest commit had waited for `lag_ms`."""
        with self._lock:
            if self._under_way(now_ms, copying=copying):
                self._recent.append((now_ms, lag_ms))
            else:
                self._quiet.append(lag_ms)

    def rest_ms(self, took_ms: float) -> float:
        """How long to leave others alone after a look at the source that took so long."""
        with self._lock:
            return took_ms / LOOK_SHARE - took_ms if len(self._quiet) >= _ENOUGH else 0.0

    def begin(self, now_ms: float, *, goes_on: bool) -> None:
        """Rows of a copy are about to be read. `goes_on`: more of a table of which some were read just now."""
        with self._lock:
            if not goes_on or not self._under_way(now_ms, copying=False):
                self._share = LEAST_SHARE
            self._looked_ms = now_ms

    def share(self, now_ms: float, *, copying: bool) -> float:
        """For how much of the time copies may read from now on."""
        with self._lock:
            if not copying:
                return 1.0
            self._copied_ms = now_ms
            if len(self._quiet) < _ENOUGH:
                return 1.0
            if now_ms - self._looked_ms >= LOOK_MS:
                self._share, self._looked_ms = self._next(now_ms), now_ms
            return self._share

    def _under_way(self, now_ms: float, *, copying: bool) -> bool:
        return copying or now_ms - self._copied_ms <= BEHIND_MS

    def _next(self, now_ms: float) -> float:
        lags = [lag for at, lag in self._recent if now_ms - at <= WINDOW_MS]
        usual = _high(list(self._quiet))
        allowed = min(max(abs(usual) * RISE, LEAST_RISE_MS), MOST_RISE_MS)
        if lags and _high(lags) > usual + allowed:
            return max(LEAST_SHARE, self._share * _SLOWER)
        return min(1.0, self._share * _FASTER)


def _high(lags: list[float]) -> float:
    """What nine of ten do not exceed."""
    return sorted(lags)[(len(lags) - 1) * 9 // 10]
