"""The interface of a target: the protocols that it implements, and the values passed through them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from engine.model.batch import TableChanges
from engine.model.copies import StandingCopy
from engine.model.identity import BatchId, Epoch, SubscriptionName, TableId, TableName
from engine.model.lag import Blocker
from engine.model.last_commit import CommitTimes, LastCommit
from engine.model.partitions import LoadReason, Loads, PartitionRows
from engine.model.position import Lsn
from engine.model.quarantine import RefusedCause, RefusedRow, SetAside, Texts
from engine.model.ranges import RangedRows
from engine.model.repair import RepairTarget
from engine.model.schema import Column, TableSchema
from engine.model.sequences import SequenceTarget
from engine.model.shared import SharedInto
from engine.model.subscription import LanePolicy


@dataclass(frozen=True, slots=True)
class TableRecord:
    """The target's record of a table, written in the transactions that change the table."""

    table: TableId
    target: TableName
    schema: TableSchema
    ready: bool
    """True once its rows are complete: copied, and caught up with the log."""
    applied: Lsn
    """Changes up to this position are applied; below the subscription's position if the table is paused or parked."""
    parked: str | None = None
    """Code of the fault that parked it."""
    mark: str | None = None
    """Fingerprint of the table's partitions at the last check (GuardReading.marks); None if unknown."""
    set_aside: int = 0
    """Number of its quarantined rows."""


@dataclass(frozen=True, slots=True)
class TargetProgress:
    """The target's progress record of one subscription."""

    epoch: Epoch
    batch: BatchId
    end: Lsn
    system_id: str
    timeline: int
    reader: str
    tables: Mapping[TableId, TableRecord] = field(default_factory=dict)
    copies: Mapping[TableId, StandingCopy] = field(default_factory=dict)
    """Unfinished copies that can be resumed: every batch up to `end` is applied to them."""
    loads: Mapping[TableId, Loads] = field(default_factory=dict)
    """Last loads of tables and of their partitions."""
    reserved: frozenset[TableId] = frozenset()
    """Tables whose name is reserved on the target, without rows yet."""
    sent_tables: str = ""
    """Identity of the publications, as recorded by `claim` or `rebase`; empty if a version recorded none."""
    last: LastCommit | None = None
    """The last transaction of the log up to `end`; None if the record was written by a version that did not store it."""


@dataclass(frozen=True, slots=True)
class LogStart:
    """Which log a subscription reads, and the position from which on."""

    system_id: str
    timeline: int
    reader: str
    position: Lsn
    sent_tables: str = ""
    """Identity of the tables that the source sends, from Source.sent_tables."""


@dataclass(frozen=True, slots=True)
class PartitionSwap:
    """Replaces the rows of partitions by those of the table's hidden copy, which contains these partitions only."""

    rows: PartitionRows
    changes: Sequence[TableChanges]
    """Changes of these rows since the copy was read; they are applied to the copy first."""
    reasons: Mapping[str, LoadReason]
    """Reason for each partition's load, by name; recorded with its next generation."""
    request: str
    load: str
    """The copy's name, as in `begin_copy`."""


