"""Finds what prevents tables from being compared by queries, without changes on the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import psycopg
from psycopg import sql

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import DiscoveredTable, Finding, Severity
from engine.model.subscription import OriginFilter, TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import CatalogTable
from engine.sources.postgres.catalog import load_tables, one_look
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.table_checks import check_filters, check_tables, discover
from engine.sources.postgres_queries.compared import VIEWS, Compared
from engine.sources.postgres_queries.proposals import propose
from engine.sources.query_diff.preflight import origin_findings

OLDEST_VERSION = 140000
"""PostgreSQL 14 as `server_version_num`, as for other captures."""
_EMPTY = "SELECT FROM pg_class WHERE oid = %s AND relkind = 'm' AND NOT relispopulated"
_E = Severity.ERROR
_REMEDIES = {
    FaultKind.SOURCE_UNREACHABLE: "Check host, port and database, and that the server runs and can be reached from the engine.",
    FaultKind.SOURCE_AUTHENTICATION: "Check user and password, and that pg_hba.conf lets this user in.",
}


def discover_tables(connector: Connector, compared: Compared) -> list[DiscoveredTable]:
    """Every table and view outside the system schemas and Penstock's; partitioned ones with the reason that they cannot be captured."""
    views: set[TableName] = set()

    def noted(table: CatalogTable) -> CatalogTable:
        if table.kind in VIEWS:
            views.add(table.name)
        return compared.table(table)

    found = []
    for table in discover(connector, noted, ("r", "p", "f", *sorted(VIEWS))):
        problems = table.problems
        if table.name in views:
            unkeyed = () if table.key else (_unkeyed_view(table.name, Severity.WARNING),)
            problems = (_view(table.name), *unkeyed) + (problems if table.key else ())
        elif any(problem.code == FaultKind.TABLE_NO_IDENTITY.value for problem in problems):
            others = (problem for problem in problems if problem.code != FaultKind.TABLE_NO_IDENTITY.value)
            problems = (_keyless(table.name), *others)
        elif table.partitioned:
            problems = (*problems, _partitioned(table.name))
        found.append(replace(table, problems=problems))
    return found


def check(connector: Connector, compared: Compared, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
    """Findings about the source and these tables. A failed connection is a finding, not a fault."""
    try:
        with connector.session() as connection:
            version = connection.info.server_version
            if version < OLDEST_VERSION:
                what = f"the server is PostgreSQL {version // 10000}; 14 is the oldest that is supported"
                return [Finding(_E, "source_version", what, "Upgrade the source.")]
            mark = mark_of(connector.secret(MASK_KEY))
            found = origin_findings(origin)
            catalog = load_tables(connection, [t.source for t in tables])
            unkeyed = {
                name for name, table in catalog.items() if table.kind in VIEWS and not compared.table(table).indexes
            }
            found += [_unkeyed_view(name, _E, compared.key_problem(catalog[name])) for name in sorted(unkeyed, key=str)]
            tables = [replace(t, mask_mark=mark) for t in tables if t.source not in unkeyed]
            found += check_tables(connection, tables, compared.table, by_others=True)
            found += check_filters(connection, tables, {}, compared.table)
            found += [_partitioned(name) for name, table in catalog.items() if table.partitioned]
            found += [
                _keyless(t.source)
                for t in tables
                if t.insert_only and t.source in catalog and not compared.table(catalog[t.source]).indexes
            ]
            for name, table in catalog.items():
                if table.kind in VIEWS and name not in unkeyed:
                    found += _unplanned(connection, table)
            return found + propose(connection, compared, tables, catalog)
    except EngineFault as fault:
        remedy = _REMEDIES.get(fault.kind, "Check the connection's settings.")
        return [Finding(_E, fault.kind.value, fault.detail, remedy)]


def _unplanned(connection: PostgresConnection, view: CatalogTable) -> list[Finding]:
    """Why the source does not run the query of the view for this user. Planned, and not executed."""
    if connection.execute(_EMPTY, [view.oid]).fetchone() is not None:
        what = f"{view.name} has no data yet"
        return [Finding(_E, FaultKind.TABLE_MISSING.value, what, f"REFRESH MATERIALIZED VIEW {view.name}.")]
    query = sql.SQL("EXPLAIN SELECT * FROM {}").format(sql.Identifier(view.name.schema, view.name.name))
    try:
        with one_look(connection):
            connection.execute(query)
    except psycopg.errors.InsufficientPrivilege as error:
        what = f"the source does not run the view {view.name} for the user: {error.diag.message_primary}"
        remedy = "GRANT SELECT on the view; on what it reads, to its owner, or to the user if it is a view with security_invoker."
        return [Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, remedy)]
    return []


def _view(name: object) -> Finding:
    what = f"{name} is a view: each cycle of a capture by queries runs its query"
    return Finding(Severity.INFO, "view", what, "None needed.")


def _unkeyed_view(name: object, severity: Severity, problem: str | None = None) -> Finding:
    what = (
        f"{name}: {problem}"
        if problem
        else f"{name} is a view, which has no key by which queries find its changed rows"
    )
    remedy = f'Name columns that identify a row in capture.tables: {{"{name}": {{"key": ["id"]}}}}.'
    return Finding(severity, FaultKind.TABLE_NO_IDENTITY.value, what, remedy)


def _partitioned(name: object) -> Finding:
    what = f"{name} is partitioned, and queries of this version compare plain tables only"
    return Finding(_E, FaultKind.TABLE_NOT_LOGGED.value, what, "Capture the source's log, or name a plain table.")


def _keyless(name: object) -> Finding:
    what = f"{name} has no primary key and no unique index over columns that are NOT NULL, by which queries find its new rows"
    remedy = "Add a primary key, name a `key` in capture.tables, or capture the source's log or triggers."
    return Finding(_E, FaultKind.TABLE_NO_IDENTITY.value, what, remedy)
