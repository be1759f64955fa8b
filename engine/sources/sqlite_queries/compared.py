"""Tables as queries compare them: their numbers, those of their columns, and what the capture declares of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from engine.model.identity import RelationId
from engine.model.row_filter import RowFilter
from engine.model.schema import TableSchema
from engine.model.subscription import TableSpec
from engine.records.table_structure import key_problem, schema_of, selection_problem
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.derived_numbers import column_base, relation_of
from engine.sources.sqlite.catalog import LiveTable, Structure, quoted
from engine.sources.sqlite.types import INTEGER, NUMERIC, REAL, TEXT

STAMP_KINDS = frozenset({INTEGER, NUMERIC, REAL, TEXT})
"""Kinds of the columns that may be stamps: with an affinity, by which a literal is read as the value that it was."""
_FLAG_KINDS = frozenset({INTEGER, NUMERIC})
"""Kinds of the columns that may be delete flags: whole numbers, and what SQLite has in place of a boolean type."""
_AS_DECLARED = TableDetection()


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


@dataclass(frozen=True, slots=True)
class Compared:
    """How tables are compared, as a capture declares it: by `schema.name`."""

    chosen: Mapping[str, TableDetection] = field(default_factory=dict)

    def of(self, structure: Structure) -> TableDetection:
        return self.chosen.get(str(structure.table_name), _AS_DECLARED)

    def described(self, table: LiveTable, spec: TableSpec) -> TableSchema | None:
        """The table's schema; None if it cannot be compared as declared."""
        structure = table.structure
        if table.problem or identity_problem(structure, spec) or selection_problem(structure, spec):
            return None
        if self.flag_problem(structure) is not None:
            return None
        return self.kept(structure, schema_of(number_of(structure), structure, spec, first_number(structure)))

    def kept(self, structure: Structure, schema: TableSchema) -> TableSchema:
        """The schema, without the rows whose delete flag is set: to a number other than 0. Texts and bytes are no flags."""
        flag = self.of(structure).flag_column
        if flag is None:
            return schema
        column = quoted(flag)
        numbers = tuple((number, name) for number, name in numbered(structure) if name == flag)
        # Texts and bytes are not less than the empty text.
        return replace(schema, row_filter=RowFilter(f"{column} = 0 OR {column} IS NULL OR {column} >= ''", numbers))

    def stamp_problem(self, structure: Structure) -> str | None:
        """Why the table cannot be read by its stamps as declared, as text; None if it can, or need not be."""
        column = self.of(structure).stamp_column
        if column is None or _kind(structure, column) in STAMP_KINDS:
            return None
        return f"stamp_column {column} is not a column with a type of texts or numbers"

    def flag_problem(self, structure: Structure) -> str | None:
        """Why deleted rows cannot be recognized by the declared flag, as text; None if they can, or need not be."""
        column = self.of(structure).flag_column
        if column is None or _kind(structure, column) in _FLAG_KINDS:
            return None
        return f"flag_column {column} is not a column of a type of whole numbers, or BOOLEAN"


AS_THEY_ARE = Compared()
"""Every table without stamps and flags."""


def _kind(structure: Structure, name: str) -> str | None:
    """The kind of a column; None if there is no such column."""
    return next((column.kind.name for column in structure.columns if column.name == name), None)
