"""Preflight checks: finds what prevents tables from being replicated, without changes on the source; and lists the source's tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import psycopg
from psycopg import sql

from engine.model.ddl import DdlCapture
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import DiscoveredTable, Finding, Severity
from engine.model.subscription import OriginFilter, TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.catalog import (
    STORED_VERSION,
    CatalogTable,
    choose_key,
    computed_of,
    filter_problem,
    key_of,
    load_tables,
    not_logged,
    one_look,
    selected,
    selection_problem,
)
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_log import ddl_capture, mending, slots
from engine.sources.postgres_log.given import NOTHING_GIVEN, Given
from engine.sources.postgres_log.given_publication import look_for_unsent, missing, read_publication, read_tables
from engine.sources.postgres_log.stream import ORIGIN_VERSION, origin_refusal

OLDEST_VERSION = 140000
"""PostgreSQL 14 as `server_version_num`: the first whose pgoutput sends open transactions and logical messages."""

_SERVER = """
SELECT current_setting('wal_level'), current_setting('max_replication_slots')::int, current_setting('max_wal_senders')::int,
       (SELECT count(*) FROM pg_replication_slots)::int,
       (SELECT count(*) FROM pg_stat_get_wal_senders())::int,
       EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s),
       EXISTS (SELECT FROM pg_publication WHERE pubname = %s),
       has_database_privilege(current_database(), 'CREATE'),
       (SELECT setting::bigint FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
       current_database()::text, current_user::text
"""
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
WHERE c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition AND c.relpersistence <> 't' AND c.relname NOT LIKE '\\_\\_penstock\\_%'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_toast%' AND n.nspname NOT LIKE 'pg\\_temp%'
ORDER BY n.nspname, c.relname
"""
_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO


@dataclass(frozen=True, slots=True)
class _Rights:
    readable: bool
    owned: bool
    owner: str
    user: str
    hidden: Sequence[str]
    """Names of the table and its partitions of which row-level security hides rows from the user."""


def check(
    connector: Connector,
    tables: Sequence[TableSpec],
    slot: str | None,
    origin: OriginFilter = OriginFilter.ANY,
    refused: Mapping[tuple[TableName, str], str] = MappingProxyType({}),
    given: Given = NOTHING_GIVEN,
) -> list[Finding]:
    """Findings about the source and these tables. A failed connection is a finding, not a fault.

    `slot`: the subscription's reader if it may exist already; its slot and publications then need no free place and no privilege.
    `refused`: row filters that the source refused to publish, with its reason. `given`: what the subscription names instead of its own.
    """
    try:
        with connector.session() as connection:
            version = connection.info.server_version
            found = _server(connection, slot, version, given)
            if any(f.code == "source_version" for f in found):
                return found
            found += _origin(origin, version)
            found += _ddl_capture(ddl_capture.state(connection))
            mark = mark_of(connector.secret(MASK_KEY))
            marked = [replace(table, mask_mark=mark) for table in tables]
            found += _tables(connection, marked, by_others=given.publication is not None)
            if given.publication is not None:
                found += _sent(connection, given.publication, tables)
            found += _filters(connection, tables, refused)
            user = connection.info.user
        if given.slot is not None:
            found += _given_slot(connector, given.slot, in_use=slot is None)
        found += _replication(connector, user)
    except EngineFault as fault:
        return [
            Finding(
                _E,
                fault.kind.value,
                fault.detail,
                _CONNECTION_REMEDIES.get(fault.kind, "Check the connection's settings."),
            )
        ]
    return found


def _ddl_capture(found: DdlCapture) -> list[Finding]:
    if not found.installed:
        what = "schema changes are read from the log and the catalog: the source has no trigger that reports DDL"
        remedy = (
            "Nothing has to be done. PUT /connections/{name}/ddl-capture installs one, as a superuser of the source."
        )
        return [Finding(_I, "ddl_capture_absent", what, remedy)]
    if found.current:
        what = f"a trigger of version {found.version} reports DDL in the log"
        return [Finding(_I, "ddl_capture_installed", what, "DELETE /connections/{name}/ddl-capture removes it.")]
    told = "is of another version" if found.version != ddl_capture.VERSION else "is not whole, or switched off"
    what = f"the trigger that reports DDL {told}; until that is corrected, schema changes are read from the log and the catalog"
    remedy = "PUT /connections/{name}/ddl-capture, as a superuser of the source, or DELETE it."
    return [Finding(_W, "ddl_capture_outdated", what, remedy)]


def discover(connector: Connector) -> list[DiscoveredTable]:
    """Every table outside the system schemas; partitions are listed under their root."""
    with connector.session() as connection:
        rows = connection.execute(_DISCOVER).fetchall()
        names = [TableName(schema, name) for schema, name, *_ in rows]
        catalog = load_tables(connection, names)
        rights = _rights(connection, names)
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


def _server(connection: PostgresConnection, slot: str | None, version: int, given: Given) -> list[Finding]:
    if version < OLDEST_VERSION:
        what = f"the server is PostgreSQL {version // 10000}; 14 is the oldest that is supported"
        return [Finding(_E, "source_version", what, "Upgrade the source.")]
    row = connection.execute(_SERVER, [given.slot or slot or "", slot or ""]).fetchall()[0]
    wal_level, most_slots, most_senders, slots, senders, has_slot, has_publication, may_create, keep_mb, *who = row
    found: list[Finding] = []
    if wal_level != "logical":
        remedy = "Run ALTER SYSTEM SET wal_level = 'logical' and restart the source."
        sql = mending.set_for_good("wal_level", "logical")
        found.append(Finding(_E, FaultKind.SOURCE_WAL_LEVEL.value, f"wal_level is {wal_level}", remedy, sql))
    if not has_slot and slots >= most_slots:
        remedy = "Raise max_replication_slots and restart the source, or drop an unused slot."
        found.append(
            Finding(_E, FaultKind.SOURCE_NO_SLOTS.value, f"all {most_slots} replication slots are taken", remedy)
        )
    elif most_slots - slots < 2:
        what = "only one replication slot is free; copies and comparisons need another for a moment"
        found.append(Finding(_W, FaultKind.SOURCE_NO_SLOTS.value, what, "Raise max_replication_slots."))
    if most_senders - senders < 2:
        severity, left = (_E, "no") if senders >= most_senders else (_W, "only one")
        what = f"{left} WAL sender of {most_senders} is free; replication needs one, copies and comparisons another"
        found.append(
            Finding(severity, FaultKind.SOURCE_NO_SENDERS.value, what, "Raise max_wal_senders and restart the source.")
        )
    if not may_create and not has_publication and given.publication is None:
        what = "the user may not create publications in this database"
        sql = mending.let_publish_in(*who)
        found.append(Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, "GRANT CREATE ON DATABASE to the user.", sql))
    if keep_mb == -1:
        what = "max_slot_wal_keep_size is not limited: an unused slot can fill the source's disk"
        found.append(
            Finding(_I, "slot_without_limit", what, "Set max_slot_wal_keep_size to what the source's disk can spare.")
        )
    return found


