"""Default implementations of the capabilities that a source lacks, so that the engine treats every source alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence

from engine.model.change_triggers import ChangeTriggersState, PlannedStatement
from engine.model.copies import KeyBound
from engine.model.cycles import Cycle, CyclesAhead, FailedCycle
from engine.model.ddl import DdlCapture, DdlMessage
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId, TableName, TicketId
from engine.model.partitions import Partition
from engine.model.position import Lsn
from engine.model.quarantine import Texts
from engine.model.ranges import KeySample, NotByRanges, RangeSource
from engine.model.schema import Column, TableSchema
from engine.model.sequences import SourceSequence
from engine.model.source import WHOLE_TABLE, Earlier, GuardReading, KeyWalk, TableSplit
from engine.model.subscription import TableSpec
from engine.model.ticket import TicketWritten


class EverythingSent:
    """`SentTables` of a source that sends every table."""

    traced = True

    def __init__(self, describe: Callable[[Sequence[TableSpec]], Mapping[TableName, TableSchema]]) -> None:
        self._describe = describe

    def prepare(
        self,
        tables: Sequence[TableSpec],
        reader: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        del reader, earlier
        return frozenset({*known, *(schema.relation for schema in self._describe(tables).values())})

    def recorded(self, reader: str) -> str:
        del reader
        return ""

    def withdraw(self, tables: Sequence[TableSpec], reader: str) -> None:
        del tables, reader

    def unpublished(
        self, tables: Sequence[TableSpec], reader: str, relations: Mapping[TableName, RelationId] | None = None
    ) -> tuple[str, ...]:
        del tables, reader, relations
        return ()


class NoPartitions:
    """`PartitionedTables` of a source without partitioned tables."""

    def fingerprints(self, tables: Sequence[TableSpec]) -> dict[TableName, str]:
        del tables
        return {}

    def with_observed(self, mark: str, below: Mapping[RelationId, TableName]) -> str:
        del below
        return mark

    def roots(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        del relations
        return {}

    def partitions(self, schema: TableSchema, snapshot: str | None = None) -> list[Partition]:
        del schema, snapshot
        return []


class LogAnnouncesAll:
    """`SourceSafety` of a source whose log announces every change of a structure: only its reader is checked."""

    def __init__(self, read: Callable[[str], GuardReading]) -> None:
        self._read = read

    def check_reader(self, reader: str) -> GuardReading:
        return self._read(reader)

    def check(self, tables: Sequence[TableSpec], reader: str) -> GuardReading:
        del tables
        return self._read(reader)

    def remember(self, marks: Mapping[TableName, str]) -> None:
        del marks

    def accept(self, table: TableName, relation: RelationId) -> None:
        del table, relation


class NoDdlReports:
    """`DdlReports` of a source without DDL messages. Installing raises EngineFault(NOT_WITH_THIS_CAPTURE)."""

    def parse(self, payload: bytes) -> DdlMessage:
        del payload
        raise EngineFault(FaultKind.LOG_UNREADABLE, "message", "this kind of source sends no DDL messages")

    def mark(self) -> str:
        return ""

    def status(self) -> DdlCapture:
        return DdlCapture(installed=False, version=None, current=False, install_sql=(), remove_sql=())

    def install(self) -> DdlCapture:
        raise EngineFault(FaultKind.NOT_WITH_THIS_CAPTURE, "DDL capture", "this kind of source cannot report DDL")

    def uninstall(self) -> DdlCapture:
        return self.status()


class NoChangeTriggers:
    """`ChangeTriggers` of a source whose changes triggers do not record. Every method raises EngineFault(NOT_WITH_THIS_CAPTURE)."""

    def status(self) -> ChangeTriggersState:
        raise self._refusal()

    def plan(self, tables: Sequence[TableName]) -> tuple[PlannedStatement, ...]:
        del tables
        raise self._refusal()

    def grants(self) -> tuple[str, ...]:
        raise self._refusal()

    def install(self, tables: Sequence[TableName]) -> ChangeTriggersState:
        del tables
        raise self._refusal()

    def remove(self) -> ChangeTriggersState:
        raise self._refusal()

    @staticmethod
    def _refusal() -> EngineFault:
        detail = "they are not shown and installed by request for this kind of source"
        return EngineFault(FaultKind.NOT_WITH_THIS_CAPTURE, "change triggers", detail)


class NoTickets:
    """`TicketWriter` of a source whose log cannot contain markers."""

    def write(self, ticket: TicketId) -> TicketWritten:
        raise EngineFault(
            FaultKind.SOURCE_PRIVILEGE, str(ticket), "the log of this kind of source cannot contain markers"
        )


class NoCycles:
    """`CycleReports` of a source that sends its changes, so that nothing is compared. Every method raises
    EngineFault(NOT_WITH_THIS_CAPTURE)."""

    def ended(self, upto: int | None, most: int) -> list[Cycle]:
        del upto, most
        raise self._refusal()

    def failed(self, upto: int | None, most: int) -> list[FailedCycle]:
        del upto, most
        raise self._refusal()

    def ahead(self) -> CyclesAhead:
        raise self._refusal()

    def position(self, number: int) -> Lsn:
        del number
        raise self._refusal()

    def applied(self, position: Lsn) -> int:
        del position
        raise self._refusal()

    def request(self) -> int:
        raise self._refusal()

    @staticmethod
    def _refusal() -> EngineFault:
        detail = "this capture has none: changes arrive as they are made; captures by queries (query_diff) have cycles"
        return EngineFault(FaultKind.NOT_WITH_THIS_CAPTURE, "cycles", detail)


class NoSequences:
    """`SequenceReader` of a source without sequences."""

    def read(self, tables: Sequence[TableName]) -> list[SourceSequence]:
        del tables
        return []


class NothingComputed:
    """`ComputedColumns` of a source whose log carries every column."""

    def compute(self, table: TableId, columns: Sequence[Column], inputs: Mapping[int, str], rows: int) -> bytes:
        del columns, inputs, rows
        detail = "this kind of source has no computed columns"
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(table), detail)


class NoRanges:
    """Part of the `SnapshotSource` of a source that computes no digests, and whose keys cannot be walked."""

    def sample_key(self, schema: TableSchema, share: float, seed: str) -> KeySample | None:
        """None."""
        del schema, share, seed
        return None

    def ranges(self, schema: TableSchema) -> RangeSource:
        """Raises NotByRanges."""
        del schema
        raise NotByRanges("a kind of source that computes no digests")


class WholeTablesOnly(NoRanges, ABC):
    """Part of the `SnapshotSource` of a source that does not look up keys, and reads each table under one snapshot."""

    @abstractmethod
    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]: ...

    def key_splits(self, schema: TableSchema, spec: TableSpec, keys: Sequence[Texts]) -> list[TableSplit]:
        """The whole table: how a key is printed need not be how the database compares it."""
        del keys
        return self.splits(schema, spec, WHOLE_TABLE)

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        split_bytes: int,
        most_splits: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        """None."""
        del schema, after, split_bytes, most_splits, above_bytes
        return None
