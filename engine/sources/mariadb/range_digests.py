"""Digests of key ranges, computed by the server: for each range, a line of some 60 bytes is sent instead of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.model.copies import KeyBound, ordered_type
from engine.model.ranges import KeyInterval, NotByRanges, RangeDigest, RowForm, is_float
from engine.model.schema import Column, TableSchema
from engine.model.source import KeyedSplit, KeyWalk, TableSplit
from engine.model.values import Kind
from engine.sources.mariadb.catalog import MariaDbTable
from engine.sources.mariadb.connect import MariaDbConnection, quoted
from engine.sources.mariadb.splits import (
    compared,
    key_literals,
    key_of,
    place_after,
    printed_values,
    select_lines,
    split_of,
    step_of,
)
from engine.sources.mariadb.types import ColumnFacts, Printed, read_line, read_text

MOST_BRANCHES = 64
"""Most intervals of one statement: each is a branch of a union. Not measured."""
MOST_TEXT = 512 * 1024
"""Characters of branches after which a statement ends: below every usual max_allowed_packet. Not measured."""
_BITS = "CONCAT('f', HEX(REVERSE(SUBSTR(ST_AsWKB(POINT({}, 0)), 6, 8))))"
"""The bits of a float of 64 bits: the binary form of a point holds them, the lowest byte first. No other function prints them."""
MD5_HALVES = tuple(
    f"CAST(BIT_XOR(CAST(CONV({half}, 16, 10) AS UNSIGNED)) AS SIGNED)" for half in ("LEFT(m, 16)", "RIGHT(m, 16)")
)
"""Aggregates of the hexadecimal MD5 m of rows: the exclusive or of each half, as a signed number."""

Read = Callable[[TableSplit, str], Iterator[bytes]]
"""Reads a split under the snapshot of this name."""


def walk_key(
    connection: MariaDbConnection,
    table: MariaDbTable,
    schema: TableSchema,
    after: KeyBound | None,
    split_bytes: int,
    most_splits: int,
) -> KeyWalk | None:
    """See SnapshotSource.walk_key. None if the key has a type that does not sort in the engine as on the source."""
    key = ordered_key(table, schema)
    if not key:
        return None
    step, row_bytes = step_of(table, split_bytes)
    splits: list[KeyedSplit] = []
    while len(splits) < most_splits:
        bound = None if after is None else key_literals(key, after.values)
        texts = place_after(connection, table, key, bound, step)
        upto = None if texts is None else KeyBound(tuple(texts))
        text = _rows_sql(table, schema, KeyInterval(after, upto))
        splits.append(KeyedSplit(split_of(schema, text, step * row_bytes, step), upto))
        if upto is None:
            break
        after = upto
    return KeyWalk(tuple(splits), max(table.bytes, table.rows * row_bytes), table.rows)


def ordered_key(table: MariaDbTable, schema: TableSchema) -> list[tuple[ColumnFacts, Printed]]:
    """The columns of the primary key, if it is the schema's key and all of them sort in the engine as on the source; else none.

    Texts do not: the source sorts them by a collation, and compares them with padding.
    """
    key, columns = key_of(table), schema.key_columns
    types = [ordered_type(column) for column in columns]
    if [facts.name for facts, _ in key] != [column.on_source for column in columns]:
        return []
    return key if all(held is not None and held.kind is not Kind.TEXT for held in types) else []


def ranges_of(table: MariaDbTable, schema: TableSchema, read: Read) -> MariaDbRanges:
    """Raises NotByRanges if the table's rows cannot be cut into ranges, or would not be hashed as the engine hashes them."""
    if any(column.mask is not None for column in schema.columns):
        raise NotByRanges("masked columns")
    if not schema.key_columns:
        raise NotByRanges("no key")
    if not ordered_key(table, schema):
        raise NotByRanges("a key that is not the primary key, or not of numbers, dates and times without a zone")
    return MariaDbRanges(table, schema, read)


