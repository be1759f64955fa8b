"""The interface of a source: the protocols that it implements, and the values that it returns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from engine.model.batch import BlockRef, LogRange, TablePart
from engine.model.change_triggers import ChangeTriggersState, PlannedStatement
from engine.model.copies import KeyBound
from engine.model.cycles import CycleReports, LastCycle
from engine.model.ddl import Capture, DdlCapture, DdlMessage
from engine.model.fault import FaultKind
from engine.model.identity import RelationId, TableId, TableName, TicketId
from engine.model.last_commit import LastCommit
from engine.model.ledger import LogTally
from engine.model.masks import Mask
from engine.model.merged_logs import LogStatus
from engine.model.partitions import Partition
from engine.model.position import Lsn
from engine.model.positions import PositionForm, WholeNumberForm, single_mark
from engine.model.quarantine import Texts
from engine.model.ranges import KeySample, RangeSource
from engine.model.schema import Column, TableSchema
from engine.model.sender import Sender
from engine.model.sequences import SequenceReader
from engine.model.subscription import OriginFilter, TableSpec
from engine.model.ticket import TicketWritten

_ITSELF = RelationId(0)
WHOLE_TABLE = 1 << 62
"""A size of splits that no table reaches."""


class Severity(StrEnum):
    """Severity of a finding: an `error` prevents the subscription from starting."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Earlier(StrEnum):
    """Which existing choice of sent tables `prepare` accepts."""

    ANY = "any"
    """Any: earlier changes do not matter, because all tables are copied afterwards."""
    OURS = "ours"
    """They must exist, and be unchanged by others, because replicated tables depend on them."""
    UNMARKED = "unmarked"
    """As OURS, or created by a version of the engine that did not mark it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a preflight check."""

    severity: Severity
    code: str
    what: str
    remedy: str
    sql: tuple[str, ...] = ()
    """Statements that fix it, for a user with the privileges; empty if the fix requires a decision of the user."""


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
    """Identity of the database. If system identifier or timeline change, positions are not comparable any more. `timelines`: of several
    logs, by name, of which `timeline` is a hash; `read_timelines`: those of the last session, if they are known."""

    system_id: str
    timeline: int
    server_version: int
    timelines: Mapping[str, int] = field(default_factory=dict)
    read_timelines: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceTerms:
    """How positions are shown to users of this kind of source, and what they call the things of every source, as nouns in a sentence."""

    form: PositionForm = field(default_factory=WholeNumberForm)
    database: str = "database"
    """What has a system identifier."""
    history: str = "history"
    """What SourceIdentity.timeline counts."""
    reader: str = "reader"
    """What the source keeps for the reader of its log."""
    sent_tables: str = "sent tables"
    """What chooses the tables that the source sends."""
    logs: tuple[str, ...] = ()
    """Of a source whose log is merged from several: their names, by number."""

    def text(self, position: Lsn) -> str:
        return self.form.text(single_mark(position))


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """What a source keeps for the reader of its log, as it reports it: on PostgreSQL a replication slot. Sizes in bytes."""

    exists: bool
    confirmed: Lsn | None = None
    restart: Lsn | None = None
    active_pid: int | None = None
    retained_bytes: int = 0
    safe_wal_bytes: int | None = None
    lost: str | None = None
    """Why it cannot deliver what follows `confirmed` any more; None if it can."""
    spill_bytes: int = 0
    stream_bytes: int = 0
    sender: Sender | None = None
    """None if nothing is being sent, or the source does not show it."""
    last_cycle: LastCycle | None = None
    """None if the source has no cycles, or none has ended yet."""
    logs: tuple[LogStatus, ...] = ()
    """Of a source with several; empty if they were not asked for."""
    held_since_us: int = 0
    """Commit time of the oldest transaction that was read of one of several logs and waits for others, in µs since 1970; 0 = none."""


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Raw records in arrival order, as read from the log.

    `data`: the concatenated records (numpy uint8); `offsets`: their borders (numpy int32, count + 1). `controls`: numpy array of
    model.control.CONTROL_FIELDS whose `ordinal` counts from 0 within the chunk. `relations`: by such an ordinal, the whole record of each
    relation, DDL message, ticket marker and message about merged logs. `wal_end`: everything committed up to here has been read, including
    this chunk.
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
    """A landing: the result of one append to the queue.

    `controls` (model.control.CONTROL_FIELDS) and `relations` are those of the chunk, with ordinals of the queue. `block` is None
    if only `wal_end` moved, or for the SESSION record that begins a session.
    """

    block: BlockRef | None
    controls: Any
    relations: Mapping[int, bytes]
    wal_end: Lsn


