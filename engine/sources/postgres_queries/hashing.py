"""Hashes of rows and digests of key ranges, computed by the server.

A row's hash is that of its text, `ROW(columns)::text`, by `hashtextextended` with two seeds: 128 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import psycopg
from psycopg import pq, sql

from engine.model.copies import KeyBound
from engine.model.schema import Column
from engine.model.source import TableSplit
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres import splits
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.copy_out import COPY_KINDS
from engine.sources.postgres.key_walk import compared, ordered_columns
from engine.sources.query_diff.database import ComparedTable, Method
from engine.sources.query_diff.key_ranges import DigestedRange, KeyRange
from engine.sources.query_diff.stamps import Stamp

_AT_ONCE = 64
"""Ranges of one statement, for keys of several columns and for ranges that are read: each is a branch of a union. Not measured."""
_TYPES = "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s AND attnum = %s"


def methods(connector: Connector, table: ComparedTable) -> frozenset[Method]:
    """Ranges need a key whose order is known, with an index."""
    with connector.session(str(table.schema.name)) as connection:
        ordered = ordered_columns(connection, table.schema)
    return frozenset(Method) if len(ordered) == len(table.schema.key) else frozenset(Method) - {Method.RANGE_CHECKSUM}


def hashed_rows(
    connector: Connector,
    table: ComparedTable,
    snapshot: str,
    ranges: Sequence[KeyRange] | None,
    since: Stamp | None,
) -> Iterator[bytes]:
    """See ComparedDatabase.hashed_rows."""
    if ranges is None:
        yield from splits.read_split(connector, split_of(table, _hashes(table, 0, None, since)), snapshot)
        return
    for begin in range(0, len(ranges), _AT_ONCE):
        queries = [_hashes(table, begin + i, each) for i, each in enumerate(ranges[begin : begin + _AT_ONCE])]
        union = sql.SQL(" UNION ALL ").join(sql.SQL("({})").format(query) for query in queries)
        order = sql.SQL(", ").join(sql.Literal(place) for place in range(1, len(table.schema.key) + 2))
        ordered = (
            sql.SQL("SELECT * FROM ({}) AS u ORDER BY {}").format(union, order) if len(queries) > 1 else queries[0]
        )
        yield from splits.read_split(connector, split_of(table, ordered), snapshot)


def placed_rows(
    connector: Connector, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]]
) -> Iterator[bytes] | None:
    """See ComparedDatabase.placed_rows: for keys of one column."""
    if len(table.schema.key) != 1:
        return None
    with connector.session(str(table.schema.name)) as connection:
        place = _place(connection, table, firsts)
    (column,) = table.schema.key_columns
    rows = _texts(table, None, [place, sql.SQL("{} AS k").format(sql.Identifier(column.on_source))])
    query = sql.SQL("SELECT number, k, hashtextextended(t, 0), hashtextextended(t, 1) FROM ({}) AS r").format(rows)
    return splits.read_split(connector, split_of(table, query), snapshot)


def range_digests(
    connector: Connector, table: ComparedTable, snapshot: str, firsts: Sequence[tuple[str, ...]]
) -> list[DigestedRange]:
    """See ComparedDatabase.range_digests. A key of one column is looked up in the array of first keys, in one scan; the ranges of others
    are read one after another."""
    subject = f"relation {table.schema.relation}"
    with connector.session(subject) as connection:
        try:
            splits.begin_read(connection, split_of(table, sql.SQL("")), snapshot, subject)
            connection.execute("SET LOCAL jit = off")
            if len(table.schema.key) == 1:
                found = connection.execute(_looked_up(connection, table, firsts)).fetchall()
            else:
                bounds = [None, *firsts, None]
                ranges = [KeyRange(first, before) for first, before in pairwise(bounds)]
                found = [row for query in _one_by_one(table, ranges) for row in connection.execute(query).fetchall()]
            connection.execute("COMMIT")
        except psycopg.Error as error:
            raise SOURCE.fault(error, subject, COPY_KINDS) from error
        finally:
            if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                connection.close()
    by_number = {int(number): DigestedRange(int(rows), int(low), int(high)) for number, rows, low, high in found}
    return [by_number.get(number, DigestedRange(0, 0, 0)) for number in range(len(firsts) + 1)]


def _looked_up(connection: PostgresConnection, table: ComparedTable, firsts: Sequence[tuple[str, ...]]) -> sql.Composed:
    rows = _texts(table, None, [_place(connection, table, firsts)])
    return sql.SQL(
        "SELECT number, count(*), bit_xor(hashtextextended(t, 0)), bit_xor(hashtextextended(t, 1)) FROM ({}) AS r GROUP BY number"
    ).format(rows)


def _place(connection: PostgresConnection, table: ComparedTable, firsts: Sequence[tuple[str, ...]]) -> sql.Composed:
    """The number of a row's range, by a key of one column."""
    if not firsts:
        return sql.SQL("0 AS number").format()
    (column,) = table.schema.key_columns
    kind = connection.execute(_TYPES, [table.schema.relation, column.attnum]).fetchall()[0][0]
    bounds = sql.SQL("{}::{}[]").format(sql.Literal([first[0] for first in firsts]), sql.SQL(kind))
    return sql.SQL("width_bucket({}, {}) AS number").format(sql.Identifier(column.on_source), bounds)


