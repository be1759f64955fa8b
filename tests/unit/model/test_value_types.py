"""The type mapping follows the column's type only."""

from __future__ import annotations

import pytest

from engine.model.schema import Column, SourceType
from engine.model.values import TEXT, Kind, ValueType, value_type


def numeric(precision: int, scale: int) -> SourceType:
    return SourceType("numeric", modifier=(precision << 16 | scale & 0x7FF) + 4)


def held(source: SourceType, map_as: str | None = None) -> ValueType:
    return value_type(Column("v", source, 1, map_as=map_as))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (SourceType("int8"), ValueType(Kind.INT64)),
        (numeric(38, 10), ValueType(Kind.DECIMAL, 38, 10)),
        (numeric(39, 0), TEXT),
        (numeric(5, -2), TEXT),
        (numeric(3, 5), TEXT),
        (SourceType("numeric"), TEXT),
        (SourceType("interval"), TEXT),
        (SourceType("mood", category="e"), TEXT),
        (SourceType("int4range", category="r"), TEXT),
        (SourceType("_int4", element=SourceType("int4")), ValueType(Kind.LIST, element=ValueType(Kind.INT32))),
        (SourceType("nobody_knows"), TEXT),
    ],
)
def test_mapping(source: SourceType, expected: ValueType) -> None:
    assert held(source) == expected


def test_the_user_may_ask_for_text() -> None:
    assert held(SourceType("int4"), map_as="text") == TEXT
