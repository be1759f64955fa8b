"""The versions of a table's rows, from single changes in log order, and a history table as a dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from engine.model.batch import OPTIONAL, TableChanges
from tests.unit.net.history_model import Row

INITIAL = 0
"""Position from which versions are valid that were there before the first change."""
Version = tuple[Row, int, int | None]
"""Values of a version, and the ends of the transactions with which it began and ended; None = it is current."""


@dataclass
class Versions:
    """Versions that have ended, and the current ones by key."""

    current: dict[int, tuple[Row, int]]
    ended: list[Version] = field(default_factory=list)

    @classmethod
    def initial(cls, rows: Iterable[Row]) -> Versions:
        return cls({row[0]: (row, INITIAL) for row in rows})

    def end(self, key: int, position: int) -> None:
        """End the current version; one that began with the same transaction never was."""
        row, since = self.current.pop(key)
        if since != position:
            self.ended.append((row, since, position))

    def all(self) -> list[Version]:
        return sorted([*self.ended, *((row, since, None) for row, since in self.current.values())], key=repr)


def oracle(initial: Sequence[Row], shares: Sequence[TableChanges]) -> Versions:
    """The versions that single changes give (`TableChanges.in_order` of all buckets): of each transaction only its end counts."""
    rows = {row[0]: row for row in initial}
    found = Versions.initial(initial)
    changes = [row for share in shares if share.in_order is not None for row in share.in_order.to_pylist()]
    changes.sort(key=lambda change: int(change["n"]))
    for position, transaction in groupby(changes, key=lambda change: int(change["end"])):
        touched: set[int] = set()
        for change in transaction:
            touched |= _apply(rows, change)
        for key in touched & found.current.keys():
            found.end(key, position)
        found.current.update({key: (rows[key], position) for key in touched & rows.keys()})
    return found


def _apply(rows: dict[int, Row], change: dict[str, Any]) -> set[int]:
    """Apply one change; returns the keys that it touches."""
    if change["op"] == 4:
        gone = set(rows)
        rows.clear()
        return gone
    before = rows.pop(change["k0"], None)
    if change["op"] == 3:
        return {change["k0"]}
    values = [before[c] if before is not None and change.get(f"u{c}") else change[f"c{c}"] for c in range(3)]
    rows[values[0]] = (values[0], values[1], values[2])
    return {change["k0"], values[0]}


def apply_slice(history: Versions, shares: Sequence[TableChanges]) -> None:
    """Apply the versions of one slice, of all buckets, in the order that `TableChanges` prescribes."""
    begun = [row for share in shares if share.versions is not None for row in share.versions.to_pylist()]
    completed = [(_completed(history, row), int(row["from_end"]), row["to_end"]) for row in begun]
    for share in shares:
        for row in share.ended.to_pylist() if share.ended is not None else ():
            if row["k0"] in history.current or not row.get(OPTIONAL):
                history.end(row["k0"], int(row["to_end"]))
    truncates = {share.truncated_end for share in shares if share.truncated_end}
    for position in truncates:
        for key in list(history.current):
            history.end(key, position)
    assert len(truncates) <= 1
    for row, since, until in completed:
        if until is not None:
            history.ended.append((row, since, int(until)))
            continue
        assert row[0] not in history.current
        history.current[row[0]] = (row, since)


def _completed(history: Versions, row: dict[str, Any]) -> Row:
    before = history.current[row["k0"]][0] if any(row.get(f"u{c}") for c in range(3)) else None
    found = tuple(before[c] if before is not None and row.get(f"u{c}") else row[f"c{c}"] for c in range(3))
    return found[0], found[1], found[2]
