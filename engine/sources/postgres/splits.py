"""Reads a table for a copy or a comparison: splits by block range of the table's file, each under one imported snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import psycopg
from psycopg import pq, sql

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.masks import MASK_KEY, Mask
from engine.model.quarantine import Texts
from engine.model.row_filter import RowFilter
from engine.model.schema import TableSchema
from engine.model.source import WHOLE_TABLE, TableSplit
from engine.postgres.sessions import PostgresConnection
from engine.records.masked_lines import mask_of
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.copy_out import COPY_KINDS, copy_out
from engine.sources.postgres.view_marks import mark_of_view

_TID_RANGES = 140_000
"""PostgreSQL 14 and later read the pages of a range of ctid only."""
_READ_TIMEOUT_MS = 21_600_000
"""Statement timeout for one split (6 hours): a throttled copy reads slowly."""

_KEY_STANDS = """
SELECT coalesce(bool_or(pg_relation_filenode(indexrelid) IS NOT NULL), false) FROM pg_index
WHERE indrelid = %s AND indisvalid AND indisunique AND indpred IS NULL AND (indkey::int2[])[0:indnkeyatts - 1]::int[] = %s::int[]
"""
"""Whether an index of the snapshot over these columns still exists: the function does not see the catalog as of the snapshot."""
_STORAGE = """
SELECT c.oid, n.nspname, c.relname, coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::bigint,
       coalesce(pg_table_size(c.oid), 0), greatest(c.reltuples, 0)::bigint, coalesce(a.amname = 'heap', false)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_am a ON a.oid = c.relam
WHERE c.oid IN (SELECT p.relid FROM pg_partition_tree(%s::oid::regclass) AS p WHERE p.isleaf UNION ALL SELECT %s::oid)
  AND c.relkind <> 'p'
ORDER BY c.oid
"""
"""A size is NULL if the table was dropped during the query; reading the table then raises the fault."""
_SAME_STORAGE = "SELECT relfilenode = pg_relation_filenode(oid) FROM pg_class WHERE oid = %s AND relkind <> 'v'"
_NAME_AND_KIND = "SELECT %s::oid::regclass::text, (SELECT relkind::text FROM pg_class WHERE oid = %s)"
"""The name as it is now, and the kind in the snapshot; None if it was not there."""
_VIEW_KINDS = frozenset({"v", "m"})
_NAMES = """
SELECT o.object_names FROM unnest(%s::int[]) WITH ORDINALITY AS a (attnum, place)
CROSS JOIN LATERAL pg_identify_object_as_address('pg_class'::regclass, %s, a.attnum) AS o ORDER BY a.place
"""
"""Current names, by the functions that resolve names in a query too. Catalog rows would show the state of the snapshot."""


_KEY_TYPES = """
WITH RECURSIVE held (attnum, type) AS (
    SELECT attnum, atttypid FROM pg_attribute WHERE attrelid = %s AND attnum = ANY (%s)
    UNION ALL SELECT held.attnum, t.typbasetype FROM held JOIN pg_type t ON t.oid = held.type WHERE t.typtype = 'd')
