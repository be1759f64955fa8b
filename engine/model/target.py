"""What the engine needs of a target: the protocol, and the values that pass over it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from engine.model.batch import TableChanges
from engine.model.copies import StandingCopy
from engine.model.identity import BatchId, Epoch, SubscriptionName, TableId, TableName
from engine.model.last_commit import CommitTimes, LastCommit
from engine.model.partitions import LoadReason, Loads, PartitionRows
from engine.model.position import Lsn
from engine.model.quarantine import RefusedCause, RefusedRow, SetAside, Texts
from engine.model.schema import KeyMode, TableSchema
from engine.model.sequences import SequenceTarget
from engine.model.shared import SharedInto
from engine.model.subscription import LanePolicy


@dataclass(frozen=True, slots=True)
class TableRecord:
    """What the target itself remembers of a table, written in the transactions that change it."""

    table: TableId
    target: TableName
    schema: TableSchema
    ready: bool
    """True once its rows are complete: copied and caught up."""
    applied: Lsn
    """Changes up to here are in it; less than the subscription's where the table is paused or parked."""
    parked: str | None = None
    """Code of the fault that parked it."""
    mark: str | None = None
    """What the source showed below the table when it was last looked at (GuardReading.marks); None where that is not known."""
    set_aside: int = 0
    """Rows of it that stand aside, since the target did not take them."""


@dataclass(frozen=True, slots=True)
class TargetProgress:
    """The target's progress record of one subscription."""

    epoch: Epoch
    batch: BatchId
    end: Lsn
    system_id: str
    timeline: int
    slot: str
    tables: Mapping[TableId, TableRecord] = field(default_factory=dict)
    copies: Mapping[TableId, StandingCopy] = field(default_factory=dict)
    """Copies that are not complete and can go on: every batch up to `end` is in them."""
    loads: Mapping[TableId, Loads] = field(default_factory=dict)
    """When the rows of tables and of partitions were loaded last."""
    reserved: frozenset[TableId] = frozenset()
    """Tables that have a name there and nothing else yet."""
    publications: str = ""
    """As `claim` or `rebase` recorded them; empty where that was a version that did not."""
    last: LastCommit | None = None
    """The last transaction of the log up to `end`; None where a version wrote the record that did not note it."""


@dataclass(frozen=True, slots=True)
class PartitionSwap:
    """Rows of partitions that take the place of those there: from the table's hidden copy, which holds them and nothing else."""

    rows: PartitionRows
    changes: Sequence[TableChanges]
    """What concerns these rows and has come since the copy was read; the copy gets it first."""
    reasons: Mapping[str, LoadReason]
    """Why each of the partitions was loaded, by name: recorded with its next generation."""
    request: str
    load: str
    """The copy's name, as in `begin_copy`."""


