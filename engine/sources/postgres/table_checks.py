"""Findings on tables of a PostgreSQL database, and the list of its tables; whichever way changes are captured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from engine.model.fault import FaultKind
from engine.model.identity import TableId, TableName
from engine.model.source import DiscoveredTable, Finding, Severity
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import (
    CatalogTable,
    choose_key,
    computed_of,
    filter_problem,
    key_of,
    not_logged,
    selected,
    selection_problem,
)
from engine.sources.postgres import mending
from engine.sources.postgres.catalog import STORED_VERSION, load_tables, one_look
from engine.sources.postgres.connect import Connector

_RIGHTS = """
SELECT n.nspname, c.relname,
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AND NOT EXISTS (
           SELECT FROM pg_partition_tree(c.oid) AS p WHERE c.relkind = 'p' AND p.isleaf AND p.relid <> c.oid
             AND NOT (has_table_privilege(p.relid, 'SELECT'))),
       pg_has_role(c.relowner, 'USAGE'), pg_get_userbyid(c.relowner)::text, current_user::text,
       ARRAY(SELECT p.oid::regclass::text FROM pg_class p
             WHERE (p.oid = c.oid OR c.relkind = 'p' AND p.oid IN (SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf))
               AND p.relkind <> 'p' AND row_security_active(p.oid) ORDER BY 1)
FROM unnest(%s::text[], %s::text[]) AS w(s, t)
JOIN pg_namespace n ON n.nspname = w.s JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t
"""
_DISCOVER = f"""
SELECT n.nspname, c.relname,
       (SELECT coalesce(sum(pg_table_size(p.relid)), 0) FROM pg_partition_tree(c.oid) AS p)::bigint + coalesce(pg_table_size(c.oid), 0),
       (SELECT array_agg(ARRAY[a.attname::text, format_type(a.atttypid, a.atttypmod)] ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND (a.attgenerated = '' OR (a.attgenerated = 's' AND current_setting('server_version_num')::int >= {STORED_VERSION})))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind::text = ANY (%s) AND NOT c.relispartition AND c.relpersistence <> 't' AND c.relname NOT LIKE '\\_\\_penstock\\_%%'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'penstock')
  AND n.nspname NOT LIKE 'pg\\_toast%%' AND n.nspname NOT LIKE 'pg\\_temp%%'
ORDER BY n.nspname, c.relname
"""
AsSent = Callable[[CatalogTable], CatalogTable]
_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO


@dataclass(frozen=True, slots=True)
class Rights:
    """What the user may do with a table."""

    readable: bool
    owned: bool
    owner: str
    user: str
    hidden: Sequence[str]
    """Names of the table and its partitions of which row-level security hides rows from the user."""


def _as_logged(table: CatalogTable) -> CatalogTable:
    return table


def discover(
    connector: Connector, as_sent: AsSent = _as_logged, kinds: Sequence[str] = ("r", "p", "f")
) -> list[DiscoveredTable]:
    """Every table outside the system schemas and Penstock's; partitions are listed under their root. `as_sent`: see `check_tables`;
    `kinds`: of relations, as of pg_class.relkind."""
    with connector.session() as connection:
        rows = connection.execute(_DISCOVER, [list(kinds)]).fetchall()
        names = [TableName(schema, name) for schema, name, *_ in rows]
        catalog = {name: as_sent(table) for name, table in load_tables(connection, names).items()}
        rights = rights_of(connection, names)
    found = []
    for (schema, name, size, columns), table_name in zip(rows, names, strict=True):
        table = catalog.get(table_name)
        if table is None:
            continue
        spec = TableSpec(TableId("t0"), TableName(schema, name), TableName(schema, name))
        found.append(
            DiscoveredTable(
                name=table_name,
                key=key_of(table, spec).key,
                identity=table.identity.value,
                partitioned=table.partitioned,
                rows_estimate=int(sum(max(0.0, t.rows) for t in (table.leaves or [table]))),
                bytes=size,
                columns=tuple({"name": column, "type": kind} for column, kind in columns or ()),
                problems=tuple(_table(table, spec, rights.get(table_name))),
            )
        )
    return found


def check_tables(
    connection: PostgresConnection, tables: Sequence[TableSpec], as_sent: AsSent = _as_logged, *, by_others: bool
) -> list[Finding]:
    """Findings on these tables. `as_sent`: a table as the source sends its changes; `by_others`: others publish them."""
    names = [t.source for t in tables]
    catalog = {name: as_sent(table) for name, table in load_tables(connection, names).items()}
    rights = rights_of(connection, names)
    found: list[Finding] = []
    for spec in tables:
        table = catalog.get(spec.source)
        if table is None:
            what = f"table {spec.source} does not exist, or the user may not see its schema"
            found.append(
                Finding(_E, FaultKind.TABLE_MISSING.value, what, "Create it, or take it out of the subscription.")
            )
            continue
        found += _table(table, spec, rights.get(spec.source), by_others=by_others)
    return found


def check_filters(
    connection: PostgresConnection,
    tables: Sequence[TableSpec],
    refused: Mapping[tuple[TableName, str], str],
    as_sent: AsSent = _as_logged,
) -> list[Finding]:
    """Findings on row filters that the source cannot parse, or refused before. `as_sent`: see `check_tables`."""
    asked = {spec.source: spec for spec in tables if spec.where is not None}
    found = []
    for name, table in load_tables(connection, asked).items():
        condition = asked[name].where or ""
        problem = refused.get((name, condition))
        if problem is None and filter_problem(as_sent(table), asked[name]) is None:
            problem = unparsed(connection, name, condition)
        if problem is not None:
            remedy = (
                "Correct where: a condition of columns, literals and operators that gives the same result at any time."
            )
            found.append(Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, f"{name}: {problem}", remedy))
    return found


def unparsed(connection: PostgresConnection, table: TableName, condition: str) -> str | None:
    """Why the source cannot parse the condition, as text. Planned in a read-only transaction, and not executed."""
    query = sql.SQL("EXPLAIN SELECT FROM ONLY {} WHERE ({})").format(
        sql.Identifier(table.schema, table.name), sql.SQL(condition)
    )
    try:
        with one_look(connection):
            connection.execute(query)
    except psycopg.errors.InsufficientPrivilege:
        return None  # Another finding says so.
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as error:
        return f"the source refuses where: {error.diag.message_primary or 'no reason given'}"
    return None


def rights_of(connection: PostgresConnection, names: Iterable[TableName]) -> dict[TableName, Rights]:
    """The user's rights on these tables; missing tables are left out."""
    wanted = list(names)
    rows = connection.execute(_RIGHTS, [[n.schema for n in wanted], [n.name for n in wanted]]).fetchall()
    return {TableName(schema, name): Rights(*rights) for schema, name, *rights in rows}


