"""One task of a batch: raw records of all its ranges in, net changes of all its tables in one key bucket out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from engine.model.batch import BlockRef, TableChanges, TaskDescriptor, TaskResult
from engine.model.fault import EngineFault, FaultKind
from engine.model.source import ScannedChanges, Scanner
from engine.net.change_kernels import Changes
from engine.net.compiled import Array
from engine.net.plan import plan_for
from engine.net.table import Bucket, net_table

ReadBlock = Callable[[BlockRef], tuple[Any, Any]]


def run_task(descriptor: TaskDescriptor, read_block: ReadBlock, scanner: Scanner) -> TaskResult:
    """Do the task's work in this process. Holds all its records in memory at once; calls `read_block` once per block.

    Args:
        read_block: gives a block's records, `(data uint8, offsets int32 of count + 1 borders)`.

    Returns: one TableChanges, with pyarrow tables, per table that has changes in the ranges or a fault. `records` counts
        those of the ranges, of all buckets.

    Raises:
        EngineFault(QUEUE_CORRUPT): a block does not hold what its reference says, or records are missing.
        EngineFault(LOG_UNREADABLE): from the scanner.
    """
    begin = time.perf_counter()
    fills, starts = _fills(descriptor)
    data, offsets, first = _gather_blocks(descriptor.blocks, read_block, fills)
    found = scanner.scan(data, offsets, first, descriptor.ranges, descriptor.tables)
    bucket = Bucket(descriptor.bucket, descriptor.buckets)
    fills_at = len(data) - len(fills)
    tables = [
        net_table(descriptor.tables[t], found.data, fills_at + starts[t], changes, bucket)
        for t, changes in _by_table(found, descriptor)
    ]
    records = sum(r.stop - r.start for r in descriptor.ranges)
    return TaskResult(descriptor.bucket, tuple(filter(_matters, tables)), records, time.perf_counter() - begin)


def _matters(table: TableChanges) -> bool:
    return bool(table.truncated or table.counts or table.net_rows or table.fault)


def _fills(descriptor: TaskDescriptor) -> tuple[bytes, list[int]]:
    """Texts of all tables' fills one behind the other, and where each table's begin."""
    texts, starts = bytearray(), []
    for part in descriptor.tables:
        starts.append(len(texts))
        if len(part.versions) > 1:
            texts += plan_for(part.versions).fills
    return bytes(texts), starts


def _gather_blocks(blocks: tuple[BlockRef, ...], read_block: ReadBlock, tail: bytes) -> tuple[Array, Array, Array]:
    """All records in one buffer in order of their ordinals, `tail` behind them; their borders and ordinals."""
    pieces = []
    for block in sorted(blocks, key=lambda b: b.first):
        data, borders = read_block(block)
        if len(borders) != block.count + 1:
            raise EngineFault(
                FaultKind.QUEUE_CORRUPT, block.path, f"block at {block.offset} has another number of records"
            )
        pieces.append((block, data, np.asarray(borders, np.int64)))
    size = sum(int(borders[-1] - borders[0]) for _, _, borders in pieces)
    count = sum(block.count for block in blocks)
    buffer, offsets, first = (
        np.empty(size + len(tail), np.uint8),
        np.zeros(count + 1, np.int64),
        np.empty(count, np.int64),
    )
    at = record = 0
    for block, data, borders in pieces:
        taken = int(borders[-1] - borders[0])
        buffer[at : at + taken] = data[borders[0] : borders[-1]]
        offsets[record + 1 : record + 1 + block.count] = borders[1:] - borders[0] + at
        first[record : record + block.count] = np.arange(block.first, block.first + block.count)
        at += taken
        record += block.count
    buffer[size:] = np.frombuffer(tail, np.uint8)
    return buffer, offsets, first


def _by_table(found: ScannedChanges, descriptor: TaskDescriptor) -> Iterator[tuple[int, Changes]]:
    """Each table's changes, in order, with the table's index in the descriptor; only tables with changes or versions."""
    relations = np.array([part.versions[0].relation for part in descriptor.tables], np.int64)
    order = np.argsort(relations, kind="stable")
    ranks = np.searchsorted(relations[order], found.relation).astype(np.int16 if len(relations) < 2**15 else np.int32)
    by_rank = np.argsort(ranks, kind="stable")
    borders = np.searchsorted(ranks[by_rank], np.arange(len(relations) + 1))
    columns = (found.op, found.version, found.new, found.old, found.old_kind)
    whole = len(relations) == 1
    for rank, t in enumerate(order):
        chosen = by_rank[borders[rank] : borders[rank + 1]]
        if not chosen.size and len(descriptor.tables[t].versions) == 1:
            continue
        yield int(t), Changes(*(values if whole else values[chosen] for values in columns))
