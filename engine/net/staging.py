"""Task results on disk: a file of Arrow IPC streams that the task writes and the target maps. Its name is unique per attempt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.model.batch import ROW_PARTS, StagedRows, TableChanges, TaskDescriptor, TaskResult
from engine.model.fault import EngineFault, FaultKind

_ALIGNED = 64
"""Alignment of streams in the file: Arrow recommends 64 bytes for its buffers."""


def staging_prefix(descriptor: TaskDescriptor) -> str:
    """Prefix of staged file names, unique per attempt: a task that is still running after its job failed writes to other files."""
    return f"e{descriptor.epoch}-b{descriptor.batch}-a{descriptor.attempt}-p{descriptor.piece}"


def spill_result(result: TaskResult, staging_dir: str | Path, prefix: str) -> TaskResult:
    """Write all rows to `<prefix>-k<bucket>.arrows` in `staging_dir`, and replace them in the result by StagedRows.

    One file for all tables: to create a file costs more than to write the rows of a small table. No file if there are no rows. Not
    synced: files of before a crash are never used. Raises EngineFault(QUEUE_DISK_FULL) if writing fails.
    """
    if not any(part is not None for table in result.tables for part in table.parts):
        return result
    folder = Path(staging_dir)
    path = str(folder / f"{prefix}-k{result.bucket}.arrows")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(path, "wb") as sink:
            return replace(result, tables=tuple(_spilled(table, path, sink) for table in result.tables))
    except OSError as error:
        raise EngineFault(FaultKind.QUEUE_DISK_FULL, str(folder), "a result could not be written") from error


def _spilled(table: TableChanges, path: str, sink: Any) -> TableChanges:
    staged: dict[str, Any] = {
        kind: _written(path, sink, rows) for kind in ROW_PARTS if (rows := getattr(table, kind)) is not None
    }
    return replace(table, **staged)


def _written(path: str, sink: Any, rows: Any) -> StagedRows:
    sink.write(bytes(-sink.tell() % _ALIGNED))
    offset = sink.tell()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return StagedRows(path, offset, sink.tell() - offset)
