"""Finds what prevents tables from being compared by queries, without changes on the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import DiscoveredTable, Finding, Severity
from engine.model.subscription import OriginFilter, TableSpec
from engine.sources.postgres.catalog import load_tables
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.table_checks import check_filters, check_tables, discover
from engine.sources.postgres_queries.compared import as_compared
from engine.sources.query_diff.preflight import origin_findings

OLDEST_VERSION = 140000
"""PostgreSQL 14 as `server_version_num`, as for other captures."""
_E = Severity.ERROR
_REMEDIES = {
    FaultKind.SOURCE_UNREACHABLE: "Check host, port and database, and that the server runs and can be reached from the engine.",
    FaultKind.SOURCE_AUTHENTICATION: "Check user and password, and that pg_hba.conf lets this user in.",
}


def discover_tables(connector: Connector) -> list[DiscoveredTable]:
    """Every table outside the system schemas and Penstock's; partitioned ones with the reason that they cannot be captured."""
    return [
        replace(table, problems=(*table.problems, _partitioned(table.name))) if table.partitioned else table
        for table in discover(connector, as_compared)
    ]


def check(connector: Connector, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
    """Findings about the source and these tables. A failed connection is a finding, not a fault."""
    try:
        with connector.session() as connection:
            version = connection.info.server_version
            if version < OLDEST_VERSION:
                what = f"the server is PostgreSQL {version // 10000}; 14 is the oldest that is supported"
                return [Finding(_E, "source_version", what, "Upgrade the source.")]
            mark = mark_of(connector.secret(MASK_KEY))
            found = origin_findings(origin)
            found += check_tables(connection, [replace(t, mask_mark=mark) for t in tables], as_compared, by_others=True)
            found += check_filters(connection, tables, {}, as_compared)
            catalog = load_tables(connection, [t.source for t in tables])
            found += [_partitioned(name) for name, table in catalog.items() if table.partitioned]
            return found + [
                _keyless(t.source)
                for t in tables
                if t.insert_only and t.source in catalog and not as_compared(catalog[t.source]).indexes
            ]
    except EngineFault as fault:
        remedy = _REMEDIES.get(fault.kind, "Check the connection's settings.")
        return [Finding(_E, fault.kind.value, fault.detail, remedy)]


def _partitioned(name: object) -> Finding:
    what = f"{name} is partitioned, and queries of this version compare plain tables only"
    return Finding(_E, FaultKind.TABLE_NOT_LOGGED.value, what, "Capture the source's log, or name a plain table.")


def _keyless(name: object) -> Finding:
    what = f"{name} has no primary key and no unique index over columns that are NOT NULL, by which queries find its new rows"
    remedy = "Add a primary key, or capture the source's log or triggers."
    return Finding(_E, FaultKind.TABLE_NO_IDENTITY.value, what, remedy)
