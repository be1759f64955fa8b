"""What one cycle reads together with those of other subscriptions: it leads, or uses what another one read, or neither."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.model.identity import TableName
from engine.model.row_filter import RowFilter
from engine.platform.clock import SystemClock
from engine.platform.failpoints import Failpoint, hit
from engine.sources.query_diff.database import ComparedTable
from engine.sources.query_diff.moments import Moment
from engine.sources.query_diff.scan_group import Offer, ScanGroup, Wanted, show
from engine.sources.query_diff.spools import Spool, open_spool, spool_path

_LOOK_S = 0.05
"""Seconds between two looks whether another cycle has read a table."""
_STILL_S = 60.0
"""Seconds without a sign of that cycle after which its reads are not waited for. Rests between reads may be long. Not measured."""
_MOST_WAIT_S = 1_800.0
"""Seconds after which the reads of one table are not waited for, whatever the signs. Not measured."""


class ScanKind(StrEnum):
    """What of each row a scan of a whole table reads."""

    ROWS = "rows"
    HASHES = "hashes"
    KEYS = "keys"


@dataclass(slots=True)
class CycleScans:
    """Of one cycle, in its first snapshot. `offer`: that of another cycle, whose snapshot is used; `wanted`: what others would take, if
    this cycle leads."""

    group: ScanGroup | None = None
    offer: Offer | None = None
    wanted: Sequence[Wanted] = ()
    is_wanted: Callable[[], bool] = bool
    """Whether a later cycle was requested, so that this one must not wait."""
    is_over: bool = False
    """The first snapshot has ended."""
    noted: list[Wanted] = field(default_factory=list)
    """The scans that the cycle made, for the next one."""
    covers: bool = True
    """They are all that it read."""
    _folder: Path | None = None
    _made: set[str] = field(default_factory=set)
    _held: ExitStack = field(default_factory=ExitStack)

    def publish(self, snapshot: str, before: Moment, at_us: int, overlap_s: float) -> None:
        """Offer the reads of this snapshot, which has just been taken, to others, if they want them."""
        if self.group is None or not self.wanted:
            return
        try:
            hidden = self._held.enter_context(self.group.offering())
            promised = frozenset(each.id for each in self.wanted)
            Offer(hidden, before, Moment.now(), at_us, snapshot, overlap_s, promised).write()
            self._folder = show(hidden)
        except OSError:
            self.wanted = ()
        hit(Failpoint.SCAN_OFFERED)

    def end(self) -> None:
        """The first snapshot ends: nothing is shared any more."""
        self.is_over = True

    def note(self, table: ComparedTable, kind: ScanKind | None) -> None:
        """How the table was compared; None: not by a scan that can be shared."""
        if kind is None:
            self.covers = False
        else:
            self.noted.append(wanted_of(table, kind))

    def note_all(self, followed: int, group: ScanGroup | None) -> None:
        """The cycle has ended. `followed`: number of its tables."""
        if group is not None:
            group.note(self.noted, covers=self.covers and len(self.noted) == followed)

    def take(self, table: ComparedTable, kind: ScanKind, check: Callable[[], None]) -> Iterator[Any] | None:
        """The rows of a scan that another cycle made in the snapshot of this one; None if it has to be made here.

        Waits for it while the other cycle reads, but not if a later cycle was requested, and not for ever. `check`: see Conduct.
        """
        offer = self.offer
        if offer is None or self.is_over or (scan := wanted_of(table, kind).id) not in offer.promised:
            return None
        began = changed = time.monotonic()
        seen: object = None
        while True:
            is_led = offer.is_led
            found = open_spool(spool_path(offer.folder, scan))
            if found is not None or not is_led or (offer.folder / f"{scan}.none").exists() or self.is_wanted():
                return found
            signs, now = _signs(offer.folder), time.monotonic()
            if signs != seen:
                seen, changed = signs, now
            if now - changed >= _STILL_S or now - began >= _MOST_WAIT_S:
                return None
            check()
            time.sleep(_LOOK_S)

    def for_others(self, table: ComparedTable, kind: ScanKind) -> list[Wanted]:
        """The scans of the table that others want, and that have not been made."""
        if self._folder is None or self.is_over:
            return []
        base = wanted_of(table, kind).base
        return [each for each in self.wanted if each.base == base and each.id not in self._made]

    def spool(self, scan: str) -> Spool:
        """For the rows of a scan that others want, or this cycle itself."""
        return Spool(self._folder or Path(os.devnull), scan)

    def spooled(self, scan: str, spool: Spool, schema: Any) -> None:
        """Nothing is added to the spool any more."""
        if spool.finish(schema):
            self._made.add(scan)
        hit(Failpoint.SCAN_SPOOLED)

    def own(self, scan: str) -> Iterator[Any] | None:
        """The rows of a scan that this cycle spooled."""
        return None if self._folder is None else open_spool(spool_path(self._folder, scan))

    def pass_by(self, name: TableName) -> None:
        """The cycle is done with the table: what was not made of it will not be."""
        if self._folder is None:
            return
        for each in self.wanted:
            if each.table == str(name) and each.id not in self._made:
                try:
                    (self._folder / f"{each.id}.none").touch(mode=0o600)
                except OSError:
                    return

    def close(self) -> None:
        self._held.close()


@contextmanager
def scans_of(group: ScanGroup | None, after: Sequence[Moment], is_wanted: Callable[[], bool]) -> Iterator[CycleScans]:
    """The scans of a cycle that begins now. `after`: its snapshot must be later than these moments; `is_wanted`: see CycleScans."""
    scans = CycleScans(group, is_wanted=is_wanted)
    try:
        if group is not None:
            scans.offer = group.join(after, scans._held)
            if scans.offer is None:
                wanted = group.others_want(SystemClock().wall_us())
                if wanted and group.lead(scans._held):
                    scans.wanted = wanted
                elif wanted:
                    # Another one was faster: it is about to offer the same.
                    scans.offer = group.join(after, scans._held)
            if scans.offer is not None:
                hit(Failpoint.SCAN_JOINED)
        yield scans
    finally:
        scans.close()


def wanted_of(table: ComparedTable, kind: ScanKind) -> Wanted:
    """A scan of the whole table. Two with one id have the same lines in one snapshot; those with one base, if their filters agree."""
    schema = table.schema
    row_filter = schema.row_filter
    facts: list[object] = [kind.value, int(schema.relation), str(schema.name), table.record.hex(), schema.columns]
    facts += [schema.key, schema.computed, table.hashes if kind is ScanKind.HASHES else ""]
    if kind is not ScanKind.ROWS:
        # Only rows with all of their columns can be filtered afterwards.
        facts.append(row_filter)
    base = _digest(facts)
    if row_filter is None:
        return Wanted(str(schema.name), base, id=_digest([base]))
    return Wanted(
        str(schema.name),
        base,
        row_filter.text,
        row_filter.columns,
        _digest([base, row_filter.text, row_filter.columns]),
    )


def filter_of(scan: Wanted) -> RowFilter | None:
    return None if scan.row_filter is None else RowFilter(scan.row_filter, scan.columns)


def _digest(facts: Sequence[object]) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _signs(folder: Path) -> object:
    """What changes while a cycle reads."""
    try:
        return sorted((each.name, each.stat().st_size) for each in folder.iterdir())
    except OSError:
        return None
