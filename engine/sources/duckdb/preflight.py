"""Finds what prevents tables that DuckDB reads from being compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import DiscoveredTable, Finding, Severity
from engine.model.subscription import OriginFilter, TableSpec
from engine.records.table_structure import selection_problem
from engine.sources.duckdb.catalog import LiveTable, Place, identity_problem, readable, unread_problem
from engine.sources.query_diff.derived_numbers import check_distinct
from engine.sources.query_diff.preflight import origin_findings

_E, _W = Severity.ERROR, Severity.WARNING
_KEY_REMEDY = 'Name the columns that identify a row in the subscription: "capture": {"tables": {"SCHEMA.NAME": {"key": ["COLUMN"]}}}.'
_OPTIONS = "Correct the options, with the present names of the table's columns."
_OTHER = "Check the connection's settings."


def check(place: Place, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
    """Findings about the place and these tables. A place that cannot be read is a finding, not a fault."""
    try:
        mark = mark_of(place.secret(MASK_KEY))
        found = origin_findings(origin) + place.findings()
        there = place.tables({table.source for table in tables})
        for spec in tables:
            found += _table(place, there.get(spec.source), replace(spec, mask_mark=mark))
        check_distinct(there)
        return found
    except EngineFault as fault:
        return [Finding(_E, fault.kind.value, fault.detail, place.remedies.get(fault.kind.value, _OTHER))]


def discover_tables(place: Place) -> list[DiscoveredTable]:
    """Every table of the place, with the reasons that prevent its capture."""
    found = []
    for name, table in sorted(place.tables().items(), key=lambda each: str(each[0])):
        structure = table.structure
        columns = [*((c.name, c.kind.declared) for c in structure.columns), *table.unreadable]
        found.append(
            DiscoveredTable(
                name,
                structure.key,
                structure.identity.value,
                False,
                table.rows,
                table.bytes,
                tuple({"name": column, "type": kind} for column, kind in columns),
                tuple(_table(place, table, TableSpec(TableId("t0"), name, name))),
            )
        )
    return found


def _table(place: Place, table: LiveTable | None, spec: TableSpec) -> list[Finding]:
    name = spec.source
    if table is None:
        what = f"table {name} does not exist"
        return [Finding(_E, FaultKind.TABLE_MISSING.value, what, "Create it, or take it out of the subscription.")]
    if table.problem is not None:
        return [Finding(_E, FaultKind.TABLE_NOT_LOGGED.value, f"{name}: {table.problem}", place.remedies["table"])]
    problem = identity_problem(table, spec, place.declared_key(name))
    if problem is not None:
        return [Finding(_E, FaultKind.TABLE_NO_IDENTITY.value, f"{name}: {problem}", _KEY_REMEDY)]
    unread = unread_problem(table, spec)
    if unread is not None:
        remedy = "Leave them out by exclude_columns, or store them as another type."
        return [Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, f"{name}: {unread}", remedy)]
    found = []
    if spec.insert_only:
        what = f"updates and deletes of {name} are not followed (insert_only)"
        found.append(Finding(_W, "insert_only", what, "None needed, if the table is only ever inserted into."))
    unfit = selection_problem(table.structure, readable(table, spec))
    if unfit is not None:
        found.append(Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, f"{name}: {unfit}", _OPTIONS))
    return found