def _origin(origin: OriginFilter, version: int) -> list[Finding]:
    """Findings about filtering changes by their replication origin."""
    if origin is OriginFilter.ANY:
        return []
    if version < ORIGIN_VERSION:
        remedy = "Upgrade the source, or let `capture.origin` be `any`."
        return [Finding(_E, FaultKind.ORIGIN_UNSUPPORTED.value, origin_refusal(version), remedy)]
    what = "a table's copy takes all rows, whatever their origin; only later changes are filtered by origin"
    remedy = "None needed, unless rows that came here by replication are not to be on the target."
    return [Finding(_I, "copy_of_any_origin", what, remedy)]


_CONNECTION_REMEDIES = {
    FaultKind.SOURCE_UNREACHABLE: "Check host, port and database, and that the server runs and can be reached from the engine.",
    FaultKind.SOURCE_AUTHENTICATION: "Check user and password, and that pg_hba.conf lets this user in.",
    FaultKind.SOURCE_PRIVILEGE: "ALTER ROLE … REPLICATION, and GRANT CONNECT on the database.",
    FaultKind.SOURCE_NO_SENDERS: "Raise max_wal_senders and restart the source.",
}


def _replication(connector: Connector, user: str) -> list[Finding]:
    """Test whether `user` may open a replication session, by opening one: hosted services do not show it in the role's attributes."""
    try:
        connector.open(replication=True).close()
    except EngineFault as fault:
        remedy = _CONNECTION_REMEDIES.get(
            fault.kind, "Check that pg_hba.conf lets this user open replication connections."
        )
        sql = mending.let_replicate(user) if fault.kind is FaultKind.SOURCE_PRIVILEGE else ()
        return [Finding(_E, fault.kind.value, f"no replication connection: {fault.detail}", remedy, sql)]
    return []