class LogStream(Protocol):
    """One open replication session. Used by one thread of the log reader process."""

    @property
    def verified(self) -> bool:
        """Whether the session was verified to continue the log that was read before. Until then no record after the start is returned, and
        nothing is confirmed."""
        ...

    def read(self, timeout_s: float) -> RecordChunk | None:
        """The next records, at most about 8 MiB; an empty chunk if only `wal_end` moved; None at the timeout, or when `wake` is readable.

        Keepalives are answered independently of the caller, who may take some seconds between calls.
        Raises EngineFault: SOURCE_UNREACHABLE if the connection is lost, PUBLICATION_CHANGED on a notice of the server, LOG_GAP if the
        log is not the one that was read up to the start.
        """
        ...

    def confirm(self, durable: Lsn) -> None:
        """Confirm that the source may release its log up to `durable`. Never decreases; nothing is confirmed before the first call."""
        ...

    def ask_position(self) -> None:
        """Ask the source for a keepalive at once, so that `wal_end` moves on an idle source."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ScannedChanges:
    """Changes found by a scan over `ranges`, in commit order; numpy arrays of equal length, one entry per row change or truncate.

    `op`: 1 insert, 2 update, 3 delete, 4 truncate. `relation`: OID. `version`: number of relation records of this relation before it in
    the scan. `new`, `old`: offset in `data` of the tuple (of its column count), -1 if absent. `old_kind`: 0 none, 1 key only, 2 full row.
    `end`, `time_us`: end LSN of its transaction, and its commit time in microseconds since 1970 UTC (0 = not committed yet).
    """

    data: Any
    op: Any
    relation: Any
    version: Any
    new: Any
    old: Any
    old_kind: Any
    end: Any
    time_us: Any
    xids: frozenset[int] = frozenset()
    """(Sub)transactions that wrote rows in streamed ranges."""
    tally: LogTally | None = None
    """What the ranges hold by table, counted apart from the changes."""


class Scanner(Protocol):
    """Offset-only scan of raw records of one log format; pure."""

    def scan(
        self, data: Any, offsets: Any, first: Any, ranges: Sequence[LogRange], parts: Sequence[TablePart]
    ) -> ScannedChanges:
        """Find the changes of `parts` in commit order.

        `data`: uint8, the concatenated records of all blocks; `offsets`: int64 borders (count + 1); `first`: int64, the ordinal of each
        record. `ranges` are ordinals. Records of an aborted subtransaction are skipped, except relation records.
        """
        ...


@dataclass(frozen=True, slots=True)
class ExportedSnapshot:
    """A snapshot that other sessions can import while the session that exported it lives, and the snapshot's position."""

    name: str
    position: Lsn


@dataclass(frozen=True, slots=True)
class TableSplit:
    """A part of a table, read by one task: SQL that selects the schema's columns in order, to be read as COPY text."""

    relation: RelationId
    sql: str
    bytes_estimate: int
    rows_estimate: int
    storage: RelationId = _ITSELF
    """OID of the table that stores the rows: a partition; 0 = `relation` itself."""
    reads: TableName | None = None
    columns: tuple[tuple[int, str], ...] = ()
    """`reads`, `columns`: the names in `sql`: of the table that stores the rows, and of the columns by attribute number in `relation`."""
    masks: tuple[tuple[int, Mask], ...] = ()
    """Masks by place in `columns`. The SQL selects the values unmasked; `read_split` masks them."""
    node: str = ""
    """Name of the node that has the rows, whose numbers the others are; empty: the source is one database."""


@dataclass(frozen=True, slots=True)
class KeyedSplit:
    """A split with the rows after the previous split, up to and including the key `upto`; None = all remaining rows."""

    split: TableSplit
    upto: KeyBound | None


