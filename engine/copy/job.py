"""Input and outcome of a copy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from engine.copy.split_task import Decode, OpenSource, ReadLimits
from engine.model.batch import TableFault
from engine.model.copies import CopyProgress
from engine.model.identity import Epoch, SubscriptionName, TableId
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.source import ExportedSnapshot, Source, TableSplit
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.model.target import Target
from engine.model.tasks import TaskRunner


@dataclass(frozen=True, slots=True)
class CopyTable:
    """A table to copy. `schema`: its schema at the snapshot.

    `splits`: those of one chunk; None: the whole table. `begin`: create a new hidden table; False: append to the existing one, which
    is then never discarded. `load`: as in Target.begin_copy.
    """

    spec: TableSpec
    schema: TableSchema
    splits: tuple[TableSplit, ...] | None = None
    begin: bool = True
    load: str | None = None


@dataclass(frozen=True, slots=True)
class CopySettings:
    """How much is read concurrently. A wave is `tasks_per_wave` tasks of about `split_bytes`. `lanes` waves are in progress, so that one is
    written while the next is read; at most `lanes` waves are in the staging folder.

    `open_tables`: most tables that are read in turns. `attempts`: most attempts to read a split under one snapshot.
    """

    split_bytes: int = 64 * 1024**2
    tasks_per_wave: int = 4
    lanes: int = 2
    open_tables: int = 4
    attempts: int = 3
    progress_interval_s: float = 0.5
    limits: ReadLimits = field(default_factory=ReadLimits)
    pace: Path | None = None
    """File with the rate limit (see `rate_limit.py`); None: unlimited."""


@dataclass(frozen=True, slots=True)
class CopyJob:
    """One copy of some tables under one snapshot. The caller keeps the snapshot alive until `run` has returned.

    `staging`: a folder that only copies use, reachable by the tasks under the same path.
    """

    subscription: SubscriptionName
    epoch: Epoch
    connection: ConnectionSpec
    snapshot: ExportedSnapshot
    tables: tuple[CopyTable, ...]
    staging: Path
    settings: CopySettings = field(default_factory=CopySettings)


@dataclass(frozen=True, slots=True)
class CopyTools:
    """The services that a copy uses. `open_source` and `decode` must be importable by name, because they are sent to tasks.

    `writing()` acquires the right to write to the target. It is held for one file at most, so that batches are committed in between.
    `monotonic`: seconds.
    """

    source: Source
    target: Target
    runner: TaskRunner
    open_source: OpenSource
    decode: Decode
    writing: Callable[[], AbstractContextManager[object]]
    monotonic: Callable[[], float]


class CopyListener(Protocol):
    """Receives the outcome of each table. All calls come from the thread of `CopyCoordinator.run`, outside of `writing()`.

    Of the first three methods exactly one is called for each table, unless the copy is cancelled or `run` raises.
    """

    def on_table_copied(self, table: TableId, position: Lsn, rows: int) -> None:
        """All rows as of `position` are in the hidden table. The caller has to hand it over or to discard it."""
        ...

    def on_table_failed(self, table: TableId, fault: TableFault) -> None:
        """The table cannot be copied; its hidden table was discarded."""
        ...

    def on_table_lost(self, table: TableId, detail: str) -> None:
        """The copy has to start again, with a new snapshot and the schema at that snapshot; its hidden table was discarded."""
        ...

    def on_progress(self, progress: CopyProgress) -> None:
        """Progress of a table: at its start, at its first and last split, and between them at most once per `progress_interval_s`."""
        ...


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """The tables by outcome. Tables that were cancelled are in `cancelled` only."""

    copied: tuple[TableId, ...]
    failed: tuple[TableId, ...]
    lost: tuple[TableId, ...]
    cancelled: tuple[TableId, ...]