def _table(table: CatalogTable, spec: TableSpec, rights: Rights | None, *, by_others: bool = False) -> list[Finding]:
    storage = _storage(table)
    if storage is not None:
        return [storage]
    found = _identity(table, spec) + _selection(table, spec)
    if rights is not None and not rights.readable:
        what = f"the user may not read {table.name}" + (" and all its partitions" if table.partitioned else "")
        found.append(
            Finding(
                _E,
                FaultKind.SOURCE_PRIVILEGE.value,
                what,
                f"GRANT SELECT ON {table.name} and USAGE on its schema.",
                () if table.partitioned else mending.let_read(table.name, rights.user),
            )
        )
    if rights is not None and rights.hidden:
        what = f"row-level security hides rows of {', '.join(rights.hidden)} from the user"
        remedy = "ALTER ROLE … BYPASSRLS, or ALTER TABLE … NO FORCE ROW LEVEL SECURITY where the user owns the table."
        mended = mending.let_read_every_row(rights.user)
        found.append(Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, remedy, mended))
    if rights is not None and not rights.owned and not by_others:
        what = f"only the owner of {table.name} may publish it"
        found.append(
            Finding(
                _E,
                FaultKind.SOURCE_PRIVILEGE.value,
                what,
                "Make the user a member of the role that owns the table, or name a publication of the owner in capture.publication.",
                mending.let_act_as(rights.owner, rights.user),
            )
        )
    return [*found, *_named_elsewhere(table), *_generated(table, spec)]


_NAMING = frozenset(
    f"reg{kind}"
    for kind in (
        "class",
        "collation",
        "config",
        "dictionary",
        "namespace",
        "oper",
        "operator",
        "proc",
        "procedure",
        "role",
        "type",
    )
)


def _named_elsewhere(table: CatalogTable) -> list[Finding]:
    """Findings on columns (such as regclass) whose printed values are names of objects of the source."""
    naming = [c.column.name for c in table.columns if (c.column.type.element or c.column.type).name in _NAMING]
    if not naming:
        return []
    what = f"values in columns of {table.name} look different when the object they name is renamed, which no log shows: {', '.join(naming)}"
    return [
        Finding(_W, "names_of_objects", what, "Make the columns oid or text, or reload the table after such a change.")
    ]


