"""Determines whether a user's query is permitted, from the syntax tree of DuckDB's parser. Pure.

Three barriers protect the target: the instance has no access to files and network and its configuration is locked; the query runs in a
read-only transaction; and the functions named here are rejected in advance. The last one is for functions that a read-only transaction
permits although they change something (a checkpoint), access this process (raw pointers), or contain SQL in a string, which the first two
cannot inspect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.targets.duckdb.identifiers import folded

HIDDEN = "__penstock_"
"""Prefixes of relations that readers may not see: scans of tables, and unfinished copies."""

_CATALOG_SCHEMAS = frozenset({"information_schema", "pg_catalog"})
_QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE", "STATEMENT_NODE"})

_WITHOUT_CATALOG = frozenset(
    {
        "duckdb_keywords",
        "duckdb_types",
        "generate_series",
        "icu_calendar_names",
        "json_each",
        "json_tree",
        "pg_timezone_names",
        "pragma_collations",
        "pragma_version",
        "range",
        "repeat",
        "repeat_row",
        "test_all_types",
        "unnest",
    }
)
"""Those that show nothing of the tables."""
TABLE_FUNCTIONS = _WITHOUT_CATALOG | {
    "duckdb_columns",
    "duckdb_constraints",
    "duckdb_functions",
    "duckdb_indexes",
    "duckdb_schemas",
    "duckdb_tables",
    "duckdb_views",
    "histogram",
    "histogram_values",
    "pragma_show",
    "pragma_table_info",
    "summary",
}
"""All others are rejected, so that new functions of a later DuckDB stay forbidden until they were reviewed."""

REFUSED_FUNCTIONS = frozenset(
    {"currval", "getenv", "nextval", "setseed", "setval", "sleep_ms", "write_log", "current_setting", "getvariable"}
)


def refusal(tree: Any) -> str | None:
    """Why the query may not run, in words for its author; None where it may. `tree`: DuckDB's JSON form of the statement."""
    for node in nodes(tree):
        kind = str(node.get("type", ""))
        if kind.endswith("_NODE") and kind not in _QUERY_NODES:
            return "it writes; only reads are allowed"
        if kind == "TABLE_FUNCTION":
            name = _function_name(node.get("function"))
            if name not in TABLE_FUNCTIONS:
                return f"the table function {name} is not available in queries"
        elif kind == "FUNCTION":
            name = _function_name(node)
            if name in REFUSED_FUNCTIONS:
                return f"the function {name} is not available in queries"
        elif kind == "BASE_TABLE" and folded(str(node.get("table_name", ""))).startswith(HIDDEN):
            return f"names that begin with {HIDDEN} are not for queries"
    return None


@dataclass(frozen=True, slots=True)
class Named:
    """The names in a statement."""

    places: frozenset[tuple[str, str]]
    """Folded names of relations, each after the folded name of its schema or database; empty if none is given."""
    expressions: frozenset[str]
    """Folded names of common table expressions."""
    catalog: bool
    """Whether it may read the catalog, so that every table must be visible."""


def named(tree: Any) -> Named:
    """The names in a query that `refusal` permits."""
    places: set[tuple[str, str]] = set()
    expressions: set[str] = set()
    catalog = False
    for node in nodes(tree):
        kind = str(node.get("type", ""))
        if kind == "BASE_TABLE":
            schema, name = (folded(str(node.get(part, ""))) for part in ("schema_name", "table_name"))
            places.add((schema, name))
            catalog = catalog or schema in _CATALOG_SCHEMAS
        catalog = catalog or kind == "SHOW_REF"
        catalog = catalog or (kind == "TABLE_FUNCTION" and _function_name(node.get("function")) not in _WITHOUT_CATALOG)
        expressions.update(_expressions(node.get("cte_map")))
    return Named(frozenset(places), frozenset(expressions), catalog)


def array_parameters(tree: Any) -> frozenset[str]:
    """Names of the parameters that a query casts to a list or unnests, as `= ANY ($1)` does."""
    found: set[str] = set()
    for node in nodes(tree):
        if node.get("type") == "OPERATOR_CAST" and _is_list(node.get("type_expr")):
            inner = [node.get("child")]
        elif node.get("type") == "FUNCTION" and _function_name(node) == "unnest":
            inner = [argument.get("expression") for argument in node.get("arguments", []) if isinstance(argument, dict)]
        else:
            continue
        found.update(_parameters(inner))
    return frozenset(found)


def bytea_parameters(tree: Any) -> frozenset[str]:
    """Names of the parameters that a query casts to `bytea`, or a list of it, by PostgreSQL's name of the type."""
    casts = [node for node in nodes(tree) if node.get("type") == "OPERATOR_CAST" and _is_bytea(node.get("type_expr"))]
    return frozenset(_parameters([node.get("child") for node in casts]))


def _parameters(expressions: list[Any]) -> Iterator[str]:
    """The names of those that are parameters."""
    for one in expressions:
        if isinstance(one, dict) and one.get("class") == "PARAMETER":
            yield str(one["identifier"])


def _is_list(node: Any) -> bool:
    return _type_name(node) in {"list", "array"}


def _is_bytea(node: Any) -> bool:
    if _is_list(node):
        return any(_type_name(child) == "bytea" for child in node.get("children") or [])
    return _type_name(node) == "bytea"


def _type_name(node: Any) -> str:
    return str(node.get("type_name", "")).lower() if isinstance(node, dict) else ""


def _expressions(node: Any) -> Iterator[str]:
    """Names in a statement's map of common table expressions."""
    entries = node.get("map") if isinstance(node, dict) else None
    for entry in entries if isinstance(entries, list) else []:
        yield folded(str(entry.get("key", "")))


def _function_name(node: Any) -> str:
    """The name in lower case; empty, and therefore forbidden, if the tree has an unexpected form."""
    if not isinstance(node, dict):
        return ""
    return str(node.get("function_name", "")).lower()


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object of the tree, without recursion: a query may nest deeper than Python's stack."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
