"""Tables as queries compare them: their numbers, and those of their columns."""

from __future__ import annotations

from collections.abc import Iterable

from engine.model.identity import RelationId
from engine.model.schema import TableSchema
from engine.model.subscription import TableSpec
from engine.records.table_structure import key_problem, schema_of, selection_problem
from engine.sources.query_diff.derived_numbers import column_base, relation_of
from engine.sources.sqlite.catalog import LiveTable, Structure


def number_of(structure: Structure) -> RelationId:
    return relation_of(structure.table_name)


def facts_of(structure: Structure) -> str:
    """What rows of the table are read with, as text."""
    return repr(
        ([(c.name, c.declared, c.kind.name, c.nullable) for c in structure.columns], structure.key, structure.identity)
    )


def first_number(structure: Structure) -> int:
    """The number of the first column."""
    return column_base(facts_of(structure)) + 1


def numbered(structure: Structure) -> Iterable[tuple[int, str]]:
    """The columns by number."""
    return enumerate(structure.names, first_number(structure))


def identity_problem(structure: Structure, spec: TableSpec) -> str | None:
    """Why rows cannot be compared, as text; None if they can."""
    if not structure.key:
        return "the table has no primary key, and no unique index over columns that are NOT NULL, by which queries find changed rows"
    return key_problem(structure, spec)


def described(table: LiveTable, spec: TableSpec) -> TableSchema | None:
    """The table's schema; None if it cannot be compared as declared."""
    structure = table.structure
    if table.problem or identity_problem(structure, spec) or selection_problem(structure, spec):
        return None
    return schema_of(number_of(structure), structure, spec, first_number(structure))
