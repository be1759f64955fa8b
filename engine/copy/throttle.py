"""Adaptive throttling: copies read for less of the time while other commits take longer to become readable than without copies.

A copy and the changes of other tables share processors, disks and the target. The cost of a copy for those tables shows in the time until
their commits are readable, so that time decides.
"""

from __future__ import annotations

import threading
from collections import deque
from math import inf

LEAST_SHARE = 0.1
"""Least share of the time during which copies read. Each copy begins with it if it may delay other tables: its start is a load on source
and Spark by itself, and from there the share is increased step by step."""
LOOK_SHARE = 0.25
"""Share of the time during which the source is queried for what there is to copy, before rows are read."""
RISE = 0.3
"""Tolerated increase of the time until commits are readable, relative to that without copies."""
LEAST_RISE_MS, MOST_RISE_MS = 15.0, 150.0
"""Bounds of the tolerated increase in ms: below the first it is noise, and the second is the most that a slow target's users get. Not
measured."""
LOOK_MS = 500.0
"""Interval between two decisions on the share, in ms: a quarter of WINDOW_MS, so that commits under the changed share are in the next one's
window. Not measured."""
WINDOW_MS = 2000.0
"""Commits before this time are not considered."""
BEHIND_MS = 5000.0
"""Time after a copy's last row during which commits may still be delayed by it."""
_SLOWER, _FASTER = 0.7, 1.2
"""Factors of the share at a decision: it falls faster than it rises, so that commits come before copies. Not measured."""
_QUIET = 400
"""Most batches whose lags are kept, with and without copies: a bound of memory, of which old ones are dropped first. Not measured."""
_ENOUGH = 20
"""Number of batches without copies that are needed before the share is limited."""


class AdaptiveThrottle:
    """Decides the share of the time during which copies read. Call `record_commit` for each batch with commits, `begin` before rows of a
    copy are read, and `share` regularly. Safe to use from any thread.

    `copying`: whether rows of copies are being read. Times are milliseconds of the monotonic clock. Lags may contain the offset between two
    machines' clocks: only their differences are used.
    """

    def __init__(self) -> None:
        self._quiet: deque[float] = deque(maxlen=_QUIET)
        """Lags without copies."""
        self._recent: deque[tuple[float, float]] = deque(maxlen=_QUIET)
        """Time of each batch during copies, and its lag."""
        self._share = LEAST_SHARE
        self._copied_ms = -inf
        self._looked_ms = -inf
        self._lock = threading.Lock()

    def record_commit(self, now_ms: float, lag_ms: float, *, copying: bool) -> None:
        """A batch was committed. `lag_ms`: the time that its oldest commit had waited."""
        with self._lock:
            if self._under_way(now_ms, copying=copying):
                self._recent.append((now_ms, lag_ms))
            else:
                self._quiet.append(lag_ms)

    def rest_ms(self, took_ms: float) -> float:
        """Milliseconds to pause after a query of the source that took `took_ms`."""
        with self._lock:
            return took_ms / LOOK_SHARE - took_ms if len(self._quiet) >= _ENOUGH else 0.0

    def begin(self, now_ms: float, *, goes_on: bool) -> None:
        """Rows of a copy are about to be read. `goes_on`: rows of the same tables were read just before."""
        with self._lock:
            if not goes_on or not self._under_way(now_ms, copying=False):
                self._share = LEAST_SHARE
            self._looked_ms = now_ms

    def share(self, now_ms: float, *, copying: bool) -> float:
        """Share of the time, 0 to 1, during which copies may read from now on."""
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
    """The 90th percentile."""
    return sorted(lags)[(len(lags) - 1) * 9 // 10]
