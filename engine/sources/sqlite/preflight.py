"""Findings about SQLite files that do not depend on the way of their capture."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from engine.model.fault import EngineFault, FaultKind
from engine.model.source import DiscoveredTable, Finding, Severity
from engine.model.subscription import TableSpec
from engine.records.table_structure import selection_problem
from engine.sources.sqlite.catalog import LiveTable, Structure, quoted

_E, _W = Severity.ERROR, Severity.WARNING
_REMEDIES = {
    FaultKind.TABLE_NAME_COLLISION: "Rename one of the two tables, or leave one of them out.",
    FaultKind.SOURCE_UNREACHABLE: "Check the path, as seen from the engine's machine, and that it is a SQLite file.",
    FaultKind.SOURCE_TIMEOUT: "Another program holds the file's write lock; end its transaction, or raise busy_timeout_ms.",
}


def unopened(fault: EngineFault, remedies: Mapping[FaultKind, str]) -> Finding:
    """Why the file could not be read. `remedies`: of the kinds that depend on the way of capture."""
    remedy = {**_REMEDIES, **remedies}.get(fault.kind, "Check the connection's settings.")
    return Finding(_E, fault.kind.value, fault.detail, remedy)


def file_findings(connection: sqlite3.Connection, journal: str) -> list[Finding]:
    """What the file's settings prevent or cost. `journal`: what a rollback journal costs."""
    found = []
    encoding = connection.execute("PRAGMA encoding").fetchone()[0]
    if encoding != "UTF-8":
        what = f"the file's texts are stored as {encoding}; only UTF-8 is supported"
        remedy = "Create a file with PRAGMA encoding = 'UTF-8', and copy the tables into it."
        found.append(Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, remedy))
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        remedy = "PRAGMA journal_mode = WAL, where the programs that use the file allow it."
        found.append(Finding(_W, "rollback_journal", f"the file has a rollback journal: {journal}", remedy))
    return found


def missing(spec: TableSpec) -> Finding:
    what = f"table {spec.source} does not exist"
    return Finding(_E, FaultKind.TABLE_MISSING.value, what, "Create it, or take it out of the subscription.")


def unlogged(problem: str) -> Finding:
    """`problem`: why the table's rows cannot be followed."""
    remedy = "Change the table, or take it out of the subscription."
    return Finding(_E, FaultKind.TABLE_NOT_LOGGED.value, problem, remedy)


def declared_findings(structure: Structure, spec: TableSpec) -> list[Finding]:
    """Findings about a table's options."""
    listed = []
    problem = selection_problem(structure, spec)
    if problem is not None:
        remedy = "Correct the options, with the present names of the table's columns."
        listed.append(Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, f"{spec.source}: {problem}", remedy))
    if spec.insert_only:
        what = f"updates and deletes of {spec.source} are not followed (insert_only)"
        listed.append(Finding(_W, "insert_only", what, "None needed, if the table is only ever inserted into."))
    return listed


def discovered(connection: sqlite3.Connection, table: LiveTable, problems: Sequence[Finding]) -> DiscoveredTable:
    """The table as users choose it; its rows are estimated by their rowids."""
    structure, rows = table.structure, 0
    if structure.rowid is not None and table.problem is None:
        count = f"SELECT coalesce(max({structure.rowid}) - min({structure.rowid}) + 1, 0) FROM {quoted(structure.name)}"
        rows = int(connection.execute(count).fetchone()[0])
    return DiscoveredTable(
        structure.table_name,
        structure.key,
        structure.identity.value,
        False,
        rows,
        0,
        tuple({"name": c.name, "type": c.declared or "any"} for c in structure.columns),
        tuple(problems),
    )
