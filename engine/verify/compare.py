"""Compares target and source at a cut: a target read that is pinned at a position, and a source snapshot of the same position."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId
from engine.model.partitions import PartitionRows
from engine.model.position import Lsn
from engine.model.ranges import NotByRanges, RangedRows, SamplePart
from engine.model.schema import Column, TableSchema
from engine.model.source import ExportedSnapshot, Source, TableSplit
from engine.model.subscription import TableSpec
from engine.model.target import TableRecord, TargetReader
from engine.model.verification import VerificationMethod
from engine.platform.read_ahead import prefetched
from engine.verify.by_ranges import ByRanges, RangesFound
from engine.verify.pace import Pace
from engine.verify.progress import Progress
from engine.verify.sampling import Sampling, borders, on_target
from engine.verify.verdict import Difference, TableVerdict, VerdictStatus, VerifyProgress

Kept = Callable[[], AbstractContextManager[RangedRows]]
"""The target's rows of a part of a sample, within the block."""
Decode = Callable[[bytes, TableSchema], Any]
"""Decodes COPY text (whole lines) by a schema to a pyarrow.RecordBatch with columns c0 … cn."""

DIFFERENCES = 100
"""Most differing rows of a table that a verification lists: enough to search for a cause; the first one already fails the table. Not
measured."""


@dataclass(frozen=True, slots=True)
class VerifyTable:
    """A live table to compare; `record`: from the pinned progress record.

    `on_source`: the source's schema, with one column for each of the record's, if names differ there. `rows`: compare only these rows,
    which are in the partitions `storage` on the source.
    """

    spec: TableSpec
    record: TableRecord
    on_source: TableSchema | None = None
    rows: PartitionRows | None = None
    storage: frozenset[RelationId] | None = None

    @property
    def reads(self) -> TableSchema:
        """The schema with which the source is read."""
        return self.on_source or self.record.schema


def with_shared(table: VerifyTable, now: TableSchema) -> VerifyTable:
    """The table reduced to the columns that both sides have: the target may keep columns that the source, whose schema is `now`, has
    dropped or renamed."""
    names = {column.attnum: (column.name, column.source_name) for column in now.whole.columns}
    schema = table.record.schema
    shared = replace(schema, columns=tuple(c for c in schema.columns if c.attnum in names))
    named = [(column, *names[column.attnum]) for column in shared.columns]
    there = tuple(replace(column, name=name, source_name=on_source) for column, name, on_source in named)
    return replace(table, record=replace(table.record, schema=shared), on_source=replace(shared, columns=there))


@dataclass(frozen=True, slots=True)
class VerifyLimits:
    """Bounds of a comparison: rows are decoded in pieces of about `batch_bytes`, a few pieces ahead of the target's read, in at most the
    share `budget` of the time."""

    split_bytes: int = 64 * 1024**2
    batch_bytes: int = 4 * 1024**2
    pieces_ahead: int = 4
    differences: int = DIFFERENCES
    early_bytes: int = 64 * 1024**2
    """Tables up to this size may be read before the target has reached the position, without rests."""
    budget: float = 1.0


