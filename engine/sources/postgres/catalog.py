"""Reads tables from the source's catalog: columns, replica identity, keys, partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from engine.model.identity import TableName
from engine.model.schema import Column, Expression, Input
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import FILTER_VERSION, CatalogColumn, CatalogTable, UniqueIndex
from engine.records.relation import identity_of
from engine.sources.postgres.types import TypeRow, load_types, source_type

TABLE_FACTS = """c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text,
       c.relfilenode::bigint, c.reltuples"""
_TABLES = f"""
SELECT {TABLE_FACTS}
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
"""
_BY_NAME = _TABLES + "JOIN unnest(%s::text[], %s::text[]) AS w(s, t) ON n.nspname = w.s AND c.relname = w.t"
_BY_OID = _TABLES + "WHERE c.oid = ANY(%s::oid[])"
MISSING_VALUE = r"""CASE WHEN t.typdelim = ',' THEN (a.attmissingval::text::text[])[1]
            ELSE regexp_replace(regexp_replace(a.attmissingval::text, '^\{"?|"?\}$', '', 'g'), '\\(.)', '\1', 'g') END"""
COLUMN_FACTS = f"""a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, NOT a.attnotnull,
       a.atthasdef OR a.attidentity <> '' OR (t.typtype = 'd' AND t.typdefault IS NOT NULL), a.atthasmissing,
       {MISSING_VALUE},
       a.attgenerated::text, a.xmin::text::bigint,
       CASE WHEN t.typtype IN ('e', 'd', 'c', 'r', 'm') OR t.typcategory = 'A' THEN ARRAY(
           WITH RECURSIVE made(oid) AS (
               SELECT t.oid
               UNION
               SELECT p.oid FROM made JOIN pg_type q ON q.oid = made.oid CROSS JOIN LATERAL (
                   VALUES (q.typelem), (q.typbasetype)
                   UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE q.oid IN (r.rngtypid, r.rngmultitypid)
                   UNION ALL SELECT b.atttypid FROM pg_attribute b
                             WHERE b.attrelid = q.typrelid AND b.attnum > 0 AND NOT b.attisdropped) AS p(oid)
               WHERE p.oid <> 0)
           SELECT ARRAY[w.told, w.edition] FROM (
               SELECT 1, q.oid, 0::oid, q.oid || ': ' || string_agg(b.attnum::text, ' ' ORDER BY b.attnum), '0'
               FROM made JOIN pg_type q ON q.oid = made.oid
               JOIN pg_attribute b ON b.attrelid = q.typrelid AND b.attnum > 0 AND NOT b.attisdropped GROUP BY q.oid
               UNION ALL
               SELECT 2, e.enumtypid, e.oid, CASE WHEN EXISTS (
                   SELECT FROM made JOIN pg_type q ON q.oid = made.oid WHERE q.typtype IN ('c', 'r', 'm'))
                   THEN e.enumtypid || '= ' || e.enumlabel ELSE e.enumlabel::text END, e.xmin::text
               FROM made JOIN pg_enum e ON e.enumtypid = made.oid) AS w(part, type, place, told, edition)
           ORDER BY w.part, w.type, w.place) ELSE '{{}}' END"""
_COLUMNS = f"""
SELECT {COLUMN_FACTS}
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
_EXPRESSIONS = """
SELECT d.adrelid, d.adnum, pg_get_expr(d.adbin, d.adrelid), md5(d.adbin::text),
       ARRAY(SELECT ARRAY[i.attnum::text, i.attname, format_type(i.atttypid, i.atttypmod)]
             FROM pg_attribute i WHERE i.attrelid = d.adrelid AND i.attnum > 0 AND i.attgenerated = '' AND EXISTS (
                 SELECT FROM pg_depend u
                 WHERE ((u.classid, u.objid) = ('pg_attrdef'::regclass, d.oid)
                        OR (u.classid, u.objid, u.objsubid) = ('pg_class'::regclass, d.adrelid, d.adnum))
                   AND (u.refclassid, u.refobjid, u.refobjsubid) = ('pg_class'::regclass, i.attrelid, i.attnum))
             ORDER BY i.attnum)
FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND a.attgenerated <> ''
JOIN pg_class c ON c.oid = d.adrelid AND c.relkind = 'r'
WHERE d.adrelid = ANY(%s::oid[]) AND NOT EXISTS (
    SELECT FROM pg_depend u LEFT JOIN pg_proc f ON u.refclassid = 'pg_proc'::regclass AND f.oid = u.refobjid
    WHERE ((u.classid, u.objid) = ('pg_attrdef'::regclass, d.oid)
           OR (u.classid, u.objid, u.objsubid) = ('pg_class'::regclass, d.adrelid, d.adnum))
      AND ((u.refclassid = 'pg_class'::regclass AND u.refobjid = d.adrelid AND u.refobjsubid < 0)
           OR NOT (has_function_privilege(f.oid, 'EXECUTE') AND has_schema_privilege(f.pronamespace, 'USAGE'))))
ORDER BY d.adrelid, d.adnum
"""
"""Expressions of generated columns that this user may evaluate: they read the row only, and call functions that the user may execute.

Up to PostgreSQL 14 pg_depend records what an expression uses under the column, later under the expression (pg_attrdef)."""
_DROPPED = """
SELECT a.attrelid, a.attnum, a.atttypmod FROM pg_attribute a
WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND a.attisdropped ORDER BY a.attrelid, a.attnum
"""
INDEX_FACTS = "i.indrelid, i.indisprimary, i.indisreplident, i.indimmediate, k.columns, k.not_null"
UNIQUE_INDEXES = """pg_index i
CROSS JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY k.place) AS columns,
           bool_and(a.attnotnull AND NOT EXISTS (
               SELECT FROM pg_constraint n
               WHERE n.conrelid = a.attrelid AND n.contype = 'n' AND NOT n.convalidated AND a.attnum = ANY (n.conkey))) AS not_null
    FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE k.place <= i.indnkeyatts
) AS k"""
"""PostgreSQL 18 allows NOT NULL constraints that are not validated: existing rows may still hold NULL."""
USABLE_INDEX = "i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL"
_INDEXES = f"""
SELECT {INDEX_FACTS}
FROM {UNIQUE_INDEXES}
WHERE i.indrelid = ANY(%s::oid[]) AND {USABLE_INDEX}
ORDER BY i.indrelid, i.indexrelid
"""
_NAMES = """
SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY(%s::oid[])
"""
_STANDING = r"""
SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
  AND c.relname NOT LIKE '\_\_penstock\_%%' ORDER BY n.nspname, c.relname
"""
_ROOTS = """
SELECT c.oid, n.nspname, r.relname FROM pg_class c
JOIN pg_class r ON r.oid = pg_partition_root(c.oid) JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE c.oid = ANY(%s::oid[]) AND c.relispartition
"""
_LEAVES = """
SELECT r.root, p.relid::oid
FROM unnest(%s::oid[]) AS r(root) CROSS JOIN LATERAL pg_partition_tree(r.root::regclass) AS p
WHERE p.isleaf AND p.relid::oid <> r.root
ORDER BY r.root, p.relid::oid
"""

