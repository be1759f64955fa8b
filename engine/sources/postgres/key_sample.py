"""Chooses key ranges of a table at random: from rows of random blocks on, a number of rows along the index of the key. The rest of the
table is not read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import psycopg
from psycopg import sql

from engine.model.copies import KeyBound
from engine.model.ranges import KeyInterval, KeySample, SampledRange, SamplePart, in_parts
from engine.model.sample_sizes import PART_BYTES, sizes
from engine.model.schema import Column, KeyMode, TableSchema
from engine.model.source import TableSplit
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.key_walk import (
    IDENTITIES,
    KINDS,
    ROW_BYTES,
    WALK_TIMEOUT_MS,
    interval_sql,
    ordered_columns,
)
from engine.sources.postgres.splits import columns_read, masks_of

_ROW_POINTERS = 500_000
"""Most places of rows in blocks that are searched for the first rows of ranges."""
_CHANCES = 4
"""Random blocks for each range to begin in one of them."""
_PROBED_BLOCKS = 32
"""Blocks from which the number of rows of a block is estimated: few reads, and more than one kind of block. Not measured."""
_LEAST_ROW_BYTES = 28
"""A row takes at least so many bytes of a block."""
_STORAGE = """
SELECT c.relkind = 'r' AND coalesce(a.amname = 'heap', false), b.size, pg_relation_size(c.oid) / b.size,
       c.relpages::bigint, greatest(c.reltuples, 0)::float8
