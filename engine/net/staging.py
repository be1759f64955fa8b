"""Results on disk: Arrow IPC files that one process writes and the target maps, under names that no other attempt uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.model.batch import TableChanges, TaskDescriptor, TaskResult
from engine.model.fault import EngineFault, FaultKind

_KINDS = ("deletes", "inserts", "partials")


def staging_prefix(descriptor: TaskDescriptor) -> str:
    """The part of staged names that tells the attempt: a task that went on after its job failed writes other files."""
    return f"e{descriptor.epoch}-b{descriptor.batch}-a{descriptor.attempt}-p{descriptor.piece}"


def spill_result(result: TaskResult, staging_dir: str | Path, prefix: str) -> TaskResult:
    """Write the tables as `<prefix>-k<bucket>-<table>-<kind>.arrow` in `staging_dir` and put their paths in their place.

    Not fsynced: what a crash leaves behind is not used again. Raises EngineFault(QUEUE_DISK_FULL) where writing fails.
    """
    folder = Path(staging_dir)
    folder.mkdir(parents=True, exist_ok=True)

    def write(table: TableChanges, kind: str, rows: Any) -> str:
        path = folder / f"{prefix}-k{result.bucket}-{table.table}-{kind}.arrow"
        try:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
        except OSError as error:
            raise EngineFault(FaultKind.QUEUE_DISK_FULL, str(folder), "a result could not be written") from error
        return str(path)

    return replace(result, tables=tuple(_spilled(table, write) for table in result.tables))


def _spilled(table: TableChanges, write: Callable[[TableChanges, str, Any], str]) -> TableChanges:
    paths: dict[str, Any] = {k: write(table, k, rows) for k in _KINDS if (rows := getattr(table, k)) is not None}
    return replace(table, **paths)
