"""Numbers of tables and types in the merged log, by those that the nodes use; and the keys of tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from engine.model.identity import RelationId, TableId, TableName
from engine.model.subscription import TableSpec
from engine.records.catalog_table import key_of
from engine.sources.postgres_logs.node_tables import NodeTables, number_of
from engine.sources.postgres_logs.nodes import Nodes
from engine.sources.postgres_logs.reader_folder import ReaderFolder, SentTable

_FIRST_OF_USERS = 16384
"""FirstNormalObjectId. Types with lower numbers have the same ones everywhere."""
_NAME = "SELECT n.nspname, t.typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = %s"
_NUMBER = (
    "SELECT t.oid FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname = %s AND t.typname = %s"
)


def is_of_user(oid: int) -> bool:
    """Whether a type may have another number on each server."""
    return oid >= _FIRST_OF_USERS


class NodeTypes:
    """`Numbers` by the catalogs as they are now. Used by one thread."""

    def __init__(self, nodes: Nodes, tables: NodeTables, folder: ReaderFolder) -> None:
        self._nodes = nodes
        self._tables = tables
        self._folder = folder

    def relation(self, name: TableName) -> RelationId:
        return number_of(name)

    def nodes_of(self, table: TableName) -> int:
        found = self._tables.read([table]).get(table)
        return 0 if found is None else len(found.parts)

    def keys_of(self, tables: Collection[TableName]) -> Mapping[TableName, Collection[str]]:
        sent, found = self._folder.sent, self._tables.read(tables)
        return {name: key_of(each.whole, _declared(name, sent.get(name))).key for name, each in found.items()}

    def type(self, node: int, oid: int, table: TableName) -> int:
        """The number of the type of the same name on the first node that has the table; the given one if it is not found: the record then
        does not announce the structure that the catalog has."""
        if not is_of_user(oid):
            return oid
        found = self._tables.read([table])
        if table not in found or found[table].reference == node:
            return oid
        with self._nodes.all[node].connector.session() as connection:
            name = connection.execute(_NAME, [oid]).fetchone()
        if name is None:
            return oid
        with self._nodes.all[found[table].reference].connector.session() as connection:
            row = connection.execute(_NUMBER, list(name)).fetchone()
        return oid if row is None else int(row[0])


def _declared(name: TableName, sent: SentTable | None) -> TableSpec:
    """What decides about the table's key; the rest is left out."""
    if sent is None:
        return TableSpec(TableId(""), name, name)
    return TableSpec(TableId(""), name, name, key=sent.key, insert_only=sent.insert_only)
