"""Progress of each table's copy: rows, bytes, share, rate and remaining time, reported at most a few times a second."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.model.copies import CopyProgress
from engine.model.identity import TableId

PACE_OVER_S = 15.0
"""Seconds over which the rate is averaged."""


@dataclass(slots=True)
class Course:
    """The figures of one copy over time. They never decrease: they stay constant while a chunk is read again."""

    table: TableId
    rows: int = 0
    bytes: int = 0
    percent: float = 0.0
    _samples: deque[tuple[float, int, int]] = field(default_factory=deque)

    def at(
        self,
        now: float,
        *,
        rows: int,
        share: float,
        total_rows: int | None,
        total_bytes: int | None,
        begun: bool = True,
        goes_on: bool = False,
        read_bytes: int = 0,
    ) -> CopyProgress:
        """The progress when `rows` rows are copied, `share` of all (0 to 1; 1 only at the end). `now` in seconds; totals are estimates,
        None if unknown."""
        done = share >= 1
        self.rows = max(self.rows, rows)
        self.percent = max(self.percent, round(100 * share, 1) if done else min(99.9, round(100 * share, 1)))
        total_bytes = None if total_bytes is None else max(total_bytes, self.bytes)
        if total_bytes is not None:
            self.bytes = total_bytes if done else max(self.bytes, round(total_bytes * share))
        if total_rows is not None:
            total_rows = self.rows if done else max(total_rows, self.rows)
        rows_rate, bytes_rate = self._pace(now) if begun else (None, None)
        left = None if total_bytes is None else total_bytes - self.bytes
        eta = 0.0 if done else round(left / bytes_rate, 1) if left is not None and bytes_rate else None
        return CopyProgress(
            self.table,
            self.rows,
            self.bytes,
            self.percent,
            eta,
            total_rows,
            total_bytes,
            rows_rate,
            bytes_rate,
            begun,
            goes_on,
            read_bytes,
        )

    def _pace(self, now: float) -> tuple[float | None, float | None]:
        """Rows and bytes per second since the last sample that is at least PACE_OVER_S old, else since the first; None before the second
        sample."""
        self._samples.append((now, self.rows, self.bytes))
        while len(self._samples) > 2 and self._samples[1][0] <= now - PACE_OVER_S:
            self._samples.popleft()
        then, rows, size = self._samples[0]
        if now <= then:
            return None, None
        return round((self.rows - rows) / (now - then), 1), round((self.bytes - size) / (now - then), 1)


@dataclass(slots=True)
class _Meter:
    course: Course
    expected: int
    expected_rows: int
    chunks: int
    seen: int = 0
    chunks_seen: int = 0
    rows: int = 0
    read_bytes: int = 0
    started: bool = False
    reported: float | None = None


class ProgressMeter:
    """Counts written chunks per table and reports progress, at most once per `interval_s` and table. `monotonic`: seconds."""

    def __init__(
        self, report: Callable[[CopyProgress], None], monotonic: Callable[[], float], interval_s: float = 0.5
    ) -> None:
        self._report = report
        self._monotonic = monotonic
        self._interval = interval_s
        self._meters: dict[TableId, _Meter] = {}

    def expect(self, table: TableId, source_bytes: int, chunks: int, source_rows: int = 0) -> None:
        """A table is about to be copied. `source_bytes`, `source_rows`: its estimated size on the source; 0 rows if unknown."""
        self._meters[table] = meter = _Meter(Course(table), source_bytes, source_rows, chunks)
        self._emit(meter)

    def started(self, table: TableId) -> None:
        """The table's first chunk is about to be written."""
        meter = self._meters[table]
        if not meter.started:
            meter.started = True
            self._emit(meter)

    def add(self, table: TableId, estimate: int, rows: int, read_bytes: int) -> None:
        """A chunk was written to the target. `estimate`: its estimated bytes on the source; `read_bytes`: of COPY text."""
        meter = self._meters[table]
        meter.seen += estimate
        meter.chunks_seen += 1
        meter.rows += rows
        meter.read_bytes += read_bytes
        now = self._monotonic()
        done = meter.chunks_seen >= meter.chunks
        if done or meter.reported is None or now - meter.reported >= self._interval:
            self._emit(meter)

    def rows(self, table: TableId) -> int:
        return self._meters[table].rows

    def _emit(self, meter: _Meter) -> None:
        meter.reported = now = self._monotonic()
        share = _share(meter)
        # The rows that were read give a better estimate than the source's statistics.
        total_rows = round(meter.rows / share) if meter.rows and share else meter.expected_rows or None
        self._report(
            meter.course.at(
                now,
                rows=meter.rows,
                share=share,
                total_rows=total_rows,
                total_bytes=meter.expected,
                begun=meter.started,
                read_bytes=meter.read_bytes,
            )
        )


def _share(meter: _Meter) -> float:
    """The finished share, 0 to 1: by bytes if sizes are known, else by chunks. Below 1 until the last chunk is written."""
    if meter.chunks_seen >= meter.chunks:
        return 1.0 if meter.started or meter.chunks else 0.0
    by_chunks = meter.chunks_seen / meter.chunks
    share = meter.seen / meter.expected if meter.expected > 0 else by_chunks
    return min(share, 0.999)
