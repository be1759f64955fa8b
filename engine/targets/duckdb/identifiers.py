"""Names in DuckDB's SQL: constants and equality. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from engine.model.identity import TableName
from engine.targets.identifiers import quoted

_UPPER_TO_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def folded(name: str) -> str:
    """Names with equal folded forms are the same name to DuckDB: it ignores the case of ASCII letters only."""
    return name.translate(_UPPER_TO_LOWER)


def folded_name(name: TableName) -> tuple[str, str]:
    """Equal for names that denote the same table in DuckDB."""
    return folded(name.schema), folded(name.name)


def same_to_duckdb(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two names that DuckDB cannot distinguish."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(folded(name), name)
        if other != name:
            return other, name
    return None


def qualified(catalog: str, table: TableName) -> str:
    """The table with its catalog: if a schema has the file's name, two parts would be ambiguous."""
    return f"{quoted(catalog)}.{quoted(table.schema)}.{quoted(table.name)}"
