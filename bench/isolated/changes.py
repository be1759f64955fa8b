"""Generated changes like those in a pgbench log, and the expected content of the tables after any number. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

ACCOUNTS, TELLERS, BRANCHES = 100_000, 10, 1
"""Rows per step of the scale."""
CHANGES = 4
"""Changes of a transaction: one update in each of the keyed tables, and one inserted row."""
FILLER = "x" * 84
KEYED = ("accounts", "tellers", "branches")
COLUMNS = {
    **dict.fromkeys(KEYED, (("id", "INTEGER"), ("balance", "BIGINT"), ("filler", "VARCHAR"))),
    "history": (("account", "INTEGER"), ("teller", "INTEGER"), ("branch", "INTEGER"), ("delta", "BIGINT")),
}

Array = Any
_SEED = 20


def sizes(scale: int) -> dict[str, int]:
    """Rows of each keyed table at the start; their ids count from 0 and their balances are 0."""
    return {"accounts": ACCOUNTS * scale, "tellers": TELLERS * scale, "branches": BRANCHES * scale}


@dataclass(frozen=True, slots=True)
class Changes:
    """Arrays with an item per transaction.

    `keys[t]` and `balances[t]`: the row of table `t` that it updates, and that row's new balance. `delta`: the amount
    added.
    """

    keys: Mapping[str, Array]
    balances: Mapping[str, Array]
    delta: Array

    @property
    def transactions(self) -> int:
        return len(self.delta)

    def balances_after(self, table: str, count: int, rows: int) -> Array:
        """The balances of a table of `rows` rows after the first `count` transactions."""
        result = np.zeros(rows, np.int64)
        np.add.at(result, self.keys[table][:count], self.delta[:count])
        return result


def make(transactions: int, scale: int) -> Changes:
    """Make the changes; every call returns the same ones."""
    random = np.random.default_rng(_SEED)
    delta = random.integers(-5000, 5001, transactions)
    keys = {table: random.integers(0, rows, transactions, np.int32) for table, rows in sizes(scale).items()}
    return Changes(keys, {table: _running(keys[table], delta) for table in KEYED}, delta)


def _running(keys: Array, delta: Array) -> Array:
    """The balance of each change's row after that change."""
    order = np.argsort(keys, kind="stable")
    total = np.cumsum(delta[order])
    sorted_keys = keys[order]
    first = np.r_[True, sorted_keys[1:] != sorted_keys[:-1]]
    before = (total - delta[order])[first]
    result = np.empty_like(total)
    result[order] = total - before[np.cumsum(first) - 1]
    return result


def groups(changes: Changes, size: int) -> Iterator[slice]:
    """Slices of `size` transactions, in order; the last may be smaller."""
    for start in range(0, changes.transactions, size):
        yield slice(start, min(start + size, changes.transactions))


def net(changes: Changes, table: str, part: slice) -> slice | Array:
    """Indices of the transactions in a slice with the last change of a row of the table: the net changes."""
    keys = changes.keys[table][part]
    _, last = np.unique(keys[::-1], return_index=True)
    return part.start + len(keys) - 1 - last


def runs(changes: Changes, table: str, part: slice) -> Iterator[slice]:
    """The slice cut into the longest pieces in which no row of the table changes twice."""
    keys = changes.keys[table][part].tolist()
    seen: set[int] = set()
    begin = 0
    for at, key in enumerate(keys):
        if key in seen:
            yield slice(part.start + begin, part.start + at)
            begin = at
            seen.clear()
        seen.add(key)
    yield slice(part.start + begin, part.stop)


def rows(changes: Changes, table: str, which: slice | Array) -> Any:
    """Full rows after these changes of a keyed table, with the engine's staging columns: c0, c1, c2."""
    keys = changes.keys[table][which]
    fillers = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(keys), np.int32)), pa.array([FILLER]))
    return pa.table(
        {"c0": pa.array(keys), "c1": pa.array(changes.balances[table][which]), "c2": fillers.cast(pa.string())}
    )


def history_rows(changes: Changes, part: slice) -> Any:
    """The rows that a slice inserts, in the engine's staging columns."""
    columns = [*(changes.keys[table][part] for table in KEYED), changes.delta[part]]
    return pa.table({f"c{number}": pa.array(column) for number, column in enumerate(columns)})