def _sent(connection: PostgresConnection, name: str, tables: Sequence[TableSpec]) -> list[Finding]:
    """Findings on a publication that the subscription names, and on what it lacks for these tables."""
    with one_look(connection):
        publication = read_publication(connection, name)
        if publication is None:
            return [missing(name, tables)]
        there = read_tables(connection, publication, {table.source for table in tables})
        why = look_for_unsent(connection, publication, there, tables)
    return [Finding(_E, FaultKind.TABLE_NOT_SENT.value, each.what, each.remedy, each.sql) for each in why.values()]


def _given_slot(connector: Connector, slot: str, *, in_use: bool) -> list[Finding]:
    """Findings on a slot that the subscription names. `in_use`: also whether a session reads it."""
    unfit = slots.why_unfit(connector, slot)
    if unfit is not None:
        remedy = "Replace it, correct the name, or leave capture.slot out: Penstock then makes its own."
        return [Finding(_E, FaultKind.READER_UNFIT.value, unfit, remedy, mending.make_slot(slot))]
    reader = slots.status(connector, slot).active_pid if in_use else None
    if reader is None:
        return []
    what = f"replication slot {slot} is read by pid {reader}"
    return [Finding(_E, FaultKind.SLOT_IN_USE.value, what, "Stop its reader: a slot can have one only.")]


def _tables(connection: PostgresConnection, tables: Sequence[TableSpec], *, by_others: bool) -> list[Finding]:
    """Findings on these tables. `by_others`: others publish them."""
    names = [t.source for t in tables]
    catalog = load_tables(connection, names)
    rights = _rights(connection, names)
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


def _filters(
    connection: PostgresConnection, tables: Sequence[TableSpec], refused: Mapping[tuple[TableName, str], str]
) -> list[Finding]:
    """Findings on row filters that the source cannot parse, or refused before."""
    asked = {spec.source: spec for spec in tables if spec.where is not None}
    found = []
    for name, table in load_tables(connection, asked).items():
        condition = asked[name].where or ""
        problem = refused.get((name, condition))
        if problem is None and filter_problem(table, asked[name]) is None:
            problem = _unparsed(connection, name, condition)
        if problem is not None:
            remedy = (
                "Correct where: a condition of columns, literals and operators that gives the same result at any time."
            )
            found.append(Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, f"{name}: {problem}", remedy))
    return found


def _unparsed(connection: PostgresConnection, table: TableName, condition: str) -> str | None:
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


def _rights(connection: PostgresConnection, names: Iterable[TableName]) -> dict[TableName, _Rights]:
    wanted = list(names)
    rows = connection.execute(_RIGHTS, [[n.schema for n in wanted], [n.name for n in wanted]]).fetchall()
    return {TableName(schema, name): _Rights(*rights) for schema, name, *rights in rows}


def _table(table: CatalogTable, spec: TableSpec, rights: _Rights | None, *, by_others: bool = False) -> list[Finding]:
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
