"""Source transactions as a list of changes, the way a task hands them back in order, and a model that they are tried on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from engine.model.batch import TableChanges
from engine.model.identity import BatchId, TableId
from engine.model.last_commit import CommitTimes, LastCommit
from engine.model.position import Lsn
from engine.model.schema import KeyMode, TableSchema
from engine.model.subscription import OriginFilter
from engine.model.target import BatchCommit, InOrderPlan, TableCommit
from tests.contract.target_material import Pipeline, Row, inserts, keys

INSERT, UPDATE, DELETE, TRUNCATE = 1, 2, 3, 4


@dataclass(frozen=True)
class Change:
    """`key`: of the row before it; `row`: after it; `unset`: columns of `row` that stay as they are."""

    table: TableId
    op: int
    key: Row | None = None
    row: Row | None = None
    unset: frozenset[int] = frozenset()


Transaction = Sequence[Change]


def staged(
    table: TableId, schema: TableSchema, placed: Sequence[tuple[int, int, Change]], piece: int = 0
) -> TableChanges:
    """`placed`: place among all changes, end LSN and change, of this table."""
    empty = (None,) * len(schema.columns)
    rows = [change.row or empty for _, _, change in placed]
    after = [_key_of(schema, change.row) if change.row else change.key for _, _, change in placed]
    before = [change.key or key for (_, _, change), key in zip(placed, after, strict=True)]
    made = inserts(schema, rows)
    if schema.mode is not KeyMode.APPEND:
        keyed = schema if schema.key else replace(schema, key=tuple(column.name for column in schema.columns))
        blank = (None,) * len(keyed.key)
        given = keys(keyed, [key or blank for key in before])
        for name in given.schema.names:
            made = made.append_column(name, given[name])
    moved = [
        change.op == UPDATE and (a != b or schema.mode is KeyMode.BAG)
        for (_, _, change), a, b in zip(placed, after, before, strict=True)
    ]
    columns: dict[str, Any] = {
        "n": pa.array([n for n, _, _ in placed], pa.int64()),
        "end": pa.array([end for _, end, _ in placed], pa.uint64()),
        "op": pa.array([change.op for _, _, change in placed], pa.uint8()),
        "moved": pa.array(moved),
        "h": pa.array([_hash(key, n) for key, (n, _, _) in zip(after, placed, strict=True)], pa.uint64()),
        "g": pa.array([_hash(key, n) for key, (n, _, _) in zip(before, placed, strict=True)], pa.uint64()),
    }
    for i in sorted(frozenset().union(*(change.unset for _, _, change in placed))):
        columns[f"u{i}"] = pa.array([i in change.unset for _, _, change in placed])
    for name, values in columns.items():
        made = made.append_column(name, values)
    return TableChanges(table, False, None, None, None, in_order=made, piece=piece)


def write_in_order(
    pipeline: Pipeline,
    schemas: Mapping[TableId, TableSchema],
    transactions: Sequence[Transaction],
    way: InOrderPlan,
    pieces: int = 1,
) -> int:
    """Write the transactions as the next batch; each ends 10 after the previous one. Returns how many were repeated."""
    placed: dict[tuple[TableId, int], list[tuple[int, int, Change]]] = {}
    for t, transaction in enumerate(transactions):
        end, piece = pipeline.end + 10 * (t + 1), t * pieces // max(len(transactions), 1)
        for change in transaction:
            part = placed.setdefault((change.table, piece), [])
            part.append((sum(map(len, placed.values())), end, change))
    commits = [
        TableCommit(
            table,
            schema,
            schema.name,
            tuple(staged(table, schema, part, piece) for (of, piece), part in sorted(placed.items()) if of == table),
        )
        for table, schema in schemas.items()
    ]
    end = pipeline.end + 10 * len(transactions) + 5
    ends = [pipeline.end + 10 * (t + 1) for t in range(len(transactions))]
    last = LastCommit(Lsn(end - 15), Lsn(end - 5), time_of(end - 5), OriginFilter.NONE)
    times = CommitTimes(np.array(ends, np.uint64), np.array([time_of(end) for end in ends], np.int64))
    number = BatchId(pipeline.batch + 1)
    batch = BatchCommit(pipeline.subscription, pipeline.epoch, number, Lsn(end), tuple(commits), last=last, times=times)
    in_order = pipeline.target.in_order()
    assert in_order is not None
    redone = in_order.commit_in_order(batch, way)
    pipeline.batch, pipeline.end = pipeline.batch + 1, end
    return redone


def time_of(end: int) -> int:
    """When the transaction that ends there was committed."""
    return 1_700_000_000_000_000 + end


def _key_of(schema: TableSchema, row: Row) -> Row:
    if schema.mode is KeyMode.BAG:
        return row
    names = [column.name for column in schema.columns]
    return tuple(row[names.index(name)] for name in schema.key)


def _hash(key: Row | None, n: int) -> int:
    return n if not key else hash(("key", key)) & (2**64 - 1)
