"""Finds what prevents tables of MariaDB from being compared by queries, without changes on the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import DiscoveredTable, Finding, Severity
from engine.model.subscription import OriginFilter, TableSpec
from engine.sources.mariadb.catalog import MariaDbTable, load_facts, load_named
from engine.sources.mariadb.connect import ERRORS, Connector, MariaDbConnection, fault_of, quoted, rows
from engine.sources.mariadb.preflight import discovered, unreachable, version_findings
from engine.sources.mariadb_queries.compared import Compared, compared_structure, unfit_as_declared
from engine.sources.mariadb_queries.proposals import open_transactions, propose
from engine.sources.query_diff.derived_numbers import check_distinct
from engine.sources.query_diff.preflight import origin_findings

_E = Severity.ERROR


def discover_tables(connector: Connector) -> list[DiscoveredTable]:
    """Every table of the connection's database, with the reasons that prevent its capture."""
    with connector.session() as connection:
        tables = load_facts(connection, connector.database)
    return [
        discovered(table, compared_structure(table), _problems(table, TableSpec(TableId(""), name, name)))
        for name, table in sorted(tables.items())
    ]


def check(connector: Connector, compared: Compared, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
    """Findings about the source and these tables. A failed connection is a finding, not a fault."""
    try:
        with connector.session() as connection:
            version, user = rows(connection, "SELECT VERSION(), CURRENT_USER()")[0]
            found = version_findings(str(version))
            if found:
                return found
            found = origin_findings(origin)
            there = load_named(connection, [table.source for table in tables])
            mark = mark_of(connector.secret(MASK_KEY))
            for spec in tables:
                one, marked = there.get(spec.source), replace(spec, mask_mark=mark)
                problems = _table(connection, one, marked, str(user))
                found += problems if problems or one is None else propose(connection, compared, marked, one)
            if compared.by_stamps:
                found += open_transactions(connection, str(user))
            check_distinct(there)
            return found
    except EngineFault as fault:
        return [unreachable(fault)]


def _table(connection: MariaDbConnection, table: MariaDbTable | None, spec: TableSpec, user: str) -> list[Finding]:
    if table is None:
        what = f"{spec.source} does not exist, or the user may not see it"
        return [Finding(_E, FaultKind.TABLE_MISSING.value, what, "Create it, or grant SELECT on it.")]
    return _problems(table, spec) or _unreadable(connection, table, user)


def _problems(table: MariaDbTable, spec: TableSpec) -> list[Finding]:
    problem = unfit_as_declared(table, spec)
    return [] if problem is None else [Finding(_E, problem[0].value, problem[1], problem[2])]


def _unreadable(connection: MariaDbConnection, table: MariaDbTable, user: str) -> list[Finding]:
    """Whether the user may read the table: by trying, since rights may come from roles."""
    listed = ", ".join(quoted(facts.name) for facts, _ in table.printed)
    name = quoted(table.name.schema, table.name.name)
    try:
        rows(connection, f"SELECT {listed} FROM {name} LIMIT 0")
    except ERRORS as error:
        fault = fault_of(error, str(table.name))
        if fault.kind is not FaultKind.SOURCE_PRIVILEGE:
            raise
        account, _, host = user.rpartition("@")
        statement = f"GRANT SELECT ON {name} TO {quoted(account)}@{quoted(host)}"
        what = f"the user lacks the privilege SELECT on {table.name}"
        return [Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, "Grant it.", (statement,))]
    return []
