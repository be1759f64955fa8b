"""Findings about MariaDB that do not depend on the way of its capture."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.fault import EngineFault, FaultKind
from engine.model.source import DiscoveredTable, Finding, Severity
from engine.model.subscription import TableSpec
from engine.records.catalog_table import key_of, selection_problem
from engine.sources.mariadb.catalog import MariaDbTable, Structure

_OLDEST_VERSION = 100_600
"""MariaDB 10.6, the first version with all statements that are used."""
_E = Severity.ERROR
_REMEDIES = {
    FaultKind.TABLE_NAME_COLLISION: "Rename one of the two tables, or leave one of them out.",
    FaultKind.SOURCE_UNREACHABLE: "Check host and port, and that the server runs and can be reached from the engine.",
    FaultKind.SOURCE_AUTHENTICATION: "Check user and password, and that the account may connect from the engine's address.",
}


def unreachable(fault: EngineFault) -> Finding:
    """Why the server could not be asked."""
    remedy = _REMEDIES.get(fault.kind, "Check the connection's settings.")
    return Finding(_E, fault.kind.value, fault.detail, remedy)


def version_number(version: str) -> int:
    """`10.11.19-MariaDB` as 101119."""
    major, minor, patch = [*version.partition("-")[0].split("."), "0", "0"][:3]
    return int(major) * 10_000 + int(minor) * 100 + int(patch)


def version_findings(version: str) -> list[Finding]:
    """Whether the server's version is supported."""
    if "mariadb" in version.lower() and version_number(version) >= _OLDEST_VERSION:
        return []
    what = f"the server is {version}; MariaDB 10.6 is the oldest that is supported, and MySQL is not"
    return [Finding(_E, "source_version", what, "Use MariaDB 10.6 or later.")]


def discovered(table: MariaDbTable, structure: Structure, problems: Sequence[Finding]) -> DiscoveredTable:
    """The table as users choose it."""
    return DiscoveredTable(
        table.name,
        table.key,
        structure.replica_identity.value,
        table.partitioned,
        table.rows,
        table.bytes,
        tuple({"name": facts.name, "type": facts.column_type} for facts, _ in table.printed),
        tuple(problems),
    )


def unselectable(table: MariaDbTable, structure: Structure, spec: TableSpec) -> tuple[FaultKind, str, str] | None:
    """Why its columns cannot be replicated as declared: code, reason and remedy; None if they can."""
    unknown = [facts.name for facts in table.unprinted if spec.selection.takes(facts.name)]
    if unknown:
        what = f"{table.name}: columns have types that cannot be replicated: {', '.join(unknown)}"
        return FaultKind.TABLE_COLUMNS_UNFIT, what, "Leave them out with exclude_columns."
    fit = structure.table()
    choice = key_of(fit, spec)
    if choice.problem is not None:
        what = f"{table.name} has no primary key and no unique key without NULL: {choice.problem}"
        return FaultKind.TABLE_NO_IDENTITY, what, "Add a primary key, or consent to insert_only."
    selection = selection_problem(fit, spec)
    if selection is not None:
        return FaultKind.TABLE_COLUMNS_UNFIT, f"{table.name}: {selection}", "Correct the table's options."
    return None
