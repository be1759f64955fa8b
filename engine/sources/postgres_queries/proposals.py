"""Says by which methods each table can be compared, what they cost, and which one costs least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from engine.model.fault import FaultKind
from engine.model.identity import TableName
from engine.model.schema import TableSchema
from engine.model.source import Finding, Severity
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import CatalogTable, schema_of
from engine.sources.postgres.key_walk import ordered_columns
from engine.sources.postgres_queries.below import relations_below, stamps_below
from engine.sources.postgres_queries.compared import VIEWS, Compared
from engine.sources.postgres_queries.outer_join import MAY_KEEP, SCHEMA, copy_obstacle
from engine.sources.postgres_queries.stamp_script import flag_sql, index_sql, stamp_sql, unique_sql
from engine.sources.postgres_queries.stamps import TYPES
from engine.sources.query_diff.costs import Cost, TableFacts, costs
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import STAMPED

_SIZES = """
SELECT c.oid::bigint, greatest(c.relpages, pg_relation_size(c.oid) / current_setting('block_size')::bigint)::bigint,
       greatest(c.reltuples, 0)::bigint, coalesce(pg_relation_size(c.oid), 0)
FROM pg_class c WHERE c.oid = ANY (%s::oid[]) AND c.relkind IN ('r', 'm')
"""
_INDEXES = """
SELECT i.indrelid::bigint, array_agg(a.attname::text ORDER BY k.place)
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam AND m.amname = 'btree'
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = ANY (%s::oid[]) AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid, i.indrelid ORDER BY i.indexrelid
"""
"""Columns of each index, those of INCLUDE last. Indexes over expressions or of some rows only are left out."""
_READABLE = "SELECT has_table_privilege(%s::oid, 'SELECT'), current_user"
_FIXED = frozenset({"bool", "date", "float4", "float8", "int2", "int4", "int8", "timestamp", "timestamptz", "uuid"})
"""Types of columns that an index can include without a limit: a row of an index that is too large makes the application's INSERT fail."""
_NO_SCHEMA = f"the user needs the schema {SCHEMA}, and the right to create tables in it"
_MIB = 1024 * 1024
"""Bytes."""
_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of one relation, as the database estimates them. `indexes`: columns of each."""

    pages: int = 0
    rows: int = 0
    bytes: int = 0
    indexes: Sequence[Sequence[str]] = ()

    def led_by(self, column: str) -> list[Sequence[str]]:
        """The indexes whose first column it is."""
        return [columns for columns in self.indexes if columns[0] == column]


def propose(
    connection: PostgresConnection,
    compared: Compared,
    tables: Sequence[TableSpec],
    catalog: Mapping[TableName, CatalogTable],
) -> list[Finding]:
    """Findings on the methods of these tables."""
    there = [(spec, catalog[spec.source]) for spec in tables if spec.source in catalog]
    sizes = _sizes(connection, [table.oid for _, table in there])
    found: list[Finding] = []
    for spec, table in there:
        one = sizes.get(table.oid, _Sizes())
        schema = schema_of(compared.table(table), compared.kept(table, spec))
        found += _stamps(compared, table, one, schema)
        found += _stamps_below(connection, compared, table)
        if compared.declared_key(table) and table.kind not in VIEWS:
            what = f"the source does not keep the declared key of {table.name} unique: rows with equal keys would park the table"
            statements = unique_sql(table.name, compared.declared_key(table))
            found.append(Finding(_W, "key_not_unique", what, "Create an index that does.", statements))
        if schema is not None:
            may = bool(connection.execute(MAY_KEEP).fetchall()[0][0]) and not compared.declared_key(table)
            obstacle = copy_obstacle(connection, schema) if may else None
            found += _method(connection, compared, table, one, schema, joins=may and obstacle is None)
            if (compared.of(table).method or compared.method) == Method.OUTER_JOIN:
                found += _copy(connection, compared, table, one, obstacle if may else _NO_SCHEMA)
    return found


def _copy(
    connection: PostgresConnection, compared: Compared, table: CatalogTable, sizes: _Sizes, obstacle: str | None
) -> list[Finding]:
    """Findings on the copy that the method outer_join keeps on the source."""
    if compared.declared_key(table):
        what = f"{table.name} has no key that the source keeps unique, so outer_join keeps no copy of it: it is compared by incremental"
        return [Finding(_W, "copy_not_possible", what, "Add a primary key, or choose another method.")]
    if obstacle is None:
        room = f"about {max(1, sizes.bytes // _MIB):,} MiB in the schema {SCHEMA} of the source, and as much again for its index at most"
        what = f"outer_join keeps a copy of {table.name}: {room}. It is not logged, and no backup needs it"
        return [Finding(_I, "copy_on_source", what, "None needed.")]
    if obstacle is not _NO_SCHEMA:
        what = f"{table.name}: {obstacle}, so outer_join keeps no copy of it: it is compared by incremental"
        return [Finding(_W, "copy_not_possible", what, "Choose another method for it in capture.tables.")]
    user = connection.execute("SELECT quote_ident(current_user), pg_is_in_recovery()").fetchall()[0]
    if user[1]:
        what = "outer_join writes on the source, which is a standby"
        return [Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, "Choose another method, or the primary server.")]
    statements = (f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}", f"GRANT USAGE, CREATE ON SCHEMA {SCHEMA} TO {user[0]}")
    what = f"outer_join keeps a copy of {table.name} on the source, for which {obstacle}"
    return [Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, "Let an administrator run the statements.", statements)]


def _sizes(connection: PostgresConnection, oids: Sequence[int]) -> dict[int, _Sizes]:
    indexes: dict[int, list[Sequence[str]]] = {}
    for oid, columns in connection.execute(_INDEXES, [oids]).fetchall():
        indexes.setdefault(oid, []).append(tuple(columns))
    rows = connection.execute(_SIZES, [oids]).fetchall()
    return {oid: _Sizes(pages, held, size, indexes.get(oid, ())) for oid, pages, held, size in rows}


def _stamps(compared: Compared, table: CatalogTable, sizes: _Sizes, schema: TableSchema | None) -> list[Finding]:
    """Findings on the declared stamp and delete flag."""
    chosen = compared.of(table)
    if chosen.method not in STAMPED or chosen.stamp_column is None:
        return []
    stamp, flag = chosen.stamp_column, chosen.flag_column
    if table.kind in VIEWS:
        what = f"{table.name} is a view, of which no stamp of its own shows the changes"
        remedy = "Declare stamps_below, the stamps of what it reads, or choose another method; and declare its key."
        return [Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, what, remedy)]
    types = {c.column.name: c.column.type.name for c in table.columns}
    key = compared.table(table).identity_columns
    found = []
    if (problem := compared.stamp_problem(table)) is not None:
        statements = stamp_sql(table.name, stamp, add=stamp not in types)
        found.append(_unfit(table, problem, statements if stamp not in types else ()))
    if (problem := compared.flag_problem(table)) is not None:
        statements = flag_sql(table.name, key, str(flag), None) if key and flag not in types else ()
        found.append(_unfit(table, problem, statements))
    if not found and not sizes.led_by(stamp):
        included = [*key, *([flag] if flag is not None else [])]
        columns = schema.columns if schema is not None else ()
        if columns and all(column.type.name in _FIXED for column in columns):
            included += [c.on_source for c in columns if c.on_source not in included]
        statements = index_sql(table.name, stamp, included)
        found.append(Finding(_W, "stamp_without_index", _unindexed(table.name, stamp), "Create one.", statements))
    return found


def _unindexed(table: TableName, stamp: str) -> str:
    return f"{table} has no index that begins with {stamp}: each cycle reads the whole table to find recent stamps"


def _stamps_below(connection: PostgresConnection, compared: Compared, view: CatalogTable) -> list[Finding]:
    """Findings on the declared stamps of what a view reads."""
    declared = compared.of(view).stamps_below
    if not declared:
        return []
    stamps, problems = stamps_below(connection, view, declared, compared.table(view).identity_columns)
    remedy = "Correct stamps_below in capture.tables, or choose another method."
    found = [
        Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, f"{view.name}: {problem}", remedy) for problem in problems
    ]
    sizes = _sizes(connection, [int(stamp.relation.schema.relation) for stamp in stamps])
    for stamp in stamps:
        schema = stamp.relation.schema
        may_read, user = connection.execute(_READABLE, [int(schema.relation)]).fetchall()[0]
        if not may_read:
            what = f"{view.name}: the user may not read the stamps of {schema.name}"
            on = sql.Identifier(schema.name.schema, schema.name.name)
            granted = sql.SQL("GRANT SELECT ON {} TO {}").format(on, sql.Identifier(user)).as_string(connection)
            found.append(Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, "Grant it.", (granted,)))
        if not sizes.get(int(schema.relation), _Sizes()).led_by(stamp.stamp):
            statements = index_sql(schema.name, stamp.stamp, schema.key)
            found.append(
                Finding(_W, "stamp_without_index", _unindexed(schema.name, stamp.stamp), "Create one.", statements)
            )
    late = relations_below(connection, view).without(declared)
    if late and not problems:
        what = f"changes of what {view.name} reads besides are found only by cycles that compare all rows: {', '.join(late)}"
        found.append(Finding(_I, "changes_without_stamp", what, "Declare stamps of these too, if they change."))
    return found


def _unfit(table: CatalogTable, problem: str, statements: Sequence[str]) -> Finding:
    remedy = "Correct capture.tables, or run the statements; the application's DELETE then sets the flag."
    return Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, f"{table.name}: {problem}", remedy, tuple(statements))


def _method(
    connection: PostgresConnection,
    compared: Compared,
    table: CatalogTable,
    sizes: _Sizes,
    schema: TableSchema,
    *,
    joins: bool,
) -> list[Finding]:
    """Which methods are possible, and what they cost."""
    chosen = compared.of(table)
    method = chosen.method or compared.method
    if table.kind == "v":
        what = (
            f"{table.name} is a view: it can be compared by incremental or row_checksum (chosen: {method}), and each cycle runs its query,"
            " once more for rows that changed; by timestamp with stamps_below most cycles run it for rows that may have changed only. Its"
            " key is not kept unique by the source"
        )
        return [Finding(_I, "method_costs", what, "None needed.")]
    is_unique = not compared.declared_key(table)
    ordered = ordered_columns(connection, schema)
    stamp = chosen.stamp_column if chosen.method in STAMPED else None
    led = sizes.led_by(stamp) if stamp is not None else []
    read = {column.on_source for column in schema.columns}
    facts = TableFacts(
        sizes.pages,
        sizes.rows,
        sizes.bytes,
        ordered=len(ordered) == len(schema.key),
        stamp=stamp,
        flag=chosen.flag_column,
        indexed=bool(led),
        covers=any(read <= set(columns) for columns in led),
        unique=is_unique,
        joins=joins,
    )
    listed = costs(facts)
    best = listed[0].way.value
    what = (
        f"{table.name}: {sizes.pages:,} pages, about {sizes.rows:,} rows. A cycle in which 1 % of these pages changed reads and sends:"
        f" {'; '.join(map(_words, listed))}. The least: {best}; chosen: {method}"
    )
    remedy = "None needed." if method == best else f"Set capture.method, or capture.tables of this table, to {best}."
    found = [Finding(_I, "method_costs", what, remedy)]
    if not facts.ordered and is_unique and method == "range_checksum":
        what = f"the order of the key of {table.name} is not known, so it is compared by row_checksum"
        remedy = (
            "range_checksum needs a B-tree index over a key of numbers, dates, uuid, or texts with the collation C."
        )
        found.append(Finding(_W, "key_without_order", what, remedy))
    found += _candidates(sizes, table, schema, stamp)
    return found


def _candidates(sizes: _Sizes, table: CatalogTable, schema: TableSchema, stamp: str | None) -> list[Finding]:
    """Columns that may be stamps."""
    names = [c.on_source for c in schema.columns if c.type.name in TYPES and sizes.led_by(c.on_source)]
    if stamp is not None or not names:
        return []
    what = f"{table.name} has an index that begins with a time: {', '.join(sorted(set(names)))}"
    remedy = "If every insert and update sets it to the database's time, the method timestamp reads few pages."
    return [Finding(_I, "stamp_possible", what, remedy)]


def _words(cost: Cost) -> str:
    return f"{cost.way.value} {cost.pages:,.0f} pages and {cost.sent / _MIB:,.1f} MiB"
