"""Figures of a subscription's activity over a period. They can be merged into those of longer periods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from engine.link.messages import BatchReport, Progress

_Number = TypeVar("_Number", int, float)
_WAIT_LEAST_MS = 0.5
_WAIT_FACTOR = 1.1
"""Waits are counted in classes of duration; each class is longer than the previous by this factor."""


@dataclass(slots=True)
class Figures:
    """Lags are the maximum of the period; positions (in bytes) and retained log its last value; all others are sums.

    `waits`: waits that were satisfied or timed out, by class of duration; `timed_out`: how many of them timed out.
    """

    lag_seconds: float | None = None
    lag_bytes: int | None = None
    retained_bytes: int | None = None
    source: int | None = None
    captured: int | None = None
    applied: int | None = None
    batches: int = 0
    transactions: int = 0
    net_rows: int = 0
    log_bytes: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)
    timed_out: int = 0

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Figures:
        """Read what `to_document` wrote; unknown members, from another release, are ignored."""
        known = {part.name for part in fields(cls)}
        return cls(**{name: value for name, value in document.items() if name in known})

    def to_document(self) -> dict[str, Any]:
        """The figures as JSON; unknown and empty ones are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None and value != {}}

    def copy(self) -> Figures:
        return replace(self, rows=dict(self.rows), seconds=dict(self.seconds), waits=dict(self.waits))

    def add_progress(self, report: Progress) -> None:
        """Add a report of progress."""
        self._keep_worst(report.lag_seconds, report.lag_bytes)
        self._keep_last(
            report.retained_bytes,
            None if report.source is None else report.source.value,
            None if report.captured is None else report.captured.value,
            report.applied.value,
        )

    def add_batch(self, report: BatchReport) -> None:
        """Add a batch that was committed on the target."""
        self.batches += 1
        self.transactions += report.transactions
        self.net_rows += report.net_rows
        self.log_bytes += report.bytes
        _add(self.rows, report.rows)
        _add(self.seconds, report.seconds)

    def add_wait(self, waited_ms: float, *, late: bool) -> None:
        """Add a wait that was satisfied, or that timed out (`late`)."""
        steps = math.log(max(waited_ms, _WAIT_LEAST_MS) / _WAIT_LEAST_MS, _WAIT_FACTOR)
        _add(self.waits, {str(math.ceil(steps)): 1})
        self.timed_out += late

    def add_figures(self, later: Figures) -> None:
        """Extend the period by a later one."""
        self._keep_worst(later.lag_seconds, later.lag_bytes)
        self._keep_last(later.retained_bytes, later.source, later.captured, later.applied)
        for name in ("batches", "transactions", "net_rows", "log_bytes", "timed_out"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        for name in ("rows", "seconds", "waits"):
            _add(getattr(self, name), getattr(later, name))

    def wait_ms(self, share: float) -> float | None:
        """The duration in milliseconds within which this share (0 to 1) of the waits ended, to 5 %; None if there are none."""
        left = share * sum(self.waits.values())
        for steps in sorted(self.waits, key=int):
            left -= self.waits[steps]
            if left <= 0:
                return float(round(_WAIT_LEAST_MS * _WAIT_FACTOR ** (int(steps) - 0.5), 2))
        return None

    def _keep_worst(self, lag_seconds: float | None, lag_bytes: int | None) -> None:
        if lag_seconds is not None:
            self.lag_seconds = max(self.lag_seconds or 0.0, lag_seconds)
        if lag_bytes is not None:
            self.lag_bytes = max(self.lag_bytes or 0, lag_bytes)

    def _keep_last(self, retained: int | None, source: int | None, captured: int | None, applied: int | None) -> None:
        self.retained_bytes = self.retained_bytes if retained is None else retained
        self.source = self.source if source is None else source
        self.captured = self.captured if captured is None else captured
        self.applied = self.applied if applied is None else applied


def _add(totals: dict[str, _Number], more: Mapping[str, _Number]) -> None:
    for name, number in more.items():
        totals[name] = totals[name] + number if name in totals else number
