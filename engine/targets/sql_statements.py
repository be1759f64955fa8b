"""What the statements on tables and on shared tables have in common in all kinds of target."""

from __future__ import annotations

from collections.abc import Callable

from engine.model.identity import TableName
from engine.targets.identifiers import qualified, quoted
from engine.targets.metadata_store import Rows


class SqlStatements:
    """A base for objects that execute statements within the caller's transaction."""

    def __init__(self, execute: Callable[[str], Rows], prefix: str = "") -> None:
        """`execute`: executes a statement without parameters. `prefix`: precedes the schema in full names, such as a quoted catalog
        and a dot."""
        self.execute = execute
        self._prefix = prefix

    def qualified(self, place: TableName) -> str:
        """The full quoted name."""
        return self._prefix + qualified(place)

    def create_schema(self, schema: str) -> None:
        """Create a schema if it does not exist."""
        self.execute(f"CREATE SCHEMA IF NOT EXISTS {self._prefix}{quoted(schema)}")