@dataclass(frozen=True, slots=True)
class MariaDbRanges:
    """Implements RangeSource. `table`: as the catalog has it now; a read is refused if it was changed since the snapshot."""

    table: MariaDbTable
    schema: TableSchema
    read: Read
    form: RowForm = RowForm.LINE

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(self.schema.key_columns)

    def digests(self, intervals: Sequence[KeyInterval], rows: int, snapshot: str) -> list[RangeDigest]:
        found: dict[int, list[tuple[int, RangeDigest]]] = {number: [] for number in range(len(intervals))}
        for statement in _statements([self._digests_sql(i, keys, rows) for i, keys in enumerate(intervals)]):
            for line in b"".join(self.read(split_of(self.schema, statement), snapshot)).decode().splitlines():
                number, part, digest = _parsed(line)
                found[number].append((part, digest))
        return [each for number, keys in enumerate(intervals) for each in _covering(keys, found[number])]

    def split(self, keys: KeyInterval, rows: int) -> TableSplit:
        return split_of(self.schema, _rows_sql(self.table, self.schema, keys), 0, rows)

    def _digests_sql(self, number: int, keys: KeyInterval, rows: int) -> str:
        """SQL of lines: number, range, rows, digests, bytes, rows with a hash, key of its last row …; no key if the range has fewer rows.

        The function over a window keeps the server from merging the queries, which would compute the hash once for each half.
        """
        key, line = key_of(self.table), self._line
        names = [quoted(facts.name) for facts, _ in key]
        texts = [f"{how.sql.format(name)} AS k{i}" for i, ((_, how), name) in enumerate(zip(key, names, strict=True))]
        listed = [f"ROW_NUMBER() OVER (ORDER BY {', '.join(names)}) AS n", *texts]
        name = quoted(self.table.name.schema, self.table.name.name)
        inner = (
            f"SELECT {', '.join(listed)}, MD5({line}) AS m, LENGTH({line}) AS l FROM {name}"
            f" WHERE {_condition(self.table, keys)}"
        )
        last = [f"MAX(IF(n % {rows} = 0, k{i}, NULL))" for i in range(len(key))]
        fields = [str(number), f"(n - 1) DIV {rows}", "COUNT(*)", *MD5_HALVES, "IFNULL(SUM(l), 0)", "COUNT(m)", *last]
        return f"(SELECT CONCAT_WS('\\t', {', '.join(fields)}) FROM ({inner}) AS r{number} GROUP BY (n - 1) DIV {rows})"

    @property
    def _line(self) -> str:
        """SQL of a row's text as RowForm.LINE."""
        values = printed_values(self.table, self.schema)
        printed = {facts.name: how for facts, how in self.table.printed}
        for column in self.schema.columns:
            if is_float(column):
                name = quoted(column.on_source)
                values[column.on_source] = read_text(name, _BITS.format(printed[column.on_source].sql.format(name)))
        return read_line(list(values.values()))


def _condition(table: MariaDbTable, keys: KeyInterval) -> str:
    key = key_of(table)
    bounds = ((">", keys.after), ("<=", keys.upto))
    conditions = [
        compared(key, key_literals(key, bound.values), operator) for operator, bound in bounds if bound is not None
    ]
    return " AND ".join(conditions) or "TRUE"


def _rows_sql(table: MariaDbTable, schema: TableSchema, keys: KeyInterval) -> str:
    return f"{select_lines(table, schema)} WHERE {_condition(table, keys)}"


def _statements(branches: Sequence[str]) -> Iterator[str]:
    """Unions of some branches each."""
    held: list[str] = []
    for branch in branches:
        if held and (len(held) == MOST_BRANCHES or sum(map(len, held)) + len(branch) > MOST_TEXT):
            yield " UNION ALL ".join(held)
            held = []
        held.append(branch)
    yield " UNION ALL ".join(held)


def _parsed(line: str) -> tuple[int, int, RangeDigest]:
    """Numbers of interval and range, and its digest with the bound of its last row, if it is full. Raises NotByRanges."""
    numbers, last = line.split("\t")[:7], line.split("\t")[7:]
    number, part, rows, low, high, size, hashed = map(int, numbers)
    if hashed < rows:
        raise NotByRanges("rows that are too large for the source to hash")
    upto = KeyBound(tuple(last)) if last else None
    return number, part, RangeDigest(KeyInterval(None, upto), rows, low, high, size)


def _covering(keys: KeyInterval, found: Sequence[tuple[int, RangeDigest]]) -> list[RangeDigest]:
    """The ranges of one interval, which its query found in any order; the last one ends where the interval does."""
    ranges: list[RangeDigest] = []
    after = keys.after
    for _, each in sorted(found, key=lambda one: one[0]):
        ranges.append(replace(each, keys=KeyInterval(after, each.keys.upto)))
        after = each.keys.upto
    if not ranges:
        return [RangeDigest(keys, 0, 0, 0, 0)]
    ranges[-1] = replace(ranges[-1], keys=KeyInterval(ranges[-1].keys.after, keys.upto))
    return ranges
