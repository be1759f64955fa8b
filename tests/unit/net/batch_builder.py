"""Builds tables and tasks for tests, and runs tasks over records in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from engine.model.batch import BlockRef, LogRange, TableChanges, TablePart, TaskDescriptor, TaskResult
from engine.model.identity import BatchId, Epoch, Ordinal, RelationId, SubscriptionName, TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.net import run_task
from engine.records.scan import RecordScanner
from tests.unit.net.pgoutput_encoder import pack

FIRST = 1000
"""Ordinal of the first record: not 0, as in a queue that has lived."""


def column(name: str, type_name: str = "text", attnum: int = 0, fill: str | None = None, modifier: int = -1) -> Column:
    element = SourceType(type_name[1:], modifier) if type_name.startswith("_") else None
    return Column(name, SourceType(type_name, modifier, element=element), attnum, fill=fill)


def table(
    columns: Sequence[Column],
    key: Sequence[str] = (),
    mode: KeyMode = KeyMode.KEYED,
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT,
    oid: int = 100,
) -> TableSchema:
    numbered = tuple(c if c.attnum else replace(c, attnum=n) for n, c in enumerate(columns, 1))
    return TableSchema(TableName("public", f"t{oid}"), RelationId(oid), numbered, tuple(key), mode, identity)


def part(*versions: TableSchema, after: int = 0) -> TablePart:
    return TablePart(TableId(f"t{versions[0].relation:x}"), versions, Lsn(after) if after else ZERO)


def whole(records: Sequence[bytes], end: int = 1) -> list[LogRange]:
    return [LogRange(Ordinal(FIRST), Ordinal(FIRST + len(records)), Lsn(end))]


def task(
    records: Sequence[bytes],
    parts: Sequence[TablePart],
    ranges: Sequence[LogRange] | None = None,
    bucket: int = 0,
    buckets: int = 1,
    cuts: Sequence[int] = (),
    *,
    in_order: bool = False,
) -> TaskResult:
    """Run one task; `cuts` are the record indices at which a new block begins."""
    borders = sorted({0, len(records), *cuts})
    blocks, held = [], {}
    for low, high in pairwise(borders):
        size = sum(map(len, records[low:high]))
        blocks.append(BlockRef(f"block{low}", 0, size, 0, Ordinal(FIRST + low), high - low))
        held[f"block{low}"] = pack(records[low:high])
    descriptor = TaskDescriptor(
        SubscriptionName("s"),
        Epoch(1),
        BatchId(7),
        0,
        bucket,
        buckets,
        tuple(whole(records) if ranges is None else ranges),
        tuple(blocks),
        tuple(parts),
        "",
        in_order=in_order,
    )
    return run_task(descriptor, lambda blocks: (held[block.path] for block in blocks), RecordScanner())


def net(records: Sequence[bytes], schema: TableSchema, *later: TableSchema) -> TableChanges:
    """Net changes of one table in one bucket."""
    (changes,) = task(records, [part(schema, *later)]).tables
    return changes


def rows(held: pa.Table | None) -> list[tuple[Any, ...]]:
    return (
        [] if held is None else list(zip(*(held.column(i).to_pylist() for i in range(held.num_columns)), strict=True))
    )
