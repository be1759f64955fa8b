"""Cuts the records of one node's stream into transactions and parts of global ones, and keeps their rows until the merge releases them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.source import RecordChunk
from engine.platform.compiled import Array
from engine.records.two_phase import gids_of, two_phase_of
from engine.sort.merge import LogMerge
from engine.sort.merge_records import Entry, EntryKind
from engine.sources.postgres_logs.late_rows import LateRows
from engine.sources.postgres_logs.moved_rows import keys_of, removed
from engine.sources.postgres_logs.own_rows import OwnRows
from engine.sources.postgres_logs.parts import Bundle, Bundled, Part, Piece, Rows, Transactions
from engine.sources.postgres_logs.relations import Relations, View
from engine.sources.postgres_logs.repeated import Repeated
from engine.sources.postgres_logs.spool import Kept, Spool

_KINDS: Mapping[int, EntryKind] = {
    ControlKind.COMMIT_PREPARED: EntryKind.COMMIT_PREPARED,
    ControlKind.ROLLBACK_PREPARED: EntryKind.ROLLBACK_PREPARED,
}
_ENDS = frozenset({ControlKind.COMMIT, ControlKind.PREPARE})
_BEGINS = frozenset({ControlKind.BEGIN, ControlKind.BEGIN_PREPARE})
_PART = 1
"""Low bit of the place of a transaction that is kept by itself; those of runs are even."""
_SMALL_BYTES = 16 * 1024
"""Bytes of records up to which parts of one chunk are kept together. A chunk of the merged log may be larger by one such part of each node.
Not measured."""
_RECENT = 100_000
"""Commits that a node's snapshot is compared with, at least: of some seconds under heavy load. Not measured."""
_RECENT_GIDS = 10_000
"""Gids of which the ids are remembered: the record that ends a part has the gid again. Not measured."""
_PREFIX_AT = 10
"""Bytes of a message record before its prefix: type, flags, position."""


@dataclass(frozen=True, slots=True)
class Naming:
    """How the records of global transactions name them.

    `gid`: finds the id, as the group `gtid`, in the gid of a prepared part, and the nodes, by name and separated by commas, in the group
    `participants`, if it has one. A gid that it does not match is the id as a whole. If participants are
    listed, an id may name one transaction only: a part counts as soon as it is read, also if it is rolled back and prepared again later.
    `own_prefix`: prefix of the logical message in the coordinator's transaction whose content is the id, and in a second line the
    participants; `own_rows`: table and column instead, with the same content in a row that the transaction inserts. Both None: the
    coordinator has no part.
    """

    gid: re.Pattern[str]
    own_prefix: str | None
    nodes: tuple[str, ...]
    own_rows: tuple[TableName, str] | None = None

    def of_gid(self, gid: str) -> tuple[str, frozenset[int] | None]:
        found = self.gid.search(gid)
        if found is None:
            return gid, None
        return found["gtid"], self._participants(found["participants"]) if self._lists_participants else None

    @property
    def _lists_participants(self) -> bool:
        return "participants" in self.gid.groupindex

    def of_message(self, record: bytes) -> tuple[str, frozenset[int] | None] | None:
        """What a message record says of its transaction: see `own_prefix`. None: it is another message."""
        if self.own_prefix is None:
            return None
        head = self.own_prefix.encode() + b"\0"
        if record[1:2] != b"\x01" or not record.startswith(head, _PREFIX_AT):
            return None
        return self.of_content(record[_PREFIX_AT + len(head) + 4 :])

    def of_content(self, content: bytes) -> tuple[str, frozenset[int] | None]:
        """What the content of a message, or of a row's column, says of its transaction."""
        gtid, _, listed = content.decode("utf-8", "surrogateescape").partition("\n")
        return gtid, self._participants(listed or None)

    def _participants(self, listed: str | None) -> frozenset[int] | None:
        if listed is None:
            return None
        names = listed.split(",")
        if not set(names) <= set(self.nodes):
            unknown = sorted(set(names) - set(self.nodes))
            detail = (
                f"a global transaction names the participants {', '.join(unknown)}, which are no nodes of this source"
            )
            raise EngineFault(FaultKind.LOG_UNREADABLE, "merge", detail)
        return frozenset(self.nodes.index(name) for name in names)


class _Control(NamedTuple):
    """A control record with its fields."""

    kind: int
    ordinal: int
    xid: int
    subxid: int
    end_lsn: int
    time_us: int
    commit_lsn: int


