"""SQL that prints rows of DuckDB in the forms of `RowForm`. Pure.

No two different values of a column print alike, and what is printed decodes to the value again. So equal texts on both sides mean equal
values; a value that prints differently, for example a date before Christ, only makes its range differ, and then the rows are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.duckdb.value_text import scalar_text
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


def row_text(values: Sequence[tuple[str, ValueType]]) -> str:
    """Expression for the text of a row as RowForm.ROW, given an expression and a type for each column."""
    fields = ", ',', ".join(_field(expression, value) for expression, value in values)
    return f"concat('(', {fields}, ')')"


def line_text(values: Sequence[tuple[str, ValueType]]) -> str:
    """Expression for the text of a row as RowForm.LINE, given an expression and a type for each column."""
    fields = ", ".join(f"COALESCE({_line_field(expression, value)}, '\\N')" for expression, value in values)
    return f"concat_ws(chr(9), {fields})"


def _line_field(expression: str, value: ValueType) -> str:
    if value.kind in {Kind.FLOAT32, Kind.FLOAT64}:
        return f"'f' || hex(CAST(CAST(CAST({expression} AS DOUBLE) AS BIT) AS BLOB))"
    text = value_text(expression, value)
    if value.kind not in {Kind.TEXT, Kind.BYTES, Kind.LIST}:
        return text
    for character, escape in (("'\\'", "'\\\\'"), ("chr(9)", "'\\t'"), ("chr(10)", "'\\n'"), ("chr(13)", "'\\r'")):
        text = f"replace({text}, {character}, {escape})"
    return text


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
    return _list_text(expression, value) if value.kind is Kind.LIST else scalar_text(expression, value)


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
