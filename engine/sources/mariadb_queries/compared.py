"""Tables as queries compare them: what prevents it, and their structures, which depend on nothing but names, types and keys."""

from __future__ import annotations

from engine.model.fault import FaultKind
from engine.model.subscription import TableSpec
from engine.sources.mariadb.catalog import MariaDbTable, Structure
from engine.sources.mariadb.preflight import unselectable
from engine.sources.query_diff.derived_numbers import column_base, relation_of

Unfit = tuple[FaultKind, str, str]
"""Why a table cannot be compared as declared: code, reason and remedy."""


def compared_structure(table: MariaDbTable) -> Structure:
    """What its rows are read with now."""
    facts = [(facts.name, how.name, how.modifier, facts.nullable) for facts, how in table.printed]
    mark = repr((facts, table.key, table.identity is not None and table.identity.name == "PRIMARY"))
    return table.structure_with(int(relation_of(table.name)), mark, column_base(mark))


def why_unfit(table: MariaDbTable) -> str | None:
    """Why rows of the table cannot be read in a snapshot, as text; None if they can."""
    if table.engine.upper() != "INNODB":
        return f"{table.name} is a table of the storage engine {table.engine}, which has no snapshots"
    if table.partitioned:
        return f"{table.name} is partitioned: an exchange of a partition is not seen by a snapshot"
    if table.kind != "BASE TABLE":
        return f"{table.name} is not a plain table ({table.kind})"
    return None


def unfit(table: MariaDbTable) -> Unfit | None:
    """Why the table cannot be compared, however it is declared; None if it can."""
    problem = why_unfit(table)
    if problem is not None:
        return FaultKind.TABLE_NOT_LOGGED, problem, "Leave it out, or make it a plain InnoDB table."
    if not table.key:
        what = f"{table.name} has no primary key and no unique key without NULL, by which queries find changed rows"
        return FaultKind.TABLE_NO_IDENTITY, what, "Add a primary key, or capture it by triggers."
    return None


def unfit_as_declared(table: MariaDbTable, spec: TableSpec) -> Unfit | None:
    """Why the table cannot be compared as declared; None if it can."""
    found = unfit(table)
    if found is None and spec.where is not None:
        what = f"{table.name}: where is not possible with queries of MariaDB, which compare every row"
        found = FaultKind.TABLE_COLUMNS_UNFIT, what, "Leave it out."
    return found or unselectable(table, compared_structure(table), spec)
