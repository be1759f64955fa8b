"""What the engine needs of a source: values that its folder hands out, and the protocols it fulfils."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from engine.model.batch import BlockRef, LogRange, TablePart
from engine.model.copies import KeyBound
from engine.model.ddl import Capture, DdlCapture, DdlMessage
from engine.model.identity import RelationId, TableId, TableName, TicketId
from engine.model.last_commit import LastCommit
from engine.model.partitions import Partition
from engine.model.position import Lsn
from engine.model.schema import Column, TableSchema
from engine.model.sequences import SourceSequence
from engine.model.subscription import OriginFilter, TableSpec
from engine.model.ticket import TicketWritten

_ITSELF = RelationId(0)


class Severity(StrEnum):
    """How much a finding matters: an `error` keeps the subscription from starting."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Earlier(StrEnum):
    """What publications may be that are there before `prepare`."""

    ANY = "any"
    """Whatever they are: no change of before counts, since all tables are copied behind this."""
    OURS = "ours"
    """There, and changed by nothing but us: whatever they were until now, tables depend on it."""
    UNMARKED = "unmarked"
    """As OURS, or made by a version that left no mark on them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a preflight check."""

    severity: Severity
    code: str
    what: str
    remedy: str
    sql: tuple[str, ...] = ()
    """Statements that mend it, by somebody who may; none where it takes a choice that is not ours."""


@dataclass(frozen=True, slots=True)
class DiscoveredTable:
    """A table that could be replicated."""

    name: TableName
    key: tuple[str, ...]
    identity: str
    partitioned: bool
    rows_estimate: int
    bytes: int
    columns: tuple[Mapping[str, str], ...]
    """`name`, `type` (as format_type prints it) per column."""
    problems: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """Which database cluster this is; a change of either means that positions no longer compare."""

    system_id: str
    timeline: int
    server_version: int


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """The replication slot as the source reports it."""

    exists: bool
    confirmed: Lsn | None = None
    restart: Lsn | None = None
    active_pid: int | None = None
    wal_status: str = ""
    retained_bytes: int = 0
    safe_wal_bytes: int | None = None
    invalidation: str | None = None
    spill_bytes: int = 0
    stream_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Raw records in arrival order, as read from the log.

    `data` holds the records' bytes one behind the other (numpy uint8), `offsets` their borders (numpy int32, count + 1).
    `controls` is a numpy array of model.control.CONTROL_FIELDS whose `ordinal` counts from 0 within the chunk; `relations` maps
    such an ordinal to the whole relation record, and to messages of the source's DDL capture. `wal_end`: everything
    committed up to here has been read, this chunk included.
    """

    data: Any
    offsets: Any
    controls: Any
    relations: Mapping[int, bytes]
    wal_end: Lsn

    @property
    def count(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class Landed:
    """What one append to the queue left there.

    `controls` (model.control.CONTROL_FIELDS) and `relations` are those of the chunk with ordinals of the queue. `block` is None
    where only `wal_end` moved, or for the SESSION mark that opens a session.
    """

    block: BlockRef | None
    controls: Any
    relations: Mapping[int, bytes]
    wal_end: Lsn


class LogStream(Protocol):
    """One open replication session. Used by one thread of the log reader process."""

    @property
    def verified(self) -> bool:
        """Whether the session is known to read the log of which everything up to its start is held. Before that nothing behind the start
        comes, and nothing is released."""
        ...

    def read(self, timeout_s: float) -> RecordChunk | None:
        """The next records, at most about 8 MiB; an empty chunk when only `wal_end` moved; None when nothing came in time or before `wake`.

        Answers the source's keepalives by itself, whatever the caller does between calls of at most some seconds.
        Raises EngineFault(SOURCE_UNREACHABLE) when the connection is lost, PUBLICATION_CHANGED on a notice of the server, LOG_GAP where
        the log is another one than the one that was read up to the start.
        """
        ...

    def confirm(self, durable: Lsn) -> None:
        """Tell the source that everything up to `durable` may be released. Never goes back; before it, nothing is released."""
        ...

    def ask_position(self) -> None:
        """Ask the source for a keepalive at once, so that `wal_end` moves on an idle source."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ScannedChanges:
    """Changes found by a scan over `ranges`, in commit order; numpy arrays of equal length, one entry per row change or truncate.

    `op`: 1 insert, 2 update, 3 delete, 4 truncate. `relation`: oid. `version`: how many relation records of this relation the scan
    has met before. `new`, `old`: offset in `data` of the tuple's data (at its column count), -1 where absent. `old_kind`: 0 none,
    1 key only, 2 full row. `range_index`: which of the ranges. `end`: end LSN of its transaction.
    """

    data: Any
    op: Any
    relation: Any
    version: Any
    new: Any
    old: Any
    old_kind: Any
    range_index: Any
    end: Any
    xids: frozenset[int] = frozenset()
    """(Sub)transactions that wrote records of streamed ranges."""


