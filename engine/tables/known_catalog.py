"""Up to where the source's catalog is known, and all that it showed is in force: what the log does not tell, a look has to find.

A look finds nothing more to do (`Settled`): then what the catalog said when it began is in force as soon as all batches that were
planned by its end are committed and told. A position taken later, where the catalog says the same still, needs no other look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from engine.model.identity import BatchId, TableId
from engine.model.position import Lsn
from engine.model.source import CatalogAt

_NOTICE_S = 0.1
"""How often whoever waits looks whether the run has ended."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A look that found nothing more to do. `at`: the catalog when it began. `tables`: those whose structure it compared, all live."""

    at: CatalogAt
    tables: frozenset[TableId]
    seen_us: int

    def vouches(self, now: CatalogAt, live: Collection[TableId]) -> bool:
        """Whether the catalog still says the same, and no other tables are live by now: what was done to those meanwhile is not known."""
        return self.at.mark == now.mark and self.tables.issuperset(live)


class KnownCatalog:
    """Takes what looks found and what was committed. Any thread may use it."""

    def __init__(self, committed: BatchId, end: Lsn) -> None:
        self._changed = threading.Condition()
        self._committed = committed
        self._end = end
        self._waiting: list[tuple[BatchId, Settled]] = []
        self._known: Settled | None = None

    @property
    def last(self) -> Settled | None:
        """The last look of which all is in force."""
        return self._known

    def planned(self, settled: Settled, following: BatchId) -> None:
        """All batches before `following` are planned, which no planning is under way for: behind them the look's catalog is in force."""
        with self._changed:
            self._waiting.append((following, settled))
            self._take_over()

    def committed(self, number: BatchId, end: Lsn) -> None:
        """This batch, and all before it, are committed and told."""
        with self._changed:
            self._committed, self._end = number, end
            self._take_over()

    def _take_over(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._committed + 1:
            self._known = self._waiting.pop(0)[1]
        self._changed.notify_all()

    def same(self, known: Settled, at: CatalogAt, seen_us: int) -> None:
        """The catalog says the same at a later position."""
        with self._changed:
            if self._known is known and at.position > known.at.position:
                self._known = replace(known, at=at, seen_us=seen_us)

    def in_force(self, settled: Settled, over: Callable[[], bool]) -> bool:
        """Wait until the catalog of this look, or of a later one, is in force; False where `over` comes first."""
        return self._wait(lambda: self._known is not None and self._known.at.position >= settled.at.position, over)

    def reaches(self, position: Lsn, over: Callable[[], bool]) -> bool:
        """Wait for the end of a batch at or behind this position; False where `over` comes first."""
        return self._wait(lambda: self._end >= position, over)

    def _wait(self, done: Callable[[], bool], over: Callable[[], bool]) -> bool:
        with self._changed:
            while not done():
                if over():
                    return False
                self._changed.wait(_NOTICE_S)
            return True
