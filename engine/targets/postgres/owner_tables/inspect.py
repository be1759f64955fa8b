"""Inspects a user's table in the database's catalog."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.schema import SourceType, TableSchema
from engine.postgres.sessions import PostgresConnection
from engine.targets.identifiers import qualified, quoted
from engine.targets.postgres.changes import Place
from engine.targets.postgres.metadata import PostgresMetadata
from engine.targets.postgres.owner_tables.compatibility import StandingColumn, StandingTable, key_misfits, misfits
from engine.targets.postgres.types import own_type
from engine.targets.target_metadata import OwnerTable

_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE")
_COLUMNS = """
SELECT a.attname, n.nspname, b.typname, b.typtype::text, r.modifier,
       en.nspname, e.typname, e.typtype::text,
       a.attnotnull OR t.typnotnull,
       a.atthasdef OR t.typdefault IS NOT NULL OR a.attidentity <> '' OR a.attgenerated <> '',
       a.attgenerated <> '', a.attidentity = 'a',
       has_schema_privilege(n.oid, 'USAGE') AND has_type_privilege(b.oid, 'USAGE')
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
CROSS JOIN LATERAL (
  WITH RECURSIVE base(oid, modifier, depth) AS (
    SELECT a.atttypid, a.atttypmod, 0
    UNION ALL
    SELECT d.typbasetype, d.typtypmod, base.depth + 1 FROM base JOIN pg_type d ON d.oid = base.oid AND d.typtype = 'd')
  SELECT oid, modifier FROM base ORDER BY depth DESC LIMIT 1) r
JOIN pg_type b ON b.oid = r.oid
JOIN pg_namespace n ON n.oid = b.typnamespace
LEFT JOIN pg_type e ON e.oid = b.typelem AND e.typarray = b.oid
LEFT JOIN pg_namespace en ON en.oid = e.typnamespace
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_KEYS = """
SELECT (SELECT array_agg(a.attname::text) FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, nth)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE k.nth <= i.indnkeyatts)
FROM pg_index i
WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
"""
_TREE = "SELECT relid FROM pg_partition_tree({0}::regclass) UNION SELECT {0}::regclass"
_TABLE = f"""
SELECT c.relkind::text, n.nspname, current_user::text,
       has_schema_privilege(n.oid, 'USAGE') AND has_schema_privilege(n.oid, 'CREATE'),
       ARRAY(SELECT p FROM unnest(%(privileges)s::text[]) AS p WHERE NOT has_table_privilege(c.oid, p)),
       row_security_active(c.oid), pg_get_partkeydef(c.oid),
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid),
       ARRAY(SELECT o.oid::regclass::text FROM pg_class o WHERE o.oid IN ({_TREE.format("c.oid")})
             AND (o.relpersistence <> 'p' OR o.relkind = 'f')),
       ARRAY(SELECT k.conrelid::regclass::text FROM pg_constraint k WHERE k.contype = 'f' AND k.confdeltype IN ('c', 'n', 'd')
             AND current_setting('session_replication_role') <> 'replica' AND k.conparentid = 0
             AND k.confrelid IN ({_TREE.format("c.oid")}) AND k.conrelid NOT IN ({_TREE.format("c.oid")})),
       ARRAY(SELECT DISTINCT g.tgname::text FROM pg_trigger g WHERE g.tgrelid IN ({_TREE.format("c.oid")}) AND NOT g.tgisinternal
             AND (g.tgenabled IN ('R', 'A')
                  OR (g.tgenabled = 'O' AND current_setting('session_replication_role') <> 'replica')))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
"""
_RIGID = f"""
SELECT k.conrelid::regclass::text, quote_ident(k.conname) FROM pg_constraint k, (SELECT to_regclass(%s) AS oid) AS c
WHERE k.contype = 'f' AND NOT k.condeferrable AND k.conparentid = 0 AND current_setting('session_replication_role') <> 'replica'
  AND (k.conrelid IN ({_TREE.format("c.oid")}) OR k.confrelid IN ({_TREE.format("c.oid")})) ORDER BY 1, 2
"""
_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "c": "a type",
    "i": "an index",
}
_LEAVE_OUT = 'or leave "into_existing" out'


def place_of(
    connection: PostgresConnection, records: PostgresMetadata, table: TableId, target: TableName, schema: TableSchema
) -> Place:
    """The table to apply changes to. Columns of a user's table have their existing types.

    Raises:
        EngineFault: TABLE_UNFIT if the user changed it so that it is incompatible with the rows.
    """
    if records.existing(target) is None:
        return Place(table, qualified(target), schema)
    standing = standing_table(connection, target)
    if not standing.columns:
        refuse(table, target, table_misfits(connection, target))
    refuse(table, target, misfits(target, standing, schema))
    found = [standing.column(column.name) for column in schema.columns]
    types = tuple(column.type for column in found if column is not None)
    always = frozenset(i for i, column in enumerate(found) if column is not None and column.always)
    own = frozenset(i for i, column in enumerate(found) if column is not None and column.generated)
    return Place(table, qualified(target), schema, types, always, own)


def takes_rows_of(connection: PostgresConnection, target: TableName, copy: TableName, schema: TableSchema) -> bool:
    """Whether the table has the copy's columns, in any order, and the key of `schema`, so that it can receive the copy's rows."""
    columns = [{(c.name, c.type) for c in standing_table(connection, place).columns} for place in (target, copy)]
    keys = _unique_keys(connection, target)
    return columns[0] == columns[1] and (frozenset(schema.key) in keys if schema.key else not keys)


def _unique_keys(connection: PostgresConnection, target: TableName) -> frozenset[frozenset[str]]:
    rows = connection.execute(_KEYS, [qualified(target)]).fetchall()
    return frozenset(frozenset(row[0]) for row in rows if row[0])


