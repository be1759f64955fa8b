"""What ways to capture MariaDB have in common that read tables by ranges of their key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from engine.model.absent_capabilities import WholeTablesOnly
from engine.model.copies import KeyBound
from engine.model.ranges import KeySample, RangeSource
from engine.model.schema import TableSchema
from engine.model.source import KeyWalk, TableSplit
from engine.model.subscription import TableSpec
from engine.sources.mariadb import key_sample, range_digests, splits
from engine.sources.mariadb.catalog import MariaDbTable
from engine.sources.mariadb.connect import Connector, MariaDbConnection


class KeyReads(WholeTablesOnly):
    """The part of `SnapshotSource` that depends on how a table is found only."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    @abstractmethod
    def _there(self, connection: MariaDbConnection, schema: TableSchema) -> MariaDbTable:
        """The table as it is now. Raises EngineFault if it is not the one of the schema."""
        ...

    @abstractmethod
    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        """See SnapshotSource.read_split."""
        ...

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        """See SnapshotSource.splits."""
        del spec
        with self._connector.session(str(schema.name)) as connection:
            return splits.cut_table(connection, self._there(connection, schema), schema, split_bytes)

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        split_bytes: int,
        most_splits: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        """None for a copy, which names `above_bytes`: it reads each table under one snapshot."""
        if above_bytes is not None:
            return None
        with self._connector.session(str(schema.name)) as connection:
            table = self._there(connection, schema)
            return range_digests.walk_key(connection, table, schema, after, split_bytes, most_splits)

    def sample_key(self, schema: TableSchema, share: float, seed: str) -> KeySample | None:
        """See SnapshotSource.sample_key."""
        with self._connector.session(str(schema.name)) as connection:
            return key_sample.sample_key(connection, self._there(connection, schema), schema, share, seed)

    def ranges(self, schema: TableSchema) -> RangeSource:
        """See SnapshotSource.ranges."""
        with self._connector.session(str(schema.name)) as connection:
            table = self._there(connection, schema)
        return range_digests.ranges_of(table, schema, self.read_split)
