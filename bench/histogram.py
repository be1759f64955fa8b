"""Durations in an HDR histogram: three significant digits from a microsecond to an hour, in constant memory."""

from __future__ import annotations

import threading
from typing import Any

from hdrh.histogram import HdrHistogram

_MOST_US = 3_600_000_000
_SHARES = (50.0, 95.0, 99.0, 99.9)


class Times:
    """Durations in milliseconds. Thread-safe."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _MOST_US, 3)
        self._lock = threading.Lock()

    def record(self, ms: float) -> None:
        """Add a duration; it is clamped to the range from one microsecond to one hour."""
        with self._lock:
            self._histogram.record_value(min(_MOST_US, max(1, round(ms * 1000))))

    @property
    def count(self) -> int:
        return int(self._histogram.get_total_count())

    def percentile(self, share: float) -> float:
        """The duration in milliseconds that `share` percent of all do not exceed; 0 if there are none."""
        return float(self._histogram.get_value_at_percentile(share)) / 1000 if self.count else 0.0

    def summary(self) -> dict[str, Any]:
        """Percentiles, and the histogram itself (HdrHistogram's compressed form), so that runs can be merged later."""
        percentiles = {f"p{share:g}_ms": round(self.percentile(share), 2) for share in _SHARES}
        most = float(self._histogram.get_max_value()) / 1000 if self.count else 0.0
        encoded = self._histogram.encode()
        return {"count": self.count, **percentiles, "max_ms": round(most, 2), "hdr": encoded.decode("ascii")}
