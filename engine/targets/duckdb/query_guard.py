"""What a user's query may be: judged on the syntax tree that DuckDB's own parser makes of it. Pure.

Three fences stand one behind the other: the instance is closed to files and network and its configuration is locked; the
query runs in a read-only transaction; and what is named here is refused before it runs. The last fence is for functions that
a read-only transaction lets pass although they change something (a checkpoint), reach into this process (raw pointers), or
carry SQL inside a string, where the first two cannot see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.targets.duckdb.identifiers import folded

HIDDEN = "__penstock_"
"""What names of relations begin with that are not for readers: scans of tables, and copies that are being loaded."""

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
"""All others are refused: an unknown one of a later DuckDB stays closed until someone has looked at it."""

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
    """What a statement names."""

    places: frozenset[tuple[str, str]]
    """Folded names of relations, each behind the folded name of the schema, or of the database, that is given with it; else the empty
    one."""
    expressions: frozenset[str]
    """Folded names of common table expressions."""
    catalog: bool
    """Whether it may look at what there is, so that every table has to be shown."""


def named(tree: Any) -> Named:
    """What the query names that `refusal` has let pass."""
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


def _expressions(node: Any) -> Iterator[str]:
    """Names in a statement's map of common table expressions."""
    entries = node.get("map") if isinstance(node, dict) else None
    for entry in entries if isinstance(entries, list) else []:
        yield folded(str(entry.get("key", "")))


def _function_name(node: Any) -> str:
    """Lower-case name; empty, and so not allowed, where the tree has another form than expected."""
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