def verify_tables(
    source: Source,
    reader: TargetReader,
    snapshot: ExportedSnapshot,
    tables: Sequence[VerifyTable],
    decode: Decode,
    on_progress: Callable[[VerifyProgress], None] = lambda progress: None,
    cancelled: threading.Event | None = None,
    limits: VerifyLimits | None = None,
    early: EarlyRows | None = None,
    method: VerificationMethod = VerificationMethod.ROWS,
    sampling: Sampling | None = None,
) -> list[TableVerdict]:
    """Compare every table; one verdict each, in the order of `tables`. Tables that `early` read under this snapshot are not read again.
    With the method CHECKSUM a table that cannot be compared in this way is compared by rows. With `sampling` only the ranges that it
    chooses are compared, where that is possible.

    The caller makes the cut and keeps both sides pinned. A table whose comparison fails gets a NOT_COMPARED verdict, and the others are
    compared; if the source cannot be read any more, or on cancel, the remaining tables are NOT_COMPARED.

    Raises EngineFault(INTERNAL) if the two sides are not at the same position.
    """
    if reader.position != snapshot.position:
        text = source.terms.text
        raise EngineFault(
            FaultKind.INTERNAL,
            "verification",
            f"target at {text(reader.position)}, source snapshot at {text(snapshot.position)}",
        )
    limits, cancelled = limits or VerifyLimits(), cancelled or threading.Event()
    pace = Pace(cancelled, limits.budget)
    run = _Comparison(source, reader, snapshot, decode, on_progress, pace, limits, early, method, sampling)
    verdicts: list[TableVerdict] = []
    stopped: EngineFault | None = None
    for table in tables:
        fault = stopped or run.cancelled_fault(table)
        if fault is None:
            try:
                verdicts.append(run.table(table))
                continue
            except EngineFault as raised:
                fault = raised
                stopped = raised if raised.kind in _NO_USE_TO_GO_ON else None
        verdicts.append(_not_compared(table, snapshot.position, fault))
    return verdicts


_NO_USE_TO_GO_ON = frozenset(
    {FaultKind.COPY_LOST, FaultKind.SOURCE_UNREACHABLE, FaultKind.SOURCE_AUTHENTICATION, FaultKind.TARGET_DISK_FULL}
)
"""The snapshot or one side is lost: every further table would fail in the same way, some only after a timeout."""


class EarlyRows:
    """Source rows of small tables, read right after the snapshot: a table that is truncated repeatedly could not be read later."""

    def __init__(self, source: Source, tables: Sequence[VerifyTable], decode: Decode) -> None:
        self._source = source
        self._tables = tables
        self._decode = decode
        self._limits = VerifyLimits()
        self._rows: dict[tuple[TableId, str], tuple[TableSchema, list[Any]]] = {}

    def read(self, snapshot: ExportedSnapshot) -> None:
        """Read the tables that are small enough. A table that cannot be read is left to the comparison, which reports the reason."""
        self._rows.clear()
        for table in self._tables:
            with suppress(EngineFault):
                schema = table.reads
                splits = self._source.copies.splits(schema, table.spec, self._limits.split_bytes)
                if sum(split.bytes_estimate for split in splits) > self._limits.early_bytes:
                    continue
                pieces = (piece for split in splits for piece in self._source.copies.read_split(split, snapshot.name))
                self._rows[table.spec.table, snapshot.name] = schema, [self._decode(piece, schema) for piece in pieces]

    def rows_of(self, table: VerifyTable, snapshot: ExportedSnapshot) -> list[Any] | None:
        """The rows of a table under this snapshot; None if they were not read, or were read with other columns."""
        schema, rows = self._rows.get((table.spec.table, snapshot.name), (None, None))
        return rows if schema is not None and schema.columns == table.reads.columns else None


