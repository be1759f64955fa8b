"""Cuts a table into splits by key range. A key range is valid under every snapshot, so an interrupted copy keeps its finished splits."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from engine.model.copies import KeyBound, ordered_type
from engine.model.fault import FaultKind
from engine.model.ranges import KeyInterval
from engine.model.schema import Column, KeyMode, ReplicaIdentity, TableSchema
from engine.model.source import KeyedSplit, KeyWalk, TableSplit
from engine.model.values import Kind
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.splits import columns_read, masks_of, select_rows

ROW_BYTES = 100
"""Assumed row size if the source has no statistics of the table."""
WALK_TIMEOUT_MS = 3_600_000
"""Limit of one statement of a walk in ms (1 hour): an index scan up to the next split's first key, on a source that may be slow. Not
measured."""
IDENTITIES = frozenset({ReplicaIdentity.DEFAULT, ReplicaIdentity.INDEX, ReplicaIdentity.FULL})
KINDS = {"42703": FaultKind.TABLE_STRUCTURE_CHANGED, "42P01": FaultKind.TABLE_STRUCTURE_CHANGED}
"""undefined_column and undefined_table: a name in the known schema was renamed or dropped since. The new copy determines which."""
_KEYS = """
SELECT (i.indkey::int2[])[0:i.indnkeyatts - 1]::int[], coalesce(array_agg(coll.by_bytes ORDER BY coll.at), '{}')
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am a ON a.oid = x.relam AND a.amname = 'btree'
CROSS JOIN LATERAL (
    SELECT u.at, coalesce(c.collname IN ('C', 'POSIX') OR (c.collname = 'default' AND d.datcollate IN ('C', 'POSIX')
        AND coalesce(to_jsonb(d) ->> 'datlocprovider', 'c') = 'c'), false) AS by_bytes
    FROM unnest(i.indcollation::oid[]) WITH ORDINALITY AS u(oid, at) LEFT JOIN pg_collation c ON c.oid = u.oid
    CROSS JOIN (SELECT * FROM pg_database WHERE datname = current_database()) AS d) AS coll
WHERE i.indrelid = %s AND i.indisvalid AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
  AND NOT EXISTS (SELECT FROM unnest(i.indoption::int2[]) AS o WHERE o <> 0)
