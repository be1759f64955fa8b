"""Reads of one table in a cycle, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.model.fault import EngineFault, FaultKind
from engine.model.source import TableSplit
from engine.platform.compiled import Array
from engine.records.landing import CopyLines
from engine.records.row_digest import hashed_lines, keyed_lines
from engine.sources.query_diff.cycle_scans import CycleScans, ScanKind, filter_of, wanted_of
from engine.sources.query_diff.cycle_snapshot import SHARED_ONLY
from engine.sources.query_diff.database import ComparedDatabase, ComparedTable, StampBelow
from engine.sources.query_diff.key_ranges import ALL_KEYS, DigestedRange, KeyRange, Page
from engine.sources.query_diff.rests import Read
from engine.sources.query_diff.row_store import RowComparison
from engine.sources.query_diff.scan_group import ScanGroup, Wanted
from engine.sources.query_diff.source_copies import GONE, NEW, REKEYED, CopyJoin
from engine.sources.query_diff.stamps import Since, Stamp, Touched
from engine.sources.query_diff.unread_tables import OF_A_TABLE

PIECE_BYTES = 32 * 1024 * 1024
"""Bytes of rows that are compared at once. Not measured."""
FEW_KEYS = 20_000
"""Rows that are read by their keys in one statement of a database that hashes rows, and up to which changed ones are in any case."""
FEW_PART = 20
"""A greater number of changed rows is read by keys up to this part of the rows that were compared; if there are more, all are read."""
_DIGEST_BYTES = 60
"""Bytes of a range's answer: texts of four numbers, and lengths."""


_NULL = rb"\N"
"""A field of COPY text that is NULL."""


class StoppedError(Exception):
    """The cycle was given up because its process ends."""


def _never() -> None:
    """Nothing ends the cycle early."""


def _no_rest(read: Read) -> None:
    del read


@dataclass(frozen=True, slots=True)
class Conduct:
    """How a cycle behaves. `check`: called repeatedly; what it raises ends the cycle without an effect. `rest`: called after
    each read; may block. `snapshot_s`: seconds after which it continues in a new snapshot; None: it has one. `group`: with whom it shares
    reads."""

    check: Callable[[], None] = _never
    rest: Callable[[Read], None] = _no_rest
    snapshot_s: float | None = None
    group: ScanGroup | None = None


