"""The position up to which the source's catalog is known and in force. Only checks of the catalog find what the log does not announce.

If a check finds nothing more to do (`Settled`), the catalog as of its beginning is in force once all batches that were planned before its
end are committed and reported. At a later position with the same fingerprint no other check is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from engine.model.identity import BatchId, TableId
from engine.model.position import Lsn
from engine.model.source import CatalogAt

_NOTICE_S = 0.1
"""Seconds between two checks whether the run of a waiting caller has ended."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A check that found nothing more to do. `at`: the catalog when the check began. `tables`: the live tables whose schemas it compared.
    `seen_us`: wall time of its beginning, in microseconds since 1970."""

    at: CatalogAt
    tables: frozenset[TableId]
    seen_us: int

    def is_current(self, now: CatalogAt, live: Collection[TableId]) -> bool:
        """Whether the fingerprint is unchanged and the check compared every live table: changes of the others since then are unknown."""
        return self.at.mark == now.mark and self.tables.issuperset(live)


class KnownCatalog:
    """Combines the results of checks with the batches that are committed. Safe to use from any thread."""

    def __init__(self, committed: BatchId, end: Lsn) -> None:
        self._changed = threading.Condition()
        self._committed = committed
        self._end = end
        self._waiting: list[tuple[BatchId, Settled]] = []
        self._known: Settled | None = None

    @property
    def last(self) -> Settled | None:
        """The last check whose catalog is in force; None before the first."""
        return self._known

    def planned(self, settled: Settled, following: BatchId) -> None:
        """Add a check: its catalog is in force once all batches before `following` are committed. They are planned, and no planning is
        running."""
        with self._changed:
            self._waiting.append((following, settled))
            self._take_over()

    def committed(self, number: BatchId, end: Lsn) -> None:
        """This batch and all batches before it are committed and reported; `end` is the batch's end."""
        with self._changed:
            self._committed, self._end = number, end
            self._take_over()

    def _take_over(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._committed + 1:
            self._known = self._waiting.pop(0)[1]
        self._changed.notify_all()

    def same(self, known: Settled, at: CatalogAt, seen_us: int) -> None:
        """Advance a check to a later position at which the fingerprint is the same. Ignored if `known` is not the last check any more."""
        with self._changed:
            if self._known is known and at.position > known.at.position:
                self._known = replace(known, at=at, seen_us=seen_us)

    def in_force(self, settled: Settled, over: Callable[[], bool]) -> bool:
        """Wait until the catalog of this check, or of a later one, is in force; False if `over` returns True first."""
        return self._wait(lambda: self._known is not None and self._known.at.position >= settled.at.position, over)

    def reaches(self, position: Lsn, over: Callable[[], bool]) -> bool:
        """Wait until a batch that ends at or after this position is committed; False if `over` returns True first."""
        return self._wait(lambda: self._end >= position, over)

    def _wait(self, done: Callable[[], bool], over: Callable[[], bool]) -> bool:
        with self._changed:
            while not done():
                if over():
                    return False
                self._changed.wait(_NOTICE_S)
            return True