class Scanner(Protocol):
    """Offset-only scan of raw records of one log format; pure."""

    def scan(
        self, data: Any, offsets: Any, first: Any, ranges: Sequence[LogRange], parts: Sequence[TablePart]
    ) -> ScannedChanges:
        """Find the changes of `parts` in committed order.

        `data`: uint8, all records of all blocks one behind the other; `offsets`: int64 borders (count + 1); `first`: int64 ordinal
        per record. Ranges name ordinals; records of an aborted subtransaction are left out (relation records count all the same).
        """
        ...


@dataclass(frozen=True, slots=True)
class ExportedSnapshot:
    """A snapshot that other sessions may import while its keeper lives, and the position it corresponds to."""

    name: str
    position: Lsn


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """A part of a table that one task copies: SQL that selects the schema's columns in order, as text through COPY."""

    relation: RelationId
    sql: str
    bytes_estimate: int
    rows_estimate: int
    storage: RelationId = _ITSELF
    """The table whose rows it reads: a partition's own number, 0 = `relation` itself."""
    reads: TableName | None = None
    columns: tuple[tuple[int, str], ...] = ()
    """The names that `sql` goes by: of the table whose rows it reads, and of the columns of `relation` by attribute number."""


@dataclass(frozen=True, slots=True)
class KeyedChunk:
    """A chunk that holds the rows behind the chunk before it, up to and with the key `upto`; None = all that follow."""

    chunk: CopyChunk
    upto: KeyBound | None


@dataclass(frozen=True, slots=True)
class KeyWalk:
    """The next chunks along a table's key, and about how large the whole table is; no rows where the source has no statistics."""

    chunks: tuple[KeyedChunk, ...]
    table_bytes: int
    table_rows: int = 0


@dataclass(frozen=True, slots=True)
class PartitionRewrite:
    """Partitions of a root got new storage, or are new and may have come with rows, and nothing else changed.

    Fine iff each writer's truncate of the root is in the log, and the DDL capture tells of each new one that it was made as a partition.

    `root`: as truncate records name it. `writers`: the (sub)transactions that gave the new storage. `attached`: the new ones. `seen_by`:
    all that committed at or before this position, so that whoever has read the log up to there has seen what it tells of them.
    """

    root: RelationId
    writers: frozenset[int]
    seen_by: Lsn
    attached: frozenset[RelationId] = frozenset()


