"""Which column types of an existing table on the target hold every value of a source's column unchanged."""

from __future__ import annotations

import pytest

from engine.model.schema import Column, SourceType
from engine.targets.postgres.owner_tables.compatibility import fits


def numeric(precision: int, scale: int) -> SourceType:
    return SourceType("numeric", (precision << 16 | scale) + 4)


def array(element: SourceType) -> SourceType:
    return SourceType(f"_{element.name}", element.modifier, element=element)


INT2, INT4, INT8, TEXT, NAME = (SourceType(name) for name in ("int2", "int4", "int8", "text", "name"))
VARCHAR, VARCHAR5, VARCHAR9 = SourceType("varchar"), SourceType("varchar", 9), SourceType("varchar", 13)
CHAR5, CHAR9, CHAR = SourceType("bpchar", 9), SourceType("bpchar", 13), SourceType("bpchar")
NUMERIC, STAMP, STAMP3, STAMPTZ = (
    SourceType("numeric"),
    SourceType("timestamp"),
    SourceType("timestamp", 3),
    SourceType("timestamptz"),
)
MOOD, CITEXT, XML = SourceType("shop.mood", category="e"), SourceType("public.citext"), SourceType("xml")


@pytest.mark.parametrize(
    ("source", "standing"),
    [
        (INT4, INT4),
        (INT2, INT8),
        (INT4, NUMERIC),
        (INT4, numeric(10, 0)),
        (NUMERIC, NUMERIC),
        (numeric(10, 2), numeric(12, 2)),
        (numeric(10, 2), NUMERIC),
        (VARCHAR5, VARCHAR9),
        (VARCHAR5, TEXT),
        (TEXT, VARCHAR),
        (NAME, TEXT),
        (CHAR5, CHAR5),
        (CHAR5, CHAR),
        (STAMP3, STAMP),
        (SourceType("timestamp", 6), STAMP),
        (MOOD, SourceType("public.mood", category="e")),
        (MOOD, TEXT),
        (TEXT, MOOD),
        (TEXT, CITEXT),
        (XML, XML),
        (array(INT4), array(INT8)),
        (array(MOOD), array(MOOD)),
        (array(MOOD), array(TEXT)),
        (array(MOOD), TEXT),
    ],
)
def test_types_that_hold_every_value(source: SourceType, standing: SourceType) -> None:
    assert fits(Column("c", source, 1), standing)


@pytest.mark.parametrize(
    ("source", "standing"),
    [
        (INT8, INT4),
        (INT4, numeric(9, 0)),
        (INT4, numeric(20, 2)),
        (NUMERIC, numeric(30, 2)),
        (numeric(10, 2), numeric(10, 3)),
        (numeric(10, 2), numeric(9, 2)),
        (numeric(10, 0), INT8),
        (INT4, TEXT),
        (VARCHAR9, VARCHAR5),
        (TEXT, VARCHAR9),
        (TEXT, NAME),
        (TEXT, INT4),
        (CHAR5, CHAR9),
        (CHAR5, TEXT),
        (STAMP, STAMP3),
        (STAMP, STAMPTZ),
        (STAMPTZ, SourceType("date")),
        (SourceType("float8"), SourceType("float4")),
        (SourceType("float4"), SourceType("float8")),
        (MOOD, INT4),
        (INT4, MOOD),
        (XML, SourceType("json")),
        (array(INT4), array(INT2)),
        (array(INT4), INT4),
        (INT4, array(INT4)),
        (array(TEXT), TEXT),
    ],
)
def test_types_that_would_change_values_or_refuse_some(source: SourceType, standing: SourceType) -> None:
    assert not fits(Column("c", source, 1), standing)


def test_a_column_mapped_as_text_wants_one() -> None:
    mapped = Column("c", INT4, 1, map_as="text")
    assert fits(mapped, TEXT)
    assert not fits(mapped, INT4)
