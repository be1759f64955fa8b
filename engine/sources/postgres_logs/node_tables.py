"""Tables of several nodes as one: which nodes have them, and the one structure that they have there.

A table is identified by its name. Its number in the merged log is a hash of the name, so that all processes know it without asking each
other; what a table of another OID under its name means is decided by the checks of `safety`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.model.fault import EngineFault
from engine.model.identity import RelationId, TableName
from engine.model.schema import Column, SourceType
from engine.model.subscription import TableSpec
from engine.records.catalog_table import CatalogColumn, CatalogTable, UniqueIndex
from engine.sources.postgres.catalog import load_tables, one_look
from engine.sources.postgres_logs.last_answers import AbsentNodes
from engine.sources.postgres_logs.nodes import Node, Nodes, small_hash


def number_of(name: TableName) -> RelationId:
    """The number of a table in the merged log."""
    return RelationId(small_hash(name.schema, name.name))


@dataclass(frozen=True, slots=True)
class NodeTable:
    """A table. `parts`: by node, as its catalog describes it; at least one. `problem`: why they are not one table, as text.

    `whole`: as a table with the numbers of the merged log, and the numbers of columns and types on the first node that has it.
    """

    parts: Mapping[int, CatalogTable]
    problem: str | None
    whole: CatalogTable

    @property
    def reference(self) -> int:
        """The node whose numbers of columns and types are those of the table."""
        return min(self.parts)

    @property
    def mark(self) -> str:
        """Text that is another one if the table was created again on a node, or is on other nodes."""
        return json.dumps({str(node): part.oid for node, part in sorted(self.parts.items())})

    def numbers_on(self, node: int) -> Mapping[str, int]:
        """The numbers of its columns on a node, by name."""
        return {each.column.name: int(each.column.attnum) for each in self.parts[node].columns}


class NodeTables:
    """Reads the catalogs of all nodes. Any thread may use it."""

    def __init__(self, nodes: Nodes, absent: AbsentNodes) -> None:
        self._nodes = nodes
        self._absent = absent
        self._lock = threading.Lock()
        self._last: dict[int, dict[TableName, CatalogTable | None]] = {}
        """By node, what its catalog had of each table; None: it had none of this name."""
        self._named: dict[RelationId, TableName] = {}

    def read(self, names: Collection[TableName]) -> dict[TableName, NodeTable]:
        """These tables; those that are on no node are left out."""
        if not names:
            return {}
        self._named.update({number_of(name): name for name in names})
        found = self._nodes.each(lambda node: self._on_node(node, names))
        merged: dict[TableName, NodeTable] = {}
        for name in names:
            parts = {node: each[name] for node, each in enumerate(found) if name in each}
            if parts:
                merged[name] = self._merged(name, parts)
        return merged

    def _on_node(self, node: Node, names: Collection[TableName]) -> Mapping[TableName, CatalogTable]:
        """Of an absent node as its catalog was, if these tables were looked for there before."""
        with self._lock:
            last = self._last.setdefault(node.number, {})
            known = {name: last[name] for name in names if name in last}
        is_known = len(known) == len(set(names))
        if not (is_known and self._absent.is_left_out(node)):
            try:
                found = _tables_on(node, names)
            except EngineFault as fault:
                if not (is_known and self._absent.take(node, fault)):
                    raise
            else:
                self._absent.answered(node)
                with self._lock:
                    last.update({name: found.get(name) for name in names})
                return found
        return {name: table for name, table in known.items() if table is not None}

    def named(self, numbers: Collection[RelationId]) -> dict[RelationId, TableName]:
        """The names of these tables, of those that were read before."""
        return {number: self._named[number] for number in numbers if number in self._named}

    def plain(self, tables: Sequence[TableSpec]) -> list[TableSpec]:
        """Those that are divided into partitions on no node: a publication would send a partition's changes as those of its root."""
        found = self.read([table.source for table in tables])
        divided = {name for name, each in found.items() if any(part.partitioned for part in each.parts.values())}
        return [table for table in tables if table.source not in divided]

    def _merged(self, name: TableName, parts: Mapping[int, CatalogTable]) -> NodeTable:
        first = min(parts)
        reference = parts[first]
        partitioned = [node for node, part in parts.items() if part.partitioned]
        problem = None
        if partitioned:
            problem = f"it is divided into partitions on node {self._nodes.names[partitioned[0]]}"
        for node, part in parts.items():
            differs = _difference(reference, part)
            if differs is not None and problem is None:
                problem = f"nodes {self._nodes.names[first]} and {self._nodes.names[node]} {differs}"
        whole = replace(reference, oid=number_of(name), computed=[])
        if problem is None:
            whole = _whole(name, list(parts.values()))
        return NodeTable(parts, problem, whole)


