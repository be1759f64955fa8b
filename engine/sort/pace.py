"""How long to gather before a batch is sealed: longer while we are behind and every batch costs much whatever it holds."""

from __future__ import annotations

LATE_MS = 100
"""A batch that had to wait this long for the stages before it tells that they do not keep up."""
SHARE = 4
"""While we are behind, a batch's own cost shall be at most one part in so many of the time between batches."""


class SealPace:
    """Pure; times in milliseconds of the caller's clock. Demands and cuts do not ask it, nor does a batch that is full."""

    def __init__(self, most_ms: int) -> None:
        self._most_ms = most_ms
        self._sealed_ms = 0
        self._due_ms: int | None = None
        self._interval_ms = 0.0
        self._per_table_ms = 0.0
        self._tables = 0

    @property
    def not_before_ms(self) -> int:
        """The earliest time to seal the next batch by its age."""
        return self._sealed_ms + int(self._interval_ms)

    @property
    def interval_ms(self) -> float:
        """What lies at least between two batches that are sealed by their age; 0 while we keep up."""
        return self._interval_ms

    def held_up(self, now_ms: int) -> None:
        """A batch is due, and there is no room for it."""
        if self._due_ms is None:
            self._due_ms = now_ms

    def sealed(self, now_ms: int) -> None:
        """A batch was sealed."""
        late = self._due_ms is not None and now_ms - self._due_ms >= LATE_MS
        most = min(self._most_ms, SHARE * self._per_table_ms * self._tables)
        longer = max(2 * self._interval_ms, SHARE * self._per_table_ms)
        self._interval_ms = min(most, longer) if late else self._interval_ms / 2
        self._sealed_ms, self._due_ms = now_ms, None

    def committed(self, tables: int, took_ms: float) -> None:
        """A batch that touched so many tables was committed in this time."""
        if tables:
            self._tables = tables
            self._per_table_ms += (took_ms / tables - self._per_table_ms) / 4
