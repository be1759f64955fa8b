"""What travels between sort, the Spark job and apply: ranges of raw records, sealed batches, tasks and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.model.identity import BatchId, Epoch, Ordinal, RelationId, SubscriptionName, TableId
from engine.model.last_commit import CommitTimes, LastCommit
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.ticket import TicketMarker


@dataclass(frozen=True, slots=True)
class LogRange:
    """Committed raw records `[start, stop)` by ordinal.

    `xid` 0: whole non-streamed transactions, all records count. Else a chunk of the streamed transaction `xid`: records whose own
    (sub)transaction id is in `aborted` do not count. All transactions in the range committed at or before `end` and after the
    `end` of the range before it in the batch.
    """

    start: Ordinal
    stop: Ordinal
    end: Lsn
    xid: int = 0
    aborted: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class RelationSeen:
    """A relation record that lies in a committed range: the structure of `relation` from `ordinal` on.

    `payload`: the record in the form it has outside streamed transactions; the xid that it carries inside one is taken out.
    `void`: what made it so was rolled back to a savepoint, and rows that count may follow in the same form or another one.
    """

    ordinal: Ordinal
    relation: RelationId
    payload: bytes
    void: bool = False


@dataclass(frozen=True, slots=True)
class MessageSeen:
    """A message of the source's DDL capture in a committed range.

    `payload`: the record in the form it has outside streamed transactions. `aborted`: the subtransactions of its transaction that were
    rolled back; it does not say itself which one wrote it.
    """

    ordinal: Ordinal
    payload: bytes
    aborted: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TicketSeen:
    """A ticket's marker in a committed range."""

    ordinal: Ordinal
    marker: TicketMarker


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """Where a message stands: so many of the batch's relation records come before it, and its transaction ends at `end`."""

    behind: int
    message: MessageSeen
    end: Lsn


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """Committed transactions in one order, sealed to become one target transaction.

    `ranges` are in commit order. `relations` are in the order in which a scan over `ranges` meets them; relation records of an
    aborted subtransaction are included (the source sends no second one), those of an aborted transaction are not.
    `messages` are in the same order.
    `after` is the end of the batch before it.
    """

    after: Lsn
    end: Lsn
    transactions: int
    ranges: tuple[LogRange, ...]
    relations: tuple[RelationSeen, ...]
    first_commit_us: int
    last_commit_us: int
    demanded: bool = False
    """True where a waiting query closed it early."""
    cuts: tuple[Lsn, ...] = ()
    """Positions of the cuts asked for that lie at this batch's end: all committed up to them is in, nothing behind them."""
    messages: tuple[PlacedMessage, ...] = ()
    tickets: tuple[TicketMarker, ...] = ()
    """Markers that were committed in it, in order."""
    last: LastCommit | None = None
    """The last transaction of the log up to `end`; None where that was not noted."""
    times: CommitTimes | None = field(default=None, compare=False)
    """Of its transactions."""


@dataclass(frozen=True, slots=True)
class BlockRef:
    """Where a record batch of a segment lies: an encapsulated Arrow IPC message `[offset, offset + length)` of the file.

    It holds `count` records, the first with ordinal `first`; `crc` is zlib.crc32 of those bytes.
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

    `versions[0]` is in force where the task's ranges begin; each relation record of `versions[0].relation` that the scan meets
    moves to the next. Rows are lifted to the last version. Changes in transactions with end LSN <= `after` are not for this task.
    `whole`: whole transactions must be netted together, since the table's key may be shared by rows until a commit.
    """

    table: TableId
    versions: tuple[TableSchema, ...]
    after: Lsn
    whole: bool = False


@dataclass(frozen=True, slots=True)
class TaskDescriptor:
    """Everything a task needs, small enough to travel: places of bytes, never rows. Owns key bucket `bucket` of `buckets`."""

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
    """Folder for the result's file."""
    piece: int = 0
    """Which of the batch's pieces it works on: large batches are cut into pieces that follow each other."""
    in_order: bool = False
    """Hand back the changes as they are, in place of their net effect. Buckets are then stretches of each table's changes."""


@dataclass(frozen=True, slots=True)
class TableFault:
    """Why a table cannot go on; `code` is a FaultKind value. No row values in `detail`."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Where rows lie that crossed a process border: an Arrow IPC stream of `size` bytes at `offset` (bytes) of the file `path`."""

    path: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes of one table in one bucket of one piece: their net effect, or `in_order` each of them.

    `deletes`, `inserts`, `partials` and `in_order` are None when empty, a pyarrow.Table in process, or StagedRows where the result
    crossed a process border.

    With columns c0 … cn the columns of the last version by position, and k0 … km the key columns by position:
    - `deletes`: `k0 … km` of rows that existed before the batch and are gone or replaced; for BAG `c0 … cn` and `n` (int64), how
      many equal rows to delete;
    - `inserts`: `c0 … cn` of complete rows to insert;
    - `partials`: rows to insert whose unset columns take their value from the existing row with key `k0 … km` (read before the
      deletes, which name it too): `k0 … km`, `c0 … cn`, and for every column that is unset somewhere `u<i>` (bool, true = unset).
    `truncated`: clear the table before anything else. Order: read partials, truncate or delete, insert. All buckets of a `piece`
    together, the pieces one after another.
    - `in_order`: one row per change, in the order of the log: `n` (int64: the change's place among those of all tables of the
      piece), `end` (uint64: end LSN of its transaction), `op` (uint8: 1 insert, 2 update, 3 delete, 4 truncate), `moved` (bool: the
      key changes), `h` and `g` (uint64: hash of the row's key after it and before it), `k0 … km` the key before it (of an insert,
      after it; for BAG all columns are the key, for APPEND none), `c0 … cn` the row after it (NULL where there is none), and for
      every column that is unset somewhere `u<i>` (bool, true = as it was).
    """

    table: TableId
    truncated: bool
    deletes: Any | None
    inserts: Any | None
    partials: Any | None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Raw changes seen by operation: insert, update, delete, truncate."""
    net_rows: int = 0
    fault: TableFault | None = None
    piece: int = 0
    paired: int = 0
    """So many rows at the start of `deletes` and of `inserts` have the same keys in the same order: rows that stay under their key."""
    in_order: Any | None = None
    refused: Any | None = None
    """Net rows with a value that its column cannot hold, in none of the other parts; with them `fault` says why the table parks
    unless they are set aside. All values are texts: `k0 … km` of the row that existed before (NULL of an insert), `c0 … cn`, for
    every column that is unset somewhere `u<i>` (bool), `gone` (bool: nothing but the key, of a row that is gone) and `cause`."""
    staged: Mapping[str, int] = field(default_factory=dict)
    """Rows in `deletes` ("delete"), `inserts` ("insert") and `partials` ("complete"); nothing for those that are None."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task hands back: a few bytes per table, the rows in one file of the descriptor's staging folder."""

    bucket: int
    tables: tuple[TableChanges, ...]
    records: int
    seconds: float
    xids: frozenset[int] = frozenset()
    """(Sub)transactions that have row changes in streamed ranges."""
