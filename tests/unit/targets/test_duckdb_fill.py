"""Constants for added columns: DuckDB reads back what PostgreSQL printed, or the text is refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.values import Kind, ValueType
from engine.targets.duckdb.fill import OutsideDomain, fill_expression
from engine.targets.duckdb.types import duckdb_type

CONNECTION = duckdb.connect()
CONNECTION.execute("SET TimeZone = 'UTC'")


def shown(text: str, value: ValueType) -> Any:
    """What an added column holds, as DuckDB prints it."""
    cursor = CONNECTION.cursor()
    cursor.execute("CREATE TEMP TABLE t AS SELECT 1 AS a")
    cursor.execute(f"ALTER TABLE t ADD COLUMN v {duckdb_type(value)} DEFAULT {fill_expression(text, value)}")
    return cursor.execute("SELECT CAST(v AS VARCHAR) FROM t").fetchall()[0][0]


LIST_OF_TEXT = ValueType(Kind.LIST, element=ValueType(Kind.TEXT))

CASES = [
    ("t", ValueType(Kind.BOOL), "true"),
    ("f", ValueType(Kind.BOOL), "false"),
    ("-32768", ValueType(Kind.INT16), "-32768"),
    ("4294967295", ValueType(Kind.UINT32), "4294967295"),
    ("-9223372036854775808", ValueType(Kind.INT64), "-9223372036854775808"),
    ("NaN", ValueType(Kind.FLOAT64), "nan"),
    ("-Infinity", ValueType(Kind.FLOAT32), "-inf"),
    ("-0", ValueType(Kind.FLOAT64), "-0.0"),
    ("5e-324", ValueType(Kind.FLOAT64), "5e-324"),
    ("-0.50", ValueType(Kind.DECIMAL, 4, 2), "-0.50"),
    ("9" * 38, ValueType(Kind.DECIMAL, 38, 0), "9" * 38),
    ("it's \\ \"", ValueType(Kind.TEXT), "it's \\ \""),
    ("\\x00ff5c", ValueType(Kind.BYTES), "\\x00\\xFF\\x5C"),
    ("\\x", ValueType(Kind.BYTES), ""),
    ("infinity", ValueType(Kind.DATE), "infinity"),
    ("-infinity", ValueType(Kind.TIMESTAMPTZ), "-infinity"),
    ("0044-03-15 BC", ValueType(Kind.DATE), "0044-03-15 (BC)"),
    ("5874897-12-31", ValueType(Kind.DATE), "5874897-12-31"),
    ("4713-01-01 BC", ValueType(Kind.DATE), "4713-01-01 (BC)"),
    ("0001-02-28 23:59:59.999999 BC", ValueType(Kind.TIMESTAMP), "0001-02-28 (BC) 23:59:59.999999"),
    ("294246-12-31 23:59:59.5", ValueType(Kind.TIMESTAMP), "294246-12-31 23:59:59.5"),
    ("2024-02-29 12:00:00+00", ValueType(Kind.TIMESTAMPTZ), "2024-02-29 12:00:00+00"),
    ("24:00:00", ValueType(Kind.TIME), "24:00:00"),
    ("00:00:00.000001", ValueType(Kind.TIME), "00:00:00.000001"),
    ("6f9619ff-8b86-d011-b42d-00cf4fc964ff", ValueType(Kind.UUID), "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
    ("{}", ValueType(Kind.LIST, element=ValueType(Kind.INT32)), "[]"),
    ("{1,NULL,-3}", ValueType(Kind.LIST, element=ValueType(Kind.INT32)), "[1, NULL, -3]"),
    ('{a,"NULL",NULL,"x\\"y\\\\z"}', LIST_OF_TEXT, "[a, 'NULL', NULL, 'x\"y\\\\z']"),
    ('{"2024-01-02 03:04:05"}', ValueType(Kind.LIST, element=ValueType(Kind.TIMESTAMP)), "['2024-01-02 03:04:05']"),
]


@pytest.mark.parametrize(("text", "value", "expected"), CASES, ids=[f"{v.kind}-{t[:20]}" for t, v, _ in CASES])
def test_a_constant_reads_back_as_it_was_printed(text: str, value: ValueType, expected: str) -> None:
    assert shown(text, value) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("maybe", ValueType(Kind.BOOL)),
        ("NaN", ValueType(Kind.DECIMAL, 10, 2)),
        ("Infinity", ValueType(Kind.DECIMAL, 10, 2)),
        ("123", ValueType(Kind.DECIMAL, 4, 2)),
        ("1.234", ValueType(Kind.DECIMAL, 4, 2)),
        ("\\x0", ValueType(Kind.BYTES)),
        ("0011", ValueType(Kind.BYTES)),
        ("01/02/2024", ValueType(Kind.DATE)),
        ("9999999-01-01", ValueType(Kind.DATE)),
        ("294248-01-01 00:00:00", ValueType(Kind.TIMESTAMP)),
        ("2024-01-01 00:00:00+02", ValueType(Kind.TIMESTAMPTZ)),
        ("noon", ValueType(Kind.TIME)),
        ("{{1,2},{3,4}}", ValueType(Kind.LIST, element=ValueType(Kind.INT32))),
        ("[0:1]={1,2}", ValueType(Kind.LIST, element=ValueType(Kind.INT32))),
        ('{"a"b}', LIST_OF_TEXT),
    ],
)
def test_what_the_type_cannot_hold_is_refused_without_showing_it(text: str, value: ValueType) -> None:
    with pytest.raises(OutsideDomain) as caught:
        fill_expression(text, value)
    assert text not in str(caught.value)


@settings(deadline=None)
@given(st.dates())
def test_any_date_is_the_same_day(day: dt.date) -> None:
    expression = fill_expression(day.isoformat(), ValueType(Kind.DATE))
    assert CONNECTION.cursor().execute(f"SELECT {expression}").fetchall() == [(day,)]


@settings(deadline=None)
@given(st.datetimes())
def test_any_timestamp_is_the_same_moment(moment: dt.datetime) -> None:
    expression = fill_expression(moment.isoformat(" "), ValueType(Kind.TIMESTAMP))
    assert CONNECTION.cursor().execute(f"SELECT {expression}").fetchall() == [(moment,)]


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",))))
def test_any_text_is_itself(text: str) -> None:
    expression = fill_expression(text, ValueType(Kind.TEXT))
    assert CONNECTION.cursor().execute(f"SELECT {expression}").fetchall() == [(text,)]


def as_postgres_prints(elements: list[str | None]) -> str:
    parts = ["NULL" if e is None else '"' + e.replace("\\", "\\\\").replace('"', '\\"') + '"' for e in elements]
    return "{" + ",".join(parts) + "}"


@settings(deadline=None)
@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)))))
def test_any_list_of_texts_is_itself(elements: list[str | None]) -> None:
    expression = fill_expression(as_postgres_prints(elements), LIST_OF_TEXT)
    assert CONNECTION.cursor().execute(f"SELECT {expression}").fetchall() == [(elements,)]
