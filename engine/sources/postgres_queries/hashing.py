"""Hashes of rows and digests of key ranges, computed by the server: 128 bits for each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import psycopg
from psycopg import pq, sql

from engine.model.copies import KeyBound
from engine.model.schema import Column, TableSchema
from engine.model.source import TableSplit
from engine.platform.read_ahead import in_turn, side_by_side
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres import splits
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.copy_out import COPY_KINDS
from engine.sources.postgres.key_walk import compared, ordered_columns
from engine.sources.postgres.splits import ReadRules
from engine.sources.postgres_queries import row_hashes
from engine.sources.query_diff.database import ComparedTable, Method
from engine.sources.query_diff.key_ranges import ALL_KEYS, DigestedRange, KeyRange, Page
from engine.sources.query_diff.stamps import Since, Touched
from engine.sources.query_diff.table_reading import key_texts

_AT_ONCE = 64
"""Ranges of one statement, for keys of several columns and for ranges that are read: each is a branch of a union. Not measured."""
_LEAST_PAGES = 4096
"""Pages of a table, usually 32 MiB, from which one more session reads it. Not measured."""
_PIECES_AHEAD = 4
"""Pieces of rows that are held for each session. Not measured."""
_TYPES = "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s AND attnum = %s"


def methods(connector: Connector, table: ComparedTable) -> frozenset[Method]:
    """Ranges need a key whose order is known, with an index, and without NULL."""
    if table.keyless:
        return frozenset(Method) - {Method.RANGE_CHECKSUM}
    with connector.session(str(table.schema.name)) as connection:
        ordered = ordered_columns(connection, table.schema)
    return frozenset(Method) if len(ordered) == len(table.schema.key) else frozenset(Method) - {Method.RANGE_CHECKSUM}


def hashed_rows(
    connector: Connector,
    table: ComparedTable,
    snapshot: str,
    ranges: Sequence[KeyRange] | None,
    since: Since | None,
    rules: ReadRules,
) -> Iterator[bytes]:
    """See ComparedDatabase.hashed_rows."""
    if ranges is None:
        # An index of the stamp reads few pages; parts of the table's pages would not use it.
        parts = [[]] if since is not None else _parts(connector, table, rules)
        queries = [_hashes(table, 0, _Rows(since=since, pages=pages)) for pages in parts]
        yield from _read(connector, table, queries, snapshot, rules)
        return
    rules = by_key(table, rules)
    # One after another, as the rows are compared in their order.
    each = max(1, min(_AT_ONCE, -(-len(ranges) // rules.sessions)))
    unions = (_ordered(table, ranges, begin, each) for begin in range(0, len(ranges), each))
    readers = (splits.read_split(connector, split_of(table, union), snapshot, rules) for union in unions)
    yield from in_turn(readers, rules.sessions, _PIECES_AHEAD)


def _ordered(table: ComparedTable, ranges: Sequence[KeyRange], begin: int, count: int) -> sql.Composed:
    """Query for the hashes of the rows of some ranges, in the order of ranges and keys."""
    queries = [_hashes(table, begin + i, _Rows(keys)) for i, keys in enumerate(ranges[begin : begin + count])]
    if len(queries) == 1:
        return queries[0]
    union = sql.SQL(" UNION ALL ").join(sql.SQL("({})").format(query) for query in queries)
    order = sql.SQL(", ").join(sql.Literal(place) for place in range(1, len(table.schema.key) + 2))
    return sql.SQL("SELECT * FROM ({}) AS u ORDER BY {}").format(union, order)


def placed_rows(
    connector: Connector, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]], rules: ReadRules
) -> Iterator[bytes] | None:
    """See ComparedDatabase.placed_rows: for keys of one column."""
    if len(table.schema.key) != 1:
        return None
    with connector.session(str(table.schema.name)) as connection:
        place = _place(connection, table, firsts)
    (column,) = table.schema.key_columns
    listed = [place, sql.SQL("{} AS k").format(sql.Identifier(column.on_source))]
    query = sql.SQL("SELECT number, k, {}, {} FROM ({}) AS r")
    parts = _parts(connector, table, rules)
    queries = [query.format(*row_hashes.hashes(table), _rows(table, _Rows(pages=each), listed)) for each in parts]
    return _read(connector, table, queries, snapshot, rules)


def _parts(connector: Connector, table: ComparedTable, rules: ReadRules) -> list[list[sql.Composable]]:
    """Conditions that cut the table for so many sessions."""
    with connector.session(str(table.schema.name)) as connection:
        return splits.page_parts(connection, table.schema.relation, rules.sessions, _LEAST_PAGES)


def _read(
    connector: Connector, table: ComparedTable, queries: Sequence[sql.Composable], snapshot: str, rules: ReadRules
) -> Iterator[bytes]:
    """The rows of all queries, each read by a session of its own at the same time."""
    readers = [splits.read_split(connector, split_of(table, query), snapshot, rules) for query in queries]
    return readers[0] if len(readers) == 1 else side_by_side(readers, _PIECES_AHEAD * len(readers))


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of the key: `firsts` are the first keys of all but the first one, `within` is their whole."""

    firsts: Sequence[tuple[str, ...]]
    within: KeyRange

    def each(self) -> list[KeyRange]:
        bounds = [self.within.first, *self.firsts, self.within.before]
        return [KeyRange(first, before) for first, before in pairwise(bounds)]