@dataclass(frozen=True, slots=True)
class _Comparison:
    source: Source
    reader: TargetReader
    snapshot: ExportedSnapshot
    decode: Decode
    on_progress: Callable[[VerifyProgress], None]
    pace: Pace
    limits: VerifyLimits
    early: EarlyRows | None
    method: VerificationMethod
    sampling: Sampling | None

    def cancelled_fault(self, table: VerifyTable) -> EngineFault | None:
        if not self.pace.cancelled.is_set():
            return None
        return EngineFault(FaultKind.INTERNAL, str(table.spec.source), "the verification was cancelled")

    def table(self, table: VerifyTable) -> TableVerdict:
        if table.spec.skipped:
            detail = (
                "not all operations of the table are followed, so that its rows differ from the source's as declared"
            )
            raise EngineFault(FaultKind.TABLE_DIFFERS_AS_DECLARED, str(table.spec.source), detail)
        progress = Progress(table.spec.table, self.on_progress)
        self.pace.begin()
        if self.sampling is None:
            return self._whole(table, progress)
        try:
            return self._sample(table, progress, self.sampling)
        except NotByRanges as reason:
            progress.forget()
            return replace(self._whole(table, progress), whole_because=str(reason))

    def _whole(self, table: VerifyTable, progress: Progress) -> TableVerdict:
        if self.method is VerificationMethod.ROWS:
            return self._by_rows(table, progress)
        try:
            return self._by_ranges(table, progress)
        except NotByRanges as reason:
            return replace(self._by_rows(table, progress), by_rows_because=str(reason))

    def _by_rows(self, table: VerifyTable, progress: Progress) -> TableVerdict:
        known = self._known(table)
        progress.forget()
        with closing(
            prefetched(self._batches(table, progress) if known is None else iter(known), self.limits.pieces_ahead)
        ) as rows:
            source_rows, target_rows, found = self.reader.compare(
                table.record, rows, self.limits.differences, table.rows
            )
        equal = source_rows == target_rows and not found
        return self._verdict(table, equal, source_rows, target_rows, found, progress)

    def _by_ranges(self, table: VerifyTable, progress: Progress) -> TableVerdict:
        """Raises NotByRanges."""
        ours = self._digested(table, progress)
        base = ours.base()
        with self.reader.ranges(table.record, ours.ranges.columns, ours.row_bytes) as target:
            found = ours.compare(base, target, partial(self._reading, table, progress), self.limits.differences)
        return self._verdict_by_ranges(table, found, progress)

    def _digested(self, table: VerifyTable, progress: Progress) -> ByRanges:
        """Raises NotByRanges if its rows cannot be compared by digests."""
        if table.record.set_aside:
            raise NotByRanges("quarantined rows")
        if table.rows is not None or table.on_source is not None:
            raise NotByRanges("a comparison of a part of the table")
        if self._known(table) is not None:
            raise NotByRanges("a table that is truncated or rewritten repeatedly")
        ranges = self.source.copies.ranges(table.reads)
        return ByRanges(self.source, self.snapshot, table.reads, ranges, partial(self._check, table), progress)

    def _check(self, table: VerifyTable) -> None:
        """Called between two steps."""
        self.pace.rest()
        fault = self.cancelled_fault(table)
        if fault is not None:
            raise fault

    @contextmanager
    def _reading(self, table: VerifyTable, progress: Progress, splits: Sequence[TableSplit]) -> Iterator[Iterator[Any]]:
        """The rows of the splits, read ahead within the block."""
        batches = (batch for split in splits for batch in self._split(split, table, progress))
        with closing(prefetched(batches, self.limits.pieces_ahead)) as rows:
            yield rows

    def _sample(self, table: VerifyTable, progress: Progress, sampling: Sampling) -> TableVerdict:
        """Compare ranges chosen at random, part by part. Raises NotByRanges if the table has to be compared whole."""
        if self._known(table) is not None:
            raise NotByRanges("a table that is truncated or rewritten repeatedly")
        sample = sampling.of(self.source, table.spec.table, table.reads)
        columns = on_target(table.record, sample.columns)
        progress.expected = sum(part.split.bytes_estimate for part in sample.parts)
        found, because = RangesFound(0, 0, [], True, 0, 0), None
        digested = self.method is VerificationMethod.CHECKSUM
        for part in sample.parts:
            self._check(table)
            kept = partial(self._kept, table, columns, sample.row_bytes, part)
            limit = max(1, self.limits.differences - len(found.differences))
            if digested:
                try:
                    found = found.and_(self._part_by_ranges(table, progress, part, sample.row_bytes, kept, limit))
                except NotByRanges as reason:
                    digested, because = False, str(reason)
            if not digested:
                found = found.and_(self._part_by_rows(table, progress, part, kept, limit))
            progress.advance(part.split.bytes_estimate)
        verdict = replace(self._verdict_by_ranges(table, found, progress), sample=sampling.share)
        return verdict if digested else replace(verdict, method=VerificationMethod.ROWS, by_rows_because=because)

    def _part_by_ranges(
        self,
        table: VerifyTable,
        progress: Progress,
        part: SamplePart,
        row_bytes: int,
        kept: Kept,
        limit: int,
    ) -> RangesFound:
        """Raises NotByRanges."""
        ours = self._digested(table, progress)
        base = ours.base_of(part.ranges, row_bytes)
        with kept() as target:
            return ours.compare(base, target, partial(self._reading, table, progress), limit)

    def _part_by_rows(
        self, table: VerifyTable, progress: Progress, part: SamplePart, kept: Kept, limit: int
    ) -> RangesFound:
        """Raises NotByRanges if the target's rows cannot be found by ranges of the key."""
        with kept() as target, self._reading(table, progress, [part.split]) as rows:
            source_rows, target_rows, differences = target.compare(rows, limit)
        return RangesFound(source_rows, target_rows, differences, source_rows == target_rows and not differences, 0, 0)

    @contextmanager
    def _kept(
        self, table: VerifyTable, columns: Sequence[Column], row_bytes: int, part: SamplePart
    ) -> Iterator[RangedRows]:
        """The target's rows in these ranges."""
        with self.reader.ranges(table.record, columns, row_bytes, part=True) as target:
            target.keep(*borders(part.ranges))
            yield target

    def _verdict_by_ranges(self, table: VerifyTable, found: RangesFound, progress: Progress) -> TableVerdict:
        verdict = self._verdict(table, found.equal, found.source_rows, found.target_rows, found.differences, progress)
        return replace(
            verdict, method=VerificationMethod.CHECKSUM, ranges=found.ranges, ranges_different=found.different
        )

    def _known(self, table: VerifyTable) -> list[Any] | None:
        return self.early.rows_of(table, self.snapshot) if self.early is not None else None

    def _verdict(
        self,
        table: VerifyTable,
        equal: bool,
        source_rows: int,
        target_rows: int,
        found: Sequence[dict[str, Any]],
        progress: Progress,
    ) -> TableVerdict:
        aside = table.record.set_aside
        return TableVerdict(
            table=table.spec.table,
            source=table.spec.source,
            mode=table.record.schema.mode,
            position=self.snapshot.position,
            status=VerdictStatus.EQUAL if equal and not aside else VerdictStatus.DIFFERENT,
            source_rows=source_rows,
            target_rows=target_rows,
            differences=tuple(
                Difference(tuple(each["key"]), str(each["kind"]), each.get("columns", ()), each.get("exact", ()))
                for each in found
            ),
            set_aside=aside,
            bytes_from_source=progress.bytes,
            compared=table.record,
        )

    def _batches(self, table: VerifyTable, progress: Progress) -> Iterator[Any]:
        splits = self.source.copies.splits(table.reads, table.spec, self.limits.split_bytes)
        if table.storage is not None:
            splits = [split for split in splits if split.storage in table.storage]
        progress.expected = sum(split.bytes_estimate for split in splits)
        for split in splits:
            yield from self._split(split, table, progress)
            progress.advance(split.bytes_estimate)

    def _split(self, split: TableSplit, table: VerifyTable, progress: Progress) -> Iterator[Any]:
        held: list[bytes] = []
        size = 0
        for piece in self.source.copies.read_split(split, self.snapshot.name):
            fault = self.cancelled_fault(table)
            if fault is not None:
                raise fault
            if size and size + len(piece) > self.limits.batch_bytes:
                yield self._decoded(held, table, progress)
                held, size = [], 0
            held.append(piece)
            size += len(piece)
        if size:
            yield self._decoded(held, table, progress)

    def _decoded(self, pieces: list[bytes], table: VerifyTable, progress: Progress) -> Any:
        text = b"".join(pieces)
        batch = self.decode(text, table.reads)
        progress.came(batch.num_rows, len(text))
        self.pace.rest()
        return batch


def _not_compared(table: VerifyTable, position: Lsn, fault: EngineFault) -> TableVerdict:
    return TableVerdict(
        table=table.spec.table,
        source=table.spec.source,
        mode=table.record.schema.mode,
        position=position,
        status=VerdictStatus.NOT_COMPARED,
        code=fault.kind.value,
        detail=fault.detail,
    )
