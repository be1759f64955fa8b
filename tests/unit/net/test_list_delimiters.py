"""What parts the elements of an array is the element type's own affair."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.model.schema import Column, SourceType
from engine.net import decode_copy_text
from engine.sources.postgres.types import TypeRow, source_type
from tests.unit.net.batch_builder import table

TYPES = {
    10: TypeRow("colon", "public", "b", 0, -1, 0, is_array=False, delimiter=":"),
    11: TypeRow("_colon", "public", "b", 0, -1, 10, is_array=True, delimiter=":"),
    12: TypeRow("renamed", "public", "d", 10, -1, 0, is_array=False, delimiter=":"),
    13: TypeRow("_renamed", "public", "b", 0, -1, 12, is_array=True, delimiter=":"),
    14: TypeRow("some_colons", "public", "d", 11, -1, 0, is_array=False, delimiter=":"),
    20: TypeRow("text", "pg_catalog", "b", 0, -1, 0, is_array=False),
    21: TypeRow("_text", "pg_catalog", "b", 0, -1, 20, is_array=True),
}


def decoded(kind: SourceType, text: str) -> object:
    schema = table([Column("a", kind, 1)])
    return decode_copy_text(text.encode() + b"\n", schema).column(0)[0].as_py()


@pytest.mark.parametrize(
    ("oid", "text", "elements"),
    [
        (11, '{1,2:3:"4:5"}', ["1,2", "3", "4:5"]),
        (13, "{a:b}", ["a", "b"]),
        (14, "{a:NULL}", ["a", None]),
        (21, "{1:2,3}", ["1:2", "3"]),
    ],
)
def test_elements_are_parted_as_the_catalog_says(oid: int, text: str, elements: list[str | None]) -> None:
    kind = source_type(TYPES, oid, -1)
    assert kind is not None
    assert kind.oid == oid
    assert decoded(kind, text) == elements


def test_boxes_are_parted_by_semicolons_even_where_that_was_not_noted() -> None:
    noted = SourceType("_box", element=SourceType("box", delimiter=";"))
    assert decoded(noted, "{(1,1),(0,0);(2,2),(1,1)}") == ["(1,1),(0,0)", "(2,2),(1,1)"]
    assert decoded(replace(noted, element=SourceType("box")), "{(1,1),(0,0)}") == ["(1,1),(0,0)"]


def test_types_are_the_same_whether_or_not_their_delimiter_was_noted() -> None:
    assert SourceType("box", delimiter=";") == SourceType("box")
