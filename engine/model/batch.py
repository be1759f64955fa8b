"""Values passed between sort, the job's tasks and apply: ranges of raw records, sealed batches, tasks and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.model.identity import BatchId, Epoch, Ordinal, RelationId, SubscriptionName, TableId
from engine.model.last_commit import CommitTimes, LastCommit
from engine.model.ledger import LogTally, NetTally
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.ticket import TicketMarker


@dataclass(frozen=True, slots=True)
class LogRange:
    """Committed raw records `[start, stop)` by ordinal.

    `xid` 0: whole non-streamed transactions; all records are applied. Else a chunk of the streamed transaction `xid`: records whose own
    (sub)transaction id is in `aborted` are ignored. All transactions in the range committed at or before `end`, and after the
    `end` of the previous range in the batch.
    """

    start: Ordinal
    stop: Ordinal
    end: Lsn
    xid: int = 0
    aborted: frozenset[int] = frozenset()
    time_us: int = 0
    """Commit time of the streamed transaction, microseconds since 1970 UTC; 0 = unknown, or whole transactions."""


@dataclass(frozen=True, slots=True)
class RelationSeen:
    """A relation record in a committed range: the schema of `relation` from `ordinal` on.

    `payload`: the record without the xid that it carries inside a streamed transaction.
    `void`: its subtransaction was rolled back; later rows that are applied may have this schema or another one.
    """

    ordinal: Ordinal
    relation: RelationId
    payload: bytes
    void: bool = False


@dataclass(frozen=True, slots=True)
class MessageSeen:
    """A DDL message in a committed range.

    `payload`: the record without the xid that it carries inside a streamed transaction. `aborted`: the rolled back subtransactions of its
    transaction; the record does not name the subtransaction that wrote it.
    """

    ordinal: Ordinal
    payload: bytes
    aborted: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TicketSeen:
    """A ticket marker in a committed range."""

    ordinal: Ordinal
    marker: TicketMarker


@dataclass(frozen=True, slots=True)
class LogsSeen:
    """A message in a merged log about the logs that it consists of. `content`: what engine.model.merged_logs.LogsMessage parses."""

    ordinal: Ordinal
    content: bytes


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """A DDL message with its place: the number of the batch's relation records before it, and the end LSN of its transaction."""

    behind: int
    message: MessageSeen
    end: Lsn


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """Committed transactions in commit order, sealed to become one target transaction.

    `ranges` are in commit order. `relations` and `messages` are in the order in which a scan over `ranges` meets them. Relation records of
    an aborted subtransaction are included (the source does not send them again), those of an aborted transaction are not.
    `after` is the `end` of the previous batch.
    """

    after: Lsn
    end: Lsn
    transactions: int
    ranges: tuple[LogRange, ...]
    relations: tuple[RelationSeen, ...]
    first_commit_us: int
    last_commit_us: int
    demanded: bool = False
    """True if it was sealed early because a query waits."""
    cuts: tuple[Lsn, ...] = ()
    """Positions of requested cuts at this batch's end: everything committed up to them is in the batch or an earlier one, nothing later."""
    messages: tuple[PlacedMessage, ...] = ()
    tickets: tuple[TicketMarker, ...] = ()
    """Ticket markers committed in it, in order."""
    last: LastCommit | None = None
    """The last transaction of the log up to `end`; None if it was not recorded."""
    times: CommitTimes | None = field(default=None, compare=False)
    """Commit times of its transactions."""
    captured: int | None = field(default=None, compare=False)
    """Number of row changes that the log reader counted in its transactions, those of rolled back subtransactions included; None if
    unknown."""


@dataclass(frozen=True, slots=True)
class BlockRef:
    """Location of a block in a segment: an encapsulated Arrow IPC message at bytes `[offset, offset + length)` of the file.

    It holds `count` records, the first with ordinal `first`; `crc` is zlib.crc32 of these bytes.
    """

    path: str
    offset: int
    length: int
    crc: int
    first: Ordinal
    count: int