def standing_table(connection: PostgresConnection, target: TableName) -> StandingTable:
    """The table's current columns; none if it does not exist."""
    return StandingTable(_columns(connection, target))


def refuse_unfit(
    connection: PostgresConnection,
    table: TableId,
    target: TableName,
    schema: TableSchema,
    *,
    but: Collection[str] = (),
) -> StandingTable:
    """The table, if it is compatible with all rows of `schema`. `but`: names of columns that may be missing.

    Raises:
        EngineFault: TABLE_UNFIT if it is not, or privileges are missing.
    """
    refuse(table, target, table_misfits(connection, target))
    keys = _unique_keys(connection, target)
    partitioned = connection.execute("SELECT pg_get_partkeydef(%s::regclass)", [qualified(target)]).fetchall()[0][0]
    standing = StandingTable(_columns(connection, target), tuple(keys), partitioned)
    refuse(table, target, misfits(target, standing, schema, but=but) + key_misfits(target, standing, schema))
    return standing


def refuse_unadoptable(connection: PostgresConnection, table: TableId, target: TableName, state: OwnerTable) -> None:
    """Check the table before the schema of its rows is known.

    Raises:
        EngineFault: TABLE_UNFIT if it does not exist, is not writable, or has rows that are not ours.
    """
    found = table_misfits(connection, target)
    if not found and state is OwnerTable.EMPTY and holds_rows(connection, target):
        found = [foreign_rows(target)]
    refuse(table, target, found)


def foreign_rows(target: TableName) -> str:
    return (
        "it contains rows that this subscription did not write: run TRUNCATE "
        f"{qualified(target)} to use it; or map the table to another name, {_LEAVE_OUT}"
    )


def holds_rows(connection: PostgresConnection, target: TableName) -> bool:
    return bool(connection.execute(f"SELECT EXISTS (SELECT FROM {qualified(target)})".encode()).fetchall()[0][0])


def table_misfits(connection: PostgresConnection, target: TableName) -> list[str]:
    """What prevents any rows from being written to the table, each with a remedy."""
    row = _table(connection, target)
    if row is None:
        return [f"there is no such table on the target: create it, {_LEAVE_OUT} to let Penstock create it"]
    kind, schema, user, may_create, missing, hidden_rows, _, inherited, apart, acting, _ = row
    if kind not in ("r", "p"):
        return [f"it is {_KINDS.get(kind, 'no table')}: map the table to another name"]
    found = []
    if missing:
        found.append(
            f"the user may not write to it: GRANT {', '.join(missing)} ON {qualified(target)} TO {quoted(user)}"
        )
    if not may_create:
        grant = f"GRANT USAGE, CREATE ON SCHEMA {quoted(schema)} TO {quoted(user)}"
        found.append(f"the user may not create tables in its schema, which a copy needs: {grant}")
    if hidden_rows:
        found.append(f"row security hides rows of it from the user: ALTER ROLE {quoted(user)} BYPASSRLS")
    if inherited:
        found.append("other tables that are not partitions inherit from it: map the table to another name")
    if apart:
        found.append(
            f"not all of it is logged and local ({', '.join(apart)}): rows there could be lost; ALTER TABLE … SET LOGGED"
        )
    if acting:
        found.append(
            f"foreign keys of {', '.join(acting)} would change rows there when rows here are deleted:"
            f" GRANT SET ON PARAMETER session_replication_role TO {quoted(user)}, or drop their ON DELETE actions"
        )
    return found


def firing_triggers(connection: PostgresConnection, target: TableName) -> list[str]:
    """Triggers that fire for rows written by this session."""
    row = _table(connection, target)
    return [] if row is None else sorted(row[-1])


def rigid_foreign_keys(connection: PostgresConnection, target: TableName) -> list[tuple[str, str]]:
    """Foreign keys from or to a table that this session checks at every statement: the referencing table, as SQL, and the constraint's
    name."""
    return [(row[0], row[1]) for row in connection.execute(_RIGID, [qualified(target)]).fetchall()]


def refuse(table: TableId, target: TableName, found: list[str]) -> None:
    """Raises EngineFault(TABLE_UNFIT) if something was found."""
    if found:
        raise EngineFault(
            FaultKind.TABLE_UNFIT, table, f"{target} on the target cannot take its rows: {'; '.join(found)}"
        )


def _table(connection: PostgresConnection, target: TableName) -> tuple[Any, ...] | None:
    parameters = {"schema": target.schema, "name": target.name, "privileges": list(_PRIVILEGES)}
    return connection.execute(_TABLE, parameters).fetchone()


def _columns(connection: PostgresConnection, target: TableName) -> tuple[StandingColumn, ...]:
    return tuple(_column(*row) for row in connection.execute(_COLUMNS, [qualified(target)]).fetchall())


def _column(
    name: str,
    schema: str,
    type_name: str,
    category: str,
    modifier: int,
    element_schema: str | None,
    element_name: str | None,
    element_category: str | None,
    *marks: bool,
) -> StandingColumn:
    if element_schema is None or element_name is None or element_category is None:
        kind, text = _kind(schema, type_name, category, modifier)
        return StandingColumn(name, kind, text, *marks)
    element, text = _kind(element_schema, element_name, element_category, modifier)
    return StandingColumn(name, SourceType(type_name, modifier, category, element), f"{text}[]", *marks)


def _kind(schema: str, name: str, category: str, modifier: int) -> tuple[SourceType, str]:
    """A type in the form of source types, and its text."""
    if schema == "pg_catalog":
        kind = SourceType(name, modifier, category)
        return kind, own_type(kind)
    return SourceType(f"{schema}.{name}", modifier, category), f"{quoted(schema)}.{quoted(name)}"