@dataclass(slots=True)
class _Run:
    """Whole local transactions of one chunk, without relation records. `place`: of the first one; those that follow have every second
    number. `kept`: starts and stops (int64), borders from 0 on (int32) and data (uint8). `taken`: so many were taken."""

    view: View
    place: int
    count: int
    kept: Kept
    taken: int = 0


class NodeLog:
    """The transactions of one node, on their way through the merge. Used by one thread."""

    def __init__(
        self,
        node: int,
        naming: Naming,
        merge: LogMerge,
        relations: Relations,
        late: LateRows,
        folder: Path | None = None,
    ) -> None:
        """`late`: is given what is in the merged log already. `folder`: see Spool."""
        self._node = node
        self._spool = Spool(folder)
        self._relations = relations
        self._late = late
        self._view = relations.nothing_of(node)
        self._naming = naming
        self._of_gid = lru_cache(_RECENT_GIDS)(naming.of_gid)
        self._merge = merge
        self._runs: deque[_Run] = deque()
        self._parts: dict[int, Part | Bundled] = {}
        self._next = 0
        self._open: Part | None = None
        self._named: tuple[str, frozenset[int] | None] | None = None
        """Of the open transaction, if a message or a row has named it."""
        self._own = None if naming.own_rows is None else OwnRows(*naming.own_rows)
        self._looked = 0
        """The first record of the open transaction, in the present chunk, that was not searched for such a row."""
        self._commits: deque[tuple[Sequence[int] | Array, Sequence[int] | Array]] = deque()
        """Ends and transaction ids of the last commits, also of those that are released."""
        self._noted = 0
        self._xid = 0
        """Of the open transaction."""
        self._repeated: Repeated | None = None
        """While a session sends again what an earlier one has sent."""
        self.held_bytes = 0
        """Bytes of memory of rows that are kept."""

    @property
    def spooled_bytes(self) -> int:
        """Bytes on disk of rows that are kept."""
        return self._spool.bytes

    def spool(self) -> None:
        """Move all rows that are kept to disk. Raises EngineFault as Spool does."""
        for part in self._parts.values():
            if isinstance(part, Bundled):
                part.bundle.kept.move()
            else:
                part.move(self._spool)
        if self._open is not None:
            self._open.move(self._spool)
        for run in self._runs:
            run.kept.move()
        self.held_bytes = 0

    def close(self) -> None:
        """Remove what is on disk. Idempotent."""
        self._spool.close()

    def begin_again(self, read: int) -> None:
        """What is fed next begins again with what the node's slot retains. Everything up to `read` was fed; a transaction of which a part
        was fed comes as a whole."""
        if self._open is not None:
            self.held_bytes -= self._open.memory_bytes
            self._open.drop()
        self._open, self._named, self._view = None, None, self._relations.nothing_of(self._node)
        self._repeated = Repeated(read, self._is_prepared, self._announce)

    def _is_prepared(self, gid: str) -> bool:
        return self._merge.is_prepared(self._node, self._naming.of_gid(gid)[0])

    def _announce(self, record: bytes) -> None:
        if self._own is not None:
            self._own.announced(record)
        self._view = self._relations.announced(self._node, record, self._view)

    def feed(self, chunk: RecordChunk) -> None:
        """Pass the next records of the node's stream to the merge."""
        if self._repeated is not None:
            chunk = self._repeated.cut(chunk)
            self._repeated = None if self._repeated.done else self._repeated
        controls = chunk.controls
        ends, ends_of_parts = _ends_of_runs(controls["kind"]), _ends_of_parts(chunk)
        first, at = 0, 0
        self._looked = 0
        while at < len(controls):
            stop = self._unnamed(chunk, at, int(ends[at])) if self._open is None else at
            if stop > at:
                self._add_run(chunk, controls[at + 1 : stop : 2], controls[at:stop:2])
                at = stop
                first = int(controls["ordinal"][at - 1]) + 1
                continue
            stop = int(ends_of_parts[at]) if self._open is None else at
            if stop > at:
                self._add_parts(chunk, controls[at:stop])
                at = stop
                first = int(controls["ordinal"][at - 1]) + 1
                continue
            first = self._control(chunk, _Control(*controls[at].item()), first)
            at += 1
        if self._open is not None:
            self._look(chunk, chunk.count)
            self._keep(chunk, first, chunk.count)

    def _unnamed(self, chunk: RecordChunk, at: int, stop: int) -> int:
        """Which control record begins the first transaction that a row names; `stop` if none does. Those from `at` to before `stop` are
        BEGIN and COMMIT of each."""
        if self._own is None or stop == at:
            return stop
        ordinals = chunk.controls["ordinal"]
        found = self._own.first(chunk, int(ordinals[at]), int(ordinals[stop - 1]) + 1)
        return at + 2 * int(np.searchsorted(ordinals[at + 1 : stop : 2], found))

    def _look(self, chunk: RecordChunk, stop: int) -> None:
        """Search for a row that names the open transaction, up to before this record."""
        if self._own is not None:
            found = self._own.id_in(chunk, self._looked, stop)
            self._named = self._named if found is None else self._naming.of_content(found)
            self._looked = stop

    def end_of(self, has: Callable[[Array], Array], passed: int) -> int | None:
        """The end of the last commit that a snapshot has; None if it lacks an earlier one, or one up to `passed`.

        `has`: which transactions with these ids it has. Commits of long ago are not compared: they are visible by now.
        """
        none = np.empty(0, np.int64)
        ends = np.concatenate([none, *(each for each, _ in self._commits)])
        found = has(np.concatenate([none, *(xids for _, xids in self._commits)]))
        missing = np.flatnonzero(~found)
        first = int(missing[0]) if len(missing) else len(ends)
        if found[first:].any() or (first < len(ends) and ends[first] <= passed):
            return None
        return int(ends[first - 1]) if first else 0

    def removes_moved(self) -> bool:
        """Whether it removes a row that has arrived on another node, by what is committed and was not taken: the log of the other node was
        merged further."""
        return self._late.are_elsewhere(self._node, self.removed(on_disk=True))

    def removed(self, *, on_disk: bool = False) -> Array:
        """The keys (uint64) of rows of shared tables that are removed by what is committed and was not taken. `on_disk`: also by what is
        not in memory."""
        found = [np.empty(0, np.uint64)]
        for rows in self._following(on_disk):
            if rows.view.has_scattered:
                found.append(removed(keys_of(rows.data, rows.offsets, rows.view)))
        return np.concatenate(found)

    def _following(self, on_disk: bool) -> Iterator[Rows]:
        """What is committed and was not taken."""
        for run in self._runs:
            if on_disk or run.kept.memory_bytes:
                starts, stops, offsets, data = run.kept.read()
                yield Rows(run.view, data, offsets).cut(int(starts[run.taken]), int(stops[-1]))
        places = np.array(self._merge.held_commits(self._node), np.int64)
        for part in map(self._parts.__getitem__, places[is_part(places)].tolist()):
            if isinstance(part, Bundled):
                if on_disk or part.bundle.kept.memory_bytes:
                    yield part.rows()
            elif on_disk or part.memory_bytes:
                for _, rows in part.rows():
                    yield rows

    def take_runs(self, places: Array) -> Iterator[Transactions]:
        """Released local transactions with these even places, in ascending order."""
        at = 0
        while at < len(places):
            run = self._runs[0]
            if not run.kept.memory_bytes:
                run.kept.bring_back()
                self.held_bytes += run.kept.memory_bytes
            starts, stops, offsets, data = run.kept.read()
            low = (int(places[at]) - run.place) // 2
            count = min(run.count - low, len(places) - at)
            run.taken = low + count
            if run.taken == run.count:
                self._runs.popleft()
                self.held_bytes -= run.kept.memory_bytes
            yield Transactions(run.view, data, offsets, starts[low : low + count], stops[low : low + count])
            at += count

    def take(self, place: int) -> Part | Bundled:
        """A part that is released. The caller drops it, or passes it to `drop_bundled` if it is in a bundle."""
        part = self._parts.pop(place)
        if isinstance(part, Part):
            self.held_bytes -= part.memory_bytes
        return part

    def take_part(self, place: int) -> Part:
        """A part that is released, also of a bundle. The caller drops it."""
        part = self.take(place)
        return part if isinstance(part, Part) else self.unbundled(part)

    def unbundled(self, part: Bundled) -> Part:
        """A part of a bundle by itself; its place in the bundle is dropped."""
        rows = part.rows()
        kept = Kept((rows.offsets.astype(np.int32), rows.data.copy()), self._spool)
        self.drop_bundled(part)
        return Part([(0, rows.view)], [Piece(rows.count, kept)], rows.count, part.xid)

    def drop_bundled(self, part: Bundled) -> None:
        """The rows of this part are not needed any more. Once for each."""
        part.bundle.left -= 1
        if part.bundle.left == 0:
            self.held_bytes -= part.bundle.kept.memory_bytes
            part.bundle.kept.drop()

    def _add_run(self, chunk: RecordChunk, commits: Any, begins: Any) -> None:
        ends = commits["end_lsn"].astype(np.int64)
        self._note(ends, begins["xid"].astype(np.int64))
        places = self._next + 2 * np.arange(len(ends))
        self._next += 2 * len(ends)
        known = self._merge.add_commits(self._node, ends, commits["time_us"].copy(), places)
        if known and self._view.has_scattered:
            borders = chunk.offsets[int(begins["ordinal"][0]) : int(commits["ordinal"][known - 1]) + 2]
            self._late.note(self._node, keys_of(chunk.data, borders.astype(np.int64), self._view))
        if known < len(ends):
            starts, stops = begins["ordinal"][known:], commits["ordinal"][known:] + 1
            first = int(starts[0])
            kept = Kept((starts - first, stops - first, *_cut(chunk, first, int(stops[-1]))), self._spool)
            self._runs.append(_Run(self._view, int(places[known]), len(starts), kept))
            self.held_bytes += kept.memory_bytes

    def _add_parts(self, chunk: RecordChunk, controls: Array) -> None:
        """Small parts, of which nothing but their rows is between BEGIN PREPARE and PREPARE, and ends of parts."""
        begins = controls[controls["kind"] == ControlKind.BEGIN_PREPARE]
        ends = controls[controls["kind"] != ControlKind.BEGIN_PREPARE]
        commits = ends[ends["kind"] == ControlKind.COMMIT_PREPARED]
        if len(commits):
            self._note(commits["end_lsn"].astype(np.int64), commits["xid"].astype(np.int64))
        bundled = self._bundle(chunk, begins, ends["ordinal"][ends["kind"] == ControlKind.PREPARE] + 1)
        lsns, gids = gids_of(chunk.data, chunk.offsets, ends["ordinal"])
        entries = []
        for kind, end, time_us, lsn, gid in zip(
            *(ends[name].tolist() for name in ("kind", "end_lsn", "time_us")), lsns, gids, strict=True
        ):
            gtid, named = self._of_gid(gid)
            if kind == ControlKind.PREPARE:
                place = self._next + _PART
                self._next += 2
                self._parts[place] = next(bundled)
                entries.append(Entry(EntryKind.PREPARE, gtid, end, time_us, place, lsn, named))
            else:
                entries.append(Entry(_KINDS[kind], gtid, end, time_us))
        for entry, unneeded in self._merge.add_all(self._node, entries):
            self._drop_unneeded(entry, unneeded)

    def _bundle(self, chunk: RecordChunk, begins: Array, stops: Array) -> Iterator[Bundled]:
        """Keep parts together, from these BEGIN PREPARE to before these records."""
        if not len(begins):
            return iter(())
        low = int(begins["ordinal"][0])
        offsets, data = _cut(chunk, low, int(stops[-1]))
        bundle = Bundle(self._view, Kept((offsets, data), self._spool, len(begins)), len(begins))
        self.held_bytes += bundle.kept.memory_bytes
        firsts = begins["ordinal"] - low
        stops = stops - low
        sizes = offsets[stops] - offsets[firsts]
        columns = (each.tolist() for each in (firsts, stops, sizes, begins["xid"]))
        return (Bundled(bundle, *each) for each in zip(*columns, strict=True))

    def _control(self, chunk: RecordChunk, control: _Control, first: int) -> int:
        """Process one control record; returns the number of the first record that is not kept yet."""
        kind, ordinal = control.kind, control.ordinal
        if kind in _BEGINS:
            self._xid = control.xid
            self._open, self._named, self._looked = Part([(0, self._view)], xid=control.xid), None, ordinal
            return ordinal
        if kind in _KINDS:
            record = two_phase_of(_record(chunk, ordinal))
            gtid, _ = self._naming.of_gid(record.gid)
            if kind == ControlKind.COMMIT_PREPARED:
                self._note((record.end.value,), (record.xid,))
            self._add(Entry(_KINDS[kind], gtid, record.end.value, record.time_us))
            return ordinal + 1
        if self._open is None and kind == ControlKind.PREPARE:
            # Some versions send a part that only locked rows without its beginning.
            self._open = Part([(0, self._view)])
            first = ordinal
        if self._open is None:
            return ordinal + 1  # A message outside transactions.
        if kind == ControlKind.RELATION:
            self._look(chunk, ordinal)
            self._announce(chunk.relations[ordinal])
            self._open.views.append((self._open.count + ordinal - first, self._view))
        elif kind == ControlKind.MESSAGE:
            self._named = self._naming.of_message(_record(chunk, ordinal)) or self._named
        elif kind in _ENDS:
            self._look(chunk, ordinal)
            self._keep(chunk, first, ordinal + 1)
            self._end(chunk, control, self._open)
            return ordinal + 1
        return first

    def _end(self, chunk: RecordChunk, control: _Control, part: Part) -> None:
        self._open = None
        place = self._next + _PART
        self._next += 2
        self._parts[place] = part
        end, time_us = control.end_lsn, control.time_us
        if control.kind == ControlKind.PREPARE:
            record = two_phase_of(_record(chunk, control.ordinal))
            gtid, named = self._naming.of_gid(record.gid)
            self._add(Entry(EntryKind.PREPARE, gtid, end, time_us, place, record.lsn.value, named))
            return
        self._note((end,), (self._xid,))
        if self._named is not None:
            self._add(Entry(EntryKind.OWN_COMMIT, self._named[0], end, time_us, place, 0, self._named[1]))
        else:
            single = (np.array([value], np.int64) for value in (end, time_us, place))
            if self._merge.add_commits(self._node, *single):
                self._drop_known(place)

    def _note(self, ends: Sequence[int] | Array, xids: Sequence[int] | Array) -> None:
        self._commits.append((ends, xids))
        self._noted += len(ends)
        while self._noted - len(self._commits[0][0]) >= _RECENT:
            self._noted -= len(self._commits.popleft()[0])

    def _add(self, entry: Entry) -> None:
        unneeded = self._merge.add(self._node, entry)
        if unneeded is not None:
            self._drop_unneeded(entry, unneeded)

    def _drop_unneeded(self, entry: Entry, unneeded: int) -> None:
        if entry.kind is EntryKind.ROLLBACK_PREPARED or (entry.kind is EntryKind.PREPARE and unneeded != entry.place):
            self.take_part(unneeded).drop()
        else:
            self._drop_known(unneeded)

    def _drop_known(self, place: int) -> None:
        """A part is in the merged log already."""
        part = self.take_part(place)
        for _, rows in part.rows():
            self._late.note(self._node, keys_of(rows.data, rows.offsets, rows.view))
        part.drop()

    def _keep(self, chunk: RecordChunk, first: int, stop: int) -> None:
        if self._open is not None and stop > first:
            kept = Kept(_cut(chunk, first, stop), self._spool)
            self._open.pieces.append(Piece(stop - first, kept))
            self._open.count += stop - first
            self.held_bytes += kept.memory_bytes