@dataclass(frozen=True, slots=True)
class KeyWalk:
    """The next splits along a table's key, and the estimated size of the whole table; 0 rows if the source has no statistics."""

    splits: tuple[KeyedSplit, ...]
    table_bytes: int
    table_rows: int = 0


@dataclass(frozen=True, slots=True)
class PartitionRewrite:
    """Partitions of a root have new storage, or are new and may have been attached with rows; nothing else changed.

    No fault if the log contains each writer's TRUNCATE of the root, and a DDL message that each new partition was created as a partition.

    `root`: OID in TRUNCATE records. `writers`: the (sub)transactions that created the new storage. `attached`: the new partitions.
    `seen_by`: all of them committed at or before this position, so the log up to it contains these records, if they exist.
    """

    root: RelationId
    writers: frozenset[int]
    seen_by: Lsn
    attached: frozenset[RelationId] = frozenset()


@dataclass(frozen=True, slots=True)
class GuardReading:
    """Result of one check of the source: reader, sent tables and partitions."""

    reader: ReaderStatus
    sending_faults: tuple[str, ...] = ()
    partition_faults: Mapping[TableName, str] = field(default_factory=dict)
    partition_rewrites: Mapping[TableName, PartitionRewrite] = field(default_factory=dict)
    """Partition faults that are cleared if the log contains a matching TRUNCATE or ATTACH."""
    replaced: Mapping[TableName, RelationId] = field(default_factory=dict)
    """Partition faults for tables that were dropped or created again, with the OID that has the name now; 0 = none."""
    marks: Mapping[TableName, str] = field(default_factory=dict)
    """Fingerprints of partitioned tables: the state of their partitions as text that only the source interprets (see `remember`)."""
    below: Mapping[TableName, frozenset[RelationId]] = field(default_factory=dict)
    """The current partitions of these tables."""
    left: Mapping[TableName, Mapping[RelationId, Lsn]] = field(default_factory=dict)
    """Former partitions of these tables, with the log's end after the check that found each of them missing."""

    def has_met(self, table: TableName, part: RelationId, end: Lsn) -> bool:
        """Whether checks have seen this partition of the table, which the log names up to `end`."""
        left = self.left.get(table, {}).get(part)
        return part in self.below.get(table, frozenset()) or (left is not None and end <= left)

    sent_otherwise: Mapping[TableName, FaultKind] = field(default_factory=dict)
    """The tables of `partition_faults` of which something else is sent than before."""
    renamed: Mapping[TableName, TableName] = field(default_factory=dict)
    """Renamed tables, old name to new name. They are still published, and checked under the new name from now on."""
    oldest_open: str | None = None
    """The open source transaction that causes retained log, as `pid 123, open for 45 s`."""
    oldest_open_s: float = 0.0
    """Its age in seconds."""
    oldest_open_statement: str = ""
    """Its last statement, redacted."""
    copy_retained_bytes: int = 0
    """Log retained by running copies, in bytes."""


@dataclass(frozen=True, slots=True)
class CatalogAt:
    """Fingerprint of tables in the catalog. It was read after `position`, so it includes every change committed before that."""

    position: Lsn
    mark: str


class Resolve(Protocol):
    """`Source.resolve` with one read of the catalog for many records."""

    def __call__(
        self, payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None, /
    ) -> TableSchema: ...


