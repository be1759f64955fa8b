"""Chooses key ranges of a table at random. The server estimates how many rows are between two keys from a few pages of the index; along
these estimates random places are found, and from there on rows are counted. The rest of the table is not read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random

from engine.model.copies import KeyBound
from engine.model.ranges import KeyInterval, KeySample, SampledRange, SamplePart, in_parts
from engine.model.sample_sizes import PART_BYTES, sizes
from engine.model.schema import TableSchema
from engine.sources.mariadb.catalog import MariaDbTable
from engine.sources.mariadb.connect import MariaDbConnection, quoted, rows
from engine.sources.mariadb.key_numbers import KeyNumbers, key_number, key_texts, numbers_of, sorts_exactly
from engine.sources.mariadb.range_digests import ordered_key, rows_sql
from engine.sources.mariadb.splits import compared, key_literals, place_after, split_of, step_of
from engine.sources.mariadb.types import ColumnFacts, Printed

_COUNTED = 10_000
"""Rows up to which they are counted: the statistics of a small or new table may be of another time."""
_FEW_ROWS = 64
"""Estimated rows between two keys from which one is chosen by its place: for so few the server counts the rows of a page. Not measured."""
_ROWS_FIELD = 8
"""The place of the number of rows in a line of EXPLAIN."""


def sample_key(
    connection: MariaDbConnection, table: MariaDbTable, schema: TableSchema, share: float, seed: str
) -> KeySample | None:
    """As SnapshotSource.sample_key; None also if the source does not sort the first column of the key by bytes or numbers."""
    key = list(takewhile(lambda each: sorts_exactly(*each), ordered_key(table, schema)))
    if not key:
        return None
    _, row_bytes = step_of(table, 1)
    name = quoted(table.name.schema, table.name.name)
    counted = rows(connection, f"SELECT COUNT(*) FROM (SELECT 1 FROM {name} LIMIT {_COUNTED}) AS c")[0][0]
    count = max(int(counted), table.rows if counted == _COUNTED else 1)
    each, number = sizes(count, row_bytes, share)
    places = _Places(connection, table, key, Random(seed))  # noqa: S311
    found = places.ranges(each, number)
    ranges = [SampledRange(keys, held, held * row_bytes) for keys, held in found]
    parts = (_part(table, schema, part) for part in in_parts(ranges, PART_BYTES))
    return KeySample(tuple(schema.key_columns[: len(key)]), tuple(parts))


def _part(table: MariaDbTable, schema: TableSchema, ranges: Sequence[SampledRange]) -> SamplePart:
    text = " UNION ALL ".join(rows_sql(table, schema, each.keys) for each in ranges)
    size, count = sum(each.bytes for each in ranges), sum(each.rows for each in ranges)
    return SamplePart(tuple(ranges), split_of(schema, text, size, count))


@dataclass(slots=True)
class _Places:
    """Places among the rows of a table. A part of the keys is a pair of numbers: after the first, up to the second one."""

    connection: MariaDbConnection
    table: MariaDbTable
    key: Sequence[tuple[ColumnFacts, Printed]]
    random: Random
    numbers: list[KeyNumbers] = field(init=False)
    estimates: dict[tuple[int, int], int] = field(default_factory=dict)
    filled: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = [numbers_of(*each) for each in self.key]

    def ranges(self, each: int, number: int) -> list[tuple[KeyInterval, int]]:
        """The first and the last `each` rows, and as many after `number` random rows; ascending, those that meet as one."""
        first, last = self._after(None, each), self._place(None, each + 1, descending=True)
        if first is None or last is None:
            return [(KeyInterval(), each)]
        found = [(None, first), (last, None)]
        whole = (self._number(self._place(None, 1)), self._number(self._place(None, 1, descending=True)))
        for _ in range(number):
            start = self._random_row(whole)
            if start is not None:
                found.append((start, self._after(start, each)))
        return _merged(found, self._number, each)

    def _random_row(self, part: tuple[int, int]) -> KeyBound | None:
        held = self._rows(*part)
        while held > _FEW_ROWS and part[1] - part[0] > 1:
            middle = sum(part) // 2
            left, right = self._filled(part[0], middle), self._filled(middle, part[1])
            rows_left, rows_right = self._rows(*left), self._rows(*right)
            is_left = self.random.random() * (rows_left + rows_right) < rows_left
            part, held = (left, rows_left) if is_left else (right, rows_right)
        return self._after(self._bound(part[0]), self.random.randrange(max(1, held)) + 1)

    def _filled(self, low: int, high: int) -> tuple[int, int]:
        """The part without the keys before its first and after its last row: the server estimates at least some rows of any part."""
        if (low, high) not in self.filled:
            first = self._after(self._bound(low), 1)
            last = self._place(key_literals(self.key, self._bound(high).values), 1, descending=True)
            # A place is at the number or before it, so a row beyond it may be found.
            begin, end = max(low, self._number(first)) if first else high, self._number(last) if last else low
            self.filled[low, high] = (begin, min(high, end)) if begin <= end else (low, low)
        return self.filled[low, high]

    def _rows(self, low: int, high: int) -> int:
        """An estimate of the rows of a part."""
        if low == high:
            return 0
        if (low, high) not in self.estimates:
            bounds = ((">", low), ("<=", high))
            where = " AND ".join(
                compared(self.key, key_literals(self.key, self._bound(n).values), operator) for operator, n in bounds
            )
            name = quoted(self.table.name.schema, self.table.name.name)
            lines = rows(self.connection, f"EXPLAIN SELECT 1 FROM {name} FORCE INDEX (PRIMARY) WHERE {where}")
            self.estimates[low, high] = int(lines[0][_ROWS_FIELD] or 0)
        return self.estimates[low, high]

    def _bound(self, number: int) -> KeyBound:
        return KeyBound(tuple(key_texts(self.numbers, number)))

    def _number(self, bound: KeyBound | None) -> int:
        return 0 if bound is None else key_number(self.numbers, bound.values)

    def _after(self, bound: KeyBound | None, step: int) -> KeyBound | None:
        return self._place(None if bound is None else key_literals(self.key, bound.values), step)

    def _place(self, after: Sequence[str] | None, step: int, *, descending: bool = False) -> KeyBound | None:
        texts = place_after(self.connection, self.table, self.key, after, step, descending=descending)
        return None if texts is None else KeyBound(tuple(texts))


def _merged(
    found: Sequence[tuple[KeyBound | None, KeyBound | None]], number: Callable[[KeyBound | None], int], each: int
) -> list[tuple[KeyInterval, int]]:
    """Ranges of `each` rows, ascending, those that meet as one, with their numbers of rows, estimated."""
    ranges: list[tuple[KeyInterval, int]] = []
    for after, upto in sorted(found, key=lambda keys: -1 if keys[0] is None else number(keys[0])):
        last = ranges[-1] if ranges else None
        if last is None or (last[0].upto is not None and number(after) > number(last[0].upto)):
            ranges.append((KeyInterval(after, upto), each))
        elif last[0].upto is not None and (upto is None or number(upto) > number(last[0].upto)):
            ranges[-1] = (KeyInterval(last[0].after, upto), last[1] + each)
    return [(KeyInterval(), each)] if ranges[0][0] == KeyInterval() else ranges
