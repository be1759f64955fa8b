"""One cycle: reads every followed table in one snapshot, compares it with the last cycle, and writes down what changed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.model.fault import EngineFault, FaultKind
from engine.model.source import TableSplit
from engine.platform.clock import SystemClock
from engine.platform.failpoints import Failpoint, hit
from engine.records.landing import CopyLines
from engine.records.row_digest import hashed_lines, keyed_lines
from engine.sources.query_diff.cycle_files import (
    CycleFound,
    CycleWriter,
    TableFile,
    TableFound,
    deletes_schema,
    rows_schema,
)
from engine.sources.query_diff.cycle_numbers import locked
from engine.sources.query_diff.database import KEYLESS, ComparedDatabase, ComparedTable, Method
from engine.sources.query_diff.folder import OPERATIONS, Folder, Follow
from engine.sources.query_diff.given import Detection, Given
from engine.sources.query_diff.key_ranges import RANGE_ROWS, Adder, Cutter, DigestedRange, KeyRange, joined
from engine.sources.query_diff.row_store import Known, RowComparison, RowStore, StoredRange
from engine.sources.query_diff.stamps import Stamp

PIECE_BYTES = 32 * 1024 * 1024
"""Bytes of rows that are compared at once. Not measured."""
FEW_KEYS = 20_000
"""Changed rows up to which only these are read from a database that hashes rows; if there are more, all are. Not measured."""
FULL_EVERY = 100
"""Cycles of which one compares the rows of all ranges, so that a collision of digests (2^-128 for each changed range) is found."""
_FEW_RANGES, _FEW_SHARE = 64, 0.1
"""Ranges, and their share, above which all rows are read in one scan: the index would make the database get a page for each row."""
_CUT_AGAIN = 2
"""A range with more times RANGE_ROWS rows is cut when it is read."""
_DIGEST_BYTES = 60
"""Bytes of a range's answer: texts of four numbers, and lengths."""
_BY_PREFERENCE = (Method.RANGE_CHECKSUM, Method.ROW_CHECKSUM, Method.INCREMENTAL)
_CLOCK_STEP_S = 1.0
"""Seconds by which the database's clock may be set back between two cycles; a larger step delays changes to the next sweep."""
_TRIES = 5
"""Snapshots that a cycle tries, if a table is changed in its structure while it is read."""
_AGAIN = frozenset({FaultKind.TABLE_STRUCTURE_CHANGED, FaultKind.TABLE_MISSING, FaultKind.COPY_LOST})


class StoppedError(Exception):
    """The cycle was given up because its process ends."""


@contextmanager
def run_cycle(
    database: ComparedDatabase, given: Given, check: Callable[[], None] = lambda: None, *, complete: bool = True
) -> Iterator[tuple[str, int]]:
    """Run a cycle; yields the snapshot that it read, which lasts as long as the block, and its number.

    `complete`: it finds every change; others find what their tables' stamps show, unless their number was requested. `check`: called
    repeatedly; what it raises ends the cycle without an effect. Raises EngineFault: SOURCE_TIMEOUT if another cycle runs for so long,
    LOG_GAP without a folder.
    """
    folder = given.folder
    with ExitStack() as block:
        with locked(folder.path / "cycle.lock", given.timeout_s), closing(folder.open_rows()) as rows:
            folder.files.recover(rows.last)
            for left in reversed(range(_TRIES)):
                number = folder.numbers.begin(rows.last + 1)
                complete = complete or folder.numbers.read()[1] >= number
                open_s, began = database.open_for_s(), time.monotonic()
                at_us = SystemClock().wall_us()
                with ExitStack() as reading:
                    snapshot = reading.enter_context(database.snapshot(given.timeout_s))
                    overlap_s = open_s + time.monotonic() - began + _CLOCK_STEP_S
                    writer = folder.files.begin(number)
                    cycle = _Cycle(database, rows, writer, snapshot, given, check, complete, overlap_s)
                    try:
                        cycle.run(folder, number, at_us)
                    except EngineFault as fault:
                        if fault.kind not in _AGAIN or not left:
                            raise
                        continue
                    block.push(reading.pop_all())
                    break
        yield snapshot, number


