"""How far each table's copy is: rows, bytes, percent and the time left, reported at most a few times a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.model.identity import TableId


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """One table's progress. `percent` (0 to 100) counts estimated source bytes; 100 only when every row is in the target."""

    table: TableId
    rows: int
    bytes: int
    """Bytes of COPY text read so far."""
    percent: float
    eta_seconds: float | None
    """None while nothing is known yet."""


@dataclass(slots=True)
class _Meter:
    expected: int
    chunks: int
    seen: int = 0
    chunks_seen: int = 0
    rows: int = 0
    bytes: int = 0
    started: float | None = None
    reported: float | None = None


class ProgressMeter:
    """Counts finished chunks per table and passes progress on, per table at most once per `interval_s`."""

    def __init__(
        self, report: Callable[[CopyProgress], None], monotonic: Callable[[], float], interval_s: float = 0.5
    ) -> None:
        self._report = report
        self._monotonic = monotonic
        self._interval = interval_s
        self._meters: dict[TableId, _Meter] = {}

    def expect(self, table: TableId, source_bytes: int, chunks: int) -> None:
        """A table is about to be copied: its estimated size on the source and its number of chunks."""
        self._meters[table] = _Meter(expected=source_bytes, chunks=chunks)

    def started(self, table: TableId) -> None:
        """A first chunk of the table is being read."""
        meter = self._meters[table]
        if meter.started is None:
            meter.started = self._monotonic()
            self._emit(table, meter)

    def add(self, table: TableId, estimate: int, rows: int, read_bytes: int) -> None:
        """A chunk of `estimate` source bytes is in the target."""
        meter = self._meters[table]
        meter.seen += estimate
        meter.chunks_seen += 1
        meter.rows += rows
        meter.bytes += read_bytes
        now = self._monotonic()
        done = meter.chunks_seen >= meter.chunks
        if done or meter.reported is None or now - meter.reported >= self._interval:
            self._emit(table, meter)

    def rows(self, table: TableId) -> int:
        return self._meters[table].rows

    def _emit(self, table: TableId, meter: _Meter) -> None:
        now = self._monotonic()
        meter.reported = now
        share = _share(meter)
        eta: float | None = None
        if meter.started is not None and share > 0:
            eta = round((now - meter.started) * (1 - share) / share, 1)
        self._report(CopyProgress(table, meter.rows, meter.bytes, round(100 * share, 1), eta))


def _share(meter: _Meter) -> float:
    """Finished share, 0 to 1. By bytes where sizes are known, else by chunks; below 1 until the last chunk is in."""
    if meter.chunks_seen >= meter.chunks:
        return 1.0
    by_chunks = meter.chunks_seen / meter.chunks
    share = meter.seen / meter.expected if meter.expected > 0 else by_chunks
    return min(share, 0.999)