class TableReading:
    """Reads of one table under one snapshot. `scans`: those that are shared with other subscriptions."""

    def __init__(
        self,
        database: ComparedDatabase,
        table: ComparedTable,
        snapshot: str,
        conduct: Conduct,
        scans: CycleScans | None = None,
    ) -> None:
        self._database = database
        self._table = table
        self._held_snapshot = snapshot
        self._conduct = conduct
        self._scans = scans or CycleScans()
        self.counts: dict[str, Any] = {"rows_read": 0, "rows_hashed": 0, "rows_shared": 0, "bytes_read": 0}

    @property
    def snapshot(self) -> str:
        """To read the source under. Raises EngineFault(COPY_LOST) if only another cycle could."""
        if self._held_snapshot == SHARED_ONLY:
            raise self._lost("the cycle that has the snapshot did not read this")
        return self._held_snapshot

    def _lost(self, detail: str) -> EngineFault:
        return EngineFault(FaultKind.COPY_LOST, str(self._table.schema.name), detail)

    def _shared(self, kind: ScanKind, read: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """A scan of the whole table: what another cycle read, or else `read`, which is kept for those who want it."""
        taken = self._scans.take(self._table, kind, self._conduct.check)
        if taken is not None:
            return self._taken(taken)
        own, wanted = wanted_of(self._table, kind), self._scans.for_others(self._table, kind)
        if any(each.id != own.id for each in wanted):
            found = self._together({each.id: each for each in (own, *wanted)}, own.id)
            if found is not None:
                return found
        return self._spooled(own.id, kind, read()) if any(each.id == own.id for each in wanted) else read()

    def _taken(self, pieces: Iterator[Any]) -> Iterator[Any]:
        try:
            for piece in pieces:
                self._conduct.check()
                self.counts["rows_shared"] += piece.num_rows
                yield piece
        except (OSError, pa.ArrowException) as error:
            raise self._lost("the rows that another cycle read are gone") from error

    def _spooled(self, scan: str, kind: ScanKind, pieces: Iterator[Any]) -> Iterator[Any]:
        """The same pieces, which others can read when all of them were."""
        spool, schema = self._scans.spool(scan), self._schema_of(kind)
        with ExitStack() as left:
            left.callback(spool.discard)
            for piece in pieces:
                spool.write(piece)
                yield piece
            left.pop_all()
            self._scans.spooled(scan, spool, schema)

    def _schema_of(self, kind: ScanKind) -> Any:
        if kind is ScanKind.HASHES:
            return hashed_lines(b"").schema
        return keyed_lines(b"", len(self._table.schema.columns), self._table.key_places).schema

    def _together(self, scans: dict[str, Wanted], own: str) -> Iterator[Any] | None:
        """The rows of the scan `own`, after those of all the scans, which differ by their filters, were read at once and kept. None if that
        is not possible: what is wrong with another one's filter must not matter here."""
        splits = self._database.flagged_splits(self._table, [filter_of(each) for each in scans.values()])
        if splits is None:
            return None
        spools = {each: self._scans.spool(each) for each in scans}
        schema = self._schema_of(ScanKind.ROWS)
        with ExitStack() as left:
            for spool in spools.values():
                left.callback(spool.discard)
            try:
                for split in splits:
                    self._split_up(split, list(spools.values()))
            except EngineFault as fault:
                if fault.kind in OF_A_TABLE and self._conduct.group is not None:
                    self._conduct.group.refused |= scans.keys() - {own}
                    return None
                raise
            left.pop_all()
        for each, spool in spools.items():
            self._scans.spooled(each, spool, schema)
        found = self._scans.own(own)
        return None if found is None else self._from_spool(found)

    def _split_up(self, split: TableSplit, spools: Sequence[Any]) -> None:
        """Read a split whose lines end with flags, and add each row to the spools whose flags are set."""
        fields, places = len(self._table.schema.columns), self._table.key_places
        for text in self._pieces(self._database.cycle_reads.read_split(split, self.snapshot), "rows"):
            lines, flags = _unflagged(text, len(spools))
            found = keyed_lines(lines, fields, places)
            self.counts["rows_read"] += found.num_rows
            for place, spool in enumerate(spools):
                spool.write(found.filter(pa.array(flags[place])))

    def _from_spool(self, pieces: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from pieces
        except (OSError, pa.ArrowException) as error:
            raise self._lost("the rows that were read are gone") from error

    def rows(self, since: Since | None = None) -> Iterator[Any]:
        """All rows, or those whose stamps are not older, or that were touched, as of `keyed_lines`."""
        database = self._database
        if since is not None:
            return self._lines(database.rows_since(self._table, self.snapshot, since))
        return self._shared(ScanKind.ROWS, self._all_rows)

    def _all_rows(self) -> Iterator[Any]:
        splits = self._database.cycle_reads.splits(self._table.schema, self._table.spec, self._database.statement_bytes)
        return self._rows(splits, "rows")

    def keys(self, *, with_rows: bool) -> Iterator[Any]:
        """Keys of all rows, without hashes, so that none is found as updated. `with_rows`: else `line` has the key only."""
        for piece in self.rows() if with_rows else self._shared(ScanKind.KEYS, self._keys):
            nothing = pa.array(np.zeros(piece.num_rows, np.int64))
            yield piece.set_column(1, "low", nothing).set_column(2, "high", nothing)

    def _keys(self) -> Iterator[Any]:
        schema = self._table.schema
        only = replace(schema, columns=schema.key_columns, computed=())
        splits = self._database.cycle_reads.splits(only, self._table.spec, self._database.statement_bytes)
        for split in splits:
            for text in self._pieces(self._database.cycle_reads.read_split(split, self.snapshot)):
                found = keyed_lines(text, len(only.columns), range(len(only.columns)))
                self.counts["rows_hashed"] += found.num_rows
                yield found

    def hashes(self, ranges: Sequence[KeyRange] | None = None, since: Since | None = None) -> Iterator[Any]:
        """Keys and hashes of rows, hashed by the database, as of `hashed_lines`."""
        if ranges is None and since is None:
            return self._shared(ScanKind.HASHES, self._all_hashes)
        return self._hashed(self._database.hashed_rows(self._table, self.snapshot, ranges, since), None)

    def _all_hashes(self) -> Iterator[Any]:
        return self._hashed(self._database.hashed_rows(self._table, self.snapshot), "hashes")

    def left(self, since: Stamp) -> Iterator[Any]:
        """Keys of the rows that do not meet the row filter, and whose stamps are not older, as of `keyed_lines`."""
        fields = len(self._table.schema.key)
        for text in self._pieces(self._database.left_since(self._table, self.snapshot, since)):
            found = keyed_lines(text, fields, range(fields))
            self.counts["rows_hashed"] += found.num_rows
            yield found

    def _hashed(self, pieces: Iterator[bytes], scan: str | None) -> Iterator[Any]:
        for text in self._pieces(pieces, scan):
            found = hashed_lines(text)
            self.counts["rows_hashed"] += found.num_rows
            yield found

    def page(self, page: Page, *, hashed: bool) -> Iterator[Any]:
        """The rows of a page, as of `keyed_lines`; `hashed`: as of `hashed_lines`."""
        pieces = self._database.page(self._table, self.snapshot, page, hashed=hashed)
        return self._hashed(pieces, "page") if hashed else self._lines(pieces, "page")

    def rows_with(self, keys: Sequence[bytes]) -> Iterator[Any]:
        """The rows with these keys, as of `keyed_lines`."""
        reads, table = self._database.cycle_reads, self._table
        for begin in range(0, len(keys), FEW_KEYS):
            texts = key_texts(keys[begin : begin + FEW_KEYS], len(table.schema.key))
            yield from self._rows(reads.key_splits(table.schema, table.spec, texts))

    def placed(self, firsts: Sequence[tuple[str, ...]]) -> Iterator[Any] | None:
        """As `hashes`, of all rows in any order, with the number of the range; None if the database cannot look it up."""
        pieces = self._database.placed_rows(self._table, self.snapshot, firsts)
        return None if pieces is None else self._hashed(pieces, "placed")

    def differences(self, join: CopyJoin) -> Iterator[tuple[Any, Any, Any]]:
        """Rows that differ from the copy on the source, rows of the copy whose keys are gone, and all rows of the copy that differ, as of
        `keyed_lines`."""
        fields, places = len(self._table.schema.columns), self._table.key_places
        for text in self._pieces(join.differences()):
            letters, news, olds = _sides_of(text, fields)
            written, old = (keyed_lines(lines, fields, places) for lines in (news, olds))
            self.counts["rows_read"] += written.num_rows
            letters = letters[letters != NEW]
            yield written, old.filter(pa.array((letters == GONE) | (letters == REKEYED))), old

    def digests(self, firsts: Sequence[tuple[str, ...]], within: KeyRange = ALL_KEYS) -> list[DigestedRange]:
        """Digests of all ranges within these keys, by the first keys of all but the first one."""
        self._conduct.check()
        began = time.monotonic()
        found = self._database.range_digests(self._table, self.snapshot, firsts, within)
        size, rows = _DIGEST_BYTES * len(found), sum(each.rows for each in found)
        self.counts["rows_hashed"] += rows
        self.counts["bytes_read"] += size
        self._conduct.rest(Read(self._table.schema.name, "digests", time.monotonic() - began, rows, size))
        return found

    def touched(self, since: Mapping[str, tuple[StampBelow, str]]) -> tuple[Touched, ...] | None:
        """Which rows of a view may have changed, by rows of relations below it whose stamps are not older; each row once. None if all are
        to be compared, since there are so many. `since`: by name, with the stamps as text."""
        lines: dict[tuple[str, ...], set[bytes]] = {}
        for below, value in since.values():
            reading = TableReading(self._database, below.relation, self.snapshot, self._conduct)
            held = lines.setdefault(below.columns, set())
            for piece in reading.rows(Stamp(below.stamp, value)):
                # NULL equals no value of the view.
                keys = pc.unique(piece.column("key")).to_pylist()
                held.update(key for key in keys if _NULL not in key.split(b"\t"))
                if len(held) > FEW_KEYS:
                    return None
            self.counts["bytes_read"] += reading.counts["bytes_read"]
        found: list[Touched] = []
        for columns, values in lines.items():
            if values:
                found.append(Touched(columns, tuple(sorted(values)), tuple(found)))
        return tuple(found)

    def newest_stamp(self, column: str, overlap_s: float) -> str | None:
        return self._database.newest_stamp(self._table, self.snapshot, column, overlap_s)

    def changed(self, comparison: RowComparison, since: Sequence[Since] = ()) -> Iterator[Any]:
        """At least the rows whose hash changed. `since`: what was compared; empty: all rows were."""
        count = comparison.inserted + comparison.updated
        if not count:
            return iter(())
        if count > max(FEW_KEYS, comparison.read // FEW_PART):
            return chain.from_iterable(map(self.rows, since)) if since else self.rows()
        return chain.from_iterable(map(self.rows_with, comparison.changed_keys(FEW_KEYS)))

    def _rows(self, splits: Sequence[TableSplit], scan: str | None = None) -> Iterator[Any]:
        for split in splits:
            yield from self._lines(self._database.cycle_reads.read_split(split, self.snapshot), scan)

    def _lines(self, pieces: Iterator[bytes], scan: str | None = None) -> Iterator[Any]:
        fields, places = len(self._table.schema.columns), self._table.key_places
        for text in self._pieces(pieces, scan):
            found = keyed_lines(text, fields, places)
            self.counts["rows_read"] += found.num_rows
            yield found

    def _pieces(self, pieces: Iterator[bytes], scan: str | None = None) -> Iterator[bytes]:
        """The same text in pieces of about PIECE_BYTES, with a rest after each. `scan`: see `Read`."""
        held: list[bytes] = []
        size, began = 0, time.monotonic()
        for piece in pieces:
            self._conduct.check()
            held.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                read = self._read(scan, began, size)
                yield self._counted(held)
                self._conduct.rest(read)
                held, size, began = [], 0, time.monotonic()
        read = self._read(scan, began, size)
        if held:
            yield self._counted(held)
        self._conduct.rest(read)

    def _read(self, scan: str | None, began: float, size: int) -> Read:
        return Read(self._table.schema.name, scan, time.monotonic() - began, size, size)

    def _counted(self, pieces: Sequence[bytes]) -> bytes:
        text = b"".join(pieces)
        self.counts["bytes_read"] += len(text)
        return text


def _sides_of(text: bytes, fields: int) -> tuple[Array, bytes, bytes]:
    """Of lines as of `CopyJoin.differences`: their letters, the lines of rows in the table, and the lines of rows in the copy."""
    data = np.frombuffer(bytearray(text), np.uint8)
    ends = np.flatnonzero(data == ord("\n")) + 1
    found = np.flatnonzero(data == ord("\t"))
    if len(found) != 2 * fields * len(ends):
        raise ValueError("COPY text with an unexpected number of fields")
    tabs = found.reshape(len(ends), 2 * fields)
    news, olds = tabs[:, 0] + 1, tabs[:, fields] + 1
    data[olds - 1] = ord("\n")
    letters = data[news - 2]
    there, was = letters != GONE, letters != NEW
    return letters, _joined(data, news[there], olds[there]), _joined(data, olds[was], ends[was])


def _joined(data: Array, starts: Array, ends: Array) -> bytes:
    """The bytes of these parts, which do not overlap."""
    borders = np.zeros(len(data) + 1, np.int8)
    borders[starts] += 1
    borders[ends] -= 1
    return bytes(data[np.cumsum(borders[:-1], dtype=np.int8).astype(np.bool_)])


def _unflagged(text: bytes, flags: int) -> tuple[bytes, list[Any]]:
    """Lines without the fields `t` or `f` at their ends, and which lines have `t`, by flag."""
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    kept = np.ones(len(data), np.bool_)
    for back in range(1, 2 * flags + 1):
        kept[ends - back] = False
    return bytes(data[kept]), [data[ends - 2 * (flags - place) + 1] == ord("t") for place in range(flags)]


def key_texts(keys: Sequence[bytes], fields: int) -> list[tuple[str, ...]]:
    """The texts of keys' fields."""
    lines = CopyLines.of(b"".join(key + b"\n" for key in keys), fields)
    data, starts, sizes = lines.data.tobytes(), lines.starts.tolist(), lines.sizes.tolist()
    return [
        tuple(data[at : at + size].decode("utf-8") for at, size in zip(*row, strict=True))
        for row in zip(starts, sizes, strict=True)
    ]