def is_part(places: Array) -> Array:
    """Which of these transactions are kept by themselves: bool."""
    found: Array = (places & _PART) == _PART
    return found


def _cut(chunk: RecordChunk, first: int, stop: int) -> tuple[Array, Array]:
    """Borders from 0 on, and data, of some records. A small part of a chunk does not keep the whole of it in memory."""
    borders = chunk.offsets[first : stop + 1]
    base, end = int(borders[0]), int(borders[-1])
    data = chunk.data[base:end]
    return borders - base, data.copy() if 2 * len(data) < len(chunk.data) else data


def _record(chunk: RecordChunk, ordinal: int) -> bytes:
    found: bytes = chunk.data[chunk.offsets[ordinal] : chunk.offsets[ordinal + 1]].tobytes()
    return found


def _ends_of_runs(kinds: Array) -> Array:
    """By control record: where the pairs of BEGIN and COMMIT end that follow each other from it on. int64; itself if there is none."""
    count = len(kinds)
    ends = np.arange(count)
    pairs = np.flatnonzero((kinds[:-1] == ControlKind.BEGIN) & (kinds[1:] == ControlKind.COMMIT))
    if len(pairs):
        # A pair whose successor is none ends its run; the others end where their successor's run does.
        lasts = np.append(np.flatnonzero(np.diff(pairs) != 2), len(pairs) - 1)
        ends[pairs] = pairs[lasts[np.searchsorted(lasts, np.arange(len(pairs)))]] + 2
    return ends


def _ends_of_parts(chunk: RecordChunk) -> Array:
    """By control record: where those end that follow each other from it on and are pairs of BEGIN PREPARE and PREPARE of small parts, or
    ends of parts. int64; itself if there is none."""
    kinds, ordinals = chunk.controls["kind"], chunk.controls["ordinal"]
    borders = chunk.offsets[ordinals]
    pairs = np.flatnonzero((kinds[:-1] == ControlKind.BEGIN_PREPARE) & (kinds[1:] == ControlKind.PREPARE))
    pairs = pairs[borders[pairs + 1] - borders[pairs] <= _SMALL_BYTES]
    fits = (kinds == ControlKind.COMMIT_PREPARED) | (kinds == ControlKind.ROLLBACK_PREPARED)
    fits[pairs] = fits[pairs + 1] = True
    others = np.append(np.flatnonzero(~fits), len(kinds))
    return others[np.searchsorted(others, np.arange(len(kinds)))]