STORED_VERSION = 180000
"""PostgreSQL 18. Publications can include stored generated columns from this version on, and the server rejects an UPDATE or DELETE of
a table whose replica identity contains an unpublished column."""
_STORED = "s"
"""pg_attribute.attgenerated."""


def publishes_stored(server_version: int) -> bool:
    """Whether publications of this `server_version_num` can include stored generated columns. Virtual ones are never published."""
    return server_version >= STORED_VERSION


@contextmanager
def one_look(connection: PostgresConnection) -> Iterator[None]:
    """A read-only transaction whose reads share one snapshot. Reads at different times could describe a table that never existed."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def load_tables(connection: PostgresConnection, names: Iterable[TableName]) -> dict[TableName, CatalogTable]:
    """Read these tables from the catalog; missing ones are left out."""
    wanted = list(names)
    rows = connection.execute(_BY_NAME, [[n.schema for n in wanted], [n.name for n in wanted]]).fetchall()
    return {table.name: table for table in _load(connection, rows)}


def load_numbered(connection: PostgresConnection, oids: Iterable[int]) -> dict[int, CatalogTable]:
    """Read these tables from the catalog by OID; missing ones are left out."""
    return {table.oid: table for table in _load(connection, connection.execute(_BY_OID, [list(oids)]).fetchall())}


def names_of(connection: PostgresConnection, oids: Iterable[int]) -> dict[int, TableName]:
    """The current names of these tables by OID; dropped ones are left out."""
    rows = connection.execute(_NAMES, [list(oids)]).fetchall()
    return {oid: TableName(schema, name) for oid, schema, name in rows}


def standing(connection: PostgresConnection, schemas: Iterable[str]) -> dict[int, TableName]:
    """Logged tables of these schemas, without partitions and without the hidden copies of another Penstock that writes there."""
    rows = connection.execute(_STANDING, [list(schemas)]).fetchall()
    return {oid: TableName(schema, name) for oid, schema, name in rows}


def roots_of(connection: PostgresConnection, oids: Iterable[int]) -> dict[int, TableName]:
    """The root table of each of these tables that is a partition."""
    rows = connection.execute(_ROOTS, [list(oids)]).fetchall()
    return {oid: TableName(schema, name) for oid, schema, name in rows}


def _load(connection: PostgresConnection, rows: Sequence[tuple[object, ...]]) -> list[CatalogTable]:
    tables = _tables(rows)
    roots = {t.oid: t for t in tables if t.partitioned}
    every = list(tables)
    if roots:
        pairs = connection.execute(_LEAVES, [list(roots)]).fetchall()
        leaves = {t.oid: t for t in _tables(connection.execute(_BY_OID, [[leaf for _, leaf in pairs]]).fetchall())}
        own = {t.oid: t for t in tables}
        leaves = {oid: own.get(oid, leaf) for oid, leaf in leaves.items()}
        for root, leaf in pairs:
            if leaf in leaves:
                roots[root].leaves.append(leaves[leaf])
        every += [leaf for oid, leaf in leaves.items() if oid not in own]
    _fill_columns(connection, every)
    for root_table in roots.values():
        fills = _leaves_fills(root_table.leaves)
        root_table.columns = [with_leaves_fill(c, fills) for c in root_table.columns]
    return tables


def _tables(rows: Sequence[tuple[object, ...]]) -> list[CatalogTable]:
    return [table_of(row) for row in rows]


def table_of(row: Sequence[object]) -> CatalogTable:
    """A table without columns, from a row of TABLE_FACTS."""
    oid, schema, name, kind, persistence, identity, filenode, tuples = row
    return CatalogTable(
        oid=int(str(oid)),
        name=TableName(str(schema), str(name)),
        kind=str(kind),
        persistence=str(persistence),
        identity=identity_of(str(identity)),
        relfilenode=int(str(filenode)),
        rows=float(str(tuples)),
    )


def _fill_columns(connection: PostgresConnection, tables: Sequence[CatalogTable]) -> None:
    for table in tables:
        table.stored_sent = publishes_stored(connection.info.server_version)
        table.has_filters = connection.info.server_version >= FILTER_VERSION
    oids = [t.oid for t in tables]
    columns = connection.execute(_COLUMNS, [oids]).fetchall()
    types = load_types(connection, {row[3] for row in columns})
    by_oid = {t.oid: t for t in tables}
    for oid, attnum, modifier in connection.execute(_DROPPED, [oids]):
        by_oid[oid].dropped[attnum] = modifier
    fill_tables(tables, columns, connection.execute(_INDEXES, [oids]).fetchall(), types)
    asked = {t.oid: t for t in tables if t.computed}
    if asked:
        found = {
            (oid, attnum): _expression(*rest) for oid, attnum, *rest in connection.execute(_EXPRESSIONS, [list(asked)])
        }
        for oid, table in asked.items():
            known = [(column, found.get((oid, column.attnum))) for column in table.computed]
            table.computed = [replace(column, expression=how) for column, how in known if how is not None]


def _expression(text: str, mark: str, inputs: Sequence[Sequence[str]]) -> Expression:
    return Expression(text, mark, tuple(Input(int(attnum), name, type_) for attnum, name, type_ in inputs))


def fill_tables(
    tables: Iterable[CatalogTable],
    columns: Iterable[Sequence[Any]],
    indexes: Iterable[Sequence[Any]],
    types: Mapping[int, TypeRow],
) -> None:
    """Fill in the tables' columns and unique indexes from rows of COLUMN_FACTS and INDEX_FACTS."""
    by_oid = {t.oid: t for t in tables}
    for (
        oid,
        attnum,
        name,
        type_oid,
        modifier,
        nullable,
        has_default,
        has_missing,
        missing,
        generated,
        edition,
        labels,
    ) in columns:
        unsent = generated and not (generated == _STORED and by_oid[oid].stored_sent)
        if unsent:
            by_oid[oid].generated.append(name)
            by_oid[oid].unsent.append(attnum)
        kind = source_type(types, type_oid, modifier)
        if kind is None:
            continue
        column = Column(
            name,
            kind,
            attnum,
            nullable=nullable,
            fill=missing,
            edition=edition,
            labels=tuple(label for label, _ in labels),
            label_editions=tuple(int(written) for _, written in labels),
            generated=bool(generated),
        )
        if unsent:
            by_oid[oid].computed.append(column)
            continue
        by_oid[oid].columns.append(CatalogColumn(column, type_oid, modifier, has_default, has_missing))
    for oid, primary, replica_identity, immediate, names, not_null in indexes:
        if names:
            by_oid[oid].indexes.append(UniqueIndex(primary, replica_identity, immediate, tuple(names), not_null))


def _leaves_fills(leaves: Sequence[CatalogTable]) -> dict[str, set[str | None]]:
    """By column, the values that older rows of the leaves hold for it."""
    fills: dict[str, set[str | None]] = {}
    for column in (c for leaf in leaves for c in leaf.columns if c.has_missing):
        fills.setdefault(column.column.name, set()).add(column.column.fill)
    return fills


def with_leaves_fill(root: CatalogColumn, fills: Mapping[str, set[str | None]]) -> CatalogColumn:
    """The root's column with the leaves' value for older rows, if all leaves agree. A root itself stores no rows."""
    found = fills.get(root.column.name, set())
    if len(found) != 1:
        return root
    (fill,) = found
    return CatalogColumn(
        replace(root.column, fill=fill), root.type_oid, root.modifier, root.has_default, has_missing=True
    )
