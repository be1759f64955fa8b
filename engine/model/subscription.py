"""A subscription as the server assigns it to an engine. Contains secrets; it must not be printed or logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.model.identity import Epoch, SubscriptionName, TableId, TableName
from engine.model.operations import OPERATIONS
from engine.model.patterns import TablePattern
from engine.model.shared import SharedInto
from engine.model.table_options import TableOptions


class QueueMode(StrEnum):
    """Which copy of the log records is durable: only the target's (`memory`), or the queue's files too (`persist`).

    `auto`: `persist` while the slot retains too much of the source's log, else `memory`.
    """

    MEMORY = "memory"
    PERSIST = "persist"
    AUTO = "auto"


class ApplyMode(StrEnum):
    """How committed source transactions become target transactions.

    `batch`: the net changes of a batch in one; `transactional`: each in a separate one, in commit order; `grouped`: several consecutive
    ones in one, change by change; `auto`: `batch` or `grouped`, whichever costs less.
    """

    AUTO = "auto"
    BATCH = "batch"
    GROUPED = "grouped"
    TRANSACTIONAL = "transactional"


class LanePolicy(StrEnum):
    """How lanes (concurrent connections) handle rows that transactions in several lanes change.

    `pessimistic`: wait until all earlier transactions are committed; `optimistic`: change them at once; transactions that block each
    other are rolled back and repeated in order.
    """

    PESSIMISTIC = "pessimistic"
    OPTIMISTIC = "optimistic"


class Visibility(StrEnum):
    """How a batch of net changes becomes visible to readers of the target.

    `atomic`: in one target transaction; `relaxed`: parts of it are written concurrently by several connections and committed one shortly
    after the other, which is faster; readers in between see only some parts.
    """

    ATOMIC = "atomic"
    RELAXED = "relaxed"


class OriginFilter(StrEnum):
    """Which changes of a source are replicated, by their origin.

    `any`: all; `none`: only changes made on the source itself. Changes that replication wrote there have an origin in the log and are
    left out.
    """

    ANY = "any"
    NONE = "none"


class SchemaPolicy(StrEnum):
    """What happens to a table whose schema changed on the source.

    `apply`: the target follows, in place if that is exact, else by a new copy; `ask`: the table parks until a user approves the change;
    `ignore`: the target's schema stays, and values without a column in it are left out.
    """

    APPLY = "apply"
    ASK = "ask"
    IGNORE = "ignore"


FOLDER = "folder"
"""Setting of a capture: the subscription's folder on the engine's machine, for what the capture keeps of the source."""


@dataclass(frozen=True, slots=True)
class CaptureSpec:
    """How changes are read from a source. `settings`: of the capture kind, possibly empty; FOLDER is set by the engine."""

    kind: str
    settings: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConnectionSpec:
    """How to connect to one database. `secrets` never leave the process as text."""

    name: str
    kind: str
    settings: Mapping[str, str | int] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    capture: CaptureSpec | None = None
    """Only for a source; None: the default of its kind."""


@dataclass(frozen=True, slots=True)
class TableSpec(TableOptions):
    """One table of a subscription as the user declared it, with the id that the server assigned."""

    table: TableId
    source: TableName
    target: TableName
    operations: frozenset[str] = field(default=OPERATIONS, kw_only=True)
    """Those that are followed."""
    map_others_as: str | None = None
    """Type override for columns without one of their own; set by the target's kind, not by the user."""
    mask_mark: str | None = None
    """Mark of the key of hashes (`masks.mark_of`); set from the source's connection, not by the user."""
    paused: bool = False
    shared: SharedInto | None = None
    """The shared table that includes its rows."""
    staging: bool = False
    """Its changes are kept in a CD table; the same for all tables of a subscription."""

    @property
    def skipped(self) -> frozenset[str]:
        """Operations that the source may report and that are not followed. With `insert_only` it reports no updates and deletes."""
        return OPERATIONS - self.operations - ({"update", "delete"} if self.insert_only else set())


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """When a batch is sealed: at the first limit reached. Ages are in milliseconds. None: chosen by measured cost."""

    max_transactions: int = 200_000
    max_bytes: int = 128 * 1024 * 1024
    max_age_ms: int = 200
    small_rows: int | None = None
    """Batches with fewer raw records run in the driver process; 0 = never."""
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class ApplyPolicy:
    """How batches are written to the target. None: chosen by measured cost."""

    mode: ApplyMode = ApplyMode.AUTO
    policy: LanePolicy = LanePolicy.PESSIMISTIC
    lanes: int | None = None
    """Number of parallel connections that write source transactions, or with relaxed visibility the parts of a batch."""
    group_size: int | None = None
    """Source transactions in one target transaction, with `grouped`."""
    visibility: Visibility = Visibility.ATOMIC


@dataclass(frozen=True, slots=True)
class CopyPolicy:
    """Limits on reading for copies; for all copies of a subscription together."""

    max_rows_per_second: int | None = None
    max_time_share: float = 1.0
    """Fraction of each second, above 0, during which rows are read."""
    give_way: bool = True
    """Adaptive throttling: read for less of the time while commits to other tables take longer to become readable than without copies."""

    @property
    def limited(self) -> bool:
        return self.max_rows_per_second is not None or self.max_time_share < 1


@dataclass(frozen=True, slots=True)
class GuardPolicy:
    """Escalation thresholds: the share of the budget of retained WAL at which each level is reached."""

    warn_share: float = 0.5
    persist_share: float = 0.6
    stop_copies_share: float = 0.7
    name_transaction_share: float = 0.8
    drop_slot_share: float = 0.95
    drop_slot: bool = True
    """False: the slot is never dropped; the source's `max_slot_wal_keep_size` is the last limit."""


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """A subscription as assigned to an engine."""

    name: SubscriptionName
    epoch: Epoch
    source: ConnectionSpec
    target: ConnectionSpec
    tables: tuple[TableSpec, ...]
    reader: str
    """Name of our reader at the source, fixed at creation: subscription and a random suffix. On PostgreSQL the replication slot's."""
    desired: str = "running"
    queue_mode: QueueMode = QueueMode.MEMORY
    queue_budget_bytes: int = 8 * 1024**3
    retained_log_budget_bytes: int = 16 * 1024**3
    """Budget of the log that the source retains for the reader; the shares of GuardPolicy refer to it."""
    origin: OriginFilter = OriginFilter.ANY
    guard: GuardPolicy = field(default_factory=GuardPolicy)
    batch: BatchPolicy = field(default_factory=BatchPolicy)
    apply: ApplyPolicy = field(default_factory=ApplyPolicy)
    schema_changes: SchemaPolicy = SchemaPolicy.APPLY
    copies: CopyPolicy = field(default_factory=CopyPolicy)
    patterns: tuple[TablePattern, ...] = ()
    """New tables of the source that match one of them are reported."""
    dropped: frozenset[TableId] = frozenset()
    """Removed tables whose tables on the target are to be dropped. Tables already dropped may be listed."""