@dataclass(frozen=True, slots=True)
class TablePart:
    """One table of a task.

    `versions[0]` is in force at the start of the task's ranges; each relation record of `versions[0].relation` that the scan meets
    switches to the next. Rows are converted to the last version. Changes in transactions with end LSN <= `after` are ignored.
    `whole`: transactions must not be split over tasks, because rows may share a key until a commit (deferred constraint).
    """

    table: TableId
    versions: tuple[TableSchema, ...]
    after: Lsn
    whole: bool = False


@dataclass(frozen=True, slots=True)
class TaskDescriptor:
    """Input of a task, small enough to be sent: locations of blocks, never rows. The task owns key bucket `bucket` of `buckets`."""

    subscription: SubscriptionName
    epoch: Epoch
    batch: BatchId
    attempt: int
    bucket: int
    buckets: int
    ranges: tuple[LogRange, ...]
    blocks: tuple[BlockRef, ...]
    tables: tuple[TablePart, ...]
    staging: str
    """Folder for the result file."""
    piece: int = 0
    """Number of the batch slice (piece) that it works on: large batches are cut into consecutive slices."""
    in_order: bool = False
    """Return the changes without netting. Buckets are then contiguous ranges of each table's changes."""


@dataclass(frozen=True, slots=True)
class TableFault:
    """Fault of a table; `code` is a FaultKind value. `detail` contains no row values."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows handed over between processes: an Arrow IPC stream of `size` bytes at byte `offset` of the file `path`."""

    path: str
    offset: int
    size: int


