"""What the source's catalog says of tables: columns, identity, keys, partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from engine.model.identity import RelationId, TableName
from engine.model.schema import Column, Expression, Input, KeyMode, ReplicaIdentity, TableSchema
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.relation import identity_of
from engine.sources.postgres_log.types import TypeRow, load_types, source_type

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
"""How generated columns are computed that this user can have computed: of values of the row alone, and by functions that it may call.

Up to PostgreSQL 14 what an expression uses is recorded of its column, later of the expression itself."""
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
"""A column may be NOT NULL for new rows only (PostgreSQL 18): older ones then hold NULL still."""
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
"""From here on publications carry stored generated columns where they are asked to, and the server lets nobody change rows whose
replica identity has columns that are not published."""
_STORED = "s"
"""pg_attribute.attgenerated."""


def publishes_stored(server_version: int) -> bool:
    """Whether publications of this server (its number) can carry stored generated columns; virtual ones none does."""
    return server_version >= STORED_VERSION


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column that the log sends. `has_default`: rows that are older than it may hold something else than NULL."""

    column: Column
    type_oid: int
    modifier: int
    has_default: bool
    has_missing: bool


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index over plain columns without a condition."""

    primary: bool
    replica_identity: bool
    immediate: bool
    columns: tuple[str, ...]
    not_null: bool


@dataclass(slots=True)
class CatalogTable:
    """One table of the source. `leaves` are the partitions that hold a root's rows."""

    oid: int
    name: TableName
    kind: str
    persistence: str
    identity: ReplicaIdentity
    relfilenode: int
    rows: float
    columns: list[CatalogColumn] = field(default_factory=list)
    generated: list[str] = field(default_factory=list)
    """Generated columns that the log does not send: virtual ones, and before PostgreSQL 18 stored ones."""
    unsent: list[int] = field(default_factory=list)
    """Attribute numbers of those."""
    computed: list[Column] = field(default_factory=list)
    """Those of them that the source can be asked to compute of other values of the row."""
    dropped: dict[int, int] = field(default_factory=dict)
    """Attribute numbers of columns that are gone, and the modifier of the type that each had; nothing else is left of them."""
    stored_sent: bool = False
    """Whether the log sends stored generated columns. Such a server lets nobody change rows whose replica identity has columns that are
    not published."""
    indexes: list[UniqueIndex] = field(default_factory=list)
    leaves: list[CatalogTable] = field(default_factory=list)

    @property
    def partitioned(self) -> bool:
        return self.kind == "p"

    @property
    def last_number(self) -> int:
        """The highest attribute number that any column has or had."""
        return max((*(c.column.attnum for c in self.columns), *self.unsent, *self.dropped), default=0)

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.column.name for c in self.columns)

    @property
    def identity_columns(self) -> tuple[str, ...]:
        """Columns that the log sends of an old row; empty where updates and deletes cannot be followed."""
        if self.identity is ReplicaIdentity.FULL:
            return self.column_names
        for index in self.indexes:
            if index.replica_identity and self.identity is ReplicaIdentity.INDEX:
                return index.columns
            # The server itself does not use a deferrable primary key as identity.
            if index.primary and index.immediate and self.identity is ReplicaIdentity.DEFAULT:
                return index.columns
        return ()

    @property
    def unsent_identity(self) -> list[str]:
        """Generated columns that keep its updates and deletes from being followed, since its replica identity has them."""
        if self.identity is ReplicaIdentity.FULL:
            return self.generated if self.stored_sent else []
        return [name for name in self.identity_columns if name in self.generated]

    @property
    def fallback_key(self) -> tuple[str, ...]:
        """For REPLICA IDENTITY FULL: the primary key, else a unique index without NULLs; empty where there is none."""
        usable = [i for i in self.indexes if i.immediate and i.not_null and set(i.columns) <= set(self.column_names)]
        usable.sort(key=lambda i: not i.primary)
        return usable[0].columns if usable else ()


@contextmanager
def one_look(connection: PostgresConnection) -> Iterator[None]:
    """What is read in the block is of one moment: names, storage and columns of different ones would tell of what never was."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def load_tables(connection: PostgresConnection, names: Iterable[TableName]) -> dict[TableName, CatalogTable]:
    """The catalog's view of these tables; a missing one is left out."""
    wanted = list(names)
    rows = connection.execute(_BY_NAME, [[n.schema for n in wanted], [n.name for n in wanted]]).fetchall()
    return {table.name: table for table in _load(connection, rows)}


def load_numbered(connection: PostgresConnection, oids: Iterable[int]) -> dict[int, CatalogTable]:
    """The catalog's view of these tables by number; a missing one is left out."""
    return {table.oid: table for table in _load(connection, connection.execute(_BY_OID, [list(oids)]).fetchall())}


def names_of(connection: PostgresConnection, oids: Iterable[int]) -> dict[int, TableName]:
    """Under which names these tables stand now; those that are gone are left out."""
    rows = connection.execute(_NAMES, [list(oids)]).fetchall()
    return {oid: TableName(schema, name) for oid, schema, name in rows}


def standing(connection: PostgresConnection, schemas: Iterable[str]) -> dict[int, TableName]:
    """Logged tables of these schemas, without partitions and without copies that another Penstock loads there."""
    rows = connection.execute(_STANDING, [list(schemas)]).fetchall()
    return {oid: TableName(schema, name) for oid, schema, name in rows}


