"""What a batch that is computed in the engine's process keeps in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.model.batch import BlockRef, LogRange, StagedRows, TableChanges, TablePart, TaskDescriptor
from engine.model.identity import BatchId, Epoch, Ordinal, SubscriptionName, TableId
from engine.model.position import Lsn
from engine.pipeline import task_functions as worker
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import column, table

_ROWS = 20
_TABLE = TablePart(TableId("t"), (table([column("id", "int4"), column("body")], ["id"], oid=1),), Lsn(0))


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskDescriptor:
    """Over a block of inserts."""
    records = pgoutput.pack([pgoutput.insert(1, [str(n), "x" * 1000]) for n in range(_ROWS)])

    def read_blocks(blocks: Sequence[BlockRef]) -> Any:
        return (records for _ in blocks)

    monkeypatch.setattr(worker, "read_blocks", read_blocks)
    block = BlockRef("b", 0, 2000 * _ROWS, 0, Ordinal(0), _ROWS)
    ranges = (LogRange(Ordinal(0), Ordinal(_ROWS), Lsn(1)),)
    return TaskDescriptor(
        SubscriptionName("s"), Epoch(3), BatchId(17), 0, 0, 1, ranges, (block,), (_TABLE,), str(tmp_path)
    )


def inserts(task: TaskDescriptor, buckets: int) -> list[Any]:
    tasks = [replace(task, bucket=bucket, buckets=buckets) for bucket in range(buckets)]
    results = worker.net_all_here(tasks)
    changes: list[TableChanges] = [change for result in results for change in result.tables]
    assert sum(change.net_rows for change in changes) == _ROWS
    return [change.inserts for change in changes]


def test_rows_of_a_batch_of_one_task_stay_in_memory(task: TaskDescriptor) -> None:
    (rows,) = inserts(task, 1)
    assert isinstance(rows, pa.Table)
    assert list(Path(task.staging).iterdir()) == []


def test_rows_of_a_batch_of_several_tasks_are_in_files(task: TaskDescriptor) -> None:
    found = inserts(task, 3)
    assert [type(rows) for rows in found] == [StagedRows] * 3
    assert sorted({rows.path for rows in found}) == sorted(str(file) for file in Path(task.staging).iterdir())
    assert sum(rows.size for rows in found) > _ROWS * 1000
