"""Takes "now" on the source: a position, and the certainty that what the catalog showed there is in force where it is applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.model.table_state import TableStateKind
from engine.tables.context import RunContext
from engine.tables.known_catalog import KnownCatalog, Settled

HELD_S = 20.0
"""So long a "now" waits for what the catalog showed to be in force; the server asks again then."""


@dataclass(frozen=True, slots=True)
class Now:
    """A position, and up to where and when (in µs) the source's catalog is known and in force: there or behind it.

    `held`: what was found was told after the position was taken, so whoever hears of the position must have heard of that.
    """

    position: Lsn
    structure: Lsn
    seen_us: int
    held: bool


class CheckedRun(Protocol):
    """What a run does for a "now"; from any thread."""

    @property
    def ended(self) -> bool:
        """Whether the run has ended, or is about to."""
        ...

    def check_source(self) -> Settled | None:
        """Make one check of the source, which begins after the call. None if it found something or left something undecided.

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

    def take(self) -> Now:
        """A position behind every commit so far.

        Blocks for a round trip to the source, and where the catalog was changed since it was last looked at until that is taken in.
        Raises TARGET_UNAVAILABLE where that takes too long, or the run ends.
        """
        parts, known = (
            self._parts,
            self.known.last,
        )  # Before the position: what it found was told before that can be applied.
        tables = [entry.spec for entry in parts.book.all() if entry.kind is not TableStateKind.REMOVED]
        at = parts.source.log.catalog_at(tables, parts.spec.reader, now=True)
        live = [entry.table for entry in parts.book.in_state(TableStateKind.LIVE)]
        if known is not None and known.vouches(at, live):
            seen_us = parts.clock.wall_us()
            self.known.same(known, at, seen_us)
            return Now(at.position, at.position, seen_us, held=False)
        settled = self._take_in()
        return Now(at.position, settled.at.position, settled.seen_us, held=True)

    def _take_in(self) -> Settled:
        """Look until nothing more is found, and wait until that is in force."""
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