ReadRows = Callable[[Any, Sequence[int]], Any]
"""Reads current rows of a table. Arguments: pyarrow.Table with their keys, k0 … km; positions of columns. Returns a pyarrow.Table with
columns c<position>, in the order of the keys; values have the staged type, or are text as PostgreSQL prints it. Raises
EngineFault(NET_CHANGE_ANOMALY) if a row is missing."""
Compute = Callable[[Sequence[TableChanges], ReadRows], Sequence[TableChanges]]


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One table's share of a batch. Steps are executed in this order: schema, changes, swap."""

    table: TableId
    schema: TableSchema
    """The schema after the batch. The target alters the table to it (columns matched by attnum) before it applies the changes."""
    target: TableName
    changes: Sequence[TableChanges] = ()
    """One element per bucket, with rows as pyarrow.Table."""
    handover: bool = False
    """Apply the changes to the finished copy, then replace the table that readers see by it."""
    parked: str | None = None
    """Only record that the table is parked with this fault code; `changes` is empty."""
    tried: TableCommit | None = None
    """With `parked`: the commit that failed. It is rolled back, but the rows that the target rejects are kept for inspection."""
    resumed: bool = False
    """The changes include everything since the table became stale, so it is complete again."""
    check_key: bool = False
    """With `handover`: raise TABLE_KEY_NOT_UNIQUE if two rows of the copy have the same `schema.key`, or a key contains NULL."""
    set_aside: int = 0
    """Most quarantined rows of the table, including rejected rows of these changes; 0: a rejected row is a fault."""
    aside: bool = False
    """The table has quarantined rows; some of these changes may update them."""
    copy: StandingCopy | None = None
    """Apply the changes to the unfinished copy, which stays unfinished; its state after the batch, to be recorded."""
    compute: Compute | None = field(default=None, compare=False)
    """Adds the values of columns that the log does not contain, within the target's transaction, before the changes are applied."""
    swap: PartitionSwap | None = None
    """After the changes, replace the table's rows of these partitions."""

    @property
    def ordinary(self) -> bool:
        """Whether it changes only the rows, and possibly the schema, of the table that readers see."""
        return not (
            self.handover or self.resumed or self.parked is not None or self.copy is not None or self.swap is not None
        )


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """One target transaction: the changes of all tables and the progress record, atomically."""

    subscription: SubscriptionName
    epoch: Epoch
    batch: BatchId
    end: Lsn
    tables: tuple[TableCommit, ...] = ()
    removed: tuple[TableId, ...] = ()
    dropped: tuple[TableId, ...] = ()
    """The tables of `removed` that are also dropped on the target."""
    stale: tuple[TableId, ...] = ()
    """Tables whose changes are retained outside the target from this batch on; recorded as not ready: a crash makes them need a copy."""
    marks: Mapping[TableId, str | None] = field(default_factory=dict)
    """New fingerprints of tables. Other tables keep theirs, except that a parked or handed-over table without one here loses it."""
    then_parked: Mapping[TableId, str] = field(default_factory=dict)
    """Tables that are recorded as parked with this fault code after their changes, which are applied."""
    left: tuple[TableId, ...] = ()
    """Tables whose unfinished copies are not updated by later batches; recorded, so that they are not resumed after a crash."""
    last: LastCommit | None = None
    """The last transaction of the log up to `end`, recorded with it."""
    times: CommitTimes | None = field(default=None, compare=False)
    """Its transactions, for staging tables, and for a target that updates the progress record after each of them."""
    now_us: int = field(default=0, compare=False)
    """The time in microseconds since 1970 UTC, for rows that a copy shows to be deleted (soft delete)."""


@dataclass(frozen=True, slots=True)
class InOrderPlan:
    """How changes are written in log order: number of connections, and number of source transactions per target transaction."""

    policy: LanePolicy = LanePolicy.PESSIMISTIC
    lanes: int = 1
    group: int = 1


MOST_ROW_BYTES = 64 * 1024 * 1024
"""Largest row in a query's answer."""
BATCH_BYTES = 1 << 20
"""Approximate size of the record batches of an answer; a larger row is a batch of its own."""


class Cancellation:
    """Cancels a query, also before it runs. Any thread may call its methods."""

    def __init__(self) -> None:
        self._changed = threading.Lock()
        self._cancelled = False
        self._stop: Callable[[], None] | None = None

    def cancel(self) -> None:
        with self._changed:
            self._cancelled = True
            if self._stop is not None:
                self._stop()

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    @contextmanager
    def stopping_by(self, stop: Callable[[], None]) -> Iterator[None]:
        """Within the block, `cancel` calls `stop`; at once if the query was cancelled before."""
        with self._changed:
            self._stop = stop
            if self._cancelled:
                stop()
        try:
            yield
        finally:
            with self._changed:
                self._stop = None


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of a query. `max_rows`: further rows are omitted and the answer is marked as truncated; None: no limit; 0: only columns."""

    timeout_s: float
    max_rows: int | None = None
    max_bytes: int | None = None
    """A larger answer ends with `query_too_large`."""
    cancellation: Cancellation = field(default_factory=Cancellation)
    unread: bool = False
    """The caller passes the rows on as they are, so that the target may return them as `QueryAnswer.pipe`."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table that a statement reads, directly or through a shared table, by the target's record in the statement's snapshot."""

    subscription: SubscriptionName
    table: TableId
    target: TableName
    complete: bool
    """Its rows include every change up to the subscription's position."""
    removed: bool = False


JudgeReads = Callable[[Sequence[TableRead]], None]
"""Called with the tables that a statement reads, before it is executed. An exception from it ends the query."""


def any_reads(_: Sequence[TableRead]) -> None:
    """Accepts all tables."""