ReadRows = Callable[[Any, Sequence[int]], Any]
"""What rows of a table hold now: of a pyarrow.Table with their keys, k0 … km, and positions of columns, a pyarrow.Table of those as
c<position>, in the order of the keys; typed as they are staged, or the text that PostgreSQL prints. Raises
EngineFault(NET_CHANGE_ANOMALY) where a row is not there."""
Compute = Callable[[Sequence[TableChanges], ReadRows], Sequence[TableChanges]]


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One table's share of a batch. Steps run in this order: structure, changes, swap."""

    table: TableId
    schema: TableSchema
    """The structure after the batch; the target brings the table to it (columns matched by attnum) before the changes."""
    target: TableName
    changes: Sequence[TableChanges] = ()
    """One per bucket, rows as pyarrow.Table."""
    handover: bool = False
    """Apply to the copy that was being loaded, then put it in the place of the table that readers see."""
    parked: str | None = None
    """Record only that the table is parked with this fault code; changes are empty."""
    tried: TableCommit | None = None
    """With `parked`: what the table parks over. Nothing of it stays, but the rows that the target refuses are kept to be looked at."""
    resumed: bool = False
    """The changes include everything since the table became stale: it counts as complete again."""
    check_key: bool = False
    """With `handover`: refuse the copy with TABLE_KEY_NOT_UNIQUE where two rows have the same `schema.key`, or one has a NULL in it."""
    set_aside: int = 0
    """So many rows of the table may stand aside, refused ones of these changes among them; 0: a refused row is a fault."""
    aside: bool = False
    """Some rows of it stand aside. The changes may be of them."""
    copy: StandingCopy | None = None
    """Apply to the copy that is being loaded, which goes on being that; this is recorded of it behind the batch."""
    compute: Compute | None = field(default=None, compare=False)
    """Gives the changes the values of columns that are not in the log, inside the target's transaction, before they are applied."""
    swap: PartitionSwap | None = None
    """Behind the changes, put these rows into the place of those that the table has of the same partitions."""

    @property
    def ordinary(self) -> bool:
        """Whether nothing but rows, and maybe the structure, of the table that readers see is changed."""
        return not (
            self.handover or self.resumed or self.parked is not None or self.copy is not None or self.swap is not None
        )


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """One target transaction: all tables' changes and the progress record, or nothing."""

    subscription: SubscriptionName
    epoch: Epoch
    batch: BatchId
    end: Lsn
    tables: tuple[TableCommit, ...] = ()
    removed: tuple[TableId, ...] = ()
    dropped: tuple[TableId, ...] = ()
    """Those of `removed` whose tables on the target go with them."""
    stale: tuple[TableId, ...] = ()
    """Tables whose changes are kept elsewhere from this batch on; recorded as not ready, so that a crash makes them copied anew."""
    marks: Mapping[TableId, str | None] = field(default_factory=dict)
    """New marks of tables. Others keep theirs, but a table that is parked or handed over loses it where none is given here."""
    left: tuple[TableId, ...] = ()
    """Tables whose unfinished copies later batches leave out; recorded, so that after a crash they do not go on."""
    last: LastCommit | None = None
    """The last transaction of the log up to `end`, recorded with it."""
    times: CommitTimes | None = field(default=None, compare=False)
    """Of its transactions, for a target that moves the progress record behind each of them."""


@dataclass(frozen=True, slots=True)
class InOrder:
    """How changes in the order of the log are written: over how many connections, and how many source transactions in one."""

    policy: LanePolicy = LanePolicy.PESSIMISTIC
    lanes: int = 1
    group: int = 1


MOST_ROW_BYTES = 64 * 1024 * 1024
"""The largest row that a query may answer with."""
BATCH_BYTES = 1 << 20
"""About the size of the pieces that an answer comes in; a larger row is a piece of its own."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """How far a query may go. `max_rows`: more are left out, and the answer says so; None: none are."""

    timeout_s: float
    max_rows: int | None = None
    max_bytes: int | None = None
    """A larger answer ends with `query_too_large`."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table whose rows a statement reads, itself or through a shared table, as the target's record has it in the statement's snapshot."""

    subscription: SubscriptionName
    table: TableId
    target: TableName
    complete: bool
    """Every change up to the subscription's position is in its rows."""
    removed: bool = False


JudgeReads = Callable[[Sequence[TableRead]], None]
"""Called with the tables that a statement reads, before it runs. What it raises ends the query."""


def any_reads(_: Sequence[TableRead]) -> None:
    """Whatever the tables are."""


@dataclass(slots=True)
class QueryAnswer:
    """Rows of a read-only query, as they come. They are to be taken once, and within the `with` block of `Target.query`."""

    schema: Any
    """pyarrow.Schema. Names of columns may occur more than once."""
    position: Lsn
    batches: Iterator[Any]
    """pyarrow.RecordBatch of about BATCH_BYTES. Raises QueryRefused where the query fails, or reaches a limit, later on."""
    truncated: bool = False
    """More rows than `max_rows` exist. Known at the end of `batches`."""


