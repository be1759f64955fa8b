"""String constants in PostgreSQL's SQL. Pure."""

from __future__ import annotations


def literal(text: str) -> str:
    """The text as a string constant, independent of `standard_conforming_strings`."""
    plain = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f" E{plain}" if "\\" in text else plain
