"""A shared table: a view on the target over the rows of several tables, distinguished by a source column."""

from __future__ import annotations

from collections.abc import Mapping
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

    @classmethod
    def from_document(cls, document: Mapping[str, str]) -> SharedInto:
        """Raises KeyError if a member is missing."""
        relation = TableName(document["schema"], document["name"])
        return cls(relation, document["source_column"], document["source_value"])

    def document(self) -> dict[str, str]:
        """Its form in the control database and in messages."""
        return {
            "schema": self.relation.schema,
            "name": self.relation.name,
            "source_column": self.source_column,
            "source_value": self.source_value,
        }