WIRE_TYPE, WIRE_MODIFIER = b"wire_type", b"wire_modifier"
"""Keys of the metadata of an answer's field: OID and modifier of its type in PostgreSQL's protocol, where the target knows them."""
TARGET_TYPE = b"target_type"
"""Key in the metadata of an answer's field: the column's type as the target names it."""


@dataclass(slots=True)
class QueryAnswer:
    """Rows of a read-only query, as a stream. To be read once, within the `with` block of `Target.query`."""

    schema: Any
    """pyarrow.Schema. Column names need not be unique. The metadata of each field has TARGET_TYPE."""
    position: Lsn
    batches: Iterator[Any]
    """pyarrow.RecordBatch objects of about BATCH_BYTES. The iterator raises QueryRefused if the query fails or reaches a limit."""
    truncated: bool = False
    """There are more rows than `max_rows`. Valid after the end of `batches`."""
    pipe: int | None = None
    """File descriptor of a pipe with the rows as an Arrow IPC stream, valid in the `with` block; complete when `batches` (no rows) ends."""


BoundStatement = tuple[str, Sequence[str | None]]
"""The text of a statement, and the values of its parameters in order."""


@dataclass(frozen=True, slots=True)
class SqlClient:
    """A client of PostgreSQL's protocol, which asks PostgreSQL's catalog too: what that shows of its session."""

    database: str
    user: str
    process: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    """Run-time parameters by their names in lower case."""


