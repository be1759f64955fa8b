"""Quoted names in the SQL of targets. Pure."""

from __future__ import annotations

from engine.model.identity import TableName


def quoted(name: str) -> str:
    """The name as a quoted identifier; any character may occur."""
    return '"' + name.replace('"', '""') + '"'


def qualified(table: TableName) -> str:
    """The quoted name with its schema."""
    return f"{quoted(table.schema)}.{quoted(table.name)}"
