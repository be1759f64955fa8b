"""What a run does for the copies that are made in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from engine.model.fault import EngineFault
from engine.model.identity import BatchId, TableId
from engine.model.position import Lsn
from engine.model.source import ExportedSnapshot
from engine.model.target import TargetReader
from engine.tables.state import CopyLost, CopyStarted, Reload


class CopyHost(Protocol):
    """The run. Every method may be called from any thread."""

    def defer(self, event: Callable[[BatchId], CopyStarted | CopyLost | Reload], tables: list[TableId]) -> object:
        """Move tables by this event, with the batch from which on their changes are kept. Returns when it holds."""
        ...

    def begin_load(self, table: TableId, request: str) -> bool:
        """Keep a live table's changes from the next batch on, for a reload of partitions. False if it is not live."""
        ...

    def flush(self, position: Lsn) -> None:
        """Seal a batch that reaches this position."""
        ...

    def end(self, fault: EngineFault) -> None:
        """End the run with this fault."""
        ...

    def check_source(self) -> object:
        """Check the source's catalog now."""
        ...

    def removals_written(self) -> bool:
        """Whether the target has forgotten all tables that left the subscription."""
        ...

    def give_up(self, table: TableId) -> None:
        """Forget what the target keeps for a table that left the subscription."""
        ...

    def note_copied(self, fingerprints: Mapping[TableId, str]) -> None:
        """The partitions of tables that are about to be copied, to be recorded with their hand-over."""
        ...

    def cut(self) -> AbstractContextManager[tuple[ExportedSnapshot, TargetReader]]:
        """A source snapshot and a target read of the same position."""
        ...