@dataclass(frozen=True, slots=True)
class _Cycle:
    database: ComparedDatabase
    rows: RowStore
    writer: CycleWriter
    snapshot: str
    given: Given
    check: Callable[[], None]
    complete: bool
    overlap_s: float
    """Seconds before the newest stamp from which rows may still appear."""

    def run(self, folder: Folder, number: int, at_us: int) -> None:
        """Compare every followed table that is there, make what was found durable, and publish it. `at_us`: before the snapshot."""
        previous, followed = self.rows.last, folder.followed
        with self.rows.transaction(number):
            for relation, name in self.rows.followed().items():
                # One that is only away keeps its rows here: it may come back with changes.
                if name not in followed:
                    self.rows.forget(relation)
            there = self.database.tables({name: each.where for name, each in followed.items()})
            found = tuple(self._table(table, followed[name], number) for name, table in there.items())
            self.writer.finish(CycleFound(number, previous, at_us, SystemClock().wall_us(), True, found))
            hit(Failpoint.CYCLE_WRITTEN)
        hit(Failpoint.CYCLE_COMMITTED)
        folder.files.publish(number)

    def _table(self, table: ComparedTable, follow: Follow, number: int) -> TableFound:
        began = time.monotonic()
        relation = int(table.schema.relation)
        known = self.rows.known(relation)
        detection = self.given.detection(table.schema.name)
        chosen = self._method_of(table, detection.method).value
        condition = table.schema.row_filter.text if table.schema.row_filter is not None else None
        now = Known(table.schema.name, condition, table.record, table.schema.key, chosen)
        unreadable = known is not None and known.keys != now.keys
        if known is None or unreadable:
            self.rows.forget(relation)
        method = Method(now.method if known is None or unreadable else known.method)
        self.rows.follow(relation, now)
        found = TableFound(
            table.schema.name.schema,
            table.schema.name.name,
            relation,
            table.unreadable if unreadable else table.record,
            len(table.schema.columns),
            table.key_places,
            now.method,
            unreadable=unreadable,
            filled=known is None or unreadable,
        )
        try:
            if found.filled:
                read = self._fill(table, self.rows.comparison(relation), method)
            elif (since := self._since(table, known, now, detection, number)) is not None:
                read = self._compare_since(table, follow, method, since)
            else:
                read = self._compare(table, follow, method, whole=number % FULL_EVERY == 0)
                if method.value != now.method:
                    # Hashes of the two methods differ: the rows are hashed again, in the same snapshot.
                    self.rows.forget(relation)
                    self.rows.follow(relation, now)
                    self._fill(table, self.rows.comparison(relation), Method(now.method))
        except EngineFault as fault:
            if fault.kind is not FaultKind.TABLE_NO_IDENTITY or not table.keyless:
                raise
            # Nothing of it is written, and nothing is known of it any more: it is parked, and copied when it is tried again.
            self.rows.forget(relation)
            return replace(found, record=table.keyless, unreadable=True, keyless=True, filled=False)
        if detection.stamp in table.stamps:
            stamp = self.database.newest_stamp(table, self.snapshot, str(detection.stamp), self.overlap_s)
            self.rows.set_stamp(relation, str(detection.stamp), stamp)
            found = replace(found, known_before=stamp)
        return replace(found, **read, seconds=round(time.monotonic() - began, 3))

    def _since(
        self, table: ComparedTable, known: Known | None, now: Known, detection: Detection, number: int
    ) -> Stamp | None:
        """The stamp from which rows are read; None if all are."""
        if self.complete or known != now or detection.stamp not in table.stamps or number % detection.sweep_every == 0:
            return None
        return self.rows.stamp(int(table.schema.relation), str(detection.stamp))

    def _method_of(self, table: ComparedTable, method: Method) -> Method:
        """The chosen method, or the next one that the table can be compared by."""
        can = self.database.methods(table)
        chosen = _BY_PREFERENCE[_BY_PREFERENCE.index(method) :]
        return next((method for method in chosen if method in can), Method.INCREMENTAL)

    def _fill(self, table: ComparedTable, comparison: RowComparison, method: Method) -> dict[str, Any]:
        reading = _Reading(self, table)
        if method is Method.RANGE_CHECKSUM:
            cutter = Cutter([RANGE_ROWS], 0)
            for piece in reading.hashes([KeyRange()]):
                comparison.fill(cutter.cut(piece))
            self._set_ranges(table, [StoredRange(0, None, 0, 0, 0)], [0], cutter)
            return {**reading.counts, "ranges": len(cutter.found)}
        for piece in reading.hashes() if method is Method.ROW_CHECKSUM else reading.rows():
            comparison.fill(piece)
        _check_keys(table, comparison)
        return reading.counts

    def _compare(self, table: ComparedTable, follow: Follow, method: Method, *, whole: bool) -> dict[str, Any]:
        """`whole`: rows of ranges that seem equal are compared too."""
        relation = int(table.schema.relation)
        reading = _Reading(self, table)
        file = self.writer.file(f"{relation}.rows", rows_schema())
        counts: dict[str, Any] = {}
        if method is Method.INCREMENTAL:
            comparison = self.rows.comparison(relation)
            for piece in reading.rows():
                file.write(_wanted(comparison.changes(piece), follow))
            _check_keys(table, comparison)
        else:
            if method is Method.RANGE_CHECKSUM:
                comparison, counts = self._compare_ranges(table, reading, whole=whole)
            else:
                comparison = self.rows.comparison(relation)
                for piece in reading.hashes():
                    comparison.changes(piece)
            _check_keys(table, comparison)
            again = 0
            for piece in reading.changed(comparison):
                changed = comparison.changed_of(piece)
                again += changed.num_rows
                file.write(_wanted(changed, follow))
            if table.keyless and again != comparison.inserted + comparison.updated:
                raise EngineFault(FaultKind.TABLE_NO_IDENTITY, str(table.schema.name), KEYLESS)
        deletes = self._deletes(relation, follow, comparison.finish())
        return {**reading.counts, **counts, **_written(file, comparison), "deletes": deletes}

    def _deletes(self, relation: int, follow: Follow, gone: Iterator[Any]) -> str | None:
        """The name of a file with these rows; None if there are none."""
        file = self.writer.file(f"{relation}.deletes", deletes_schema())
        for deleted in gone:
            if "delete" in follow.operations:
                file.write(deleted.cast(deletes_schema()))
        return file.name if file.rows else None

    def _compare_since(self, table: ComparedTable, follow: Follow, method: Method, since: Stamp) -> dict[str, Any]:
        """Compare the rows whose stamps are not older. Those that do not meet the row filter are gone, as are those with a delete flag."""
        relation = int(table.schema.relation)
        reading, comparison = _Reading(self, table), self.rows.comparison(relation)
        file = self.writer.file(f"{relation}.rows", rows_schema())
        if method is Method.INCREMENTAL:
            for piece in reading.rows(since):
                file.write(_wanted(comparison.changes(piece), follow))
        else:
            for piece in reading.hashes(since=since):
                comparison.changes(piece)
            for piece in reading.changed(comparison, since):
                file.write(_wanted(comparison.changed_of(piece), follow))
        deletes = None
        if table.schema.row_filter is not None:
            deletes = self._deletes(relation, follow, map(comparison.left, reading.left(since)))
        comparison.keep()
        return {**reading.counts, **_written(file, comparison), "deletes": deletes, "since_stamp": True}

    def _compare_ranges(
        self, table: ComparedTable, reading: _Reading, *, whole: bool
    ) -> tuple[RowComparison, dict[str, Any]]:
        """Compare the rows of ranges whose digests differ."""
        relation = int(table.schema.relation)
        known = self.rows.ranges(relation)
        digests = reading.digests([each.first for each in known[1:] if each.first is not None])
        again = [
            place
            for place, (old, new) in enumerate(zip(known, digests, strict=True))
            if whole or (old.rows, old.low, old.high) != (new.rows, new.low, new.high)
        ]
        counts = {"ranges": len(known), "ranges_different": len(again)}
        if len(again) > max(_FEW_RANGES, _FEW_SHARE * len(known)):
            adder = Adder([each.part for each in known])
            pieces = reading.placed([each.first for each in known[1:] if each.first is not None])
            if pieces is not None:
                comparison = self.rows.comparison(relation, [each.part for each in known])
                for piece in pieces:
                    comparison.changes(adder.add(piece))
                self.rows.set_ranges(relation, adder.ranges(known))
                return comparison, counts
        comparison = self.rows.comparison(relation, [known[place].part for place in again])
        limits = [RANGE_ROWS if digests[place].rows > _CUT_AGAIN * RANGE_ROWS else sys.maxsize for place in again]
        cutter = Cutter(limits, 1 + max(each.part for each in known))
        firsts = [*(each.first for each in known), None]
        if again:
            for piece in reading.hashes([KeyRange(firsts[place], firsts[place + 1]) for place in again]):
                comparison.changes(cutter.cut(piece))
            self._set_ranges(table, known, again, cutter)
        return comparison, counts

    def _set_ranges(
        self, table: ComparedTable, before: Sequence[StoredRange], again: Sequence[int], cutter: Cutter
    ) -> None:
        firsts = _texts([each.key for each in cutter.found], len(table.schema.key))
        found = joined(before, again, cutter.found, firsts) or [StoredRange(0, None, 0, 0, 0)]
        self.rows.set_ranges(int(table.schema.relation), found)


