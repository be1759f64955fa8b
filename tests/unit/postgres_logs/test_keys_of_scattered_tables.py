"""Keys of tables that several nodes have: as the catalogs and the user have them, and read again at a cut."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from engine.model.identity import RelationId, TableName
from engine.model.schema import ReplicaIdentity
from engine.records.relation import Announced, AnnouncedColumn, relation_record
from engine.sources.postgres_logs.relations import Relations
from tests.pg.postgres_logs.nodes import SameNumbers

ORDERS, LINES = TableName("public", "orders"), TableName("public", "lines")


class Keys(SameNumbers):
    def __init__(self) -> None:
        super().__init__({"orders", "lines"})
        self.keys: dict[TableName, Collection[str]] = {ORDERS: ("id",), LINES: ()}

    def keys_of(self, tables: Collection[TableName]) -> Mapping[TableName, Collection[str]]:
        return {name: self.keys[name] for name in tables}


def record(oid: int, name: TableName) -> bytes:
    """Of a table whose replica identity is the whole row."""
    columns = tuple(AnnouncedColumn(column, True, 25, -1) for column in ("id", "note"))
    return relation_record(Announced(RelationId(oid), name, ReplicaIdentity.FULL, columns))


def test_a_view_has_the_keys_of_its_tables_also_those_that_change_later() -> None:
    numbers = Keys()
    relations = Relations(numbers, 2)
    view = relations.announced(0, record(7, ORDERS), relations.nothing_of(0))
    assert view.keys.tolist() == [[True, False]]
    both = relations.announced(0, record(8, LINES), view)
    assert both.keys.tolist() == [[True, False], [False, False]]
    numbers.keys[ORDERS] = ("id", "note")
    assert view.keys.tolist() == [[True, False]]
    relations.forget()
    assert view.keys.tolist() == [[True, True]]
    assert both.keys.tolist() == [[True, True], [False, False]]
