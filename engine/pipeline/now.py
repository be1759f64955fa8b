"""Takes "now" on the source: a position after every commit so far, and up to when changes of the catalog are in force there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.model.table_state import TableStateKind
from engine.tables.context import RunContext
from engine.tables.known_catalog import KnownCatalog, Settled

HELD_S = 20.0
"""Longest wait of a "now", in seconds, until a change of the catalog is in force; then the request fails and the server repeats it."""


@dataclass(frozen=True, slots=True)
class Now:
    """A position of the source, and the state of its catalog that is known to be in force there.

    `structure`: the catalog's changes up to this position are in force. `seen_us`: when the catalog was checked, in µs since 1970.
    `held`: changes were found and reported after the position was taken, so a client must receive those reports before the position.
    """

    position: Lsn
    structure: Lsn
    seen_us: int
    held: bool


class CheckedRun(Protocol):
    """The part of a run that a "now" needs. Any thread may call it."""

    @property
    def ended(self) -> bool:
        """Whether the run has ended or is ending."""
        ...

    def check_source(self) -> Settled | None:
        """Make one check of the source that begins after the call. Returns None if it found a change or left something undecided.

        Raises EngineFault, which also ends the run.
        """
        ...

    def flush(self, position: Lsn) -> None:
        """Seal a batch that ends at or after this position, even an empty one."""
        ...


class NowReader:
    """Takes "now" for one run. Any thread may use it."""

    def __init__(self, parts: RunContext, run: CheckedRun) -> None:
        self._parts = parts
        self._run = run
        self.known = KnownCatalog(parts.start.progress.batch, parts.start.progress.end)

    def read_now(self) -> Now:
        """A position after every commit so far.

        Blocks for a round trip to the source; if the catalog was changed since the last check, until that change is in force.

        Raises:
            EngineFault: TARGET_UNAVAILABLE if that takes longer than HELD_S or the run ends; SOURCE_* if the source fails.
        """
        # Read before the position is taken: the findings of that check were reported before the position can be applied.
        parts, known = self._parts, self.known.last
        tables = [entry.spec for entry in parts.book.all() if entry.kind is not TableStateKind.REMOVED]
        at = parts.source.log.catalog_at(tables, parts.spec.reader, now=True)
        live = [entry.table for entry in parts.book.all().in_state(TableStateKind.LIVE)]
        if known is not None and known.is_current(at, live):
            seen_us = parts.clock.wall_us()
            self.known.same(known, at, seen_us)
            return Now(at.position, at.position, seen_us, held=False)
        settled = self._take_in()
        return Now(at.position, settled.at.position, settled.seen_us, held=True)

    def current(self) -> Lsn:
        """The end of the source's log, without a write. Raises EngineFault if the source cannot be asked."""
        return self._parts.source.log.current()

    def _take_in(self) -> Settled:
        """Check the source until a check finds nothing more, and wait until its result is in force."""
        deadline = self._parts.clock.monotonic_ms() + HELD_S * 1000

        def over() -> bool:
            return self._run.ended or self._parts.clock.monotonic_ms() >= deadline

        while not over():
            settled = self._run.check_source()
            if settled is not None:
                if self.known.in_force(settled, over):
                    return settled
                break
            position = self._parts.source.log.current()
            self._run.flush(position)
            if not self.known.reaches(position, over):
                break
        detail = "changes of the source's catalog are not processed yet"
        raise EngineFault(FaultKind.TARGET_UNAVAILABLE, str(self._parts.spec.name), detail)
