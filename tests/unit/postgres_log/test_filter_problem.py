"""When a table must not be published with its row filter."""

from __future__ import annotations

from typing import Any

import pytest

from engine.model.identity import TableId, TableName
from engine.model.schema import Column, ReplicaIdentity, SourceType
from engine.model.subscription import TableSpec
from engine.records.catalog_table import CatalogColumn, CatalogTable, UniqueIndex, filter_problem

NAME = TableName("public", "orders")


def orders(**changes: Any) -> CatalogTable:
    found = CatalogTable(1, NAME, "r", "p", ReplicaIdentity.DEFAULT, 1, 0.0)
    for number, (name, kind) in enumerate(
        {"id": "int4", "tenant": "int4", "note": changes.pop("note", "date")}.items(), 1
    ):
        column = Column(name, SourceType(kind), number)
        found.columns.append(CatalogColumn(column, 23, -1, has_default=False, has_missing=False))
    found.indexes.append(UniqueIndex(True, False, True, ("id", "tenant"), True))
    for name, value in changes.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({}, "id > 5 and tenant = 2", None),
        ({"has_filters": False}, "id > 5", "needs PostgreSQL 15"),
        ({"kind": "p"}, "id > 5", "partitioned"),
        ({}, "note is null", "outside the replica identity, for which the source would refuse updates: note"),
        ({"identity": ReplicaIdentity.FULL}, "note is null", None),
        ({"note": "text"}, "id > 5", "unchanged large values of rows that begin to satisfy where"),
        ({"note": "text", "identity": ReplicaIdentity.FULL}, "id > 5", None),
        ({}, "ids > 5", "does not have these columns of the row filter: ids"),
        ({}, "true) or (id = id", "closed that was not opened"),
    ],
)
def test_what_a_row_filter_needs(changes: dict[str, Any], where: str, words: str | None) -> None:
    problem = filter_problem(orders(**changes), TableSpec(TableId("t1"), NAME, NAME, where=where))
    assert problem is None if words is None else words in (problem or "")


def test_a_table_that_is_only_inserted_into_needs_no_identity() -> None:
    spec = TableSpec(TableId("t1"), NAME, NAME, where="note is null", insert_only=True)
    assert filter_problem(orders(note="text"), spec) is None
