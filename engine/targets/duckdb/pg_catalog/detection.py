"""Whether a statement is for the catalog. It imports sqlglot only when a statement mentions the catalog. Pure."""

from __future__ import annotations

import re

from engine.targets.duckdb.pg_catalog.description import CatalogError, Description
from engine.targets.duckdb.pg_catalog.functions import functions

FUNCTION_NAMES = frozenset(functions(Description("", "", ())))
"""Names of catalog functions."""
_MENTION = re.compile(
    "pg_|information_schema|reg(?:class|type|proc|namespace|role)|"
    + "|".join(sorted(rf"\b{name}\b" for name in FUNCTION_NAMES if not name.startswith("pg_"))),
    re.IGNORECASE,
)


def mentions_catalog(sql: str) -> bool:
    """Whether the text contains a word of the catalog: quick, and false for most statements that read tables."""
    return _MENTION.search(sql) is not None


def is_catalog_query(sql: str) -> bool:
    """Whether the statement is a SELECT that reads PostgreSQL's catalog, or calls its functions, and names no table of users."""
    if not mentions_catalog(sql):
        return False
    from engine.targets.duckdb.pg_catalog.parsing import parsed, reads_catalog  # noqa: PLC0415 - slow, and rarely needed

    try:
        return reads_catalog(parsed(sql))
    except CatalogError:
        return False
