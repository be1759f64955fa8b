"""Reads of tables under an exported snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.model.copies import KeyBound
from engine.model.quarantine import Texts
from engine.model.ranges import KeySample, RangeSource
from engine.model.schema import TableSchema
from engine.model.source import KeyWalk, TableSplit
from engine.model.subscription import TableSpec
from engine.sources.postgres import splits
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.key_sample import sample_key
from engine.sources.postgres.key_walk import walk_key
from engine.sources.postgres.range_digests import digests_of
from engine.sources.postgres.splits import PLAIN, ReadRules


class PostgresReads:
    """The part of `SnapshotSource` that reads under a snapshot, by COPY, however changes are captured."""

    def __init__(self, connector: Connector, rules: ReadRules = PLAIN) -> None:
        self._connector = connector
        self._rules = rules

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        del spec
        return splits.cut_table(self._connector, schema, split_bytes)

    def key_splits(self, schema: TableSchema, spec: TableSpec, keys: Sequence[Texts]) -> list[TableSplit]:
        del spec
        return splits.key_splits(self._connector, schema, keys)

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        split_bytes: int,
        most_splits: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        return walk_key(self._connector, schema, after, split_bytes, most_splits, above_bytes)

    def sample_key(self, schema: TableSchema, share: float, seed: str) -> KeySample | None:
        return sample_key(self._connector, schema, share, seed)

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        """Raises COPY_LOST if the snapshot is gone, TABLE_STRUCTURE_CHANGED if the table was rewritten or truncated after it."""
        return splits.read_split(self._connector, split, snapshot, self._rules)

    def ranges(self, schema: TableSchema) -> RangeSource:
        return digests_of(self._connector, schema)
