"""A shared table: a view on the target over the rows of several tables, distinguished by a source column."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.identity import TableName


@dataclass(frozen=True, slots=True)
class SharedInto:
    """A table's membership in a shared table."""

    relation: TableName
    source_column: str
    """The column that identifies the table of each row."""
    source_value: str
    """The column's value for this table's rows, unique in the shared table."""
