"""Findings on stamps and delete flags: what prevents or slows cycles by them, what they cost, and statements that make them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from engine.model.fault import FaultKind
from engine.model.source import Finding, Severity
from engine.sources.query_diff.costs import TableFacts, Way, costs
from engine.sources.query_diff.declaration import STAMPED
from engine.sources.sqlite.catalog import Structure, quoted
from engine.sources.sqlite.splits import estimate
from engine.sources.sqlite_queries.compared import STAMP_KINDS, Compared
from engine.sources.sqlite_queries.stamp_script import Statements, flag_sql, index_sql, stamp_sql
from engine.sources.sqlite_queries.stamps import is_comparable, is_indexed

_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
_TIMES = ("DATE", "TIME")
"""Parts of declared types that are names of times."""
_POSSIBLE = frozenset({Way.INCREMENTAL, Way.TIMESTAMP, Way.DELETE_FLAG})
"""What SQLite can be compared by: it hashes nothing, and keeps no copies."""


def propose(connection: sqlite3.Connection, compared: Compared, structure: Structure) -> list[Finding]:
    """Findings on a table that can be compared."""
    chosen = compared.of(structure)
    stamp, flag = chosen.stamp_column, chosen.flag_column
    if chosen.method not in STAMPED or stamp is None:
        return _candidates(connection, structure)
    found = []
    if (problem := compared.stamp_problem(structure)) is not None:
        found.append(_unfit(structure, problem, () if stamp in structure.names else stamp_sql(structure, stamp)))
    elif not is_comparable(connection, structure, stamp):
        found.append(_unfit(structure, f"stamp_column {stamp} has a collation of a program's own", ()))
    if (problem := compared.flag_problem(structure)) is not None:
        found.append(_unfit(structure, problem, () if flag in structure.names else flag_sql(structure, str(flag))))
    return found or _by_stamps(connection, structure, stamp, flag)


def _by_stamps(connection: sqlite3.Connection, structure: Structure, stamp: str, flag: str | None) -> list[Finding]:
    """Of a table with the columns that it needs."""
    found, indexed = [], is_indexed(connection, structure, stamp)
    if not indexed:
        what = f"{structure.table_name} has no index on {stamp}: each cycle reads the whole table to find recent stamps"
        found.append(Finding(_W, "stamp_without_index", what, "Create one.", index_sql(structure, stamp)))
    elif (kinds := _storage_classes(connection, structure, stamp)) is not None:
        what = f"{stamp} of {structure.table_name} has values that are not in one order, {kinds}: each cycle reads all of one kind"
        found.append(
            Finding(_W, "stamp_mixed", what, "Let every program write stamps in one form, and correct the others.")
        )
    row_bytes, rows, _, _ = estimate(connection, structure)
    page = connection.execute("PRAGMA page_size").fetchone()[0]
    facts = TableFacts(-(-rows * row_bytes // page), rows, rows * row_bytes, stamp=stamp, flag=flag, indexed=indexed)
    listed = [cost for cost in costs(facts) if cost.way in _POSSIBLE]
    what = (
        f"{structure.table_name}: about {facts.pages:,} pages, {rows:,} rows. A cycle in which 1 % of these pages changed reads:"
        f" {'; '.join(f'{cost.way.value} {cost.pages:,.0f} pages' for cost in listed)}"
    )
    return [*found, Finding(_I, "method_costs", what, "None needed.")]


def _storage_classes(connection: sqlite3.Connection, structure: Structure, stamp: str) -> str | None:
    """Two storage classes of the column's values, as text; None if all are of one, numbers alike. By the index, whose ends show it."""
    name, table = quoted(stamp), quoted(structure.name)
    ends = (
        f"SELECT replace(typeof({name}), 'real', 'integer') FROM {table} WHERE {name} IS NOT NULL ORDER BY {name} {way} LIMIT 1"
        for way in ("ASC", "DESC")
    )
    kinds = {kind for query in ends for (kind,) in connection.execute(query)}
    return " and ".join(sorted(kinds)) if len(kinds) > 1 else None


def _unfit(structure: Structure, problem: str, statements: Statements) -> Finding:
    remedy = "Correct capture.tables, or run the statements; the application's DELETE then sets the flag."
    return Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, f"{structure.table_name}: {problem}", remedy, statements)


def _candidates(connection: sqlite3.Connection, structure: Structure) -> list[Finding]:
    """Columns that may be stamps."""
    names: Sequence[str] = [
        column.name
        for column in structure.columns
        if column.kind.name in STAMP_KINDS
        and any(part in column.declared.upper() for part in _TIMES)
        and is_comparable(connection, structure, column.name)
        and is_indexed(connection, structure, column.name)
    ]
    if not names:
        return []
    what = f"{structure.table_name} has an index that begins with a time: {', '.join(names)}"
    remedy = "If every insert and update sets it to the time, the method timestamp reads few pages."
    return [Finding(_I, "stamp_possible", what, remedy)]
