"""The interface of a run to the copies that are made in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from engine.model.fault import EngineFault
from engine.model.identity import BatchId, TableId
from engine.model.position import Lsn
from engine.model.source import ExportedSnapshot
from engine.model.target import TargetReader
from engine.tables.state import RetainingEvent


class CopyHost(Protocol):
    """The run. Every method may be called from any thread."""

    def defer(self, event: Callable[[BatchId], RetainingEvent], tables: list[TableId]) -> list[TableId]:
        """Apply this event to the tables, with the number of the batch from which on their changes are retained. Returns, when that has
        happened, those whose state allows it. Raises EngineFault(COPY_FAILED) if the run ends before."""
        ...

    def flush(self, position: Lsn) -> None:
        """Seal a batch that ends at or after this position, even an empty one."""
        ...

    def end(self, fault: EngineFault) -> None:
        """End the run with this fault."""
        ...

    def check_source(self) -> object:
        """Check the source's catalog now."""
        ...

    def removals_written(self) -> bool:
        """Whether the target has removed the records of all tables that left the subscription."""
        ...

    def give_up(self, table: TableId) -> None:
        """Remove what the target keeps for a table that left the subscription."""
        ...

    def record_copied(self, fingerprints: Mapping[TableId, str]) -> None:
        """Fingerprints of the partitions of tables that are about to be copied, to be recorded with their hand-over."""
        ...

    def cut(self) -> AbstractContextManager[tuple[ExportedSnapshot, TargetReader]]:
        """A snapshot of the source and a read of the target at the same position."""
        ...