def _one_by_one(table: ComparedTable, ranges: Sequence[KeyRange]) -> Iterator[sql.Composed]:
    for begin in range(0, len(ranges), _AT_ONCE):
        yield sql.SQL(" UNION ALL ").join(
            sql.SQL(
                "SELECT {}, count(*), bit_xor(hashtextextended(t, 0)), bit_xor(hashtextextended(t, 1)) FROM ({}) AS r HAVING count(*) > 0"
            ).format(sql.Literal(begin + i), _texts(table, each, []))
            for i, each in enumerate(ranges[begin : begin + _AT_ONCE])
        )


def _hashes(table: ComparedTable, number: int, keys: KeyRange | None, since: Stamp | None = None) -> sql.Composed:
    """Query for a number, the key and two hashes of each row; in key order for a range."""
    columns = table.schema.key_columns
    held = [sql.Identifier(f"k{i}") for i in range(len(columns))]
    named = [
        sql.SQL("{} AS {}").format(sql.Identifier(column.on_source), alias)
        for column, alias in zip(columns, held, strict=True)
    ]
    order = sql.SQL("") if keys is None else sql.SQL(" ORDER BY {}").format(sql.SQL(", ").join(held))
    return sql.SQL("SELECT {}, {}, hashtextextended(t, 0), hashtextextended(t, 1) FROM ({}) AS r{}").format(
        sql.Literal(number), sql.SQL(", ").join(held), _texts(table, keys, named, since), order
    )


def _texts(
    table: ComparedTable, keys: KeyRange | None, listed: Sequence[sql.Composable], since: Stamp | None = None
) -> sql.Composed:
    """Query for `listed` and the text `t` of each row."""
    schema = table.schema
    row = sql.SQL(", ").join(sql.Identifier(column.on_source) for column in schema.columns)
    text = sql.SQL('(ROW({}))::text COLLATE "C" AS t').format(row)
    query = splits.select_rows(
        schema,
        schema.name,
        [*_conditions(schema.key_columns, keys), *conditions_since(since)],
        sql.SQL(", ").join([*listed, text]),
    )
    # OFFSET 0: otherwise the planner would merge the queries, and the text would be made once for each hash.
    return sql.SQL("{} OFFSET 0").format(query)


def _conditions(columns: Sequence[Column], keys: KeyRange | None) -> list[sql.Composable]:
    bounds = () if keys is None else ((">=", keys.first), ("<", keys.before))
    return [compared(columns, operator, KeyBound(bound)) for operator, bound in bounds if bound is not None]


def conditions_since(since: Stamp | None) -> list[sql.Composable]:
    """Rows whose stamps are not older; those without one are always among them."""
    if since is None:
        return []
    column = sql.Identifier(since.column)
    return [sql.SQL("({} >= {} OR {} IS NULL)").format(column, sql.Literal(since.value), column)]


def split_of(table: ComparedTable, query: sql.Composable) -> TableSplit:
    """A query over the table, to be read as a split."""
    schema = table.schema
    names = splits.columns_read(schema)
    return TableSplit(schema.relation, query.as_string(None), 0, 0, schema.relation, schema.name, names)