class QueryRefused(Exception):
    """The SQL is not exactly one read, or failed; the message says why in the target's words. `code` is stable.

    `remedy`: where it is not the one that the code has. `tables`: those that are to blame.
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

    def compare(
        self, record: TableRecord, source: Any, limit: int, rows: PartitionRows | None = None
    ) -> tuple[int, int, list[dict[str, Any]]]:
        """Compare a table, or those `rows` of it alone, with the source's rows at the same position.

        `source`: iterator of pyarrow.RecordBatch with columns c0 … cn as in TableChanges.inserts. Returns (source rows, target
        rows, at most `limit` differences as `{"key": [...], "kind": "missing" | "extra" | "different"}`, keys as text).
        """
        ...


class SpeculativeTransaction(Protocol):
    """Rows of one source transaction that is still open, in a target transaction of their own beside those of `commit`.

    Nobody sees them before they are committed. Any method may be called from any thread. It may end by itself, whenever the target
    cannot keep it or needs it gone; nothing of it stays then, and all that is lost is the time it took.
    """

    @property
    def over(self) -> bool:
        """It ended, one way or the other."""
        ...

    @property
    def overdue(self) -> bool:
        """It has come to hold up the target's housekeeping: time to roll it back."""
        ...

    def insert(self, table: TableCommit) -> bool:
        """Insert the rows of `changes`, which hold inserts only, into a table that stands complete with just this structure.

        False where it is over: now, or before.
        """
        ...

    def commit(self, batch: BatchCommit) -> bool:
        """Commit with the rest of the batch, inserts only, and its progress: durable and one transaction, as Target.commit.

        `batch` names every table that rows were inserted into. False: nothing of it stays, and the whole batch is to be committed
        the other way. Raises as Target.commit.
        """
        ...

    def roll_back(self) -> None:
        """End it, where it has not ended. Waits for an insert under way."""
        ...


@dataclass(frozen=True, slots=True)
class CommitRates:
    """Commits a second that the target's disk takes, one at a time: `low` of full log buffers, `high` of next to nothing."""

    low: float
    high: float


class InOrderTarget(Protocol):
    """Writes source transactions as such. From the thread that commits batches."""

    def commit_in_order(self, batch: BatchCommit, way: InOrder) -> int:
        """Write a batch whose tables hold changes `in_order` as the source's transactions, in the order of their commits.

        Each target transaction holds `way.group` of them, the last one maybe fewer, and moves the progress record to where they end.
        All are durable when this returns. Where it raises, a beginning of them stays; the same call again writes the others. A batch
        that hands a table over, resumes one or changes a structure cannot be written so.

        Returns how often transactions had to be done again because connections hindered each other. Raises as Target.commit.
        """
        ...

    def commit_rates(self) -> CommitRates:
        """Measure, for some tenths of a second. From any thread."""
        ...


PARTS_FROM_ROWS = 5_000
"""Batches with fewer net rows are written over one connection where nobody says otherwise: each part costs two writes to disk."""


class PartsTarget(Protocol):
    """Writes a batch in parts. From the thread that commits batches."""

    def parts_missing(self, lanes: int) -> str | None:
        """Why the database does not allow for so many parts, and what to do; None where it does. From any thread."""
        ...

    def commit_in_parts(self, batch: BatchCommit, lanes: int) -> int:
        """As Target.commit, written by up to so many connections beside each other, each of which commits its part by itself.

        Everything counts, or nothing: whether it does is decided with the progress record, and what a failure leaves open is brought
        to its end by the next commit or claim. Only other readers of the database see some parts before others; `query` and `pin`
        do not. Returns the number of parts; 1 where the batch, or the database, does not allow for more. Raises as Target.commit.
        """
        ...