class QueryRefused(Exception):
    """The SQL is not exactly one read-only statement, or it failed; the message is the target's. `code` is stable.

    `remedy`: overrides the code's own remedy. `tables`: the tables that caused it.
    """

    def __init__(self, code: str, detail: str, remedy: str | None = None, tables: Sequence[TableId] = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.remedy = remedy
        self.tables = tuple(tables)


class TargetReader(Protocol):
    """A read transaction pinned to one batch boundary."""

    position: Lsn

    def progress(self, subscription: SubscriptionName) -> TargetProgress | None:
        """The subscription's record in this transaction."""
        ...

    def rows(self, record: TableRecord, limits: QueryLimits) -> AbstractContextManager[QueryAnswer]:
        """The rows of a table in this transaction, with the names and types of its columns on the target; without the target's own columns
        but DELETED_AT, without which deleted rows would pass for others.

        One call at a time. Raises QueryRefused, also while rows are read: `query_timeout`, `query_cancelled`, `query_too_large`,
        `query_unavailable` (a batch has to replace or change the table, or the target is being closed).
        """
        ...

    def compare(
        self, record: TableRecord, source: Any, limit: int, rows: PartitionRows | None = None
    ) -> tuple[int, int, list[dict[str, Any]]]:
        """Compare a table, or only its `rows`, with the source's rows at the same position.

        `source`: iterator of pyarrow.RecordBatch with columns c0 … cn as in TableChanges.inserts. Returns (number of source rows, number
        of target rows, at most `limit` differences as `{"key": [...], "kind": "missing" | "extra" | "different"}`, keys as text).
        With a key also `columns` (tuple, names of the columns that differ) and `exact` (tuple, the key as the source prints it).
        """
        ...

    def ranges(
        self, record: TableRecord, columns: Sequence[Column], row_bytes: int, *, part: bool = False
    ) -> AbstractContextManager[RangedRows]:
        """Its rows in ranges of the key `columns`. `row_bytes`: estimated. `part`: keys must sort as on the source. Raises NotByRanges."""
        ...


ENDED = "read_point_ended"
"""Refusal code: a held snapshot cannot be read any more."""
CHANGED = "read_point_table_changed"
"""Refusal code: the target cannot show a table of the statement as of the held snapshot any more."""


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A table of a held snapshot. `complete`: its rows include every change up to the snapshot's position."""

    table: TableId
    target: TableName
    complete: bool


@dataclass(frozen=True, slots=True)
class HeldState:
    """What a held snapshot shows."""

    position: Lsn
    committed_us: int | None
    """Commit time of the last transaction up to `position`: microseconds since 1970 UTC by the source's clock; None if unknown."""
    tables: tuple[HeldTable, ...]


class HeldSnapshot(Protocol):
    """Reads at one batch boundary, in a transaction that stays open until `end`. Any thread may call its methods."""

    subscription: SubscriptionName
    state: HeldState

    def lost(self) -> str | None:
        """Why it cannot be read any more; None while it can. May ask the database."""
        ...

    def kept_bytes(self) -> int:
        """An estimate of what the target keeps for it, in bytes: what was written to the target since. May ask the database."""
        ...

    def query(
        self,
        sql: str,
        limits: QueryLimits,
        judge: JudgeReads = any_reads,
        parameters: Sequence[str | None] = (),
        client: SqlClient | None = None,
    ) -> AbstractContextManager[QueryAnswer]:
        """As `Target.query`, on this snapshot. Raises QueryRefused, also with ENDED and CHANGED."""
        ...

    def end(self, why: str) -> None:
        """End the transaction, and the statements that read in it. Repeatable; the first reason is kept."""
        ...


class SpeculativeTransaction(Protocol):
    """Speculative insert: rows of one open source transaction, in a target transaction separate from those of `commit`.

    Readers do not see the rows before they are committed. Any method may be called from any thread. The target may roll it back at any
    time; only the time spent on it is lost then.
    """

    @property
    def over(self) -> bool:
        """Whether it was committed or rolled back."""
        ...

    @property
    def overdue(self) -> bool:
        """Whether it delays the target's maintenance, and should be rolled back."""
        ...

    def insert(self, table: TableCommit) -> bool:
        """Insert the rows of `changes`, which contain inserts only, into a table that is complete and has exactly this schema.

        False if the transaction has ended, now or before.
        """
        ...

    def commit(self, batch: BatchCommit) -> bool:
        """Commit together with the rest of the batch (inserts only) and its progress, in one durable transaction like Target.commit.

        `batch` names every table that rows were inserted into. False: it was rolled back, and the whole batch must be committed with
        Target.commit. Raises as Target.commit.
        """
        ...

    def roll_back(self) -> None:
        """Roll back, unless it has ended. Waits for a running insert."""
        ...


@dataclass(frozen=True, slots=True)
class CommitRates:
    """Serial commits per second of the target's disk: `low` with full log buffers, `high` with nearly empty ones."""

    low: float
    high: float


class InOrderTarget(Protocol):
    """Optional interface of a target that keeps source transactions. Called from the commit thread."""

    def commit_in_order(self, batch: BatchCommit, way: InOrderPlan) -> int:
        """Write a batch whose tables have `in_order` changes as the source's transactions, in commit order.

        Each target transaction contains `way.group` of them (the last one possibly fewer), and updates the progress record to their end.
        All are durable when it returns. If it raises, a prefix of them is committed; the same call again writes the rest. Not for a batch
        that hands over or resumes a table, or changes a schema.

        Returns the number of transactions repeated because of conflicts between connections. Raises as Target.commit.
        """
        ...

    def commit_rates(self) -> CommitRates:
        """Measure the commit rates; takes some tenths of a second. From any thread."""
        ...


PARTS_FROM_ROWS = 5_000
"""Default of the setting `parts_from_rows`: smaller batches are written over one connection, since each part costs two writes to disk."""


class PartsTarget(Protocol):
    """Optional interface of a target that writes a batch in parts (two-phase commit). Called from the commit thread."""

    def parts_missing(self, lanes: int) -> str | None:
        """Why the database does not allow `lanes` parts, and the remedy; None if it does. From any thread."""
        ...

    def commit_in_parts(self, batch: BatchCommit, lanes: int) -> int:
        """As Target.commit, written by up to `lanes` parallel connections, each of which commits its part.

        Atomic: the progress record decides whether the batch is committed, and after a failure the next commit or claim completes or rolls
        back the prepared parts. Other readers of the database may see some parts before others; `query` and `pin` do not. Returns the
        number of parts; 1 if the batch or the database does not allow more. Raises as Target.commit.
        """
        ...


class Target(RepairTarget, Protocol):
    """A target database. `commit`, copies and DDL are called from one thread at a time; `query` and `pin` from any thread.

    A kind of SQL database brings seven of these methods: `check`, `adopt`, `append_copy`, `commit`, `query`, `pin` and `close`.
    `SqlTarget` of `engine/targets` gives fourteen: `progress`, `claim`, `rebase`, `forget`, `begin_copy`, `finish_copy`,
    `set_aside_of_copy`, `trim_copy`, `discard_copy`, `check_place`, `refused_rows`, `retry_refused`, `skip_refused` and `evolution`. The
    nine with a body say what a target answers that lacks the capability: `tuning`, `commit_blocked`, `in_parts`, `in_order`, `sequences`,
    `begin_speculative_insert`, `hold`, `expect` and `reached`.
    """

    def check(
        self,
        tables: Sequence[TableName],
        existing: Collection[TableName] = (),
        shared: Mapping[TableName, SharedInto] = MappingProxyType({}),
    ) -> list[tuple[str, str, str, str]]:
        """Preflight: (severity, code, what, remedy) per finding. Read-only.

        `existing`: tables that must already exist on the target. `shared`: tables whose rows a shared table includes.
        """
        ...

    def progress(self, subscription: SubscriptionName) -> TargetProgress | None: ...

    def claim(self, subscription: SubscriptionName, epoch: Epoch, log: LogStart) -> None:
        """Create or take over the progress record, and remove leftovers of older epochs except resumable copies. Of `log`, the position is
        recorded only if none was; the rest replaces what was recorded.

        Raises EngineFault: EPOCH_LOST if a higher epoch is recorded, TARGET_FOREIGN if the record belongs to another source.
        """
        ...

    def rebase(self, subscription: SubscriptionName, epoch: Epoch, log: LogStart) -> None:
        """Restart a subscription at another position of the log: tables keep their rows for readers, and are not ready.

        Raises EngineFault(EPOCH_LOST) if another engine has the claim.
        """
        ...

    def forget(self, subscription: SubscriptionName) -> None:
        """Drop the subscription's progress record and unfinished copies, but not its tables."""
        ...

    def adopt(
        self,
        subscription: SubscriptionName,
        table: TableId,
        target: TableName,
        *,
        into_existing: bool = False,
        shared: SharedInto | None = None,
    ) -> None:
        """Reserve a table's name on the target. Called again before each copy, with the declaration of that time.

        `into_existing`: use the existing table, which is never replaced. It must be empty, unless it has rows of this subscription.
        `shared`: the shared table that includes its rows, from the transaction of the copy's hand-over on; its view is defined again in
        each transaction that changes its tables.

        Raises EngineFault: TABLE_NAME_COLLISION if another table has the name, or, without `into_existing`, a table exists that the engine
        did not create; TABLE_UNFIT if the existing table is incompatible; SHARED_TABLE_CONFLICT if the table does not fit into its shared
        table.
        """
        ...

    def begin_copy(
        self,
        subscription: SubscriptionName,
        table: TableId,
        target: TableName,
        schema: TableSchema,
        *,
        keyed: bool = False,
        load: str | None = None,
    ) -> None:
        """Create an empty hidden table for a copy, in place of any unfinished one. `keyed`: batches will change its rows by key.

        `load`: the copy contains rows of partitions only, and only a PartitionSwap with this name may use it.

        Raises EngineFault: TABLE_UNFIT if an existing table is used and its schema is incompatible; SHARED_TABLE_CONFLICT if its columns
        do not fit those of the other tables in its shared table.
        """
        ...

    def append_copy(self, table: TableId, rows: Any) -> int:
        """Append rows (pyarrow.Table, columns c0 … cn) to the hidden table, while batches are committed. Returns the count.

        They are guaranteed to be part of the copy only after `finish_copy`. Raises EngineFault: COPY_FAILED if no such copy is being
        loaded, TABLE_STRUCTURE_CHANGED if the hidden table was changed or dropped meanwhile.
        """
        ...

    def finish_copy(self, table: TableId) -> None:
        """Make all appended rows part of the copy, for the batch that uses it. More rows may be appended later."""
        ...

    def set_aside_of_copy(self, table: TableId, refused: Sequence[tuple[Texts, RefusedCause]], most: int) -> None:
        """Quarantine rows of a copy that their columns cannot hold (texts by column), in a separate transaction.

        Raises EngineFault(TOO_MANY_SET_ASIDE) if more than `most` rows would be quarantined.
        """
        ...

    def trim_copy(self, table: TableId, above: Any) -> int:
        """Delete the rows of the hidden table whose key is above a bound, in a separate transaction. Returns the count.

        `above`: pyarrow.Table of one row with columns k0 … km, the first columns of the key.
        """
        ...

    def discard_copy(self, table: TableId) -> None: ...

    def commit(self, batch: BatchCommit) -> Mapping[TableId, SetAside]:
        """Apply a batch and its progress in one durable transaction; rolled back if it raises.

        Returns the effect on quarantined rows, for tables that have them or may get them.

        Raises EngineFault: TARGET_DISK_FULL, TARGET_UNAVAILABLE, TARGET_FILE_GONE, EPOCH_LOST. A fault of one table has it as `subject`;
        so has TABLE_NOT_DROPPED: the user owns the table, or other objects depend on it, and the batch must be committed without
        dropping it.
        """
        ...

    def expect(self, subscription: SubscriptionName, position: Lsn) -> None:
        """A commit up to `position` is waited for: whatever else the target does is less urgent. From any thread."""
        del subscription, position

    def reached(self, subscription: SubscriptionName, position: Lsn) -> None:
        """Everything up to `position` is visible on the target. From any thread."""
        del subscription, position

    def check_place(self) -> None:
        """Check that committed data is still where readers find it (a database file may have been removed or replaced). Cheap; called
        before each position is reported as applied, and periodically while nothing is committed.

        Raises EngineFault(TARGET_FILE_GONE). After `close`, the next call opens the file that exists then.
        """
        ...

    def refused_rows(self, subscription: SubscriptionName, table: TableId) -> list[RefusedRow]:
        """The stored rejected rows of a table, in the order in which they were rejected. From any thread."""
        ...

    def retry_refused(self, subscription: SubscriptionName, table: TableId, rows: Collection[str] | None) -> list[str]:
        """Insert quarantined rows into the table (all of them if `rows` is None), in one transaction; from any thread.

        Rows that are rejected again stay quarantined with their new cause. Returns the ids of the rows that are in the table now.
        Raises EngineFault(EPOCH_LOST).
        """
        ...

    def skip_refused(
        self, subscription: SubscriptionName, table: TableId, rows: Collection[str] | None, by: str
    ) -> list[str]:
        """Mark quarantined rows as skipped: they stay out of the table. From any thread. Returns the ids of newly skipped rows.

        Raises EngineFault(EPOCH_LOST).
        """
        ...

    def tuning(self) -> Mapping[str, float]:
        """Measured values that the target uses for its decisions, reported with each batch. From any thread."""
        return {}

    def commit_blocked(self) -> Blocker | None:
        """The session of another client that holds a lock for which a commit waits; None if there is none, or if the target has no such
        locks. From any thread, also during a commit."""
        return None

    def evolution(self, table: TableId, target: TableName, old: TableSchema, new: TableSchema) -> list[str]:
        """The statements that change a table from one schema to another, shown to users for approval. Changes nothing.

        Raises EngineFault(TABLE_STRUCTURE_CHANGED) if a new copy is required.
        """
        ...

    def in_parts(self) -> PartsTarget | None:
        """Interface for writing a batch in parts; None if the target cannot."""
        return None

    def in_order(self) -> InOrderTarget | None:
        """Interface for writing source transactions in order; None if the target writes batches only."""
        return None

    def sequences(self) -> SequenceTarget | None:
        """Interface for sequences of columns; None if the target has no sequences."""
        return None

    def begin_speculative_insert(self, subscription: SubscriptionName) -> SpeculativeTransaction | None:
        """Begin a speculative insert; one at a time. None if that is not possible now, or not on this target."""
        return None

    def query(
        self,
        sql: str,
        limits: QueryLimits,
        subscription: SubscriptionName,
        judge: JudgeReads = any_reads,
        parameters: Sequence[str | None] = (),
        client: SqlClient | None = None,
    ) -> AbstractContextManager[QueryAnswer]:
        """Execute exactly one read-only statement at a batch boundary. Raises QueryRefused, also while rows are read. It can read the
        subscription's tables, including removed ones, and the shared tables that include their rows. `judge` may get more tables than the
        statement reads.

        `parameters`: one value for each of $1, $2, …; None is NULL. A value has the meaning of an untyped literal: its type is the one
        that its place in the statement requires. It is never part of the statement's text.

        `client`: answer queries of PostgreSQL's catalog as a PostgreSQL server would.

        The time limit includes reading the rows, so a slow reader is stopped too. At the end of the block the query has ended.
        """
        ...

    def pin(self, subscription: SubscriptionName) -> AbstractContextManager[TargetReader]: ...

    def hold(self, subscription: SubscriptionName, seconds: float) -> HeldSnapshot | None:
        """Keep the present batch boundary open for queries, for about `seconds` at most; the caller ends it. From any thread. None if the
        target cannot. `close` ends all of them.

        Raises QueryRefused(query_unavailable) if the subscription has no record.
        """
        del subscription, seconds
        return None

    def close(self) -> None: ...
