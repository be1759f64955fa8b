"""Finds what prevents tables of a file from being compared by queries, without changes in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import DiscoveredTable, Finding, Severity
from engine.model.subscription import OriginFilter, TableSpec
from engine.sources.query_diff.derived_numbers import check_distinct
from engine.sources.query_diff.preflight import origin_findings
from engine.sources.sqlite.catalog import LiveTable, live_tables
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite.preflight import (
    declared_findings,
    discovered,
    file_findings,
    missing,
    unlogged,
    unopened,
)
from engine.sources.sqlite_queries.compared import Compared, identity_problem
from engine.sources.sqlite_queries.proposals import propose

_READING = (
    "Let the engine's user read the file and its folder. SQLite reads a write-ahead log by the files -wal and -shm of the folder, which go"
    " when the last program closes the file: leave a program connected, or run the engine as the file's owner, with the right to create"
    " them. What a program that was killed left in a journal is put right by the next program that may write."
)
_REMEDIES = {FaultKind.SOURCE_PRIVILEGE: _READING, FaultKind.SOURCE_UNREACHABLE: f"Check the path. {_READING}"}
_COPIED = "writers wait while it is copied, which each cycle does"


def check(connector: Connector, compared: Compared, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
    """Findings about the file and these tables. A file that cannot be read is a finding, not a fault."""
    try:
        with connector.reading() as connection:
            mark = mark_of(connector.secret(MASK_KEY))
            found = origin_findings(origin) + file_findings(connection, _COPIED)
            there = live_tables(connection, [table.source.name for table in tables])
            names = {table.structure.table_name: table for table in there.values()}
            for spec in tables:
                table = names.get(spec.source)
                problems = _table(table, replace(spec, mask_mark=mark))
                found += problems
                if table is not None and not any(each.severity is Severity.ERROR for each in problems):
                    found += propose(connection, compared, table.structure)
            check_distinct(names)
            return found
    except EngineFault as fault:
        return [unopened(fault, _REMEDIES)]


def _table(table: LiveTable | None, spec: TableSpec) -> list[Finding]:
    if table is None:
        return [missing(spec)]
    if table.problem is not None:
        return [unlogged(table.problem)]
    problem = identity_problem(table.structure, spec)
    if problem is not None:
        what, remedy = f"{spec.source}: {problem}", "Add a primary key, or capture the file by triggers."
        return [Finding(Severity.ERROR, FaultKind.TABLE_NO_IDENTITY.value, what, remedy)]
    return declared_findings(table.structure, spec)


def discover_tables(connector: Connector) -> list[DiscoveredTable]:
    """Every table of the file, without Penstock's and SQLite's own."""
    with connector.reading() as connection:
        return [
            discovered(connection, table, _table(table, TableSpec(TableId("t0"), name, name)))
            for table in live_tables(connection).values()
            for name in [table.structure.table_name]
        ]
