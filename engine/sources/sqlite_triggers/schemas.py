"""The structures of tables that triggers recorded, and the schemas of tables that they can record."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from engine.model.schema import TableSchema
from engine.model.subscription import TableSpec
from engine.records.table_structure import key_problem, schema_of, selection_problem
from engine.sources.sqlite.catalog import Structure
from engine.sources.sqlite_triggers.recorded import structure_of
from engine.sources.sqlite_triggers.registry import Found, is_installed


def described(found: Found, spec: TableSpec) -> TableSchema | None:
    """The table's present schema; None if its changes cannot be replicated as declared."""
    problem = found.live.problem or key_problem(found.structure, spec) or selection_problem(found.structure, spec)
    return None if problem is not None else schema_of(found.relation, found.structure, spec)


def structures_of(connection: sqlite3.Connection, relations: Collection[int]) -> dict[int, list[Structure]]:
    """Every recorded structure of these tables, the latest first."""
    found: dict[int, list[Structure]] = {}
    if not is_installed(connection):
        return found
    rows = connection.execute("SELECT relation, told FROM penstock_structures ORDER BY structure DESC").fetchall()
    for relation, told in rows:
        if relation in relations:
            found.setdefault(relation, []).append(structure_of(told))
    return found
