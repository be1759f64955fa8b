"""Digests of key ranges, computed by the server: for each range, a line of some 60 bytes is sent instead of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.model.copies import KeyBound, ranged_type
from engine.model.ranges import ANOTHER_ORDER, KeyInterval, NotByRanges, RangeDigest, RowForm, is_float
from engine.model.schema import Column, TableSchema
from engine.model.source import KeyedSplit, KeyWalk, TableSplit
from engine.model.values import Kind
from engine.records.copy_fields import unescaped
from engine.sources.mariadb.catalog import MariaDbTable
from engine.sources.mariadb.connect import MariaDbConnection, quoted
from engine.sources.mariadb.splits import (
    and_kept,
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
ROUND_TRIP = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii", "latin1"})
"""Character sets of which a literal in UTF-8 is the same value as the one it was printed from."""
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
    """See SnapshotSource.walk_key, but for texts, which the source sorts by their collation. None if the table has no `ordered_key`."""
    key = ordered_key(table, schema)
    if not key:
        return None
    step, row_bytes = step_of(table, split_bytes)
    splits: list[KeyedSplit] = []
    while len(splits) < most_splits:
        bound = None if after is None else key_literals(key, after.values)
        texts = place_after(connection, table, key, bound, step)
        upto = None if texts is None else KeyBound(tuple(texts))
        text = rows_sql(table, schema, KeyInterval(after, upto))
        splits.append(KeyedSplit(split_of(schema, text, step * row_bytes, step), upto))
        if upto is None:
            break
        after = upto
    return KeyWalk(tuple(splits), max(table.bytes, table.rows * row_bytes), table.rows)


def ordered_key(table: MariaDbTable, schema: TableSchema) -> list[tuple[ColumnFacts, Printed]]:
    """The columns of the primary key, if it is the schema's key and literals of all values are compared as the values; else none."""
    key, columns = key_of(table), schema.key_columns
    if [facts.name for facts, _ in key] != [column.on_source for column in columns]:
        return []
    return key if all(_is_ordered(each, column) for each, column in zip(key, columns, strict=True)) else []


def _is_ordered(place: tuple[ColumnFacts, Printed], column: Column) -> bool:
    facts, how = place
    held = ranged_type(column)
    if column.mask is not None or held is None:
        return False
    return held.kind is not Kind.TEXT or (facts.collation.split("_")[0] in ROUND_TRIP and not how.number)


def ranges_of(table: MariaDbTable, schema: TableSchema, read: Read) -> MariaDbRanges:
    """Raises NotByRanges if the table's rows cannot be cut into ranges, or would not be hashed as the engine hashes them."""
    if any(column.mask is not None for column in schema.columns):
        raise NotByRanges("masked columns")
    if not schema.key_columns:
        raise NotByRanges("no key")
    if not ordered_key(table, schema):
        raise NotByRanges(
            "a key that is not the primary key, or has a type or character set that is not compared by literals"
        )
    return MariaDbRanges(table, schema, read, _digested_line(table, schema))