class Target(Protocol):
    """A target database. `commit`, copies and DDL come from one thread at a time; `query` and `pin` from any thread."""

    def check(
        self,
        tables: Sequence[TableName],
        existing: Collection[TableName] = (),
        shared: Mapping[TableName, SharedInto] = MappingProxyType({}),
    ) -> list[tuple[str, str, str, str]]:
        """Preflight: (severity, code, what, remedy) per finding; reads only.

        `existing`: those that are to stand there already. `shared`: those of which a shared table is to show the rows.
        """
        ...

    def progress(self, subscription: SubscriptionName) -> TargetProgress | None: ...

    def claim(
        self,
        subscription: SubscriptionName,
        epoch: Epoch,
        system_id: str,
        timeline: int,
        slot: str,
        start: Lsn,
        publications: str = "",
    ) -> None:
        """Create or take over the progress record and sweep leftovers of older epochs, but for copies that can go on. `publications`, as
        the source names them, are recorded in place of those before.

        Raises EngineFault(EPOCH_LOST) where a higher epoch is recorded, TARGET_FOREIGN where the record is of another source.
        """
        ...

    def rebase(
        self,
        subscription: SubscriptionName,
        epoch: Epoch,
        system_id: str,
        timeline: int,
        slot: str,
        start: Lsn,
        publications: str = "",
    ) -> None:
        """Begin a subscription again from another place in the log: tables keep their rows for readers and count as not ready.
        `publications`: as in `claim`.

        Raises EngineFault(EPOCH_LOST) where the claim is another engine's.
        """
        ...

    def forget(self, subscription: SubscriptionName) -> None:
        """Drop the subscription's record and unfinished copies; its tables stay."""
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
        """Reserve a table's name on the target. Again before each copy, with what is declared by then.

        `into_existing`: the table that its owner made there takes the rows, and is never replaced by another one. It has to be
        empty, unless rows of this subscription are in it from before. `shared`: the shared table that shows its rows too, from the
        transaction on in which a copy takes its place; it is defined anew in each transaction that changes what it shows.

        Raises EngineFault(TABLE_NAME_COLLISION) where another table has the name, or, without `into_existing`, a table stands
        there that is not ours; TABLE_UNFIT where the table cannot be taken as it is; SHARED_TABLE_CONFLICT where it cannot be shown
        beside the others of its shared table.
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
        """Make an empty hidden table for a copy, in place of any unfinished one. `keyed`: batches will change its rows by their key.

        `load`: it gets rows of partitions alone, and only a PartitionSwap of this name may use it.

        Raises EngineFault(TABLE_UNFIT) where the table was adopted as one of its owner's, and its structure does not take the rows;
        SHARED_TABLE_CONFLICT where its columns do not go with those of the others in its shared table.
        """
        ...

    def append_copy(self, table: TableId, rows: Any) -> int:
        """Append rows (pyarrow.Table, columns c0 … cn) to the hidden table; batches are committed meanwhile. Returns the count.

        They count behind `finish_copy`, or before. Raises EngineFault(COPY_FAILED) where no such copy is being loaded,
        TABLE_STRUCTURE_CHANGED where it was changed or dropped meanwhile.
        """
        ...

    def finish_copy(self, table: TableId) -> None:
        """Let everything count that was appended, for the batch that is to use it. More may be appended later."""
        ...

    def set_aside_of_copy(self, table: TableId, refused: Sequence[tuple[Texts, RefusedCause]], most: int) -> None:
        """Keep rows of a copy that their columns cannot hold, with the hidden table; texts by column, in a transaction of its own.

        Raises EngineFault(TOO_MANY_SET_ASIDE) where more than `most` would stand aside.
        """
        ...

    def trim_copy(self, table: TableId, above: Any) -> int:
        """Delete the rows of the hidden table behind a place of its key, in a transaction of its own. Returns the count.

        `above`: pyarrow.Table of one row with columns k0 … km, the first columns of the key.
        """
        ...

    def discard_copy(self, table: TableId) -> None: ...

    def commit(self, batch: BatchCommit) -> Mapping[TableId, SetAside]:
        """Apply a batch and its progress in one durable transaction. Nothing of it stays when this raises.

        Returns, of tables where rows may or do stand aside, what became of those.

        Raises EngineFault(TARGET_DISK_FULL, TARGET_UNAVAILABLE, TARGET_FILE_GONE, EPOCH_LOST); a fault of one table names it as
        `subject`, also TABLE_NOT_DROPPED: the table is its owner's, or others depend on it, and the batch is to be committed without
        dropping it.
        """
        ...

    def check_place(self) -> None:
        """Look whether what was committed is where others find it, as far as that can change unseen. Cheap; called before each position
        counts as applied, and now and then while nothing is committed.

        Raises EngineFault(TARGET_FILE_GONE). `close`, and the next call opens what is there then.
        """
        ...

    def refused_rows(self, subscription: SubscriptionName, table: TableId) -> list[RefusedRow]:
        """The rows of a table that were refused and are kept, in the order in which they came. From any thread."""
        ...

    def retry_refused(self, subscription: SubscriptionName, table: TableId, rows: Collection[str] | None) -> list[str]:
        """Put rows that stand aside into the table, all of them where `rows` is None, in one transaction; from any thread.

        Those that are refused again stay aside with their new cause. Returns the ids of those that are in the table now.
        Raises EngineFault(EPOCH_LOST).
        """
        ...

    def skip_refused(
        self, subscription: SubscriptionName, table: TableId, rows: Collection[str] | None, by: str
    ) -> list[str]:
        """Note that rows that stand aside are to stay out of the table; from any thread. Returns the ids of those that were not so before.

        Raises EngineFault(EPOCH_LOST).
        """
        ...

    def tuning(self) -> Mapping[str, float]:
        """What the target has measured and goes by, to be shown with each batch. From any thread."""
        ...

    def evolution(self, table: TableId, target: TableName, old: TableSchema, new: TableSchema) -> list[str]:
        """The statements that bring a table from one structure to another, for people to see before they are run. Touches nothing.

        Raises EngineFault(TABLE_STRUCTURE_CHANGED) where only a new copy would.
        """
        ...

    def in_parts(self) -> PartsTarget | None:
        """The part of this target that writes a batch in parts; None where it cannot."""
        ...

    def in_order(self) -> InOrderTarget | None:
        """The part of this target that keeps the source's transactions; None where they all become batches."""
        ...

    def sequences(self) -> SequenceTarget | None:
        """The part of this target whose columns can have sequences; None where it has none at all."""
        ...

    def begin_ahead(self, subscription: SubscriptionName) -> SpeculativeTransaction | None:
        """Begin to take rows before their commit; one at a time. None where that is not possible, now or on this target at all."""
        ...

    def query(
        self, sql: str, limits: QueryLimits, subscription: SubscriptionName, judge: JudgeReads = any_reads
    ) -> AbstractContextManager[QueryAnswer]:
        """Run exactly one read on one batch boundary. Raises QueryRefused, also while rows are taken. Readers see the subscription's
        tables, those it left behind included, and the shared tables that show their rows. `judge` may get more tables than are read.

        The time limit holds for both: who takes the rows slowly is stopped by it too. At the end of the block nothing of it runs any more.
        """
        ...

    def pin(self, subscription: SubscriptionName) -> AbstractContextManager[TargetReader]: ...

    def close(self) -> None: ...


__all__ = [
    "BatchCommit",
    "CommitRates",
    "InOrder",
    "InOrderTarget",
    "KeyMode",
    "PartsTarget",
    "QueryAnswer",
    "QueryLimits",
    "QueryRefused",
    "SpeculativeTransaction",
    "TableCommit",
    "TableRecord",
    "Target",
    "TargetProgress",
    "TargetReader",
]