class LogSource(Protocol):
    """The log of a source: its end, its stream, and the schemas that it announces."""

    def now(self) -> Lsn:
        """A position after every commit so far, with the log flushed up to it."""
        ...

    def current(self) -> Lsn:
        """The current end of the log, without a write; for measuring lag only."""
        ...

    def catalog_at(self, tables: Sequence[TableSpec], reader: str, *, now: bool) -> CatalogAt:
        """A position from `now` (if `now`) or `current`, and then a fingerprint of these tables, their partitions and what sends them in
        the catalog. Equal fingerprints: between them nothing changed that `guard` or `describe` would report, except what was changed and
        restored. Tables that no check has seen are not included; the fingerprint changes when one has."""
        ...

    def open_stream(
        self,
        reader: str,
        start: Lsn,
        application: str,
        wake: int | None = None,
        origin: OriginFilter = OriginFilter.ANY,
        last: LastCommit | None = None,
    ) -> LogStream:
        """Start streaming after `start`. The only way to open a session; it includes the check for a gap.

        `wake`: a file descriptor; a waiting read ends when it becomes readable. `last`: the last transaction up to `start`; the session may
        begin with transactions that end at or before `start`.

        `wal_end` also passes transactions that `origin` filters out. Raises EngineFault: LOG_GAP if the slot cannot deliver everything
        that ends after `start`, ORIGIN_UNSUPPORTED if the source cannot filter by origin.
        """
        ...

    def resolve(
        self, payload: bytes, spec: TableSpec, known: TableSchema | None, capture: Capture | None = None
    ) -> TableSchema:
        """The schema that a relation record announces, completed from the catalog.

        `capture`: if the DDL capture is still in force, and the record announces exactly the schema that it certifies, that one is used.

        Raises EngineFault: TABLE_STRUCTURE_CHANGED if record and catalog cannot be matched with certainty, TABLE_NO_IDENTITY if updates
        and deletes cannot be replicated any more.
        """
        ...

    def resolver(self, payloads: Collection[bytes]) -> Resolve:
        """A function like `resolve` for these records, with one read of the catalog for all of them."""
        ...

    def relation_name(self, payload: bytes) -> TableName: ...


class SnapshotSource(Protocol):
    """Consistent reads of whole tables, for copies and cuts."""

    def snapshot(self, timeout_s: float) -> AbstractContextManager[ExportedSnapshot]:
        """A snapshot and its position, for a copy or a cut.

        Raises SOURCE_TIMEOUT if open transactions delay it, SOURCE_SNAPSHOT_TOO_LARGE if there are more of them than it can hold.
        """
        ...

    def splits(self, schema: TableSchema, spec: TableSpec, split_bytes: int) -> list[TableSplit]:
        """Cut a table into splits for parallel tasks; they are valid under one exported snapshot only."""
        ...

    def key_splits(self, schema: TableSchema, spec: TableSpec, keys: Sequence[Texts]) -> list[TableSplit]:
        """As `splits`, with at least the rows that have these keys, as texts in key order. There may be other rows in them."""
        ...

    def walk_key(
        self,
        schema: TableSchema,
        after: KeyBound | None,
        split_bytes: int,
        most_splits: int,
        above_bytes: int | None = None,
    ) -> KeyWalk | None:
        """At most `most_splits` splits of about `split_bytes` along a table's key, after the bound `after`. Valid under any snapshot.

        None if the table has no key that sorts equally in the engine and on the source, or no index over it, or if the whole table is not
        larger than `above_bytes`.
        """
        ...

    def sample_key(self, schema: TableSchema, share: float, seed: str) -> KeySample | None:
        """Ranges of keys with about this share (above 0, below 1) of a table's rows, chosen at random: the same ones for the same seed, as
        long as the table does not change. The first and the last range, which are open, are always among them. Valid under any snapshot.

        Only parts of the index and single blocks of the table are read. None as of `walk_key`. Raises as `walk_key`.
        """
        ...

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        """COPY text, in pieces of whole lines, read under the imported snapshot.

        Raises EngineFault: COPY_LOST if the snapshot can no longer be imported, TABLE_STRUCTURE_CHANGED if a column of the split was
        dropped, TABLE_MISSING if the table was, SOURCE_PRIVILEGE if the user may not read it.
        """
        ...

    def ranges(self, schema: TableSchema) -> RangeSource:
        """Digests of a table's key ranges, for a comparison. Raises NotByRanges if the source cannot compute them for this table."""
        ...


class ReaderControl(Protocol):
    """The state that the source keeps for the reader of its log, by the reader's name; on PostgreSQL a replication slot."""

    def create(self, reader: str) -> AbstractContextManager[ExportedSnapshot]:
        """Create the reader. Its exported snapshot ends with the context, the reader stays."""
        ...

    def status(self, reader: str) -> ReaderStatus: ...

    def release(self, reader: str) -> list[str]:
        """Drop the reader but not the choice of sent tables; returns what could not be dropped, as text. Idempotent."""
        ...

    def remove(self, reader: str) -> list[str]:
        """Drop the reader and the choice of sent tables; returns what could not be dropped, as text. If the reader stays,
        so does the choice."""
        ...

    def end_other(self, reader: str, application: str) -> bool:
        """End the engine's own older session of this reader. Raises SLOT_IN_USE if another client uses the reader."""
        ...


