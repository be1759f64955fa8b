"""Hashes of rows and digests of key ranges, computed by the server.

A row's hash is the MD5 of its line of COPY text: 128 bits, in two halves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.model.schema import TableSchema
from engine.sources.mariadb.catalog import MariaDbTable
from engine.sources.mariadb.connect import quoted
from engine.sources.mariadb.range_digests import MD5_HALVES
from engine.sources.mariadb.splits import (
    and_kept,
    compared,
    key_literal,
    key_literals,
    key_of,
    printed_values,
    split_of,
)
from engine.sources.mariadb.types import read_line
from engine.sources.mariadb_queries.stamps import Read
from engine.sources.query_diff.database import ComparedTable, Method
from engine.sources.query_diff.key_ranges import ALL_KEYS, DigestedRange, KeyRange, Page
from engine.sources.query_diff.table_walk import LEAST_BYTES

_AT_ONCE = 64
"""Ranges of one statement: each is a branch of a union. Not measured."""
_EVERY_ROW = 2**64 - 1
"""Limit of a derived table, which keeps the server from merging it with the outer query: the hash would be computed once for each half."""


def methods(table: MariaDbTable, compared_as: ComparedTable) -> frozenset[Method]:
    """Ranges need the primary key, of types whose order is known."""
    found = frozenset(Method) - {Method.OUTER_JOIN}
    return found if is_ordered(table, compared_as.schema) else found - {Method.RANGE_CHECKSUM}


def in_key_order(table: MariaDbTable, schema: TableSchema) -> bool:
    """See ComparedTable. The rows of a table lie in the order of the primary key, which must be all that is unique in it."""
    unique = sum(index.unique for index in table.indexes)
    return unique == 1 and table.bytes >= LEAST_BYTES and is_ordered(table, schema)


def is_ordered(table: MariaDbTable, schema: TableSchema) -> bool:
    """Whether its key is the primary key, of types whose order is known."""
    return [facts.name for facts, _ in key_of(table)] == [column.on_source for column in schema.key_columns]


@dataclass(frozen=True, slots=True)
class HashedTable:
    """A table whose rows the server hashes. `table`: as the catalog has it now; a read is refused if it was changed since the snapshot."""

    table: MariaDbTable
    compared_as: ComparedTable
    read: Read

    def rows(self, ranges: Sequence[KeyRange] | None, since: str = "TRUE") -> Iterator[bytes]:
        """See ComparedDatabase.hashed_rows. `since`: a condition in SQL."""
        for number, keys in enumerate([KeyRange()] if ranges is None else ranges):
            order = "" if ranges is None else f" ORDER BY {self._order}"
            found = f"SELECT {self._hashed_line(str(number))} FROM {self._from(keys)} AND {since}{order}"
            yield from self._read(found)

    def placed(self, firsts: Sequence[tuple[str, ...]]) -> Iterator[bytes] | None:
        """See ComparedDatabase.placed_rows: for a key of one whole number."""
        key = key_of(self.table)
        if len(key) != 1 or not key[0][1].number or key[0][1].name not in {"int2", "int4", "int8"}:
            return None
        numbers = [key_literal(key[0][1], first[0]) for first in firsts]
        place = f"INTERVAL({quoted(key[0][0].name)}, {', '.join(numbers)})" if numbers else "0"
        return self._read(f"SELECT {self._hashed_line(place)} FROM {self._from(KeyRange())}")

    def page(self, page: Page, *, hashed: bool) -> Iterator[bytes]:
        """See ComparedDatabase.page."""
        key = key_of(self.table)
        after = "" if page.after is None else f" AND {compared(key, key_literals(key, page.after), '>')}"
        line = self._hashed_line("0") if hashed else self._line
        order = f"ORDER BY {self._order} LIMIT {page.most}"
        yield from self._read(f"SELECT {line} FROM {self._from(page.keys)}{after} {order}")

    def digests(self, firsts: Sequence[tuple[str, ...]], within: KeyRange = ALL_KEYS) -> list[DigestedRange]:
        """See ComparedDatabase.range_digests."""
        ranges = [KeyRange(first, before) for first, before in pairwise([within.first, *firsts, within.before])]
        found = [DigestedRange(0, 0, 0) for _ in ranges]
        for begin in range(0, len(ranges), _AT_ONCE):
            branches = [self._digest(begin + i, keys) for i, keys in enumerate(ranges[begin : begin + _AT_ONCE])]
            for line in b"".join(self._read(" UNION ALL ".join(branches))).splitlines():
                number, rows, low, high = map(int, line.split(b"\t"))
                found[number] = DigestedRange(rows, low, high)
        return found

    def _digest(self, number: int, keys: KeyRange) -> str:
        hashes = f"SELECT MD5({self._line}) AS m FROM {self._from(keys)} LIMIT {_EVERY_ROW}"
        return f"(SELECT CONCAT_WS('\\t', {number}, COUNT(*), {', '.join(MD5_HALVES)}) FROM ({hashes}) AS d{number})"

    def _hashed_line(self, number: str) -> str:
        """SQL of a line for `hashed_lines`; NULL if the row's text is too large for the server."""
        values = printed_values(self.table, self.compared_as.schema)
        key = [values[column.on_source] for column in self.compared_as.schema.key_columns]
        return f"CONCAT({number}, '\\t', {read_line(key)}, '\\t', MD5({self._line}))"

    @property
    def _line(self) -> str:
        return read_line(list(printed_values(self.table, self.compared_as.schema).values()))

    @property
    def _order(self) -> str:
        return ", ".join(quoted(facts.name) for facts, _ in key_of(self.table))

    def _from(self, keys: KeyRange) -> str:
        """The table and the condition of a range."""
        name, key = self.table.name, key_of(self.table)
        bounds = [(">=", keys.first), ("<", keys.before)]
        conditions = [
            compared(key, key_literals(key, bound), operator) for operator, bound in bounds if bound is not None
        ]
        where = " AND ".join(conditions) or "TRUE"
        return f"{quoted(name.schema, name.name)} WHERE {where}{and_kept(self.compared_as.schema)}"

    def _read(self, query: str) -> Iterator[bytes]:
        return self.read(split_of(self.compared_as.schema, query))