@dataclass(frozen=True, slots=True)
class GuardReading:
    """What the guard and the publication watch saw in one look at the source."""

    slot: SlotStatus
    publication_faults: tuple[str, ...] = ()
    partition_faults: Mapping[TableName, str] = field(default_factory=dict)
    partition_rewrites: Mapping[TableName, PartitionRewrite] = field(default_factory=dict)
    """Those of `partition_faults` that are none if the log explains them."""
    replaced: Mapping[TableName, RelationId] = field(default_factory=dict)
    """Those of `partition_faults` that tell of a table dropped or made again, with what stands there now; 0 = nothing."""
    marks: Mapping[TableName, str] = field(default_factory=dict)
    """For tables with parts below them: what those parts are at present, as text that only the source reads (see `remember`)."""
    below: Mapping[TableName, frozenset[RelationId]] = field(default_factory=dict)
    """For those tables: the parts that are below them."""
    left: Mapping[TableName, Mapping[RelationId, Lsn]] = field(default_factory=dict)
    """For those tables: parts that looks met below them once, and the log's end behind the look that found each gone."""

    def has_met(self, table: TableName, part: RelationId, end: Lsn) -> bool:
        """Whether looks have met this part below the table, of which the log tells up to `end`."""
        left = self.left.get(table, {}).get(part)
        return part in self.below.get(table, frozenset()) or (left is not None and end <= left)

    renamed: Mapping[TableName, TableName] = field(default_factory=dict)
    """Tables that go by another name now. They are still published, and looked for under that name from the next look on."""
    oldest_open: str | None = None
    """The open source transaction that holds the log, as `pid 123, open for 45 s`."""
    oldest_open_s: float = 0.0
    """How long it has been open."""
    copy_retained_bytes: int = 0
    """Log that the slots of copies under way hold back."""


@dataclass(frozen=True, slots=True)
class CatalogAt:
    """What the catalog says of tables, as a mark to compare with others: read behind `position`, so that it has what lies before."""

    position: Lsn
    mark: str


class Resolve(Protocol):
    """`Source.resolve` with one look at the catalog for many records."""

    def __call__(
        self, payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
    ) -> TableSchema: ...


class LogSource(Protocol):
    """The log of a source: where it ends, its stream, and the structures that it announces."""

    def now(self) -> Lsn:
        """A position behind every commit so far, with the log flushed up to it (CORRECTNESS: "Now")."""
        ...

    def current(self) -> Lsn:
        """The log's current end, without writing; for lag only."""
        ...

    def catalog_at(self, tables: Sequence[TableSpec], slot: str, *, now: bool) -> CatalogAt:
        """A position, as `now` or as `current` gives it, and behind it a mark of what the catalog says of these tables, of what is below
        them and of their publications. Equal marks: nothing that a look of `guard` or `describe` would tell was changed in between, but
        what came and went. Tables that no look has met yet are not in it, and change it when one does."""
        ...

    def open_stream(
        self,
        slot: str,
        start: Lsn,
        application: str,
        wake: int | None = None,
        origin: OriginFilter = OriginFilter.ANY,
        last: LastCommit | None = None,
    ) -> LogStream:
        """Start streaming behind `start`: the one way to open a session, and the check for a gap is in it.

        `wake`: a file descriptor; a read that waits ends as soon as it has something to read. `last`: the last transaction up to `start`;
        the session may begin with transactions that end at or before `start`.

        `wal_end` passes transactions that `origin` leaves out like any others. Raises EngineFault(LOG_GAP) where the slot does not hand
        out all that ends behind `start`, ORIGIN_UNSUPPORTED where the source cannot leave them out.
        """
        ...

    def resolve(
        self, payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None
    ) -> TableSchema:
        """The structure that a relation record announces, completed from the catalog.

        `capture`: where it is still in force, and the record announces just what it vouches for, that is the structure.

        Raises EngineFault(TABLE_STRUCTURE_CHANGED) where the record and the catalog cannot be brought together with certainty,
        TABLE_NO_IDENTITY where its updates and deletes cannot be followed any more.
        """
        ...

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        """`resolve` for any of these records, with the catalog as it is now: one look for all of them."""
        ...

    def relation_name(self, payload: bytes) -> TableName: ...


