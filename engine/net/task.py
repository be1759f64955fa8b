"""One task of a batch: reads the raw records of its ranges, and returns the net changes of all its tables in one key bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from engine.model.batch import BlockRef, LogRange, TableChanges, TaskDescriptor, TaskResult
from engine.model.fault import EngineFault, FaultKind
from engine.model.source import ScannedChanges, Scanner
from engine.net.change_data import with_change_data
from engine.net.change_kernels import Changes
from engine.net.in_order import Places, changes_in_order
from engine.net.plan import plan_for
from engine.net.table import Bucket, net_table
from engine.net.versions import Commits, with_versions
from engine.platform.compiled import Array

ReadBlocks = Callable[[Sequence[BlockRef]], Iterator[tuple[Any, Any]]]
"""Yields each block's records in order: `(data uint8, offsets int32 of count + 1 borders)`."""


def run_task(descriptor: TaskDescriptor, read_blocks: ReadBlocks, scanner: Scanner) -> TaskResult:
    """Run the task in this process. Holds all records of its ranges in memory; reads each block once.

    Returns: one TableChanges, with pyarrow tables, per table that has changes in the ranges or a fault. `records`: number
        of records in the ranges, for all buckets.

    Raises:
        EngineFault(QUEUE_CORRUPT): a block does not match its reference, or records are missing.
        EngineFault(LOG_UNREADABLE): from the scanner.
    """
    started = time.perf_counter()
    fills, starts = _fills(descriptor)
    data, offsets, first = _gather(descriptor, read_blocks, fills)
    found = scanner.scan(data, offsets, first, descriptor.ranges, descriptor.tables)
    bucket = Bucket(descriptor.bucket, descriptor.buckets)
    fills_at = len(data) - len(fills)
    tables = []
    for t, changes, chosen in _by_table(found, descriptor):
        part, begin = descriptor.tables[t], fills_at + starts[t]
        if descriptor.in_order:
            tables.append(changes_in_order(part, found.data, begin, changes, Places(chosen, found.end[chosen]), bucket))
        else:
            schema = part.versions[-1]
            times = found.time_us[chosen] if schema.soft_delete or schema.history else None
            net = net_table(part, found.data, begin, changes, bucket, times if schema.soft_delete else None)
            if schema.history and times is not None:
                commits = Commits(found.end[chosen], times)
                net = with_versions(net, part, found.data, begin, changes, bucket, commits)
            if schema.staging:
                places = Places(chosen, found.end[chosen])
                net = with_change_data(net, part, found.data, begin, changes, places, bucket)
            tables.append(net)
    records = sum(r.stop - r.start for r in descriptor.ranges)
    seconds = time.perf_counter() - started
    return TaskResult(descriptor.bucket, tuple(filter(_matters, tables)), records, seconds, found.xids, found.tally)


def _matters(table: TableChanges) -> bool:
    return bool(table.counts or table.net_rows or table.fault or not table.is_empty)


def _fills(descriptor: TaskDescriptor) -> tuple[bytes, list[int]]:
    """The concatenated fills of all tables, and the offset of each table's."""
    texts, starts = bytearray(), []
    for part in descriptor.tables:
        starts.append(len(texts))
        if len(part.versions) > 1:
            texts += plan_for(part.versions).fills
    return bytes(texts), starts


def _gather(descriptor: TaskDescriptor, read_blocks: ReadBlocks, tail: bytes) -> tuple[Array, Array, Array]:
    """The records of the ranges in one buffer in order of ordinals, followed by `tail`; their borders and ordinals.

    Only records of the ranges are copied: a block may hold records of thousands of open transactions.
    """
    blocks = sorted(descriptor.blocks, key=lambda b: b.first)
    low, high = _spans(descriptor.ranges)
    firsts = np.fromiter((block.first for block in blocks), np.int64, len(blocks))
    counts = np.fromiter((block.count for block in blocks), np.int64, len(blocks))
    from_, to = np.searchsorted(high, firsts, side="right").tolist(), np.searchsorted(low, firsts + counts).tolist()
    # An upper bound; pages that are not written to use no memory.
    buffer = np.empty(sum(block.length for block in blocks) + len(tail), np.uint8)
    borders, ordinals = [np.zeros(1, np.int64)], [np.empty(0, np.int64)]
    at = 0
    for i, (block, (data, found)) in enumerate(zip(blocks, read_blocks(blocks), strict=True)):
        if len(found) != block.count + 1:
            raise EngineFault(
                FaultKind.QUEUE_CORRUPT, block.path, f"block at {block.offset} has a different number of records"
            )
        first, stop = block.first, block.first + block.count
        for span in range(from_[i], to[i]):
            begin, end = max(first, int(low[span])), min(stop, int(high[span]))
            taken = np.asarray(found[begin - first : end - first + 1], np.int64)
            size = int(taken[-1] - taken[0])
            if at + size > len(buffer) - len(tail):
                raise EngineFault(
                    FaultKind.QUEUE_CORRUPT, block.path, f"block at {block.offset} is larger than the index says"
                )
            buffer[at : at + size] = data[taken[0] : taken[-1]]
            borders.append(taken[1:] - (taken[0] - at))
            ordinals.append(np.arange(begin, end))
            at += size
    buffer[at : at + len(tail)] = np.frombuffer(tail, np.uint8)
    return buffer[: at + len(tail)], np.concatenate(borders), np.concatenate(ordinals)


def _spans(ranges: Sequence[LogRange]) -> tuple[Array, Array]:
    """Starts and ends of the disjoint intervals of ordinals that the ranges cover, ascending; adjoining ones are joined."""
    order = sorted((int(r.start), int(r.stop)) for r in ranges)
    low: list[int] = []
    high: list[int] = []
    for start, stop in order:
        if high and start <= high[-1]:
            high[-1] = max(high[-1], stop)
        else:
            low.append(start)
            high.append(stop)
    return np.array(low, np.int64), np.array(high, np.int64)


def _by_table(found: ScannedChanges, descriptor: TaskDescriptor) -> Iterator[tuple[int, Changes, Array]]:
    """Per table with changes or versions: its index in the descriptor, its changes in order, and their indices."""
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
        yield int(t), Changes(*(values if whole else values[chosen] for values in columns)), chosen
