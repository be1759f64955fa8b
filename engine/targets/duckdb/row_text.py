"""SQL that prints rows of DuckDB as PostgreSQL prints them by `ROW(columns)::text`. Pure.

No two different values of a column print alike, and what is printed decodes to the value again. So equal texts on both sides mean equal
values; a value that prints differently, for example a date before Christ, only makes its range differ, and then the rows are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.values import Kind, ValueType
from engine.targets.duckdb.types import duckdb_type

_QUOTED_IN_ROW = r'[ \t\n\v\f\r(),"\\]'
_QUOTED_IN_ARRAY = r'[ \t\n\v\f\r{},"\\]'
"""Regular expressions: characters because of which PostgreSQL quotes a field of a row, an element of an array."""
_BARE = frozenset(
    {
        Kind.BOOL,
        Kind.INT16,
        Kind.INT32,
        Kind.INT64,
        Kind.UINT32,
        Kind.FLOAT32,
        Kind.FLOAT64,
        Kind.DECIMAL,
        Kind.UUID,
        Kind.TIME,
    }
)
"""Kinds whose texts need no quotes."""
_WITH_SPACE = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMPTZ})
_EXPONENT_FROM = {Kind.FLOAT32: "1e6", Kind.FLOAT64: "1e15"}
"""From these values on PostgreSQL prints exponents; DuckDB does so from 1e16 on."""


def row_text(values: Sequence[tuple[str, ValueType]]) -> str:
    """Expression for the text of a row, given an expression and a type for each column."""
    fields = ", ',', ".join(_field(expression, value) for expression, value in values)
    return f"concat('(', {fields}, ')')"


def _field(expression: str, value: ValueType) -> str:
    text = value_text(expression, value)
    if value.kind in _BARE:
        return f"COALESCE({text}, '')"
    if value.kind is Kind.BYTES:  # Begins with a backslash.
        return f"""COALESCE('"\\' || {text} || '"', '')"""
    if value.kind in _WITH_SPACE:
        return f"COALESCE(CASE WHEN isfinite({expression}) THEN '\"' || {text} || '\"' ELSE {text} END, '')"
    escaped = f"""'"' || replace(replace({text}, '\\', '\\\\'), '"', '""') || '"'"""
    return f"COALESCE(CASE WHEN {text} = '' OR regexp_matches({text}, '{_QUOTED_IN_ROW}') THEN {escaped} ELSE {text} END, '')"


def value_text(expression: str, value: ValueType) -> str:
    """Expression for the text of a value; NULL for NULL."""
    text = f"CAST({expression} AS VARCHAR)"
    match value.kind:
        case Kind.TEXT:
            return expression
        case Kind.BOOL:
            return f"CASE WHEN {expression} THEN 't' WHEN NOT {expression} THEN 'f' END"
        case Kind.BYTES:
            return f"('\\x' || lower(hex({expression})))"
        case Kind.TIMESTAMPTZ:
            at = f"CAST(make_timestamp(epoch_us({expression})) AS VARCHAR) || '+00'"
            return f"CASE WHEN isfinite({expression}) THEN {at} ELSE {text} END"
        case Kind.FLOAT32 | Kind.FLOAT64:
            return _float_text(expression, text, _EXPONENT_FROM[value.kind])
        case Kind.LIST:
            return _list_text(expression, value)
        case Kind.DECIMAL if value.precision == value.scale:  # DuckDB prints no digit before the point.
            return f"regexp_replace({text}, '^(-?)[.]', '\\10.')"
        case _:
            return text


def _float_text(expression: str, text: str, exponent_from: str) -> str:
    whole = f"split_part(ltrim({text}, '-'), '.', 1)"
    digits = f"rtrim(replace(ltrim({text}, '-'), '.', ''), '0')"
    fraction = f"CASE WHEN length({digits}) > 1 THEN '.' || substr({digits}, 2) ELSE '' END"
    exponent = f"'e+' || lpad(CAST(length({whole}) - 1 AS VARCHAR), 2, '0')"
    return (
        f"CASE WHEN NOT isfinite({expression}) THEN CASE {text} WHEN 'inf' THEN 'Infinity' WHEN '-inf' THEN '-Infinity' ELSE 'NaN' END"
        f" WHEN abs({expression}) >= {exponent_from} AND abs({expression}) < 1e16"
        f" THEN CASE WHEN {expression} < 0 THEN '-' ELSE '' END || substr({digits}, 1, 1) || {fraction} || {exponent}"
        f" ELSE CASE WHEN suffix({text}, '.0') THEN left({text}, -2) ELSE {text} END END"
    )


def _list_text(expression: str, value: ValueType) -> str:
    element = value.element
    if element is None:
        raise ValueError("a list without a type of elements")
    text = value_text("x", element)
    if element.kind not in _BARE:
        escaped = f"""'"' || replace(replace({text}, '\\', '\\\\'), '"', '\\"') || '"'"""
        quoted = f"{text} = '' OR lower({text}) = 'null' OR regexp_matches({text}, '{_QUOTED_IN_ARRAY}')"
        text = f"CASE WHEN {quoted} THEN {escaped} ELSE {text} END"
    # The type of the list is given for a NULL, whose elements could be of any type.
    typed = f"CAST({expression} AS {duckdb_type(value)})"
    return f"('{{' || array_to_string(list_transform({typed}, lambda x: COALESCE({text}, 'NULL')), ',') || '}}')"