class SnapshotSource(Protocol):
    """Consistent reads of whole tables, for copies and cuts."""

    def snapshot(self, timeout_s: float) -> AbstractContextManager[ExportedSnapshot]:
        """A temporary slot's snapshot and position, for a copy or a cut.

        Raises SOURCE_TIMEOUT when open transactions hold it up, SOURCE_SNAPSHOT_TOO_LARGE when it has no room for all of them.
        """
        ...

    def copy_chunks(self, schema: TableSchema, spec: TableSpec, chunk_bytes: int) -> list[CopyChunk]:
        """Cut a table into parts for parallel tasks; ranges serve only within one exported snapshot."""
        ...

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        chunk_bytes: int,
        most_chunks: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        """At most so many chunks of about `chunk_bytes` along a table's key, behind the place `after`; they serve under any snapshot.

        None where the table has no key whose order is the same here and there, or none to go along cheaply, and where the whole table
        is no larger than `above_bytes`.
        """
        ...

    def read_chunk(self, chunk: CopyChunk, snapshot: str) -> Iterator[bytes]:
        """COPY output in text form, in pieces of whole lines, read under the imported snapshot.

        Raises EngineFault(COPY_LOST) where the snapshot can no longer be imported, TABLE_STRUCTURE_CHANGED where a column of
        the chunk is gone, TABLE_MISSING where the table is, SOURCE_PRIVILEGE where reading is not allowed.
        """
        ...


class ReaderControl(Protocol):
    """What the source keeps for the reader of its log, by the name of that reader: on PostgreSQL a replication slot."""

    def create(self, slot: str) -> AbstractContextManager[ExportedSnapshot]:
        """Create the lasting slot; the snapshot lives as long as the context, the slot stays."""
        ...

    def status(self, slot: str) -> SlotStatus: ...

    def look(self, slot: str) -> GuardReading:
        """One look at the slot and at what holds the log; tables and publications are left alone."""
        ...

    def release(self, slot: str) -> list[str]:
        """Drop the slot and leave the publications; returns what could not be dropped, in words. Safe to repeat."""
        ...

    def remove(self, slot: str) -> list[str]:
        """Drop slot and publications; returns what could not be dropped, in words. The publications stay where the slot does."""
        ...

    def end_other(self, slot: str, application: str) -> bool:
        """End our own older walsender on this slot by pid; SLOT_IN_USE where it is someone else's."""
        ...