class SentTables(Protocol):
    """Which tables the source sends: a capability of sources that send nothing else."""

    @property
    def traced(self) -> bool:
        """Whether a later run finds any change of the choice by others, even a reverted one, for tables whose copy is unfinished too."""
        ...

    def prepare(
        self,
        tables: Sequence[TableSpec],
        reader: str,
        known: Collection[RelationId] = (),
        earlier: Earlier = Earlier.ANY,
    ) -> frozenset[RelationId]:
        """Create or update the choice of sent tables for `tables`; committed when it returns. Idempotent.

        `known`: numbers of the tables sent before this object was created; one of them that was renamed stays published. Returns the
        OIDs that are published now. Raises EngineFault(PUBLICATION_CHANGED) if the existing choice does not meet `earlier`, or lack a
        table that was published; this is checked in the transaction that changes them, so that the change cannot hide it.
        """
        ...

    def recorded(self, reader: str) -> str | None:
        """Identity of the choice of sent tables, as text that only the source interprets; it changes if a part of it is dropped
        and created again. None if a part is missing."""
        ...

    def withdraw(self, tables: Sequence[TableSpec], reader: str) -> None:
        """Remove the tables that have no replica identity any more from the publications, because UPDATE and DELETE on them would fail.
        Their changes are lost from then on. Raises PUBLICATION_CHANGED as `prepare`."""
        ...

    def unpublished(
        self, tables: Sequence[TableSpec], reader: str, relations: Mapping[TableName, RelationId] | None = None
    ) -> tuple[str, ...]:
        """Which of these tables are not published, or only in part, as text. Other published tables are ignored.

        `relations`: OIDs of the tables when they were described; tables created again since are ignored.
        """
        ...


