"""Names in PostgreSQL's SQL. Pure."""

from __future__ import annotations

from engine.model.identity import TableName


def quoted(name: str) -> str:
    """The name as a quoted identifier; any character may occur."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """The text as a string constant, independent of `standard_conforming_strings`."""
    plain = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f" E{plain}" if "\\" in text else plain


def qualified(table: TableName) -> str:
    return f"{quoted(table.schema)}.{quoted(table.name)}"
