"""Applies net changes to rows in memory, in the order that targets keep; what they say of the rows before must be true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from engine.model.batch import TableChanges
from tests.unit.net.batch_builder import rows
from tests.unit.net.history_model import Row


def apply_keyed(before: Sequence[Row], shares: Sequence[TableChanges], key: Sequence[int] = (0,)) -> list[Row]:
    """The rows after the changes of all buckets; `key`: places of the key columns, in key order."""
    held = {tuple(row[c] for c in key): row for row in before}
    inserts = [row for share in shares for row in rows(share.inserts)]
    for share in shares:
        for row in [] if share.partials is None else share.partials.to_pylist():
            there = held[tuple(row[f"k{k}"] for k in range(len(key)))]
            inserts.append(tuple(there[c] if row.get(f"u{c}") else row[f"c{c}"] for c in range(3)))
    if any(share.truncated for share in shares):
        held.clear()
    for share in shares:
        for gone in rows(share.deletes):
            del held[gone]
    remove_replaced(held, shares)
    for share in shares:
        staying = [tuple(row[c] for c in key) for row in rows(share.inserts)[: share.paired]]
        assert rows(share.deletes)[: share.paired] == staying
    for row in inserts:
        place = tuple(row[c] for c in key)
        assert place not in held
        held[place] = (row[0], row[1], row[2])
    return list(held.values())


def remove_replaced(held: dict[tuple[Any, ...], Row], shares: Sequence[TableChanges]) -> None:
    """Remove the rows to whose keys others came, by key."""
    for share in shares:
        assert not {*rows(share.replaced)} & {*rows(share.deletes)}
        for key in rows(share.replaced):
            held.pop(key, None)


def apply_bag(before: Sequence[Row], shares: Sequence[TableChanges]) -> list[Row]:
    """The rows after the changes of all buckets, of a table without a key."""
    held = Counter[Row]() if any(share.truncated for share in shares) else Counter(before)
    for share in shares:
        for *image, n in rows(share.deletes):
            assert held[(image[0], image[1], image[2])] >= n
            held[(image[0], image[1], image[2])] -= n
        held.update((row[0], row[1], row[2]) for row in rows(share.inserts))
    return list(held.elements())


Marked = dict[int, tuple[Row, int]]
"""Deleted rows by key, each with the time of its deletion in microseconds since 1970 UTC."""


def apply_soft(live: dict[int, Row], marked: Marked, shares: Sequence[TableChanges]) -> None:
    """Apply the changes of all buckets to the live and the deleted rows of a table with soft delete, whose key is its first column."""
    inserts = [row for share in shares for row in rows(share.inserts)]
    inserts += [
        _completed(live, row) for share in shares if share.partials is not None for row in share.partials.to_pylist()
    ]
    gone = [
        (_completed(live, row), row["at"], row["doubtful"])
        for share in shares
        if share.tombstones is not None
        for row in share.tombstones.to_pylist()
    ]
    for share in shares:
        for (key,) in rows(share.deletes):
            del live[key]
    for share in shares:
        for (key,) in rows(share.replaced):
            live.pop(key, None)
    gone = [(row, at) for row, at, doubtful in gone if not (doubtful and row[0] in live)]
    if any(share.truncated for share in shares):
        (time_us,) = {share.truncated_us for share in shares if share.truncated}
        marked.update({key: (row, time_us) for key, row in live.items()})
        live.clear()
    for row, at in gone:
        assert row[0] not in live
        marked[row[0]] = (row, round(at.timestamp() * 1_000_000))
    assert len({row[0] for row, _ in gone}) == len(gone)
    for row in inserts:
        assert row[0] not in live
        marked.pop(row[0], None)
        live[row[0]] = row


def _completed(live: dict[int, Row], row: dict[str, Any]) -> Row:
    there = live[row["k0"]] if any(row.get(f"u{c}") for c in range(3)) else None
    found = tuple(there[c] if there is not None and row.get(f"u{c}") else row[f"c{c}"] for c in range(3))
    return found[0], found[1], found[2]
