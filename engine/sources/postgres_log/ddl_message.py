"""Parses DDL messages, which the function of `ddl_capture` writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.model.ddl import DdlMessage
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.schema import ReplicaIdentity, TableSchema
from engine.model.subscription import TableSpec
from engine.records.catalog_table import (
    FILTER_VERSION,
    CatalogTable,
    UniqueIndex,
    key_of,
    not_logged,
    schema_of,
    selected,
    selection_problem,
)
from engine.records.relation import Announced, identity_of
from engine.sources.postgres.catalog import fill_tables, publishes_stored, table_of, with_leaves_fill
from engine.sources.postgres.types import TypeRow
from engine.sources.postgres_log.ddl_capture import PREFIX, VERSION
from engine.sources.postgres_log.own_messages import HEAD

_BEHIND = HEAD + len(PREFIX) + 1 + 4
"""Offset of the content: it follows the prefix with its NUL byte and the 4-byte length of the content."""
_VALUES_CHANGED = 0x02 | 0x04
"""AT_REWRITE_DEFAULT_VAL and AT_REWRITE_COLUMN_REWRITE: rewrites that change values, by a volatile default or another column type."""


@dataclass(frozen=True, slots=True)
class CatalogDdlTable:
    """`DdlTable`: a table as the catalog showed it at the end of a DDL command."""

    table: CatalogTable
    mark: str

    @property
    def relation(self) -> RelationId:
        return RelationId(self.table.oid)

    def schema(self, spec: TableSpec) -> TableSchema:
        schema = schema_of(self.table, spec)
        if schema is None:
            unlogged, unfit = not_logged(self.table), selection_problem(self.table, spec)
            kind = FaultKind.TABLE_COLUMNS_UNFIT if unfit else FaultKind.TABLE_NO_IDENTITY
            kind = FaultKind.TABLE_NOT_LOGGED if unlogged else kind
            raise EngineFault(kind, str(self.table.name), unlogged or unfit or key_of(self.table, spec).problem or "")
        return schema

    def is_announced(self, announced: Announced, spec: TableSpec) -> bool:
        """Whether the table's relation record, as the queue holds it, announces exactly this schema."""
        table = selected(self.table, spec)
        columns = [(c.name, c.type_oid, c.modifier) for c in announced.columns]
        here = [(c.column.name, c.type_oid, c.modifier) for c in table.columns]
        identity = {c.name for c in announced.columns if c.identity}
        return (
            announced.relation == self.relation
            and columns == here
            and announced.identity is self.table.identity
            and identity == set(table.identity_columns) & set(table.column_names)
        )


def read_ddl_message(payload: bytes) -> DdlMessage:
    """Parse a DDL message. `payload`: the record without the transaction id that it carries inside a streamed transaction.

    Raises EngineFault(LOG_UNREADABLE) if this release cannot parse it.
    """
    try:
        return _read(json.loads(payload[_BEHIND:].decode("utf-8")))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        detail = "it is not what the DDL capture of this release writes"
        raise EngineFault(FaultKind.LOG_UNREADABLE, f"{PREFIX} message", detail) from error


def _read(said: Mapping[str, Any]) -> DdlMessage:
    if said["v"] != VERSION:
        raise ValueError("another version")
    tag, mark = str(said["tag"]), str(said["by"])
    if "unknown" in said:
        return DdlMessage(tag, unknown=None if said["unknown"] is None else _relations(said["unknown"]))
    if "rewritten" in said:
        values = bool(int(said["reason"]) & _VALUES_CHANGED)
        return DdlMessage(tag, rewritten=_relations(said["rewritten"]), values=values)
    if "labels" in said:
        types = frozenset(int(each) for each in said["types"])
        return DdlMessage(tag, _writers(said), types=types, labels=tuple(str(each) for each in said["labels"]))
    if "partition" in said:
        return DdlMessage(tag, partition=RelationId(int(said["partition"])), below=_relations(said["below"]))
    return DdlMessage(tag, _writers(said), table=CatalogDdlTable(_table(said), mark))


def _writers(said: Mapping[str, Any]) -> frozenset[int]:
    return frozenset(int(xid) for xid in said["writers"])


def _relations(numbers: Iterable[Any]) -> frozenset[RelationId]:
    return frozenset(RelationId(int(number)) for number in numbers)


def _table(said: Mapping[str, Any]) -> CatalogTable:
    types = {int(oid): TypeRow(n, s, c, int(b), m, int(e), a, d) for oid, n, s, c, b, m, e, a, d in said["types"] or ()}
    table = table_of(said["table"])
    table.stored_sent = publishes_stored(said["server"])
    table.has_filters = int(said["server"]) >= FILTER_VERSION
    columns = [(int(oid), attnum, name, int(kind), *rest) for oid, attnum, name, kind, *rest in said["columns"] or ()]
    fill_tables([table], columns, [(int(oid), *rest) for oid, *rest in said["indexes"] or ()], types)
    if table.partitioned:
        leaves = said["leaves"]
        table.leaves = [_leaf(table, *each) for each in leaves["identities"] or ()]
        fills: dict[str, set[str | None]] = {}
        for name, value in leaves["fills"] or ():
            fills.setdefault(name, set()).add(value)
        table.columns = [with_leaves_fill(c, fills) for c in table.columns]
    return table


def _leaf(root: CatalogTable, name: str, identity: str, columns: Sequence[str] | None) -> CatalogTable:
    """A leaf that represents all leaves with this replica identity; it holds what the choice of the root's key reads."""
    kind = identity_of(identity)
    leaf = CatalogTable(0, TableName(root.name.schema, name), "r", "p", kind, 0, 0.0, generated=root.generated)
    leaf.stored_sent = root.stored_sent
    if columns is not None:
        unique = UniqueIndex(
            primary=kind is ReplicaIdentity.DEFAULT,
            replica_identity=kind is ReplicaIdentity.INDEX,
            immediate=True,
            columns=tuple(columns),
            not_null=True,
        )
        leaf.indexes.append(unique)
    return leaf
