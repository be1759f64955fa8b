"""A shared table: one relation on the target that shows the rows of several tables, told apart by a source column."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.identity import TableName


@dataclass(frozen=True, slots=True)
class SharedInto:
    """What a table says of the shared table that shows its rows."""

    relation: TableName
    source_column: str
    """The column that tells whose rows they are."""
    source_value: str
    """Its value in this table's rows; no other table of the relation has it."""