def range_digests(
    connector: Connector, table: ComparedTable, snapshot: str, ranges: Ranges, rules: ReadRules
) -> list[DigestedRange]:
    """See ComparedDatabase.range_digests. A key of one column is looked up in the array of first keys, in one scan of each session; the
    ranges of others are read one after another."""
    if len(table.schema.key) != 1:
        unions = list(_one_by_one(table, ranges.each()))
        each = min(rules.sessions, len(unions))
        queries = [unions[place::each] for place in range(each)]
    elif ranges.within == ALL_KEYS:
        with connector.session(str(table.schema.name)) as connection:
            place = _place(connection, table, ranges.firsts)
        queries = [[_looked_up(table, place, _Rows(pages=pages))] for pages in _parts(connector, table, rules)]
    else:
        queries = _parts_by_key(connector, table, ranges, rules)
    found = [DigestedRange(0, 0, 0) for _ in range(len(ranges.firsts) + 1)]
    for number, rows, low, high in _answers(connector, table, snapshot, queries, rules):
        before = found[number]
        found[number] = DigestedRange(before.rows + rows, before.low ^ low, before.high ^ high)
    return found


def _parts_by_key(
    connector: Connector, table: ComparedTable, ranges: Ranges, rules: ReadRules
) -> list[list[sql.Composed]]:
    """Queries for the digests of ranges of a part of the table, some for each session."""
    listed = ranges.each()
    each = -(-len(listed) // rules.sessions)
    queries = []
    with connector.session(str(table.schema.name)) as connection:
        for begin in range(0, len(listed), each):
            part = listed[begin : begin + each]
            place = _place(connection, table, [one.first for one in part[1:] if one.first is not None], begin)
            queries.append([_looked_up(table, place, _Rows(KeyRange(part[0].first, part[-1].before)))])
    return queries


def _answers(
    connector: Connector,
    table: ComparedTable,
    snapshot: str,
    queries: Sequence[Sequence[sql.Composed]],
    rules: ReadRules,
) -> list[tuple[int, int, int, int]]:
    """The rows of all queries; each of their lists is read by a session of its own at the same time."""
    with ThreadPoolExecutor(len(queries), "digests") as pool:
        parts = [pool.submit(_answers_of, connector, table, snapshot, each, rules) for each in queries]
        return [row for part in parts for row in part.result()]


def _answers_of(
    connector: Connector, table: ComparedTable, snapshot: str, queries: Sequence[sql.Composed], rules: ReadRules
) -> list[tuple[int, int, int, int]]:
    subject = f"relation {table.schema.relation}"
    with connector.session(subject) as connection:
        try:
            splits.begin_read(connection, split_of(table, sql.SQL("")), snapshot, subject, by_key(table, rules))
            found = [row for query in queries for row in connection.execute(query).fetchall()]
            connection.execute("COMMIT")
            return [(int(number), int(rows), int(low), int(high)) for number, rows, low, high in found]
        except psycopg.Error as error:
            raise SOURCE.fault(error, subject, COPY_KINDS) from error
        finally:
            if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                connection.close()


def _looked_up(table: ComparedTable, place: sql.Composed, which: _Rows) -> sql.Composed:
    rows = _rows(table, which, [place])
    return sql.SQL("SELECT number, count(*), bit_xor({}), bit_xor({}) FROM ({}) AS r GROUP BY number").format(
        *row_hashes.hashes(table), rows
    )


def _place(
    connection: PostgresConnection, table: ComparedTable, firsts: Sequence[tuple[str, ...]], begin: int = 0
) -> sql.Composed:
    """The number of a row's range, by a key of one column; that of the first one is `begin`."""
    if not firsts:
        return sql.SQL("{} AS number").format(sql.Literal(begin))
    (column,) = table.schema.key_columns
    kind = connection.execute(_TYPES, [table.schema.relation, column.attnum]).fetchall()[0][0]
    bounds = sql.SQL("{}::{}[]").format(sql.Literal([first[0] for first in firsts]), sql.SQL(kind))
    name = sql.Identifier(column.on_source)
    return sql.SQL("{} + width_bucket({}, {}) AS number").format(sql.Literal(begin), name, bounds)


def _one_by_one(table: ComparedTable, ranges: Sequence[KeyRange]) -> Iterator[sql.Composed]:
    for begin in range(0, len(ranges), _AT_ONCE):
        yield sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT {}, count(*), bit_xor({}), bit_xor({}) FROM ({}) AS r HAVING count(*) > 0").format(
                sql.Literal(begin + i), *row_hashes.hashes(table), _rows(table, _Rows(each), [])
            )
            for i, each in enumerate(ranges[begin : begin + _AT_ONCE])
        )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Which rows of a table are read: those in a range, with recent stamps, in a part of its pages."""

    keys: KeyRange | None = None
    since: Since | None = None
    pages: Sequence[sql.Composable] = ()
    page: Page | None = None
    """In place of `keys`. Only these rows are ordered before they are hashed."""


def page(
    connector: Connector, table: ComparedTable, snapshot: str, page: Page, rules: ReadRules, *, hashed: bool
) -> Iterator[bytes]:
    """See ComparedDatabase.page."""
    schema = table.schema
    if hashed:
        query = _hashes(table, 0, _Rows(page=page))
    else:
        columns = [sql.Identifier(column.on_source) for column in schema.columns]
        query = splits.select_rows(schema, schema.name, _page_conditions(table, page), sql.SQL(", ").join(columns))
        query += _first_rows([1 + place for place in table.key_places], page)
    return splits.read_split(connector, split_of(table, query), snapshot, by_key(table, rules))


def _page_conditions(table: ComparedTable, page: Page) -> list[sql.Composable]:
    columns = table.schema.key_columns
    after = [] if page.after is None else [compared(columns, ">", KeyBound(page.after))]
    return [*_conditions(columns, page.keys), *after]


def _first_rows(places: Sequence[int], page: Page) -> sql.Composed:
    """By places in the select list: its names may be those of other columns."""
    order = sql.SQL(", ").join(sql.Literal(place) for place in places)
    return sql.SQL(" ORDER BY {} LIMIT {}").format(order, sql.Literal(page.most))


def _hashes(table: ComparedTable, number: int, rows: _Rows) -> sql.Composed:
    """Query for a number, the key and two hashes of each row; in key order for a range."""
    columns = table.schema.key_columns
    held = [sql.Identifier(f"k{i}") for i in range(len(columns))]
    named = [
        sql.SQL("{} AS {}").format(sql.Identifier(column.on_source), alias)
        for column, alias in zip(columns, held, strict=True)
    ]
    ordered = rows.keys is not None or rows.page is not None
    order = sql.SQL(" ORDER BY {}").format(sql.SQL(", ").join(held)) if ordered else sql.SQL("")
    return sql.SQL("SELECT {}, {}, {}, {} FROM ({}) AS r{}").format(
        sql.Literal(number), sql.SQL(", ").join(held), *row_hashes.hashes(table), _rows(table, rows, named), order
    )


def _rows(table: ComparedTable, rows: _Rows, listed: Sequence[sql.Composable]) -> sql.Composed:
    """Query for `listed` and what the hashes of each row are made of."""
    schema = table.schema
    found = sql.SQL(", ").join([*listed, *row_hashes.hashed_parts(table)])
    if rows.page is not None:
        places = range(1, len(schema.key) + 1)
        query = splits.select_rows(schema, schema.name, _page_conditions(table, rows.page), found)
        return query + _first_rows(places, rows.page)
    query = splits.select_rows(
        schema,
        schema.name,
        [*_conditions(schema.key_columns, rows.keys), *conditions_since(schema, rows.since), *rows.pages],
        found,
    )
    # OFFSET 0: otherwise the planner would merge the queries, and the parts would be made once for each hash.
    return sql.SQL("{} OFFSET 0").format(query)


def _conditions(columns: Sequence[Column], keys: KeyRange | None) -> list[sql.Composable]:
    bounds = () if keys is None else ((">=", keys.first), ("<", keys.before))
    return [compared(columns, operator, KeyBound(bound)) for operator, bound in bounds if bound is not None]


def conditions_since(schema: TableSchema, since: Since | None) -> list[sql.Composable]:
    """Rows whose stamps are not older, those without one always among them; or those that were touched."""
    if since is None:
        return []
    if isinstance(since, Touched):
        others = [sql.SQL("({}) IS NOT TRUE").format(_touched(schema, other)) for other in since.others]
        return [_touched(schema, since), *others]
    column = sql.Identifier(since.column)
    if any(each.on_source == since.column and not each.nullable for each in schema.columns):
        # Without OR an index with all columns is enough.
        return [sql.SQL("{} >= {}").format(column, sql.Literal(since.value))]
    return [sql.SQL("({} >= {} OR {} IS NULL)").format(column, sql.Literal(since.value), column)]


def _touched(schema: TableSchema, touched: Touched) -> sql.Composed:
    """Each column alone, which a database can apply inside of a view that groups its rows, and all of them together."""
    names = [sql.Identifier(name) for name in touched.columns]
    types = {column.on_source: column.type.name for column in schema.columns}
    texts = zip(*key_texts(touched.lines, len(names)), strict=True)
    values = [
        sql.SQL("{}::pg_catalog.{}[]").format(
            sql.Literal("{" + ",".join(splits.element(text) for text in column) + "}"), sql.Identifier(types[name])
        )
        for name, column in zip(touched.columns, texts, strict=True)
    ]
    each = [sql.SQL("{} = ANY ({})").format(*pair) for pair in zip(names, values, strict=True)]
    if len(names) > 1:
        listed = sql.SQL(", ")
        both = sql.SQL("({}) IN (SELECT * FROM unnest({}))").format(listed.join(names), listed.join(values))
        each.append(both)
    return sql.SQL(" AND ").join(each)


def by_key(table: ComparedTable, rules: ReadRules) -> ReadRules:
    """Of a read in ranges of the key."""
    return replace(rules, key=tuple(int(column.attnum) for column in table.schema.key_columns))


def split_of(table: ComparedTable, query: sql.Composable) -> TableSplit:
    """A query over the table, to be read as a split."""
    schema = table.schema
    names = splits.columns_read(schema)
    return TableSplit(schema.relation, query.as_string(None), 0, 0, schema.relation, schema.name, names)