@dataclass(frozen=True, slots=True)
class MariaDbRanges:
    """Implements RangeSource. `table`: as the catalog has it now; a read is refused if it was changed since the snapshot."""

    table: MariaDbTable
    schema: TableSchema
    read: Read
    line: str
    """SQL of a row's text as RowForm.LINE."""
    form: RowForm = RowForm.LINE

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(self.schema.key_columns)

    def digests(self, intervals: Sequence[KeyInterval], rows: int, snapshot: str) -> list[RangeDigest]:
        bounds = (bound for keys in intervals for bound in (keys.after, keys.upto) if bound is not None)
        if any(len(bound.values) < len(self.columns) for bound in bounds):
            raise NotByRanges("a sample by the first columns of the key")
        found: dict[int, list[tuple[int, RangeDigest]]] = {number: [] for number in range(len(intervals))}
        for statement in _statements([self._digests_sql(i, keys, rows) for i, keys in enumerate(intervals)]):
            for line in b"".join(self.read(split_of(self.schema, statement), snapshot)).decode().split("\n")[:-1]:
                number, part, digest = _parsed(line)
                found[number].append((part, digest))
        ranges = [each for number, keys in enumerate(intervals) for each in _covering(keys, found[number])]
        _check_order(key_of(self.table), ranges)
        return ranges

    def split(self, keys: KeyInterval, rows: int) -> TableSplit:
        return split_of(self.schema, rows_sql(self.table, self.schema, keys), 0, rows)

    def _digests_sql(self, number: int, keys: KeyInterval, rows: int) -> str:
        """SQL of lines: number, range, rows, digests, bytes, rows with a hash, key of its last row …; no key if the range has fewer rows.

        The function over a window keeps the server from merging the queries, which would compute the hash once for each half.
        """
        key, line = key_of(self.table), self.line
        names = [quoted(facts.name) for facts, _ in key]
        texts = [f"{how.sql.format(name)} AS k{i}" for i, ((_, how), name) in enumerate(zip(key, names, strict=True))]
        name = quoted(self.table.name.schema, self.table.name.name)
        # Qualified: a bare name would be that of a column of this query.
        order = ", ".join(f"{name}.{each}" for each in names)
        listed = [f"ROW_NUMBER() OVER (ORDER BY {order}) AS n", *texts]
        inner = (
            f"SELECT {', '.join(listed)}, MD5({line}) AS m, LENGTH({line}) AS l FROM {name}"
            f" WHERE {_condition(self.table, keys)}{and_kept(self.schema)}"
        )
        last = [f"MAX(IF(n % {rows} = 0, k{i}, NULL))" for i in range(len(key))]
        fields = [str(number), f"(n - 1) DIV {rows}", "COUNT(*)", *MD5_HALVES, "IFNULL(SUM(l), 0)", "COUNT(m)", *last]
        return f"(SELECT CONCAT_WS('\\t', {', '.join(fields)}) FROM ({inner}) AS r{number} GROUP BY (n - 1) DIV {rows})"


def _digested_line(table: MariaDbTable, schema: TableSchema) -> str:
    values = printed_values(table, schema)
    printed = {facts.name: how for facts, how in table.printed}
    for column in schema.columns:
        if is_float(column):
            name = quoted(column.on_source)
            values[column.on_source] = read_text(name, _BITS.format(printed[column.on_source].sql.format(name)))
    return read_line(list(values.values()))


def _check_order(key: Sequence[tuple[ColumnFacts, Printed]], ranges: Sequence[RangeDigest]) -> None:
    """Raises NotByRanges if the bounds do not ascend by the characters of texts, as targets sort them: most ranges would differ."""
    texts = [how.name == "text" for _, how in key]
    for keys in (each.keys for each in ranges):
        if keys.after is None or keys.upto is None:
            continue
        pairs = zip(texts, keys.after.values, keys.upto.values, strict=True)
        is_text, low, high = next((each for each in pairs if each[1] != each[2]), (False, "", ""))
        if is_text and low > high:
            raise NotByRanges(ANOTHER_ORDER)


def _condition(table: MariaDbTable, keys: KeyInterval) -> str:
    key = key_of(table)
    bounds = ((">", keys.after), ("<=", keys.upto))
    conditions = []
    for operator, bound in bounds:
        if bound is not None:
            columns = key[: len(bound.values)]
            conditions.append(compared(columns, key_literals(columns, bound.values), operator))
    return " AND ".join(conditions) or "TRUE"


def rows_sql(table: MariaDbTable, schema: TableSchema, keys: KeyInterval) -> str:
    """A query for the lines of the rows of an interval, whose bounds may have the first columns of the key only."""
    return f"{select_lines(table, schema)} WHERE {_condition(table, keys)}{and_kept(schema)}"


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
    upto = KeyBound(tuple(map(unescaped, last))) if last else None
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