class Publications(Protocol):
    """Which tables the source sends: a capability of sources that send nothing else."""

    def prepare(
        self,
        tables: Sequence[TableSpec],
        slot: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        """Create or bring up to date the publications for `tables`, committed before it returns. Safe to repeat.

        `known`: numbers of those that were published before this object was there. One that was renamed since it was looked for stays
        published. Returns what is published now. Raises EngineFault(PUBLICATION_CHANGED) where what is there is not what `earlier` says,
        or lacks a table that was published: in the transaction that changes the publications, so that none of it is hidden by that.
        """
        ...

    def recorded(self, slot: str) -> str | None:
        """Which publications these are, as text that only the source reads: other ones under their names have another. None where one
        is missing."""
        ...

    def withdraw(self, tables: Sequence[TableSpec], slot: str) -> None:
        """Take those of these tables out of the publications that have no replica identity any more: in them, their owner's own
        updates and deletes fail. Their changes are lost from then on. Raises PUBLICATION_CHANGED as `prepare` does."""
        ...

    def unpublished(
        self, tables: Sequence[TableSpec], slot: str, relations: Mapping[TableName, RelationId] | None = None
    ) -> tuple[str, ...]:
        """What of these tables the publications do not send, or not all of it, in words; what else they send does not matter.

        `relations`: the numbers that tables had when they were described. One that was made again since does not matter either.
        """
        ...


class PartitionedTables(Protocol):
    """Tables that consist of others: a capability."""

    def fingerprints(self, tables: Sequence[TableSpec]) -> dict[TableName, str]:
        """What is below those of these tables that are partitioned, as in GuardReading.marks. Nothing counts as looked at by this."""
        ...

    def with_observed(self, mark: str, below: Mapping[RelationId, TableName]) -> str:
        """The mark with these partitions, which the log named and no look has met: a later look tells those that are not there. The same
        text where it has them all."""
        ...

    def roots(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        """Those of these tables that are partitions, each with the table at the top."""
        ...

    def partitions(self, schema: TableSchema, snapshot: str | None = None) -> list[Partition]:
        """Everything below a partitioned table, by name; nothing where it is not one. As of an exported snapshot, or of now.

        Raises EngineFault(COPY_LOST) where the snapshot can no longer be imported.
        """
        ...


class CatalogWatch(Protocol):
    """Changes that only the catalog shows: a capability of sources whose catalog may be changed past the log."""

    def look(self, tables: Sequence[TableSpec], slot: str) -> GuardReading:
        """One look, compared with the look before; the first one with what `remember` handed in, where it did."""
        ...

    def remember(self, marks: Mapping[TableName, str]) -> None:
        """Compare with these marks of an earlier reading, whoever took it, instead of what `prepare` found. Before the first look."""
        ...

    def accept(self, table: TableName, relation: RelationId) -> None:
        """A table that a reading told as replaced is followed as it stands there now: its publication is watched again."""
        ...


class DdlReports(Protocol):
    """DDL that the source reports in its log: a capability."""

    def parse(self, payload: bytes) -> DdlMessage:
        """What a message of the DDL capture says, a record as in MessageSeen. Raises LOG_UNREADABLE where it makes no sense."""
        ...

    def mark(self) -> str:
        """A mark of the DDL capture that all transactions are subject to now, empty where there is none.

        Where two looks see the same one, nothing was changed between them that it did not tell of.
        """
        ...

    def status(self) -> DdlCapture:
        """What is installed to have the source tell its DDL, and what installing and removing it runs. Reads only."""
        ...

    def install(self) -> DdlCapture:
        """Install it, or bring it up to date. Safe to repeat. Raises EngineFault(DDL_CAPTURE_PRIVILEGE) where the user may not."""
        ...

    def uninstall(self) -> DdlCapture:
        """Take it away without trace. Safe to repeat. Raises as `install_ddl_capture`."""
        ...


class TicketWriter(Protocol):
    """Markers in the log: a capability."""

    def write(self, ticket: TicketId) -> TicketWritten:
        """Put a ticket's marker into the log, committed and flushed. It comes through every slot, whatever is published.

        Raises EngineFault(SOURCE_PRIVILEGE) where the source takes no writes, or not from this user.
        """
        ...


class SequenceReader(Protocol):
    """Sequences: a capability."""

    def read(self, tables: Sequence[TableName]) -> list[SourceSequence]:
        """The sequences of these tables' columns as they stand now, by table and column; what they do next is not held up.

        Raises SequencesRefused where the user may not read one.
        """
        ...


class ComputedColumns(Protocol):
    """Generated columns that the log does not carry: a capability of sources that have such."""

    def compute(self, table: TableId, columns: Sequence[Column], inputs: Mapping[int, str], rows: int) -> bytes:
        """Values of generated columns that the log does not carry, for rows of which it did, as COPY text, a line for each.

        `inputs`: by attribute number, every column that their expressions read, as the text of an array of texts. Raises
        EngineFault(TABLE_STRUCTURE_CHANGED), with `table` as its subject, where they cannot be computed so any more.
        """
        ...


class Source(Protocol):
    """A source database as the engine process uses it; methods may be called from several threads.

    All raise EngineFault with a SOURCE_* kind when the database cannot be reached or refuses. What a kind of source does not
    have, it takes from `absent_capabilities`: the engine asks for the capability, never for the kind.
    """

    log: LogSource
    copies: SnapshotSource
    reader: ReaderControl
    publications: Publications
    partitioned: PartitionedTables
    catalog: CatalogWatch
    ddl: DdlReports
    tickets: TicketWriter
    sequences: SequenceReader
    computed: ComputedColumns

    def preflight(
        self, tables: Sequence[TableSpec], slot: str | None, origin: OriginFilter = OriginFilter.ANY
    ) -> list[Finding]:
        """Look for what would keep these tables from being replicated. Reads only."""
        ...

    def discover(self) -> list[DiscoveredTable]:
        """Every table that could be replicated, partitions under their root."""
        ...

    def identify(self) -> SourceIdentity: ...

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        """The current structure of these tables; missing ones are left out, and those whose changes cannot be followed as declared."""
        ...

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        """Under which names these tables stand now; those that are gone are left out."""
        ...

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        """The tables of these schemas that a pattern may take: their changes are logged, and they are no partitions."""
        ...

    def close(self) -> None: ...