def same_number(names: Iterable[TableName]) -> dict[TableName, TableName]:
    """Tables whose number is that of another one in `names`, with that one."""
    first: dict[int, TableName] = {}
    found = {}
    for name in sorted(set(names)):
        other = first.setdefault(number_of(name), name)
        if other != name:
            found[name] = other
    return found


def _tables_on(node: Node, names: Collection[TableName]) -> dict[TableName, CatalogTable]:
    with node.connector.session() as connection, one_look(connection):
        found = load_tables(connection, names)
    return {name: table for name, table in found.items() if table.kind in {"r", "p"}}


def _difference(one: CatalogTable, other: CatalogTable) -> str | None:
    """How two nodes differ in a table, as the rest of a sentence; None if they do not."""
    if one is other:
        return None
    for what, read in (
        ("kind of table", lambda table: table.kind),
        ("persistence", lambda table: table.persistence),
        ("columns", lambda table: table.column_names),
        ("generated columns", lambda table: tuple(table.generated)),
        ("types of columns", lambda table: tuple(_plain(each.column.type) for each in table.columns)),
        ("labels of enum types", lambda table: tuple(_labels(each.column) for each in table.columns)),
        ("replica identity", lambda table: (table.identity, table.identity_columns)),
        ("key", lambda table: table.fallback_key),
    ):
        first, second = read(one), read(other)
        if first != second:
            return f"have it with another {what}: {_shown(first)} and {_shown(second)}"
    return None


def _shown(found: object) -> str:
    if isinstance(found, tuple):
        return "(" + ", ".join(each.name if isinstance(each, SourceType) else str(each) for each in found) + ")"
    return str(found)


def _plain(kind: SourceType) -> SourceType:
    """The type without its number, which each node gives to types of its own."""
    return replace(kind, oid=0, element=None if kind.element is None else _plain(kind.element))


def _labels(column: Column) -> tuple[str, ...]:
    """Labels of an enum type. Those of other types have numbers of the node in them."""
    return column.labels if not any(": " in label or "= " in label for label in column.labels) else ()


def _whole(name: TableName, parts: Sequence[CatalogTable]) -> CatalogTable:
    first = parts[0]
    return replace(
        first,
        oid=number_of(name),
        relfilenode=first.relfilenode if len(parts) == 1 else small_hash(*(part.relfilenode for part in parts)),
        rows=sum(part.rows for part in parts),
        indexes=[_index(index, parts) for index in first.indexes],
        nodes=len(parts),
        computed=[],
        columns=[_column([part.columns[place] for part in parts]) for place in range(len(first.columns))],
    )


def _index(index: UniqueIndex, parts: Sequence[CatalogTable]) -> UniqueIndex:
    """The index, which is immediate if that is so on every node."""
    there = [any(each.immediate and each.columns == index.columns for each in part.indexes) for part in parts]
    return replace(index, immediate=all(there))


def _column(parts: Sequence[CatalogColumn]) -> CatalogColumn:
    first = parts[0]
    if len(parts) == 1:
        return first
    fills = {(part.has_missing, part.column.fill) for part in parts}
    column = replace(
        first.column,
        nullable=any(part.column.nullable for part in parts),
        fill=first.column.fill if len(fills) == 1 else None,
        edition=small_hash(*(part.column.edition for part in parts)),
        label_editions=tuple(
            small_hash(*editions) for editions in zip(*(part.column.label_editions for part in parts), strict=False)
        ),
    )
    return replace(
        first,
        column=column,
        has_default=any(part.has_default for part in parts),
        has_missing=first.has_missing and len(fills) == 1,
    )
