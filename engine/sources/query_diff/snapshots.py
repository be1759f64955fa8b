"""Consistent reads for copies and comparisons: each snapshot is that of a cycle of its own, so that later cycles continue it exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engine.model.copies import KeyBound
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.positions.windows import end_of
from engine.model.quarantine import Texts
from engine.model.ranges import KeyInterval, KeySample, RangeDigest, RangeSource, RowForm
from engine.model.schema import Column, TableSchema
from engine.model.source import ExportedSnapshot, KeyWalk, TableSplit
from engine.model.subscription import TableSpec
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import KEYLESS, ComparedDatabase
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.unread_tables import read_under


class CycleSnapshots:
    """`SnapshotSource` by cycles."""

    def __init__(self, database: ComparedDatabase, given: Given) -> None:
        self._database = database
        self._given = given

    @contextmanager
    def snapshot(self, timeout_s: float) -> Iterator[ExportedSnapshot]:
        """Waits for a cycle that is running, and reads every followed table. `timeout_s`: for the snapshot; a cycle takes what it takes."""
        del timeout_s
        given = self._given
        with run_cycle(self._database, given) as (snapshot, number):
            yield ExportedSnapshot(snapshot, end_of(number))

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        """Raises EngineFault(TABLE_NO_IDENTITY) if the last cycle found rows without a key of their own: it is that of the snapshot."""
        for found in self._given.folder.files.reports(1):
            if any(table.relation == schema.relation and table.keyless for table in found.tables):
                raise EngineFault(FaultKind.TABLE_NO_IDENTITY, str(schema.name), KEYLESS)
        return self._database.reads.splits(schema, spec, split_bytes)

    def key_splits(self, schema: TableSchema, spec: TableSpec, keys: Sequence[Texts]) -> list[TableSplit]:
        return self._database.reads.key_splits(schema, spec, keys)

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        split_bytes: int,
        most_splits: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        """None for a copy, which names `above_bytes`: each chunk would have a snapshot of its own, and so a cycle over every table."""
        if above_bytes is not None:
            return None
        return self._database.reads.walk_key(schema, after, split_bytes, most_splits)

    def sample_key(self, schema: TableSchema, share: float, seed: str) -> KeySample | None:
        return self._database.reads.sample_key(schema, share, seed)

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        """Raises, as the cycle did, EngineFault for a table that the snapshot's cycle did not read."""
        return self._database.reads.read_split(split, read_under(snapshot, split.reads))

    def ranges(self, schema: TableSchema) -> RangeSource:
        return _Ranges(self._database.reads.ranges(schema), schema.name)


class _Ranges:
    """`RangeSource` under the snapshots of cycles."""

    def __init__(self, ranges: RangeSource, table: TableName) -> None:
        self._ranges = ranges
        self._table = table

    @property
    def columns(self) -> tuple[Column, ...]:
        return self._ranges.columns

    @property
    def form(self) -> RowForm:
        return self._ranges.form

    def digests(self, intervals: Sequence[KeyInterval], rows: int, snapshot: str) -> list[RangeDigest]:
        return self._ranges.digests(intervals, rows, read_under(snapshot, self._table))

    def split(self, keys: KeyInterval, rows: int) -> TableSplit:
        return self._ranges.split(keys, rows)