ROW_PARTS = (
    "deletes", "inserts", "partials", "replaced", "in_order", "refused", "tombstones", "versions", "ended", "change_data",
)  # fmt: skip
"""The fields of TableChanges that hold rows."""
OPTIONAL = "optional"
"""Column of `TableChanges.ended` (bool): the key may have no current version; and of `change_data`: it is not known whether there was a row
with the key. All are false if it is left out."""


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes of one table in one bucket of one batch slice (`piece`): their net effect, or with `in_order` each change.

    `deletes`, `inserts`, `partials`, `replaced`, `tombstones`, `versions`, `ended`, `change_data` and `in_order` are None if empty, else a
    pyarrow.Table, or StagedRows between processes.

    c0 … cn are the columns of the last version by position, k0 … km the key columns by position:
    - `deletes`: `k0 … km` of rows that existed before the batch and were deleted or replaced; for BAG `c0 … cn` and `n` (int64), the
      number of equal rows to delete;
    - `inserts`: `c0 … cn` of complete rows to insert;
    - `partials`: rows to insert whose unset columns take their value from the existing row with key `k0 … km` (read before the
      deletes, which contain it too): `k0 … km`, `c0 … cn`, and `u<i>` (bool, true = unset) for every column unset in some row;
    - `replaced` (scattered tables only): `k0 … km`, none of which is in `deletes`, of rows to delete if there are any: rows came to these
      keys, and perhaps left them again;
    - `in_order`: one row per change, in log order: `n` (int64, number of the change among those of all tables of the slice), `end`
      (uint64, end LSN of its transaction), `op` (uint8: 1 insert, 2 update, 3 delete, 4 truncate), `moved` (bool, the key changes), `h`
      and `g` (uint64, hash of the row's key after and before it), `k0 … km` the key before it (for an insert, after it; for BAG all
      columns are the key, for APPEND none), `c0 … cn` the row after it (NULL if there is none), and `u<i>` (bool, true = unchanged) for
      every column unset in some row.
    - `tombstones` (soft delete only): rows that the changes deleted and whose key no row has now, with their last values: as `partials`,
      `at` (timestamp, commit time of the deletion; NULL = `commit_us`) and `n` (int64, ascending in log order; of several rows with keys
      that the target takes for equal, the last one stays). Rows without unset columns need no existing row. `doubtful` (bool): keys may
      have collided until a commit, so a row from before may have the key; if one has after the deletes, the tombstone is void.
    - `versions` (history only): versions of rows that began with the changes: as `partials` (rows without unset columns need no existing
      row), and `from_end` and `to_end` (uint64, end LSN of the transaction; `to_end` NULL = the version is current) with their commit times
      `from_us` and `to_us` (int64, microseconds since 1970 UTC).
    - `ended` (history only): keys `k0 … km` of rows from before whose version ended, `to_end` and `to_us`, and perhaps OPTIONAL.
    - `change_data` (staging only): what each transaction changed, for KEYED one row for each key, else for each image: as `partials` (rows
      without unset columns need no existing row), `end` (uint64, end LSN of the transaction), `place` (int64, ascending within it) and
      `op` (a value of change_data.Operation; NULL: only that a transaction changed the table). A deleted row of KEYED has its key only.
      Perhaps OPTIONAL (scattered tables only): if there was no row, an update is an insert, and a delete nothing.

    `truncated`: clear the table first. Order: read partials and tombstones, truncate or delete, insert; all buckets of a slice together,
    the slices one after another. With soft delete, `truncated` marks all rows that are not in `deletes`.
    The history table is changed independently of it: read versions, end those of `ended`, with a TRUNCATE all others too, insert versions.
    """

    table: TableId
    truncated: bool
    deletes: Any | None = None
    inserts: Any | None = None
    partials: Any | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Raw changes by operation: insert, update, delete, truncate."""
    net_rows: int = 0
    fault: TableFault | None = None
    piece: int = 0
    paired: int = 0
    """The first `paired` rows of `deletes` and of `inserts` have the same keys in the same order: rows updated under an unchanged key."""
    in_order: Any | None = None
    refused: Any | None = None
    """Net rows with a value that its column cannot hold, which are in no other table of this result. `fault` is then the fault with which
    the table parks unless they are quarantined. All values are texts: `k0 … km` of the row before (NULL for an insert), `c0 … cn`, `u<i>`
    (bool) for every column unset in some row, `gone` (bool: a deleted row, with its key only) and `cause`."""
    staged: Mapping[str, int] = field(default_factory=dict)
    """Number of rows in `deletes` ("delete"), `inserts` ("insert"), `partials` ("complete"), `replaced` ("replace"), `tombstones` ("mark"),
    `versions` ("begin"), `ended` ("end", without OPTIONAL ones) and those of `change_data` with an `op`, without OPTIONAL deletes
    ("change"); no entry for None."""
    tally: NetTally | None = None
    """What netting and decoder counted; None if the table has a fault."""
    replaced: Any | None = None
    tombstones: Any | None = None
    truncated_us: int = 0
    """With soft delete or history: commit time of the first TRUNCATE, microseconds since 1970 UTC; 0 = `commit_us`."""
    commit_us: int = 0
    """Commit time of the transaction of all changes, if they were computed before its commit."""
    versions: Any | None = None
    ended: Any | None = None
    truncated_end: int = 0
    """With history: end LSN of the transaction of the first TRUNCATE; 0 = none."""
    change_data: Any | None = None
    commit_end: int = 0
    """End LSN of the transaction of all changes, in place of every other, if they were computed before its commit; else 0."""

    @property
    def parts(self) -> tuple[Any | None, ...]:
        """The values of the fields ROW_PARTS."""
        return tuple(getattr(self, name) for name in ROW_PARTS)

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing of the table."""
        return not self.truncated and all(part is None for part in self.parts)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of a task: a few bytes per table; the rows are in one file in the descriptor's staging folder."""

    bucket: int
    tables: tuple[TableChanges, ...]
    records: int
    seconds: float
    xids: frozenset[int] = frozenset()
    """(Sub)transactions that have row changes in streamed ranges."""
    tally: LogTally | None = None
    """The changes in the ranges by table, for all buckets."""
