"""Applies change data to rows, as a reader of the CD table would, and checks that each row of it is possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from engine.model.batch import TableChanges
from tests.unit.net.history_model import Row


def rows_of_slice(
    shares: Sequence[TableChanges], piece: int
) -> list[tuple[tuple[int, int, int], Mapping[str, object]]]:
    """The change data of one slice, each with its order: end of the transaction, slice, place."""
    found = [row for share in shares if share.change_data is not None for row in share.change_data.to_pylist()]
    return sorted((((row["end"], piece, row["place"]), row) for row in found), key=lambda one: one[0])


def completed(before: Mapping[int, Row], row: Mapping[str, object]) -> Row:
    """The row with unset columns from the rows before the slice."""
    values = []
    for c in range(3):
        key = row.get("k0")
        unset = row.get(f"u{c}")
        assert not unset or isinstance(key, int)
        values.append(before[key][c] if unset and isinstance(key, int) else row[f"c{c}"])
    return values[0], values[1], values[2]  # type: ignore[return-value]


class Keyed:
    """Rows by key."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.live = {row[0]: row for row in rows}

    def apply(self, op: str, row: Row, *, optional: bool = False) -> None:
        if optional and row[0] not in self.live:
            assert op in {"U", "D"}
            if op == "D":
                return
            op = "I"
        if op == "T":
            self.live.clear()
        elif op == "D":
            assert row[1:] == (None, None)
            del self.live[row[0]]
        else:
            assert (row[0] in self.live) == (op == "U")
            self.live[row[0]] = row

    @property
    def rows(self) -> Counter[Row]:
        return Counter(self.live.values())


class Images:
    """Rows that are identified as a whole."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = Counter(rows)

    def apply(self, op: str, row: Row, *, optional: bool = False) -> None:
        assert not optional
        if op == "T":
            self.rows.clear()
        elif op == "D":
            assert self.rows[row] > 0
            self.rows[row] -= 1
        else:
            assert op == "I"
            self.rows[row] += 1
