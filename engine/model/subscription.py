"""What the server tells the engine of a subscription. Secrets are in it; it is never printed or logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.model.identity import Epoch, SubscriptionName, TableId, TableName


class QueueMode(StrEnum):
    """Where the queue's durable end is: with the target (`memory`) or in the queue's own files (`persist`)."""

    MEMORY = "memory"
    PERSIST = "persist"


@dataclass(frozen=True, slots=True)
class ConnectionSpec:
    """How to reach one database. `secrets` never leave the process in any text form."""

    name: str
    kind: str
    settings: Mapping[str, str | int]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table of a subscription as the user declared it, with the id the server gave it."""

    table: TableId
    source: TableName
    target: TableName
    key: tuple[str, ...] = ()
    operations: frozenset[str] = frozenset({"insert", "update", "delete", "truncate"})
    where: str | None = None
    insert_only: bool = False
    map_as: Mapping[str, str] = field(default_factory=dict)
    paused: bool = False


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """When a batch is sealed: at the first limit reached. Ages are in milliseconds."""

    max_transactions: int = 20_000
    max_bytes: int = 32 * 1024 * 1024
    max_age_ms: int = 200
    small_rows: int = 5_000
    """Batches with fewer raw records run in the driver process; 0 = never."""
    tasks: int = 2


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """A subscription as assigned to an engine."""

    name: SubscriptionName
    epoch: Epoch
    source: ConnectionSpec
    target: ConnectionSpec
    tables: tuple[TableSpec, ...]
    slot: str
    """Name of the replication slot, fixed at creation: subscription and a random suffix."""
    desired: str = "running"
    queue_mode: QueueMode = QueueMode.MEMORY
    queue_budget_bytes: int = 8 * 1024**3
    slot_budget_bytes: int = 16 * 1024**3
    """How much log the slot may hold back on the source before the guard speaks."""
    batch: BatchPolicy = field(default_factory=BatchPolicy)