GROUP BY i.indexrelid, i.indkey, i.indnkeyatts
"""
_SIZE = """
SELECT c.relkind = 'r', coalesce(pg_table_size(c.oid), 0), greatest(c.reltuples, 0)::bigint
FROM pg_class c WHERE c.oid = %s
"""


def walk_key(
    connector: Connector,
    schema: TableSchema,
    after: KeyBound | None,
    split_bytes: int,
    most_splits: int,
    above_bytes: int | None = None,
) -> KeyWalk | None:
    """At most `most_splits` splits of about `split_bytes` after the key `after`.

    None if the table has no unique index over its key whose first columns sort the same on every server, or is not larger than
    `above_bytes` (then it is not read at all). Only the index is read.

    Raises EngineFault(TABLE_STRUCTURE_CHANGED) if the table, or a column of its key, was renamed.
    """
    if schema.mode is not KeyMode.KEYED or schema.identity not in IDENTITIES:
        return None
    with connector.session(str(schema.name)) as connection:
        try:
            return _walk(connection, schema, after, split_bytes, most_splits, above_bytes)
        except psycopg.Error as error:
            raise SOURCE.fault(error, str(schema.name), KINDS) from error


def _walk(
    connection: PostgresConnection,
    schema: TableSchema,
    after: KeyBound | None,
    split_bytes: int,
    most_splits: int,
    above_bytes: int | None,
) -> KeyWalk | None:
    found = connection.execute(_SIZE, [schema.relation]).fetchone()
    if found is None or not found[0]:
        return None
    table_bytes, rows = int(found[1]), int(found[2])
    if above_bytes is not None and table_bytes <= above_bytes:
        return None
    columns = ordered_columns(connection, schema)
    if not columns or (after is not None and len(after.values) > len(columns)):
        return None
    # A resumed copy uses the columns of its existing bounds.
    columns = columns if after is None else columns[: len(after.values)]
    row_bytes = max(1.0, table_bytes / rows if rows else ROW_BYTES)
    step = max(1, int(split_bytes / row_bytes))
    estimate = (int(step * row_bytes), step)
    names, masks = columns_read(schema), masks_of(schema)
    splits: list[KeyedSplit] = []
    with connection.transaction():
        connection.execute("SET LOCAL enable_seqscan = off")
        connection.execute("SET LOCAL enable_sort = off")
        connection.execute(f"SET LOCAL statement_timeout = {WALK_TIMEOUT_MS}")
        while len(splits) < most_splits:
            upto = _place(connection, schema, columns, after, step)
            text = interval_sql(schema, columns, KeyInterval(after, upto)).as_string(connection)
            split = TableSplit(schema.relation, text, *estimate, schema.relation, schema.name, names, masks)
            splits.append(KeyedSplit(split, upto))
            if upto is None:
                break
            after = upto
    return KeyWalk(tuple(splits), table_bytes, rows)


def ordered_columns(connection: PostgresConnection, schema: TableSchema) -> Sequence[Column]:
    """The leading key columns whose sort order is known, as long as a unique index starts with them."""
    key = schema.key_columns
    best = 0
    for numbers, by_bytes in connection.execute(_KEYS, [schema.relation]).fetchall():
        if list(numbers) != [column.attnum for column in key]:
            continue
        usable = 0
        for column, bytes_order in zip(key, by_bytes, strict=True):
            if not _is_ordered(column, by_bytes=bytes_order):
                break
            usable += 1
        best = max(best, usable)
    return key[:best]


def _is_ordered(column: Column, *, by_bytes: bool) -> bool:
    held = ordered_type(column)
    # A masked column sorts otherwise on the target.
    return column.mask is None and held is not None and (by_bytes or held.kind is not Kind.TEXT)


def _place(
    connection: PostgresConnection, schema: TableSchema, columns: Sequence[Column], after: KeyBound | None, step: int
) -> KeyBound | None:
    """The key of the row `step` rows after `after`; None if there are fewer rows."""
    # Qualified: a bare name in ORDER BY would be that of the text in the select list.
    names = sql.SQL(", ").join(sql.Identifier("t", column.on_source) for column in columns)
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier("t", column.on_source)) for column in columns)
    query = sql.SQL("SELECT {} FROM ONLY {} AS t").format(texts, sql.Identifier(schema.name.schema, schema.name.name))
    if after is not None:
        query += sql.SQL(" WHERE ") + compared(columns, ">", after)
    query += sql.SQL(" ORDER BY {} OFFSET {} LIMIT 1").format(names, sql.Literal(step - 1))
    row = connection.execute(query).fetchone()
    return None if row is None else KeyBound(tuple(row))


def interval_sql(
    schema: TableSchema, columns: Sequence[Column], keys: KeyInterval, listed: sql.Composable | None = None
) -> sql.Composed:
    """Query for the rows of an interval, as of `select_rows`."""
    bounds = ((">", keys.after), ("<=", keys.upto))
    conditions: list[sql.Composable] = [
        compared(columns, operator, bound) for operator, bound in bounds if bound is not None
    ]
    return select_rows(schema, schema.name, conditions, listed)


def compared(columns: Sequence[Column], operator: str, bound: KeyBound) -> sql.Composed:
    """Row comparison of `columns` with the bound. Literals are untyped, so that they take the types of the columns."""
    names = sql.SQL(", ").join(sql.Identifier(column.on_source) for column in columns)
    values = sql.SQL(", ").join(sql.Literal(value) for value in bound.values)
    return sql.SQL("({}) {} ({})").format(names, sql.SQL(operator), values)
