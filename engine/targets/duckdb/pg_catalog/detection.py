"""Whether a statement is for the catalog. It imports sqlglot only when a statement mentions the catalog. Pure."""

from __future__ import annotations

import re

from engine.targets.duckdb.pg_catalog.description import CatalogError, Description
from engine.targets.duckdb.pg_catalog.functions import functions

FUNCTION_NAMES = frozenset(functions(Description("", "", ())))
"""Names of catalog functions."""
REG_TYPES = frozenset({"regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole"})
"""Types of object identifiers, whose texts are names of objects."""
_WORDS = FUNCTION_NAMES | REG_TYPES | {"information_schema"}
_WORD = re.compile("[a-z_]+")


def mentions_catalog(sql: str) -> bool:
    """Whether the text contains a word of the catalog: quick, and false for most statements that read tables."""
    lowered = sql.lower()
    return "pg_" in lowered or not _WORDS.isdisjoint(_WORD.findall(lowered))


def is_catalog_query(sql: str) -> bool:
    """Whether the statement is a SELECT that reads PostgreSQL's catalog, or calls its functions, and names no table of users."""
    if not mentions_catalog(sql):
        return False
    from engine.targets.duckdb.pg_catalog.parsing import parsed, reads_catalog  # noqa: PLC0415 - slow, and rarely needed

    try:
        return reads_catalog(parsed(sql))
    except CatalogError:
        return False
