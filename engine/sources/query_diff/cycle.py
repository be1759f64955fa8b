"""One cycle: reads every followed table, compares it with the last cycle, and writes down what changed.

A table that cannot be read is left out: what is known of it stays as it is, so that a later cycle finds every change since. What a table's
comparison changes in the store, it changes after its last read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.platform.clock import SystemClock
from engine.platform.failpoints import Failpoint, hit
from engine.records.unread import Unread, unread_record
from engine.sources.query_diff.cycle_files import (
    CycleFailed,
    CycleFound,
    CycleWriter,
    TableFile,
    TableFound,
    deletes_schema,
    rows_schema,
)
from engine.sources.query_diff.cycle_numbers import locked
from engine.sources.query_diff.cycle_scans import CycleScans, ScanKind, scans_of
from engine.sources.query_diff.cycle_snapshot import CycleSnapshot
from engine.sources.query_diff.database import KEYLESS, ComparedDatabase, ComparedTable, Method
from engine.sources.query_diff.folder import OPERATIONS, Folder, Follow
from engine.sources.query_diff.given import Detection, Given
from engine.sources.query_diff.key_ranges import RANGE_ROWS, Adder, Cutter, KeyRange, joined
from engine.sources.query_diff.row_store import Known, RowComparison, RowStore, StoredRange
from engine.sources.query_diff.source_copies import CopiesMade, CopyJoin, copy_name
from engine.sources.query_diff.stamps import OLDEST, Stamp, Touched
from engine.sources.query_diff.table_reading import Conduct, TableReading, key_texts
from engine.sources.query_diff.table_walk import CUT_AGAIN, WALKED, TableWalk, Walked, differing
from engine.sources.query_diff.unread_tables import CHANGED, ENDED, GONE, LOST, OF_A_TABLE, named

FULL_EVERY = 100
"""Cycles of which one compares the rows of all ranges, so that a collision of digests (2^-128 for each changed range) is found."""
_FEW_RANGES, _FEW_SHARE = 64, 0.1
"""Ranges, and their share, above which all rows are read in one scan: the index would make the database get a page for each row."""
_BY_PREFERENCE = (Method.RANGE_CHECKSUM, Method.ROW_CHECKSUM, Method.INCREMENTAL)
_HASHED_HERE = frozenset({Method.INCREMENTAL, Method.OUTER_JOIN})
"""Methods whose hashes are the same, so that one can take the place of the other."""
_WITHOUT_FORM = _HASHED_HERE | {Method.KEYS}
"""Methods for which the database hashes nothing."""
_TRIES = 5
"""Snapshots that a cycle tries, if a table is changed in its structure while it is read, or if the connection is lost."""
_FIRST_REST_S = 0.5
"""Seconds before the first try after a lost connection; twice as long before each further one. Not measured."""
_LOOK_S = 0.05
"""Seconds between two looks whether the cycle is to end, while it rests."""


@contextmanager
def run_cycle(
    database: ComparedDatabase, given: Given, conduct: Conduct | None = None, *, complete: bool = True
) -> Iterator[tuple[str, int]]:
    """Run a cycle; yields the last snapshot that it read, which lasts as long as the block, and its number. Tables that it could not read
    are part of the snapshot's name: see `unread_tables.read_under`.

    `complete`: it finds every change; others find what their tables' stamps show, unless their number was requested. Raises EngineFault:
    SOURCE_TIMEOUT if another cycle runs for so long, LOG_GAP without a folder, and faults that are of more than one table.
    """
    folder, conduct = given.folder, conduct or Conduct()
    with ExitStack() as block:
        with locked(folder.path / "cycle.lock", given.timeout_s), closing(folder.open_rows()) as rows:
            folder.files.recover(rows.last)
            for left in reversed(range(_TRIES)):
                number = folder.numbers.begin(rows.last + 1)
                complete = complete or folder.numbers.read()[1] >= number
                at_us = SystemClock().wall_us()
                cycle = None
                with ExitStack() as reading:
                    try:
                        # After a fault it reads by itself.
                        group = conduct.group if left == _TRIES - 1 else None
                        later_than = rows.moment, folder.numbers.asked()
                        scans = reading.enter_context(scans_of(group, later_than, _later_wanted(folder, number)))
                        taken = CycleSnapshot(database, given.timeout_s, conduct.snapshot_s, scans)
                        snapshot = reading.enter_context(taken)
                        cycle = _Cycle(database, rows, folder, snapshot, given, conduct, complete, scans, not left)
                        cycle.run(number, snapshot.at_us)
                    except EngineFault as fault:
                        folder.files.fail(_failed(number, at_us, fault, None if cycle is None else cycle.at))
                        if (
                            fault.kind not in CHANGED | {FaultKind.COPY_LOST}
                            or not left
                            or conduct.snapshot_s is not None
                        ):
                            raise
                        continue
                    block.push(reading.pop_all())
                    break
        name = named(snapshot.name, folder.followed, frozenset(cycle.read), cycle.unread) if cycle is not None else ""
        yield name, number


def _later_wanted(folder: Folder, number: int) -> Callable[[], bool]:
    return lambda: folder.numbers.read()[1] > number


def _failed(number: int, at_us: int, fault: EngineFault, table: TableName | None) -> CycleFailed:
    named_table = None if table is None else str(table)
    return CycleFailed(
        number, at_us, SystemClock().wall_us(), fault.kind.value, fault.subject, fault.detail, named_table
    )


@contextmanager
def _released(writer: CycleWriter) -> Iterator[None]:
    try:
        yield
    finally:
        writer.release()


@dataclass(slots=True)
class _Cycle:
    database: ComparedDatabase
    rows: RowStore
    folder: Folder
    snapshot: CycleSnapshot
    given: Given
    conduct: Conduct
    complete: bool
    scans: CycleScans
    is_last: bool
    """No other snapshot is tried after this one: a table that was changed meanwhile is left out."""
    at: TableName | None = None
    """The table that is being read."""
    read: list[TableName] = field(default_factory=list)
    unread: dict[TableName, Unread] = field(default_factory=dict)
    walk: TableWalk | None = None
    """Of this table, if it continues after a fault."""
    stamps: dict[str, str | None] = field(default_factory=dict)
    """Its newest stamps when the walk began, by name."""

    def run(self, number: int, at_us: int) -> None:
        """Compare every followed table that is there, make what was found durable, and publish it. `at_us`: before the first snapshot."""
        previous, followed = self.rows.last, self.folder.followed
        writer = self.folder.files.begin(number)
        with self.rows.transaction(number), _released(writer):
            for relation, name in self.rows.followed().items():
                # One that is only away keeps its rows here: it may come back with changes.
                if name not in followed:
                    self.rows.forget(relation)
            there = self.database.tables({name: each.where for name, each in followed.items()})
            self._forget_replaced(there)
            found = []
            for name, table in there.items():
                found.append(self._try(table, followed[name], number, writer))
                self.scans.pass_by(name)
            self.at = None
            found += self._away()
            self.rows.set_moment(self.snapshot.moment)
            tables = tuple(table for table in found if table is not None)
            in_one = self.snapshot.taken == 1
            writer.finish(CycleFound(number, previous, at_us, SystemClock().wall_us(), in_one, tables))
            hit(Failpoint.CYCLE_WRITTEN)
        hit(Failpoint.CYCLE_COMMITTED)
        self.folder.files.publish(number)
        self.scans.note_all(len(followed), self.conduct.group)
        kept = {copy_name(relation, self.rows.id) for relation in self.rows.copied()}
        self.copies_made.drop_others(self.database.copies, kept)

    def _forget_replaced(self, there: Mapping[TableName, ComparedTable]) -> None:
        """Copies of tables that were dropped and created again are not used any more."""
        for relation, name in self.rows.followed().items():
            if name in there and int(there[name].schema.relation) != relation:
                self.rows.set_copy_mark(relation, None)

    @property
    def copies_made(self) -> CopiesMade:
        return CopiesMade(self.folder.path)

    def _try(self, table: ComparedTable, follow: Follow, number: int, writer: CycleWriter) -> TableFound | None:
        """What changed in a table, or why it could not be read; None if it is gone. Faults of the connection are raised, unless the cycle
        may continue in a new snapshot."""
        self.at, rest_s, left = table.schema.name, _FIRST_REST_S, _TRIES
        self.begin_again(writer)
        while True:
            left -= 1
            try:
                self.conduct.check()
                self.snapshot.renew_if_due()
                # Nothing is asked after the comparison, which changes the store: a fault then would leave it ahead of what is written.
                found = _TableCycle(self, table, follow, writer, number, self.database.methods(table)).run()
            except EngineFault as fault:
                moved = self.walk is not None and fault.kind in LOST | ENDED and self.walk.has_moved()
                if moved:
                    left, rest_s = _TRIES - 1, _FIRST_REST_S
                elif self.walk is None or fault.kind not in LOST:
                    self.begin_again(writer)
                if fault.kind is FaultKind.TABLE_NO_IDENTITY and table.keyless:
                    return self._keyless(table)
                if (moved or fault.kind in LOST | CHANGED) and self.snapshot.may_renew and left > 0:
                    again = self._take_another(rest_s if fault.kind in LOST else 0.0, table.schema.name, follow)
                    rest_s *= 2
                    if again is None:
                        self.begin_again(writer)
                        return None
                    table = again
                    continue
                self.begin_again(writer)
                changed = fault.kind in CHANGED and (self.is_last or self.snapshot.may_renew)
                if fault.kind not in OF_A_TABLE and not changed:
                    raise
                return self._left_out(table, Unread(fault.kind, fault.detail))
            writer.keep()
            self.read.append(table.schema.name)
            return found

    def begin_again(self, writer: CycleWriter) -> None:
        """Forget what was read of the table."""
        writer.discard()
        self.walk = None

    def _take_another(self, rest_s: float, name: TableName, follow: Follow) -> ComparedTable | None:
        """Take a new snapshot after a rest, as often as the connection is lost meanwhile; the table as it is now, None if it is gone."""
        for left in reversed(range(_TRIES)):
            until = time.monotonic() + rest_s
            while (remaining := until - time.monotonic()) > 0:
                self.conduct.check()
                time.sleep(min(remaining, _LOOK_S))
            try:
                self.snapshot.renew()
                return self.database.tables({name: follow.where}).get(name)
            except EngineFault as fault:
                if fault.kind not in LOST or not left:
                    raise
                rest_s = 2 * max(rest_s, _FIRST_REST_S)
        return None

    def _away(self) -> list[TableFound]:
        """The tables that earlier cycles read, and which are not there now. To those who wait for this cycle they must not count as read:
        such a table may be back before anything else shows that it was away."""
        found = []
        for relation, name in self.rows.followed().items():
            if name in self.read or name in self.unread:
                continue
            method = self.given.detection(name).method.value
            found.append(self._unread(TableFound(name.schema, name.name, relation, b"", 0, (), method), GONE))
        return found

    def _left_out(self, table: ComparedTable, why: Unread) -> TableFound:
        self.unread[table.schema.name] = why
        return self._unread(self._nothing(table, b""), why)

    def _unread(self, found: TableFound, why: Unread) -> TableFound:
        """With the record that the table was not read, in place of its structure."""
        self.rows.set_unread(found.relation, unread=True)
        record = unread_record(RelationId(found.relation), TableName(found.schema, found.name), why)
        return replace(found, record=record, fault=why.kind.value, detail=why.detail)

    def _keyless(self, table: ComparedTable) -> TableFound:
        """Nothing of it is written, and nothing is known of it any more: it is parked, and copied when it is tried again."""
        self.rows.forget(int(table.schema.relation))
        self.read.append(table.schema.name)
        return replace(self._nothing(table, table.keyless), unreadable=True, keyless=True)

    def _nothing(self, table: ComparedTable, record: bytes) -> TableFound:
        """A table of which nothing was found. `record`: says why."""
        name, columns = table.schema.name, len(table.schema.columns)
        method = self.given.detection(name).method.value
        return TableFound(name.schema, name.name, int(table.schema.relation), record, columns, table.key_places, method)


@dataclass(frozen=True, slots=True)
class _TableCycle:
    """One table in a cycle, under one snapshot."""

    cycle: _Cycle
    table: ComparedTable
    follow: Follow
    writer: CycleWriter
    number: int
    methods: frozenset[Method]
    """Those by which the table can be compared, without OUTER_JOIN."""

    @property
    def _rows(self) -> RowStore:
        return self.cycle.rows

    @property
    def _relation(self) -> int:
        return int(self.table.schema.relation)

    def _reading(self, hashes: str = "") -> TableReading:
        """`hashes`: see ComparedTable."""
        table = replace(self.table, hashes=hashes)
        return TableReading(self.cycle.database, table, self.cycle.snapshot.name, self.cycle.conduct, self.cycle.scans)

    def run(self) -> TableFound:
        """Compare the table. A fault changes nothing in the store."""
        began, name = time.monotonic(), self.table.schema.name
        known = self._rows.known(self._relation)
        detection = self.cycle.given.detection(name)
        chosen = self._method_of(detection)
        condition = self.table.schema.row_filter.text if self.table.schema.row_filter is not None else None
        hashes = "" if chosen in _WITHOUT_FORM else self.table.hashes
        now = Known(name, condition, self.table.record, self.table.schema.key, chosen.value, hashes)
        unreadable = known is not None and known.keys != now.keys
        if self.cycle.walk is not None and self.cycle.walk.of != Walked(self.table, known, now):
            self.cycle.begin_again(self.writer)
        if self.cycle.walk is None:
            # Read first: what appears while the table is read has newer stamps.
            self.cycle.stamps = self._newest_stamps(detection)
        stamps = self.cycle.stamps
        found = TableFound(
            name.schema,
            name.name,
            self._relation,
            self.table.unreadable if unreadable else self.table.record,
            len(self.table.schema.columns),
            self.table.key_places,
            now.method,
            unreadable=unreadable,
            filled=known is None or unreadable,
            resumed=self._rows.is_unread(self._relation),
        )
        if known is None or unreadable:
            read = self._fill(now)
        else:
            read, now = self._changes(known, now, detection)
        self._rows.set_unread(self._relation, unread=False)
        self.cycle.scans.note(self.table, self._scan_kind(Method(now.method), detection))
        if stamps:
            self._rows.set_stamps(self._relation, stamps)
            found = replace(found, known_before=stamps.get(self._stamp_name(detection)))
        return replace(found, **read, method=now.method, seconds=round(time.monotonic() - began, 3))

    def _changes(self, known: Known, now: Known, detection: Detection) -> tuple[dict[str, Any], Known]:
        """What changed, and the table as it is known from now on."""
        method = Method(known.method)
        if method in _HASHED_HERE:
            # The copy on the source may not be used any more.
            method = Method.OUTER_JOIN if now.method == Method.OUTER_JOIN else Method.INCREMENTAL
        whole = self.number % FULL_EVERY == 0
        reading = self._reading(known.hashes)
        since = self._since(known, now, detection, reading)
        if since is not None:
            read = self._compare_since(reading, method, since)
        elif method is Method.OUTER_JOIN:
            read = self._compare_joined(whole=whole)
        elif self._walks(known, now):
            read = self._compare_walking(self._walk(Walked(self.table, known, now)), reading, method, whole=whole)
        else:
            read = self._compare(reading, method, whole=whole)
        self._rows.follow(self._relation, now)
        if (method.value, known.hashes) == (now.method, now.hashes):
            return read, now
        try:
            # Hashes of the two methods, or forms, differ: the rows are hashed again, in the same snapshot.
            self._fill(now)
        except EngineFault:
            # What was found is kept, and the next cycle tries again.
            now = replace(now, method=method.value, hashes=known.hashes)
            self._rows.follow(self._relation, now)
        return read, now

    def _newest_stamps(self, detection: Detection) -> dict[str, str | None]:
        """By name, from what on the next cycle has to read. Empty without stamps."""
        overlap_s, found = self.cycle.snapshot.overlap_s, {}
        if detection.stamp in self.table.stamps:
            found[self._stamp_name(detection)] = self._reading().newest_stamp(str(detection.stamp), overlap_s)
        for below in self.table.below:
            reading = TableReading(self.cycle.database, below.relation, self.cycle.snapshot.name, self.cycle.conduct)
            found[below.name] = reading.newest_stamp(below.stamp, overlap_s) or OLDEST
        return found

    def _since(
        self, known: Known, now: Known, detection: Detection, reading: TableReading
    ) -> tuple[Stamp] | tuple[Touched, ...] | None:
        """The stamp from which rows are read, or which rows of a view; None if all are."""
        if self.cycle.complete or self.number % detection.sweep_every == 0 or known != now:
            return None
        if self.table.below:
            stamps = {each.name: (each, self._rows.stamp(self._relation, each.name)) for each in self.table.below}
            since = {name: (each, stamp.value) for name, (each, stamp) in stamps.items() if stamp is not None}
            return reading.touched(since) if since.keys() == stamps.keys() else None
        if detection.stamp not in self.table.stamps:
            return None
        stamp = self._rows.stamp(self._relation, self._stamp_name(detection))
        return None if stamp is None else (replace(stamp, column=str(detection.stamp)),)

    def _stamp_name(self, detection: Detection) -> str:
        """By which the newest stamp is kept: one of another generation has another name."""
        generation = self.table.generation
        return f"{detection.stamp} {generation}" if generation else str(detection.stamp)

    def _method_of(self, detection: Detection) -> Method:
        """The chosen method, or the next one that the table can be compared by."""
        method = self._possible(detection.method)
        has_stamps = detection.stamp in self.table.stamps or bool(self.table.below)
        by_ranges = method is Method.RANGE_CHECKSUM or has_stamps
        return method if by_ranges or "update" in self.follow.operations else Method.KEYS

    def _possible(self, method: Method) -> Method:
        if method is Method.OUTER_JOIN:
            return method if self.cycle.database.copies.can_keep(self.table) else Method.INCREMENTAL
        chosen = _BY_PREFERENCE[_BY_PREFERENCE.index(method) :]
        return next((method for method in chosen if method in self.methods), Method.INCREMENTAL)

    def _fill(self, now: Known) -> dict[str, Any]:
        """Read all rows; the table is known as `now` afterwards."""
        reading, method, cutter = self._reading(now.hashes), Method(now.method), Cutter([RANGE_ROWS], 0)
        with self._rows.filling(self._relation, now) as comparison:
            if method is Method.RANGE_CHECKSUM:
                for piece in reading.hashes([KeyRange()]):
                    comparison.fill(cutter.cut(piece))
            else:
                for piece in reading.hashes() if method is Method.ROW_CHECKSUM else self._rows_read(reading, method):
                    comparison.fill(piece)
                self._check_keys(comparison)
            mark = self._refreshed() if method is Method.OUTER_JOIN else None
        self._rows.set_copy_mark(self._relation, mark)
        if method is Method.RANGE_CHECKSUM:
            self._rows.set_ranges(self._relation, self._cut([StoredRange(0, None, 0, 0, 0)], [0], cutter))
            return {**reading.counts, "ranges": len(cutter.found)}
        return reading.counts

    @property
    def _finds_rows(self) -> bool:
        """Whether the database finds rows by their keys, as it does for the methods by checksum."""
        return Method.ROW_CHECKSUM in self.methods

    def _scan_kind(self, method: Method, detection: Detection) -> ScanKind | None:
        """By which scan the next cycle compares the table; None if not by one of the whole table."""
        if detection.stamp in self.table.stamps or self.table.below or self._in_steps(method):
            return None
        keys = ScanKind.KEYS if self._finds_rows else ScanKind.ROWS
        by_scan = {Method.INCREMENTAL: ScanKind.ROWS, Method.ROW_CHECKSUM: ScanKind.HASHES, Method.KEYS: keys}
        return by_scan.get(method)

    def _rows_read(self, reading: TableReading, method: Method) -> Iterator[Any]:
        """All rows, hashed here; for KEYS not hashed, and only their keys if the database finds rows by these."""
        return reading.keys(with_rows=not self._finds_rows) if method is Method.KEYS else reading.rows()

    def _compare(self, reading: TableReading, method: Method, *, whole: bool) -> dict[str, Any]:
        """`whole`: rows of ranges that seem equal are compared too."""
        file = self._file()
        counts: dict[str, Any] = {}
        ranges: list[StoredRange] | None = None
        if method is Method.INCREMENTAL or (method is Method.KEYS and not self._finds_rows):
            comparison = self._rows.comparison(self._relation)
            self._write(file, comparison, self._rows_read(reading, method))
            self._check_keys(comparison)
        else:
            if method is Method.RANGE_CHECKSUM:
                comparison, ranges, counts = self._compare_ranges(reading, whole=whole)
            else:
                comparison = self._rows.comparison(self._relation)
                for piece in self._rows_read(reading, method) if method is Method.KEYS else reading.hashes():
                    comparison.changes(piece)
            self._check_keys(comparison)
            self._write_changed(file, comparison, reading.changed(comparison))
        return {**reading.counts, **counts, **self._finished(file, comparison, ranges)}

    def _finished(
        self, file: TableFile, comparison: RowComparison, ranges: Sequence[StoredRange] | None
    ) -> dict[str, Any]:
        """Make the store as the rows that were compared. Nothing is read any more. `ranges`: as they are now, if they are kept."""
        deletes = self._deletes(comparison.finish())
        self._rows.set_copy_mark(self._relation, None)
        if ranges is not None:
            self._rows.set_ranges(self._relation, ranges)
        return {**_written(file, comparison), "deletes": deletes}

    def _walks(self, known: Known, now: Known) -> bool:
        """Whether the table is compared in steps, after each of which it may continue in another snapshot."""
        return (known.method, known.hashes) == (now.method, now.hashes) and self._in_steps(Method(now.method))

    def _in_steps(self, method: Method) -> bool:
        """Whether cycles after the first one with this method compare the table so."""
        may_walk = self.cycle.snapshot.may_renew and self.table.in_key_order and method in WALKED
        return may_walk and Method.RANGE_CHECKSUM in self.methods

    def _walk(self, of: Walked) -> TableWalk:
        """The one that continues, or a new one."""
        if self.cycle.walk is None:
            follow = self.follow
            self.cycle.walk = TableWalk(
                of, self._rows, self._file(), lambda into, found: into.write(_wanted(found, follow))
            )
        return self.cycle.walk

    def _compare_walking(
        self, walk: TableWalk, reading: TableReading, method: Method, *, whole: bool
    ) -> dict[str, Any]:
        """As `_compare`."""
        reading.counts, ranges, counts = walk.counts, None, {}
        if method is Method.RANGE_CHECKSUM:
            known = self._rows.ranges(self._relation)
            again = walk.go_on_by_ranges(reading, known, whole=whole)
            ranges = self._cut(known, again, walk.cutter)
            counts = {"ranges": len(known), "ranges_different": len(again)}
        else:
            walk.go_on_by_pages(reading, hashed=method is Method.ROW_CHECKSUM)
        found = self._finished(walk.file, walk.comparison, ranges)
        return {**walk.counts, **counts, **found, "snapshots": len(walk.snapshots)}

    def _compare_joined(self, *, whole: bool) -> dict[str, Any]:
        """Compare the rows that differ from the copy on the source. `whole`, and if the copy is not as this store knows it: all rows."""
        known = self._rows.copy_mark(self._relation)
        if known is not None:
            with self._join() as join:
                if join.mark == known:
                    return self._compare_all_joined(join) if whole else self._compare_differences(join)
        reading, comparison, file = self._reading(), self._rows.comparison(self._relation), self._file()
        self._write(file, comparison, reading.rows())
        mark = self._refreshed()
        # Nothing is read from here on.
        deletes = self._deletes(comparison.finish())
        self._rows.set_copy_mark(self._relation, mark)
        return {**reading.counts, **_written(file, comparison), "deletes": deletes}

    def _compare_differences(self, join: CopyJoin) -> dict[str, Any]:
        reading, comparison, file = self._reading(), self._rows.comparison(self._relation), self._file(olds=True)
        left = self.writer.file(f"{self._relation}.deletes", deletes_schema(olds=True))
        for written, gone, olds in reading.differences(join):
            comparison.know_olds(olds, only=True)
            self._write(file, comparison, [written], olds=True)
            lines = comparison.left(gone)
            if "delete" in self.follow.operations:
                left.write(lines.cast(deletes_schema(olds=True)))
        mark = join.commit()
        # The copy is like the snapshot now; the store becomes so, or all rows are read by the next cycle.
        comparison.keep()
        self._rows.set_copy_mark(self._relation, mark)
        deletes = left.name if left.rows else None
        return {**reading.counts, **_written(file, comparison), "deletes": deletes}

    def _compare_all_joined(self, join: CopyJoin) -> dict[str, Any]:
        """Compare all rows, whether they differ from the copy or not; the old ones of those that changed are those of the copy."""
        reading, comparison, file = self._reading(), self._rows.comparison(self._relation), self._file(olds=True)
        for _, _, olds in reading.differences(join):
            comparison.know_olds(olds, only=False)
        self._write(file, comparison, reading.rows(), olds=True)
        mark = join.commit()
        # Nothing is read from here on.
        deletes = self._deletes(comparison.finish(), olds=True)
        self._rows.set_copy_mark(self._relation, mark)
        return {**reading.counts, **_written(file, comparison), "deletes": deletes}

    def _join(self) -> AbstractContextManager[CopyJoin]:
        name = copy_name(self._relation, self._rows.id)
        self.cycle.copies_made.add(name)
        return self.cycle.database.copies.join(self.table, self._reading().snapshot, name)

    def _refreshed(self) -> str:
        """Make the copy on the source like the table; returns its mark."""
        with self._join() as join:
            join.refresh()
            return join.commit()

    def _check_keys(self, comparison: RowComparison) -> None:
        """Of a declared key, which the database does not keep unique."""
        if self.table.keyless:
            comparison.check_keys()

    def _deletes(self, gone: Iterator[Any], *, olds: bool = False) -> str | None:
        """The name of a file with these rows; None if there are none. `olds`: with what they were like."""
        schema = deletes_schema(olds=olds)
        file = self.writer.file(f"{self._relation}.deletes", schema)
        for deleted in gone:
            if "delete" in self.follow.operations:
                file.write(deleted.select(schema.names).cast(schema))
        return file.name if file.rows else None

    def _compare_since(
        self, reading: TableReading, method: Method, since: tuple[Stamp] | tuple[Touched, ...]
    ) -> dict[str, Any]:
        """Compare the rows whose stamps are not older, or those of a view that changed relations below it may have changed."""
        comparison, file = self._rows.comparison(self._relation), self._file()
        for one in since:
            if method is Method.INCREMENTAL:
                self._write(file, comparison, reading.rows(one))
            else:
                for piece in reading.hashes(since=one):
                    comparison.changes(piece)
        self._check_keys(comparison)
        if method is not Method.INCREMENTAL:
            self._write_changed(file, comparison, reading.changed(comparison, since))
        gone = self._gone(reading, comparison, since)
        deletes = None if gone is None else self._deletes(gone)
        comparison.keep()
        self._rows.set_copy_mark(self._relation, None)
        return {**reading.counts, **_written(file, comparison), "deletes": deletes, "since_stamp": True}

    def _gone(
        self, reading: TableReading, comparison: RowComparison, since: tuple[Stamp] | tuple[Touched, ...]
    ) -> Iterator[Any] | None:
        """Those rows that stamps show to be gone: the ones that do not meet the row filter, as those with a delete flag, and the ones of a
        view whose keys changed relations name. None if stamps show none."""
        if self.table.below:
            places = {below.columns: below.places for below in self.table.below}
            named = ((places[one.columns], one.lines) for one in since if isinstance(one, Touched))
            return (comparison.missing(at, lines) for at, lines in named if at is not None)
        if self.table.schema.row_filter is None:
            return None
        return chain.from_iterable(map(comparison.left, reading.left(one)) for one in since if isinstance(one, Stamp))

    def _file(self, *, olds: bool = False) -> TableFile:
        """For the rows that are inserted and updated. `olds`: see `rows_schema`."""
        return self.writer.file(f"{self._relation}.rows", rows_schema(olds=olds))

    def _write(self, file: TableFile, comparison: RowComparison, pieces: Iterable[Any], *, olds: bool = False) -> None:
        """Compare whole rows, and write those that changed. `olds`: see `rows_schema`."""
        for piece in pieces:
            file.write(_wanted(comparison.changes(piece), self.follow, olds=olds))

    def _write_changed(self, file: TableFile, comparison: RowComparison, pieces: Iterator[Any]) -> None:
        """Those rows that the comparison of hashes found, of pieces with at least these. Of a view they have to be there still."""
        again = 0
        for piece in pieces:
            changed = comparison.changed_of(piece)
            again += changed.num_rows
            file.write(_wanted(changed, self.follow))
        if self.table.keyless and again != comparison.inserted + comparison.updated:
            raise EngineFault(FaultKind.TABLE_NO_IDENTITY, str(self.table.schema.name), KEYLESS)

    def _compare_ranges(
        self, reading: TableReading, *, whole: bool
    ) -> tuple[RowComparison, list[StoredRange], dict[str, Any]]:
        """Compare the rows of ranges whose digests differ; also returns the ranges as they are now."""
        known = self._rows.ranges(self._relation)
        firsts = [each.first for each in known[1:] if each.first is not None]
        digests = reading.digests(firsts)
        again = differing(known, digests, whole=whole)
        counts = {"ranges": len(known), "ranges_different": len(again)}
        if len(again) > max(_FEW_RANGES, _FEW_SHARE * len(known)):
            adder = Adder([each.part for each in known])
            pieces = reading.placed(firsts)
            if pieces is not None:
                comparison = self._rows.comparison(self._relation, [each.part for each in known])
                for piece in pieces:
                    comparison.changes(adder.add(piece))
                return comparison, adder.ranges(known), counts
        comparison = self._rows.comparison(self._relation, [known[place].part for place in again])
        if not again:
            return comparison, known, counts
        limits = [RANGE_ROWS if digests[place].rows > CUT_AGAIN * RANGE_ROWS else sys.maxsize for place in again]
        cutter = Cutter(limits, 1 + max(each.part for each in known))
        bounds = [*(each.first for each in known), None]
        for piece in reading.hashes([KeyRange(bounds[place], bounds[place + 1]) for place in again]):
            comparison.changes(cutter.cut(piece))
        return comparison, self._cut(known, again, cutter), counts

    def _cut(self, before: Sequence[StoredRange], again: Sequence[int], cutter: Cutter) -> list[StoredRange]:
        """The ranges after those at the places `again` were read and cut."""
        firsts = key_texts([each.key for each in cutter.found], len(self.table.schema.key))
        return joined(before, again, cutter.found, firsts) or [StoredRange(0, None, 0, 0, 0)]


def _written(file: TableFile, comparison: RowComparison) -> dict[str, Any]:
    return {
        "rows": file.name if file.rows else None,
        "inserted": comparison.inserted,
        "updated": comparison.updated,
        "deleted": comparison.deleted,
    }


def _wanted(found: Any, follow: Follow, *, olds: bool = False) -> Any:
    """The rows that are followed, for a file of the cycle. `olds`: see `rows_schema`."""
    schema = rows_schema(olds=olds)
    rows = found.select(schema.names).cast(schema)
    if follow.operations >= OPERATIONS.keys():
        return rows
    wanted = pa.array([OPERATIONS[each] for each in follow.operations], pa.uint8())
    return rows.filter(pc.is_in(rows.column("op"), wanted))