SELECT held.attnum::int, CASE t.typtype WHEN 'e' THEN 'text' ELSE format_type(t.oid, -1) END
FROM held JOIN pg_type t ON t.oid = held.type
WHERE t.typtype = 'e' OR (t.typtype = 'b' AND t.typcategory <> 'A' AND t.typnamespace = 'pg_catalog'::regnamespace)
"""
"""The type in which a key column is compared: without its domains; without a row if equality may depend on the search path."""


@dataclass(frozen=True, slots=True)
class ReadRules:
    """Of one read. `timeout_ms`: statement timeout. `key`: column numbers of a unique index without which the read would sort the table;
    empty: it needs none. `sessions`: that read a large table at the same time. `read_only`: the transaction writes nothing."""

    timeout_ms: int = _READ_TIMEOUT_MS
    key: tuple[int, ...] = ()
    sessions: int = 1
    read_only: bool = True


PLAIN = ReadRules()


def flagged_splits(
    connector: Connector, schema: TableSchema, split_bytes: int, filters: Sequence[RowFilter | None]
) -> list[TableSplit]:
    """As `cut_table`, of the rows that meet one of the filters; each line ends with `t` or `f` for each of them. None: all rows."""
    texts = [sql.SQL("true" if each is None else f"(({each.text}) IS TRUE)") for each in filters]
    columns = [sql.Identifier(column.on_source) for column in schema.columns]
    given = [each for each in filters if each is not None]
    read = dict.fromkeys(column for each in given for column in each.columns)
    either = " OR ".join(f"({each.text})" for each in given)
    whole = replace(schema, row_filter=RowFilter(either, tuple(read)))
    if len(given) < len(filters):
        whole = replace(schema, row_filter=RowFilter("true", tuple(read)))
    return cut_table(connector, whole, split_bytes, sql.SQL(", ").join([*columns, *texts]))


def cut_table(
    connector: Connector, schema: TableSchema, split_bytes: int, listed: sql.Composable | None = None
) -> list[TableSplit]:
    """Cut the table into splits of about `split_bytes`; a partitioned root leaf by leaf. The last split of each file has no upper bound,
    so that blocks added after the sizes were read are included. `listed`: see `select_rows`. Raises EngineFault(TABLE_MISSING) if the
    table does not exist."""
    with connector.session(str(schema.name)) as connection:
        rows = connection.execute(_STORAGE, [schema.relation, schema.relation]).fetchall()
        if not rows and connection.execute("SELECT FROM pg_class WHERE oid = %s", [schema.relation]).fetchone() is None:
            raise EngineFault(FaultKind.TABLE_MISSING, str(schema.name), "the table is gone")
        splits: list[TableSplit] = []
        columns, masks = columns_read(schema), masks_of(schema)
        for oid, namespace, name, blocks, size, tuples, heap in rows:
            parts = max(1, min(blocks, -(-size // max(1, split_bytes)))) if heap else 1
            for part in range(parts):
                storage, reads = RelationId(oid), TableName(namespace, name)
                text = select_rows(schema, reads, _pages(part, parts, blocks), listed).as_string(connection)
                splits.append(
                    TableSplit(schema.relation, text, size // parts, tuples // parts, storage, reads, columns, masks)
                )
        return splits


def key_splits(connector: Connector, schema: TableSchema, keys: Sequence[Texts]) -> list[TableSplit]:
    """As SnapshotSource.key_splits: one split for each file of the table, restricted by the key columns whose values are found by SQL as
    surely as by their texts. Raises as `cut_table`."""
    whole = cut_table(connector, schema, WHOLE_TABLE)
    with connector.session(str(schema.name)) as connection:
        numbers = [int(column.attnum) for column in schema.key_columns]
        types = dict(connection.execute(_KEY_TYPES, [schema.relation, numbers]).fetchall())
        names, given = [], []
        for place, column in enumerate(schema.key_columns):
            kind = types.get(column.attnum)
            if kind is not None and all(key[place] is not None for key in keys):
                texts = "{" + ",".join(element(str(key[place])) for key in keys) + "}"
                names.append(sql.SQL("{}::{}").format(sql.Identifier(column.on_source), sql.SQL(kind)))
                given.append(sql.SQL("{}::{}[]").format(sql.Literal(texts), sql.SQL(kind)))
        if not names:
            return whole
        condition = (
            sql.SQL("{} = ANY ({})").format(names[0], given[0])
            if len(names) == 1
            else sql.SQL("({}) IN (SELECT * FROM unnest({}))").format(
                sql.SQL(", ").join(names), sql.SQL(", ").join(given)
            )
        )
        return [
            replace(split, sql=select_rows(schema, split.reads or schema.name, [condition]).as_string(connection))
            for split in whole
        ]


def element(text: str) -> str:
    """A text as an element of an array literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def page_parts(
    connection: PostgresConnection, relation: int, most: int, least_pages: int
) -> list[list[sql.Composable]]:
    """Conditions that cut a table with one file into at most so many parts of at least so many pages, by the rows' places: each row of a
    snapshot meets one of them. One part without a condition where such a condition would read all of the table."""
    found = connection.execute(_STORAGE, [relation, relation]).fetchall()
    if len(found) != 1 or not found[0][-1] or connection.info.server_version < _TID_RANGES:
        return [[]]
    blocks = int(found[0][3])
    parts = max(1, min(most, blocks // least_pages))
    return [_pages(part, parts, blocks) for part in range(parts)]


def _pages(part: int, parts: int, blocks: int) -> list[sql.Composable]:
    """Conditions for the rows of a part. The last one has no upper bound, so that pages added since are included."""
    low = part * blocks // parts
    conditions: list[sql.Composable] = []
    if low:
        conditions.append(sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({low},0)")))
    if part < parts - 1:
        conditions.append(sql.SQL("ctid < {}::tid").format(sql.Literal(f"({(part + 1) * blocks // parts},0)")))
    return conditions


def select_rows(
    schema: TableSchema,
    storage: TableName,
    conditions: Sequence[sql.Composable],
    listed: sql.Composable | None = None,
) -> sql.Composed:
    """Query for the schema's columns in order, from `storage` alone (ONLY), of the rows that meet the row filter and all conditions.
    `listed`: select list in place of the columns."""
    listed = listed or sql.SQL(", ").join(sql.Identifier(column.on_source) for column in schema.columns)
    query = sql.SQL("SELECT {} FROM ONLY {}").format(listed, sql.Identifier(storage.schema, storage.name))
    if schema.row_filter is not None:
        conditions = [*conditions, sql.SQL("({})").format(sql.SQL(schema.row_filter.text))]
    if conditions:
        query += sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions)
    return query


def columns_read(schema: TableSchema) -> tuple[tuple[int, str], ...]:
    """The column numbers and names that `select_rows` uses, as TableSplit.columns."""
    filtered = schema.row_filter.columns if schema.row_filter is not None else ()
    return (*((int(column.attnum), column.on_source) for column in schema.columns), *filtered)


def masks_of(schema: TableSchema) -> tuple[tuple[int, Mask], ...]:
    """TableSplit.masks of this schema's columns."""
    return tuple((place, column.mask) for place, column in enumerate(schema.columns) if column.mask is not None)


def read_split(connector: Connector, split: TableSplit, snapshot: str, rules: ReadRules = PLAIN) -> Iterator[bytes]:
    """COPY output in text format, in pieces of whole lines, masked.

    Raises EngineFault: TABLE_COLUMNS_UNFIT if values are to be hashed and the key is missing; COPY_LOST if the snapshot does not exist any
    more; TABLE_STRUCTURE_CHANGED if the table was rewritten or truncated after the snapshot, because the new file does not hold the rows of
    the snapshot, or if the index that `rules` need was dropped; of a view, if it was changed, or a table of it was. Then rows have been
    returned that do not count.
    """
    subject = f"relation {split.relation}"
    mask = mask_of(split, connector.secret(MASK_KEY), subject)
    with connector.session(subject) as connection:
        try:
            is_table = begin_read(connection, split, snapshot, subject, rules)
            storage = split.storage or split.relation
            mark = () if is_table else mark_of_view(connection, storage)
            pieces = copy_out(connector, connection, split.sql, subject)
            yield from pieces if mask is None else map(mask, pieces)
            connection.execute("COMMIT")
            if not is_table and mark != mark_of_view(connection, storage):
                changed = "the view, or a table that it reads, was changed after the snapshot"
                raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, subject, changed)
        except psycopg.Error as error:
            raise SOURCE.fault(error, subject, COPY_KINDS) from error
        finally:
            # A reader that stops early, or a fault, leaves the session in the middle of COPY; such a session cannot be reused.
            if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                connection.close()


def begin_read(
    connection: PostgresConnection, split: TableSplit, snapshot: str, subject: str, rules: ReadRules = PLAIN
) -> bool:
    """Begin a transaction under the snapshot, in which the split's SQL reads the rows of the snapshot; returns whether it is certain that
    it reads no view. Raises as `read_split`."""
    storage = split.storage or split.relation
    connection.execute(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        if rules.read_only
        else "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE"
    )
    connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
    # Statements of many ranges would seem worth JIT compilation.
    settings = "SELECT set_config('statement_timeout', %s, true), set_config('jit', 'off', true)"
    connection.execute(settings, [str(rules.timeout_ms)])
    name, kind = connection.execute(_NAME_AND_KIND, [storage, storage]).fetchall()[0]
    if name.isdecimal():
        # A dropped partition is a change of its root, which is copied again. A dropped table has nothing left to copy.
        gone = FaultKind.TABLE_MISSING if storage == split.relation else FaultKind.TABLE_STRUCTURE_CHANGED
        raise EngineFault(gone, subject, "the table is gone")
    if kind == "m":
        # As below, for what LOCK TABLE refuses.
        connection.execute("SELECT FROM ONLY " + name + " LIMIT 0")
    elif kind != "v":
        # Held until the end of this transaction: no command can rewrite the file between the check and the read.
        connection.execute("LOCK TABLE ONLY " + name + " IN ACCESS SHARE MODE")
    same = connection.execute(_SAME_STORAGE, [storage]).fetchone()
    if same is not None and not same[0]:
        raise EngineFault(
            FaultKind.TABLE_STRUCTURE_CHANGED, subject, "the table was rewritten or truncated after the snapshot"
        )
    if not _named_alike(connection, split, storage):
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, subject, "the table or a column of it was renamed")
    if rules.key and not connection.execute(_KEY_STANDS, [split.relation, list(rules.key)]).fetchall()[0][0]:
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, subject, "the index over its key was dropped")
    return kind is not None and kind not in _VIEW_KINDS


def _named_alike(connection: PostgresConnection, split: TableSplit, storage: RelationId) -> bool:
    """Whether the names in the split's SQL still refer to the same table and columns; two of them may have been swapped since."""
    if split.reads is None:
        return True
    table = connection.execute(_NAMES, [[0], storage]).fetchall()
    names = connection.execute(_NAMES, [[number for number, _ in split.columns], split.relation]).fetchall()
    found = [name[-1] if name else None for (name,) in names]
    return table[0][0] == [split.reads.schema, split.reads.name] and found == [name for _, name in split.columns]
