"""Recorded rows whose values may be those of another column than the one that has their name now are not read."""

from __future__ import annotations

from dataclasses import replace

from engine.model.identity import TableName
from engine.model.schema import Column, ReplicaIdentity, SourceType
from engine.sources.postgres.catalog import CatalogColumn, CatalogTable
from engine.sources.postgres_triggers.structures import Structure, unreadable


def structure(*names: str, numbers: tuple[int, ...] = (1, 2, 3)) -> Structure:
    columns = [
        CatalogColumn(Column(name, SourceType("text"), number), 25, -1, has_default=False, has_missing=False)
        for name, number in zip(names, numbers, strict=True)
    ]
    table = CatalogTable(7, TableName("public", "t"), "r", "p", ReplicaIdentity.DEFAULT, 1, 0.0, columns)
    return Structure(table, "", names, "1:1:", None)


def test_names_in_another_order_were_exchanged() -> None:
    now = structure("id", "b", "a")
    assert unreadable(["id", "a", "b"], now, ordered=True) == "id"
    assert unreadable(["id", "a", "b"], now, ordered=False) is None
    assert unreadable(["id", "b"], now, ordered=True) is None


def test_a_name_that_another_column_has_now() -> None:
    now = structure("id", "a", "b", numbers=(1, 2, 4))
    assert unreadable(now.names, now, ordered=True) is None
    before = structure("id", "a", "b")
    assert unreadable(now.names, replace(now, earlier=(before,)), ordered=True) == "b"
    assert unreadable(now.names, replace(now, earlier=(structure("id", "a", "c"),)), ordered=True) is None
    assert unreadable(now.names, replace(now, doubtful=frozenset({"b"})), ordered=True) == "b"
    assert unreadable(["id", "a"], replace(now, doubtful=frozenset({"b"})), ordered=True) is None