FROM pg_class c LEFT JOIN pg_am a ON a.oid = c.relam CROSS JOIN (SELECT current_setting('block_size')::bigint AS size) AS b
WHERE c.oid = %s
"""


def sample_key(connector: Connector, schema: TableSchema, share: float, seed: str) -> KeySample | None:
    """As SnapshotSource.sample_key."""
    if schema.mode is not KeyMode.KEYED or schema.identity not in IDENTITIES:
        return None
    with connector.session(str(schema.name)) as connection:
        try:
            return _sample(connection, schema, share, seed)
        except psycopg.Error as error:
            raise SOURCE.fault(error, str(schema.name), KINDS) from error


def _sample(connection: PostgresConnection, schema: TableSchema, share: float, seed: str) -> KeySample | None:
    found = connection.execute(_STORAGE, [schema.relation]).fetchone()
    columns = tuple(ordered_columns(connection, schema))
    if found is None or not found[0] or not columns or any(column.nullable for column in columns):
        return None
    _, block_bytes, blocks, pages, tuples = found
    random = Random(seed)  # noqa: S311
    with connection.transaction():
        connection.execute("SET LOCAL enable_seqscan = off")
        connection.execute("SET LOCAL enable_sort = off")
        connection.execute("SET LOCAL jit = off")
        connection.execute(f"SET LOCAL statement_timeout = {WALK_TIMEOUT_MS}")
        per_block = tuples / pages if pages and tuples else _density(connection, schema, blocks, block_bytes, random)
        row_bytes = max(1, int(block_bytes / per_block))
        rows, number = sizes(max(1, int(blocks * per_block)), row_bytes, share)
        # There may be blocks without rows.
        places = [(random.randrange(max(1, blocks)), random.randrange(1 << 20)) for _ in range(_CHANCES * number)]
        slots = max(16, min(block_bytes // _LEAST_ROW_BYTES, int(2 * per_block), _ROW_POINTERS // len(places)))
        lines = connection.execute(_query(schema, columns, places, slots, number, rows)).fetchall()
    ranges = [SampledRange(keys, held, held * row_bytes) for keys, held in _merged(lines, len(columns), rows)]
    return KeySample(columns, tuple(_part(connection, schema, columns, part) for part in in_parts(ranges, PART_BYTES)))


def _part(
    connection: PostgresConnection, schema: TableSchema, columns: Sequence[Column], ranges: Sequence[SampledRange]
) -> SamplePart:
    query = sql.SQL(" UNION ALL ").join(interval_sql(schema, columns, each.keys) for each in ranges)
    size, rows = sum(each.bytes for each in ranges), sum(each.rows for each in ranges)
    names, masks = columns_read(schema), masks_of(schema)
    text = query.as_string(connection)
    split = TableSplit(schema.relation, text, size, rows, schema.relation, schema.name, names, masks)
    return SamplePart(tuple(ranges), split)


def _density(
    connection: PostgresConnection, schema: TableSchema, blocks: int, block_bytes: int, random: Random
) -> float:
    """Rows of a block, from some blocks: the table was not analyzed yet."""
    chosen = random.sample(range(blocks), min(blocks, _PROBED_BLOCKS))
    query = sql.SQL("SELECT count(*) FROM ONLY {} AS t WHERE {}").format(
        sql.Identifier(schema.name.schema, schema.name.name),
        _in_blocks(
            sql.SQL("unnest({}::bigint[]) AS block").format(sql.Literal(chosen)), block_bytes // _LEAST_ROW_BYTES
        ),
    )
    ((rows,),) = connection.execute(query).fetchall() if chosen else ((0,),)
    return rows / len(chosen) if rows else block_bytes / ROW_BYTES


def _in_blocks(blocks: sql.Composable, slots: int) -> sql.Composed:
    """SQL condition: the row `t` is in the first slots of these blocks, which is a FROM item with the column `block`."""
    return sql.SQL(
        "t.ctid = ANY (ARRAY(SELECT format('(%s,%s)', block, slot)::tid FROM {} CROSS JOIN generate_series(1, {}) AS slot))"
    ).format(blocks, sql.Literal(slots))


def _query(
    schema: TableSchema,
    columns: Sequence[Column],
    places: Sequence[tuple[int, int]],
    slots: int,
    number: int,
    rows: int,
) -> sql.Composed:
    """Rows (bounds `after` and `upto` as text, whether the next range meets this one), ascending.

    `places`: random blocks, and a random number for each; in the first `number` ones that have rows, a range of so many `rows` begins at a
    row.
    """
    a, b = ([sql.Identifier(f"{side}{i}") for i in range(len(columns))] for side in "ab")
    place = [sql.Identifier("t", column.on_source) for column in columns]
    return sql.SQL(
        "WITH chosen AS (SELECT * FROM unnest({blocks}::bigint[], {picks}::int[]) WITH ORDINALITY AS c (block, pick, n)),"
        " rows_there AS (SELECT {key_a}, (t.ctid::text::point)[0]::bigint AS block, (t.ctid::text::point)[1]::int AS slot"
        "  FROM ONLY {table} AS t WHERE {there}),"
        " starts AS (SELECT DISTINCT ON (c.n) {a} FROM rows_there CROSS JOIN LATERAL (SELECT * FROM chosen"
        "  WHERE chosen.block = rows_there.block) AS c ORDER BY c.n, (slot + pick) % {slots}, slot LIMIT {number}),"
        " found AS (SELECT DISTINCT * FROM ("
        "  SELECT {a}, {b} FROM starts LEFT JOIN LATERAL (SELECT {key_b} FROM ONLY {table} AS t WHERE ({key}) > ({a})"
        "   ORDER BY {key} OFFSET {rows} - 1 LIMIT 1) AS e ON true"
        "  UNION ALL SELECT {nulls}, {b} FROM (SELECT) AS one LEFT JOIN LATERAL (SELECT {key_b} FROM ONLY {table} AS t"
        "   ORDER BY {key} OFFSET {rows} - 1 LIMIT 1) AS e ON true"
        "  UNION ALL SELECT {a}, {nulls} FROM (SELECT) AS one LEFT JOIN LATERAL (SELECT {key_a} FROM ONLY {table} AS t"
        "   ORDER BY {descending} OFFSET {rows} LIMIT 1) AS e ON true) AS every)"
        " SELECT {texts}, coalesce(({next}) <= ({b}), {first_b} IS NULL) FROM found"
        " WINDOW w AS (ORDER BY {ordered}) ORDER BY {ordered}"
    ).format(
        blocks=sql.Literal([block for block, _ in places]),
        picks=sql.Literal([pick for _, pick in places]),
        there=_in_blocks(sql.SQL("chosen"), slots),
        number=sql.Literal(number),
        table=sql.Identifier(schema.name.schema, schema.name.name),
        slots=sql.Literal(slots),
        rows=sql.Literal(rows),
        a=_listed(a),
        b=_listed(b),
        key=_listed(place),
        key_a=_renamed(place, a),
        key_b=_renamed(place, b),
        nulls=_listed([sql.SQL("NULL")] * len(columns)),
        descending=_listed([sql.SQL("{} DESC").format(each) for each in place]),
        texts=_listed([sql.SQL("{}::text").format(each) for each in [*a, *b]]),
        next=_listed([sql.SQL("lead({}) OVER w").format(each) for each in a]),
        first_b=b[0],
        # Qualified: a bare name in ORDER BY would be that of the text in the select list.
        ordered=_listed([sql.SQL("found.{} NULLS FIRST").format(each) for each in a]),
    )


def _listed(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def _renamed(names: Sequence[sql.Composable], others: Sequence[sql.Composable]) -> sql.Composed:
    """A select list that gives expressions other names."""
    return _listed(sql.SQL("{} AS {}").format(each, other) for each, other in zip(names, others, strict=True))


def _merged(lines: Sequence[tuple[str | bool | None, ...]], width: int, rows: int) -> list[tuple[KeyInterval, int]]:
    """The ranges, those that meet as one, with their numbers of rows, estimated. One without bounds stands for all."""
    found: list[tuple[KeyInterval, int]] = []
    meets = False
    for line in lines:
        after, upto = _bound(line[:width]), _bound(line[width : 2 * width])
        if after is None and upto is None:
            return [(KeyInterval(), rows)]
        if meets:
            keys, held = found[-1]
            found[-1] = (KeyInterval(keys.after, upto if keys.upto is not None else None), held + rows)
        else:
            found.append((KeyInterval(after, upto), rows))
        meets = bool(line[-1])
    return found


def _bound(texts: Sequence[str | bool | None]) -> KeyBound | None:
    return None if texts[0] is None else KeyBound(tuple(str(text) for text in texts))
