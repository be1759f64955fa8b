"""Recognizes statements that select columns of one table and compute nothing: their rows are sent as they are scanned. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.targets.duckdb.identifiers import folded

_LOCATION = "query_location"
_STATEMENT: dict[str, Any] = {
    "type": "SELECT_NODE",
    "modifiers": [],
    "cte_map": {"map": []},
    "where_clause": None,
    "group_expressions": [],
    "group_sets": [],
    "aggregate_handling": "STANDARD_HANDLING",
    "having": None,
    "sample": None,
    "qualify": None,
}
_TABLE: dict[str, Any] = {
    "type": "BASE_TABLE",
    "sample": None,
    "column_name_alias": [],
    "catalog_name": "",
    "at_clause": None,
}
_ALL: dict[str, Any] = {
    "class": "STAR",
    "type": "STAR",
    "alias": "",
    "relation_name": "",
    "exclude_list": [],
    "replace_list": [],
    "columns": False,
    "expr": None,
    "qualified_exclude_list": [],
    "rename_list": [],
}
_COLUMN = {"class": "COLUMN_REF", "type": "COLUMN_REF"}


@dataclass(frozen=True, slots=True)
class PlainRead:
    """Folded names: the table's, its schema's (empty if none is given), and those of its columns; None: all of them in their order."""

    schema: str
    table: str
    columns: tuple[str, ...] | None

    def place(self, tables: Sequence[Mapping[str, Any]]) -> tuple[int, list[int]] | None:
        """Which of the tables that a query process knows it reads, and the places of the columns; None if names leave a doubt."""
        found = [
            number
            for number, table in enumerate(tables)
            if folded(table["name"]) == self.table and self.schema in {"", folded(table["schema"])}
        ]
        if len(found) != 1:
            return None
        names = [folded(name) for name, _ in tables[found[0]]["columns"]]
        if self.columns is None:
            return found[0], list(range(len(names)))
        if any(names.count(name) != 1 for name in self.columns):
            return None
        return found[0], [names.index(name) for name in self.columns]


def plain_read(tree: Any) -> PlainRead | None:
    """The statement as a plain read; None if it is none, or has a form that is not known. `tree`: DuckDB's JSON form of the statement."""
    node = dict(tree["statements"][0].get("node") or {})
    listed, table = node.pop("select_list", None), _without(node.pop("from_table", None), "qualified_name", "alias")
    if _without(node) != _STATEMENT or not listed:
        return None
    schema, name = folded(str(table.pop("schema_name", ""))), folded(str(table.pop("table_name", "")))
    if table != _TABLE:
        return None
    if [_without(item) for item in listed] == [_ALL]:
        return PlainRead(schema, name, None)
    columns, aliases = [], set()
    for item in listed:
        form = _without(item, "alias")
        names = form.pop("column_names", [])
        if form != _COLUMN or len(names) != 1:
            return None
        columns.append(folded(names[0]))
        aliases.add(folded(item["alias"]))
    if aliases & {*columns}:
        return None  # A name could be that of another column of the list.
    return PlainRead(schema, name, tuple(columns))


def _without(node: Any, *keys: str) -> dict[str, Any]:
    """The node without these parts, and without places in the text."""
    if not isinstance(node, dict):
        return {}
    return {key: part for key, part in node.items() if not key.startswith(_LOCATION) and key not in keys}
