"""What a copy is given and what it hands back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from engine.copy.chunk_task import Decode, OpenSource, ReadLimits
from engine.model.batch import TableFault
from engine.model.copies import CopyProgress
from engine.model.identity import Epoch, SubscriptionName, TableId
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.source import CopyChunk, ExportedSnapshot, Source
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.model.target import Target
from engine.model.tasks import TaskRunner


@dataclass(frozen=True, slots=True)
class CopyTable:
    """A table to copy. `schema` is its structure at the snapshot.

    `pieces`: those of one chunk; None = all of the table. `begin`: into a new hidden table; else into
    the one that stands, which is never discarded. `load`: as in Target.begin_copy.
    """

    spec: TableSpec
    schema: TableSchema
    pieces: tuple[CopyChunk, ...] | None = None
    begin: bool = True
    load: str | None = None


@dataclass(frozen=True, slots=True)
class CopySettings:
    """How much is read at once. A wave is `tasks_per_wave` tasks of about `chunk_bytes`; `lanes` waves are under way, so that one is
    taken in while the next is read. At most `lanes` waves lie in the staging folder."""

    chunk_bytes: int = 64 * 1024**2
    tasks_per_wave: int = 4
    lanes: int = 2
    open_tables: int = 4
    attempts: int = 3
    progress_interval_s: float = 0.5
    limits: ReadLimits = field(default_factory=ReadLimits)
    pace: Path | None = None
    """File that says how fast rows may be read (see `pace.py`)."""


@dataclass(frozen=True, slots=True)
class CopyJob:
    """One copy of some tables under one snapshot. The caller keeps the snapshot alive until `run` has returned.

    `staging` is a folder for copies only, reachable by the tasks under the same path.
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
    """What a copy works with. `open_source` and `decode` must be importable by name: tasks get them.

    `writing()` is the turn to write to the target; it is held for one file at a time, so that batches get in between.
    """

    source: Source
    target: Target
    runner: TaskRunner
    open_source: OpenSource
    decode: Decode
    writing: Callable[[], AbstractContextManager[object]]
    monotonic: Callable[[], float]


class CopyListener(Protocol):
    """Is told what becomes of each table. Every call comes from the thread of `CopyCoordinator.run`, outside of `writing()`.

    Of the first three, each table gets exactly one, unless the copy is cancelled or `run` raises.
    """

    def on_table_copied(self, table: TableId, position: Lsn, rows: int) -> None:
        """All rows as of `position` are in the hidden table, which from now on is the caller's to hand over or to discard."""
        ...

    def on_table_failed(self, table: TableId, fault: TableFault) -> None:
        """The table cannot be copied; its hidden table is gone."""
        ...

    def on_table_lost(self, table: TableId, detail: str) -> None:
        """The copy has to start again, under a new snapshot and with the structure described anew; its hidden table is gone."""
        ...

    def on_progress(self, progress: CopyProgress) -> None: ...


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """What became of each table; those cancelled are in none of the first three."""

    copied: tuple[TableId, ...]
    failed: tuple[TableId, ...]
    lost: tuple[TableId, ...]
    cancelled: tuple[TableId, ...]
