"""Whether rows of a table can name global transactions."""

from __future__ import annotations

from collections.abc import Mapping

from engine.model.identity import TableName
from engine.sources.postgres_logs.node_tables import NodeTable

TEXTS = frozenset({"text", "varchar", "uuid"})
"""Types of the column, by PostgreSQL's names: those whose text is the id. The text of `bpchar` has blanks that the gid has not."""
OWN_TABLE_REMEDY = (
    "Let capture.own_table name a replicated table that has the ids in capture.own_column, as text, varchar or uuid."
)
"""Of findings."""


def unfit(table: TableName, column: str, found: Mapping[TableName, NodeTable], names: tuple[str, ...]) -> str | None:
    """Why rows of this table cannot name global transactions, as the end of a sentence that begins with the table; None if they can.

    `found`: the table as the catalogs have it now. `names`: of the nodes.
    """
    there = found.get(table)
    if there is None:
        return "is on no node"
    for node, part in there.parts.items():
        types = {each.column.on_source: each.column.type.name for each in part.columns}
        if column not in types:
            return f"has no column {column} on node {names[node]}"
        if types[column] not in TEXTS:
            return f"has a column {column} of the type {types[column]} on node {names[node]}; it has to be text, varchar or uuid"
    return None if there.problem is None else f"cannot be replicated: {there.problem}"
