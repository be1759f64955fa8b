"""Which changes of a table's structure the target follows."""

from __future__ import annotations

from dataclasses import replace

from engine.model.identity import RelationId, TableName
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.runtime.structure import Followed, Same, Unsupported, judge, newer

INT = SourceType("int4")
BASE = TableSchema(
    name=TableName("public", "t"),
    relation=RelationId(16400),
    columns=(Column("id", INT, 1), Column("a", INT, 2), Column("b", INT, 3)),
    key=("id",),
    mode=KeyMode.KEYED,
    identity=ReplicaIdentity.DEFAULT,
)


def with_columns(*columns: Column) -> TableSchema:
    return replace(BASE, columns=columns)


def test_nothing_changed() -> None:
    assert judge(BASE, BASE) == Same()


def test_columns_added_and_dropped_are_followed() -> None:
    after = with_columns(BASE.columns[0], BASE.columns[2], Column("c", INT, 4))
    assert judge(BASE, after) == Followed(("c",), ("a",))


def test_dropped_and_added_again_under_the_same_name() -> None:
    after = with_columns(*BASE.columns[:2], Column("b", INT, 4))
    assert judge(BASE, after) == Followed(("b",), ("b",))


def test_rename_is_not_followed() -> None:
    after = with_columns(*BASE.columns[:2], Column("beta", INT, 3))
    verdict = judge(BASE, after)
    assert isinstance(verdict, Unsupported)
    assert "renamed to beta" in verdict.reason


def test_type_change_is_not_followed() -> None:
    after = with_columns(*BASE.columns[:2], Column("b", SourceType("int8"), 3))
    assert isinstance(judge(BASE, after), Unsupported)


def test_key_change_and_new_relation_are_not_followed() -> None:
    assert isinstance(judge(BASE, replace(BASE, key=("id", "a"))), Unsupported)
    assert isinstance(judge(BASE, replace(BASE, relation=RelationId(1))), Unsupported)


def test_newer_by_attribute_numbers() -> None:
    added = with_columns(*BASE.columns, Column("c", INT, 4))
    dropped = with_columns(*BASE.columns[:2])
    middle_dropped = with_columns(BASE.columns[0], BASE.columns[2])
    assert newer(added, BASE)
    assert not newer(BASE, added)
    assert newer(middle_dropped, BASE)
    assert not newer(BASE, BASE)
    assert not newer(BASE, middle_dropped)
    assert not newer(dropped, added)