def roots_of(connection: PostgresConnection, oids: Iterable[int]) -> dict[int, TableName]:
    """Those of these tables that are partitions, each with the table at the top."""
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
    """Give tables their columns and unique indexes, from rows of COLUMN_FACTS and INDEX_FACTS."""
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
    """By column, what old rows of the leaves hold of it."""
    fills: dict[str, set[str | None]] = {}
    for column in (c for leaf in leaves for c in leaf.columns if c.has_missing):
        fills.setdefault(column.column.name, set()).add(column.column.fill)
    return fills


def with_leaves_fill(root: CatalogColumn, fills: Mapping[str, set[str | None]]) -> CatalogColumn:
    """A root stores nothing: what old rows hold of a new column is noted at its leaves, where they agree."""
    found = fills.get(root.column.name, set())
    if len(found) != 1:
        return root
    (fill,) = found
    return CatalogColumn(
        replace(root.column, fill=fill), root.type_oid, root.modifier, root.has_default, has_missing=True
    )


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """How rows of a table are found. `problem` is set where updates and deletes cannot be followed."""

    key: tuple[str, ...]
    mode: KeyMode
    problem: str | None = None


def choose_key(
    spec: TableSpec,
    identity: ReplicaIdentity,
    columns: Sequence[str],
    identity_columns: Sequence[str],
    fallback_key: Sequence[str],
) -> KeyChoice:
    """Declared key, then replica identity index or primary key; for FULL without a key the whole row. Insert-only needs none."""
    if spec.insert_only:
        return KeyChoice((), KeyMode.APPEND)
    if not identity_columns:
        return KeyChoice((), KeyMode.APPEND, "the table has no primary key and no other replica identity")
    if spec.key:
        missing = [name for name in spec.key if name not in columns]
        if missing:
            return KeyChoice((), KeyMode.APPEND, f"the declared key names no column of the table: {', '.join(missing)}")
        if not set(spec.key) <= set(identity_columns):
            detail = f"the declared key is not part of the table's replica identity ({', '.join(identity_columns)})"
            return KeyChoice((), KeyMode.APPEND, detail)
        return KeyChoice(tuple(spec.key), KeyMode.KEYED)
    if identity is not ReplicaIdentity.FULL:
        return KeyChoice(tuple(identity_columns), KeyMode.KEYED)
    if fallback_key:
        return KeyChoice(tuple(fallback_key), KeyMode.KEYED)
    return KeyChoice((), KeyMode.BAG)


def key_of(table: CatalogTable, spec: TableSpec) -> KeyChoice:
    """The key choice for a table as it is now. Partitions must send the key too: each leaf has an identity of its own."""
    choice = choose_key(spec, table.identity, table.column_names, table.identity_columns, table.fallback_key)
    if choice.problem is not None or spec.insert_only:
        return choice
    if table.identity is ReplicaIdentity.INDEX and any(i.replica_identity and not i.not_null for i in table.indexes):
        detail = (
            "older rows may be NULL where its replica identity is NOT NULL for new ones only, until that is validated"
        )
        return KeyChoice((), KeyMode.APPEND, detail)
    for one in (table, *table.leaves):
        if one.unsent_identity:
            detail = f"generated columns are in the replica identity of {one.name}: {', '.join(one.unsent_identity)}"
            return KeyChoice((), KeyMode.APPEND, detail)
    for leaf in table.leaves:
        enough = leaf.identity is ReplicaIdentity.FULL
        if choice.mode is KeyMode.KEYED:
            enough = enough or set(choice.key) <= set(leaf.identity_columns)
        if not enough:
            return KeyChoice(
                (), KeyMode.APPEND, f"the replica identity of partition {leaf.name} does not include the table's key"
            )
    return choice


def not_logged(table: CatalogTable) -> str | None:
    """Which of the table and its partitions does not get its changes into the log, in words; None where all do."""
    for one in (table, *table.leaves):
        kinds = {"r": "", "p": "", "f": "is a foreign table"}
        reason = kinds.get(one.kind, "is not a table") or {"u": "is unlogged", "t": "is temporary"}.get(one.persistence)
        if reason:
            return f"{one.name} {reason}: its changes are not in the log"
    return None


def schema_of(table: CatalogTable, spec: TableSpec) -> TableSchema | None:
    """A table's structure; None where some of its changes are not in the log, or its updates and deletes cannot be followed and there is
    no insert_only consent."""
    choice = key_of(table, spec)
    if choice.problem is not None or not_logged(table) is not None:
        return None
    return TableSchema(
        name=table.name,
        relation=RelationId(table.oid),
        columns=tuple(mapped(c.column, spec) for c in table.columns),
        key=choice.key,
        mode=choice.mode,
        identity=table.identity,
        relfilenode=table.relfilenode,
        unsent=tuple(table.unsent),
        computed=computed_of(table, spec),
        last_number=table.last_number,
    )


def computed_of(table: CatalogTable, spec: TableSpec) -> tuple[Column, ...]:
    """The columns that the log does not carry and the source is asked for."""
    return tuple(mapped(column, spec) for column in table.computed if column.expression is not None)


def mapped(column: Column, spec: TableSpec) -> Column:
    """The column with the mapping that user or target asks for."""
    wanted = spec.map_as.get(column.name, spec.map_others_as)
    if wanted == column.map_as:
        return column
    return replace(column, map_as=wanted)