class _Reading:
    """Reads of one table in a cycle, and what they cost."""

    def __init__(self, cycle: _Cycle, table: ComparedTable) -> None:
        self._cycle = cycle
        self._table = table
        self.counts: dict[str, Any] = {"rows_read": 0, "rows_hashed": 0, "bytes_read": 0}

    def rows(self, since: Stamp | None = None) -> Iterator[Any]:
        """All rows, or those whose stamps are not older, as of `keyed_lines`."""
        database = self._cycle.database
        if since is not None:
            return self._lines(database.rows_since(self._table, self._cycle.snapshot, since))
        return self._rows(database.reads.splits(self._table.schema, self._table.spec, database.statement_bytes))

    def hashes(self, ranges: Sequence[KeyRange] | None = None, since: Stamp | None = None) -> Iterator[Any]:
        """Keys and hashes of rows, hashed by the database, as of `hashed_lines`."""
        return self._hashed(self._cycle.database.hashed_rows(self._table, self._cycle.snapshot, ranges, since))

    def left(self, since: Stamp) -> Iterator[Any]:
        """Keys of the rows that do not meet the row filter, and whose stamps are not older, as of `keyed_lines`."""
        fields = len(self._table.schema.key)
        for text in self._pieces(self._cycle.database.left_since(self._table, self._cycle.snapshot, since)):
            found = keyed_lines(text, fields, range(fields))
            self.counts["rows_hashed"] += found.num_rows
            yield found

    def _hashed(self, pieces: Iterator[bytes]) -> Iterator[Any]:
        for text in self._pieces(pieces):
            found = hashed_lines(text)
            self.counts["rows_hashed"] += found.num_rows
            yield found

    def placed(self, firsts: Sequence[tuple[str, ...]]) -> Iterator[Any] | None:
        """As `hashes`, of all rows in any order, with the number of the range; None if the database cannot look it up."""
        pieces = self._cycle.database.placed_rows(self._table, self._cycle.snapshot, firsts)
        return None if pieces is None else self._hashed(pieces)

    def digests(self, firsts: Sequence[tuple[str, ...]]) -> list[DigestedRange]:
        """Digests of all ranges, by the first keys of all but the first one."""
        self._cycle.check()
        found = self._cycle.database.range_digests(self._table, self._cycle.snapshot, firsts)
        self.counts["rows_hashed"] += sum(each.rows for each in found)
        self.counts["bytes_read"] += _DIGEST_BYTES * len(found)
        return found

    def changed(self, comparison: RowComparison, since: Stamp | None = None) -> Iterator[Any]:
        """At least the rows whose hash changed."""
        count = comparison.inserted + comparison.updated
        if not count:
            return iter(())
        if count > FEW_KEYS:
            return self.rows(since)
        keys = _texts(comparison.changed_keys(), len(self._table.schema.key))
        return self._rows(self._cycle.database.reads.key_splits(self._table.schema, self._table.spec, keys))

    def _rows(self, splits: Sequence[TableSplit]) -> Iterator[Any]:
        for split in splits:
            yield from self._lines(self._cycle.database.reads.read_split(split, self._cycle.snapshot))

    def _lines(self, pieces: Iterator[bytes]) -> Iterator[Any]:
        fields, places = len(self._table.schema.columns), self._table.key_places
        for text in self._pieces(pieces):
            found = keyed_lines(text, fields, places)
            self.counts["rows_read"] += found.num_rows
            yield found

    def _pieces(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The same text in pieces of about PIECE_BYTES."""
        held: list[bytes] = []
        size = 0
        for piece in pieces:
            self._cycle.check()
            held.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                yield self._counted(held)
                held, size = [], 0
        if held:
            yield self._counted(held)

    def _counted(self, pieces: Sequence[bytes]) -> bytes:
        text = b"".join(pieces)
        self.counts["bytes_read"] += len(text)
        return text


def _check_keys(table: ComparedTable, comparison: RowComparison) -> None:
    """Of a declared key, which the database does not keep unique."""
    if table.keyless:
        comparison.check_keys()


def _written(file: TableFile, comparison: RowComparison) -> dict[str, Any]:
    return {
        "rows": file.name if file.rows else None,
        "inserted": comparison.inserted,
        "updated": comparison.updated,
        "deleted": comparison.deleted,
    }


def _wanted(found: Any, follow: Follow) -> Any:
    """The rows that are followed, for a file of the cycle."""
    rows = found.select(["op", "line"]).cast(rows_schema())
    if follow.operations >= OPERATIONS.keys():
        return rows
    wanted = pa.array([OPERATIONS[each] for each in follow.operations], pa.uint8())
    return rows.filter(pc.is_in(rows.column("op"), wanted))


def _texts(keys: Sequence[bytes], fields: int) -> list[tuple[str, ...]]:
    """The texts of keys' fields."""
    lines = CopyLines.of(b"".join(key + b"\n" for key in keys), fields)
    data, starts, sizes = lines.data.tobytes(), lines.starts.tolist(), lines.sizes.tolist()
    return [
        tuple(data[at : at + size].decode("utf-8") for at, size in zip(*row, strict=True))
        for row in zip(starts, sizes, strict=True)
    ]
