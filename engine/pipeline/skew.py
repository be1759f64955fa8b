"""Finds the one task, or the one key, that has most of a batch's changes, so that work in parallel waits for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from engine.model.batch import TableChanges
from engine.model.identity import TableId

SKEW_ROWS = 1_000
"""Least number of changes of a batch whose distribution is judged: fewer take no time. Not measured."""
SKEW_SHARE = 0.5
"""Least share of the changes that one task has: most of them."""
SKEW_FACTOR = 1.6
"""Least multiple of an equal share that it has: with two tasks, four in five changes. Not measured."""
_BUCKETS = 1 << 16
"""Keys are counted by this many bits of their hashes: few enough that counting is cheap, too many for two large keys to share one often.
"""


@dataclass(frozen=True, slots=True)
class Skew:
    """`rows` of a batch's `of_rows` changes are with one of `tasks` tasks or connections; most of them are of `table`."""

    tasks: int
    rows: int
    of_rows: int
    table: TableId


def skew_of_tasks(tasks: Sequence[Mapping[TableId, int]]) -> Skew | None:
    """The skew of parallel tasks, each given by its number of changes of each table. None if they are balanced, or few."""
    largest = max(tasks, key=lambda one: sum(one.values()), default={})
    rows, of_rows = sum(largest.values()), sum(sum(one.values()) for one in tasks)
    if not _is_skewed(rows, of_rows, len(tasks)):
        return None
    return Skew(len(tasks), rows, of_rows, max(largest, key=largest.__getitem__))


def skew_of_keys(changes: Iterable[TableChanges], lanes: int) -> Skew | None:
    """The skew of changes that are written in order over `lanes` connections: changes of one key wait for each other.

    Changes in files are not read: None.
    """
    tables = [(one.table, one.in_order.column("h")) for one in changes if isinstance(one.in_order, pa.Table)]
    of_rows = sum(len(hashes) for _, hashes in tables)
    if of_rows < SKEW_ROWS:
        return None
    for table, hashes in tables:
        if len(hashes) >= SKEW_SHARE * of_rows:  # One with fewer cannot have such a key.
            buckets = (hashes.to_numpy() % np.uint64(_BUCKETS)).astype(np.int64)
            rows = int(np.bincount(buckets).max())
            if _is_skewed(rows, of_rows, lanes):
                return Skew(lanes, rows, of_rows, table)
    return None


def _is_skewed(rows: int, of_rows: int, tasks: int) -> bool:
    return tasks > 1 and of_rows >= SKEW_ROWS and rows >= of_rows * max(SKEW_SHARE, SKEW_FACTOR / tasks)
