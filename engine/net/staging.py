"""Results on disk: a file of Arrow IPC streams that one process writes and the target maps, under a name that no other attempt uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.model.batch import StagedRows, TableChanges, TaskDescriptor, TaskResult
from engine.model.fault import EngineFault, FaultKind

_KINDS = ("deletes", "inserts", "partials", "in_order", "refused")
_ALIGNED = 64
"""Streams begin at multiples of this, as Arrow likes its buffers."""


def staging_prefix(descriptor: TaskDescriptor) -> str:
    """The part of staged names that tells the attempt: a task that went on after its job failed writes other files."""
    return f"e{descriptor.epoch}-b{descriptor.batch}-a{descriptor.attempt}-p{descriptor.piece}"


def spill_result(result: TaskResult, staging_dir: str | Path, prefix: str) -> TaskResult:
    """Write all rows one behind the other into `<prefix>-k<bucket>.arrows` in `staging_dir`, and put StagedRows in their place.

    One file, because making one costs more than writing the rows of a small table. No file where there are no rows. Not fsynced:
    what a crash leaves behind is not used again. Raises EngineFault(QUEUE_DISK_FULL) where writing fails.
    """
    if not any(getattr(table, kind) is not None for table in result.tables for kind in _KINDS):
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
        kind: _written(path, sink, rows) for kind in _KINDS if (rows := getattr(table, kind)) is not None
    }
    return replace(table, **staged)


def _written(path: str, sink: Any, rows: Any) -> StagedRows:
    sink.write(bytes(-sink.tell() % _ALIGNED))
    offset = sink.tell()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return StagedRows(path, offset, sink.tell() - offset)