class PartitionedTables(Protocol):
    """Capability: partitioned tables."""

    def fingerprints(self, tables: Sequence[TableSpec]) -> dict[TableName, str]:
        """Fingerprints as in GuardReading.marks, of those of the given tables that have one. Does not count as a check of them."""
        ...

    def with_observed(self, mark: str, below: Mapping[RelationId, TableName]) -> str:
        """The fingerprint with these partitions added, which only relation records named: a later check reports those that do not exist.
        The same text if it contains all of them."""
        ...

    def roots(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        """The root table of each of these tables that is a partition."""
        ...

    def partitions(self, schema: TableSchema, snapshot: str | None = None) -> list[Partition]:
        """All partitions of a table, ordered by name; empty if it is not partitioned. `snapshot`: an exported one; None = now.

        Raises EngineFault(COPY_LOST) if the snapshot can no longer be imported.
        """
        ...


class SourceSafety(Protocol):
    """What the log of a source does not show: the log that it retains for a reader, and changes that were made past its log.

    `engine.safety` compares the checks and decides. A source whose log announces everything has the first part only
    (`absent_capabilities.LogAnnouncesAll`).
    """

    def check_reader(self, reader: str) -> GuardReading:
        """Check the reader and the causes of the retained log only, not the tables, nor which of them the source sends."""
        ...

    def check(self, tables: Sequence[TableSpec], reader: str) -> GuardReading:
        """One check, compared with the previous one; the first one with the fingerprints of `remember`, if any."""
        ...

    def remember(self, marks: Mapping[TableName, str]) -> None:
        """Set the fingerprints that the first check is compared with, instead of the state at `prepare`. To be called before it."""
        ...

    def accept(self, table: TableName, relation: RelationId) -> None:
        """Accept `relation` as the table that replaced a reported one: it is checked from now on, its publication included."""
        ...


class DdlReports(Protocol):
    """Capability: DDL messages in the source's log."""

    def parse(self, payload: bytes) -> DdlMessage:
        """Parse a DDL message, a record as in MessageSeen. Raises EngineFault(LOG_UNREADABLE) if it cannot be parsed."""
        ...

    def mark(self) -> str:
        """Mark of the DDL capture if it is in force for all open transactions, else empty.

        If two calls return the same mark, the log contains a DDL message for every DDL command between them.
        """
        ...

    def status(self) -> DdlCapture:
        """State of the DDL capture on the source, and the statements that install and remove it. Read-only."""
        ...

    def install(self) -> DdlCapture:
        """Install or upgrade the DDL capture. Idempotent. Raises EngineFault(DDL_CAPTURE_PRIVILEGE) if the user lacks the privilege,
        NOT_WITH_THIS_CAPTURE if the source cannot report DDL."""
        ...

    def uninstall(self) -> DdlCapture:
        """Remove the DDL capture completely. Idempotent. Raises as `install_ddl_capture`."""
        ...


class ChangeTriggers(Protocol):
    """Capability: triggers that record changes. Raises EngineFault: CHANGE_TRIGGERS_PRIVILEGE if the user lacks a right, CHANGE_LOG_FOREIGN
    if others own what is there, NOT_WITH_THIS_CAPTURE if the source has none."""

    def status(self) -> ChangeTriggersState: ...

    def plan(self, tables: Sequence[TableName]) -> tuple[PlannedStatement, ...]:
        """The statements that `install` would run; none if everything is current. Without `tables`: for those with triggers. Raises
        TABLE_MISSING, TABLE_NOT_LOGGED."""
        ...

    def grants(self) -> tuple[str, ...]:
        """The statements with which another owner of what is installed lets the connection's user read it."""
        ...

    def install(self, tables: Sequence[TableName]) -> ChangeTriggersState:
        """Run the statements of `plan`. Idempotent."""
        ...

    def remove(self) -> ChangeTriggersState:
        """Remove every part that exists. Idempotent. Raises CHANGE_TRIGGERS_IN_USE, with the readers named, if any reader needs it."""
        ...


class TicketWriter(Protocol):
    """Capability: markers in the source's log."""

    def write(self, ticket: TicketId) -> TicketWritten | None:
        """Write a ticket's marker to the log, committed and flushed. Every slot delivers it, independently of publications.

        None: only the log reader that runs now writes the marker, if there is one, and later readers do not know of it. So the ticket is
        written again after each start of a reader, until its marker is read. Raises EngineFault(SOURCE_PRIVILEGE) if the source is
        read-only, or the user may not write."""
        ...


class ComputedColumns(Protocol):
    """Capability: generated columns that the log does not contain."""

    def compute(self, table: TableId, columns: Sequence[Column], inputs: Mapping[int, str], rows: int) -> bytes:
        """Compute generated columns that the log does not contain. Returns COPY text, one line per row.

        `inputs`: by attribute number, each column that the expressions read, as the text form of a text[] with one element per row.
        Raises EngineFault(TABLE_STRUCTURE_CHANGED), with `table` as its subject, if they cannot be computed any more.
        """
        ...


class Source(Protocol):
    """A source database, as the engine uses it. Methods may be called from several threads.

    All methods raise EngineFault with a SOURCE_* kind if the database cannot be reached or rejects the request. A kind of source takes
    the capabilities that it lacks from `absent_capabilities`; the engine never depends on the kind.
    """

    terms: SourceTerms
    log: LogSource
    copies: SnapshotSource
    reader: ReaderControl
    sent_tables: SentTables
    partitioned: PartitionedTables
    safety: SourceSafety
    ddl: DdlReports
    triggers: ChangeTriggers
    tickets: TicketWriter
    sequences: SequenceReader
    computed: ComputedColumns
    cycles: CycleReports

    def preflight(
        self, tables: Sequence[TableSpec], reader: str | None, origin: OriginFilter = OriginFilter.ANY
    ) -> list[Finding]:
        """Find what prevents these tables from being replicated. Read-only."""
        ...

    def discover(self) -> list[DiscoveredTable]:
        """Every table that can be replicated; partitions are listed under their root."""
        ...

    def identify(self) -> SourceIdentity: ...

    def describe(self, tables: Sequence[TableSpec]) -> dict[TableName, TableSchema]:
        """The current schemas of these tables, without columns that their selections leave out. Missing tables are left out, and those
        whose changes cannot be replicated as declared."""
        ...

    def names(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        """The current names of these tables; dropped ones are left out."""
        ...

    def standing(self, schemas: Collection[str]) -> dict[RelationId, TableName]:
        """The tables of these schemas that a pattern can match: logged, and not partitions."""
        ...

    def close(self) -> None: ...