def _generated(table: CatalogTable, spec: TableSpec) -> list[Finding]:
    asked = [column.name for column in computed_of(selected(table, spec), spec)]
    left_out = [name for name in table.generated if name not in asked and spec.selection.takes(name)]
    found = []
    if asked:
        what = f"generated columns of {table.name} are not in the log, the source is asked to compute them: {', '.join(asked)}"
        found.append(
            Finding(_I, "generated_columns_computed", what, "None needed; each batch with changes of the table asks.")
        )
    if left_out:
        what = f"generated columns of {table.name} are not replicated: {', '.join(left_out)}"
        remedy = (
            "GRANT EXECUTE on the functions that they are computed with, and USAGE on their schemas, to the user. Those of partitioned"
            " tables, or made of tableoid, are left out; logs of PostgreSQL 18 carry all that are STORED."
        )
        found.append(Finding(_I, "generated_columns", what, remedy))
    return found


def _storage(table: CatalogTable) -> Finding | None:
    """Finding on tables or partitions whose changes are not logged."""
    if table.kind not in {"r", "p", "f"}:
        remedy = "Name a table, or take it out of the subscription."
        return Finding(_E, FaultKind.TABLE_MISSING.value, f"{table.name} is not a table", remedy)
    found = not_logged(table)
    if found is None:
        return None
    remedy = "Use a plain logged table, or take it out of the subscription."
    if table.partitioned:
        remedy = "Make it a plain logged table (ALTER TABLE … SET LOGGED), or detach that partition."
    return Finding(_E, FaultKind.TABLE_NOT_LOGGED.value, found, remedy)


def _selection(table: CatalogTable, spec: TableSpec) -> list[Finding]:
    problem = selection_problem(table, spec)
    if problem is not None:
        remedy = "Correct the options, with the present names of the table's columns."
        return [Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, f"{table.name}: {problem}", remedy)]
    names = (*table.column_names, *table.generated)
    found = []
    without = sorted(spec.rename.keys() - set(names))
    if without:
        what = f"rename names columns that {table.name} does not have: {', '.join(without)}"
        found.append(Finding(_W, "rename_without_column", what, "Name the columns as they are on the source."))
    masked = [name for name in spec.mask if spec.selection.takes(name)]
    if masked:
        what = f"columns of {table.name} are masked: {', '.join(sorted(masked))}"
        remedy = "Mask or leave out columns that are computed from them, too."
        found.append(Finding(_I, "columns_masked", what, remedy))
    if not (spec.include_columns or spec.exclude_columns):
        return found
    left_out = [name for name in names if not spec.selection.takes(name)]
    what = f"columns of {table.name} are left out: {', '.join(left_out) or 'none now'}"
    return [*found, Finding(_I, "columns_left_out", what, "None needed.")]


_GENERATED_REMEDY = (
    "Set REPLICA IDENTITY DEFAULT or USING INDEX with a key that has no generated columns: the source would refuse to update or delete"
    ' rows while the table is published. Or give "insert_only": true in the subscription, where rows are only ever inserted.'
)
_IDENTITY_REMEDY = (
    'Add a primary key, or set REPLICA IDENTITY, or give "insert_only": true and updates and deletes are not followed.'
)


def _declared_key_remedy(table: CatalogTable, spec: TableSpec) -> str:
    """The remedy that makes the log contain the declared key of updated and deleted rows."""
    unknown = [name for name in spec.key if name not in table.column_names]
    if unknown:
        return f"Declare columns that {table.name} has and the log carries; it has no {', '.join(unknown)}."
    where = f"on {table.name} and each of its partitions" if table.partitioned else f"on {table.name}"
    return (
        f"ALTER TABLE … REPLICA IDENTITY FULL {where}, or REPLICA IDENTITY USING INDEX with a unique index over "
        f"NOT NULL columns that include {', '.join(spec.key)}; or declare no key."
    )


def _identity(table: CatalogTable, spec: TableSpec) -> list[Finding]:
    code = FaultKind.TABLE_NO_IDENTITY.value
    if spec.insert_only:
        what = f"updates and deletes of {table.name} are not followed (insert_only)"
        return [Finding(_W, "insert_only", what, "None needed, if the table is only ever inserted into.")]
    problem = key_of(table, spec).problem
    if problem is not None:
        remedy = _declared_key_remedy(table, spec) if spec.key else _IDENTITY_REMEDY
        if any(one.unsent_identity for one in (table, *table.leaves)):
            remedy = _GENERATED_REMEDY
        return [Finding(_E, code, f"{table.name}: {problem}", remedy)]
    if spec.key and not any(set(i.columns) <= set(spec.key) for i in table.indexes):
        what = f"no unique index of {table.name} covers the declared key: rows with equal keys would be a fault"
        return [Finding(_W, "key_not_unique", what, "Declare columns that a unique index covers.")]
    choice = choose_key(spec, table.identity, table.column_names, table.identity_columns, table.fallback_key)
    if not choice.key:
        what = f"{table.name} has no key: equal rows are counted, which costs more"
        return [Finding(_I, "table_without_key", what, "Add a primary key where that is possible.")]
    return []
