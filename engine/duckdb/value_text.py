"""SQL that prints values of DuckDB as PostgreSQL prints them. Pure."""

from __future__ import annotations

from engine.model.values import Kind, ValueType

_EXPONENT_FROM = {Kind.FLOAT32: "1e6", Kind.FLOAT64: "1e15"}
"""From these values on PostgreSQL prints exponents; DuckDB does so from 1e16 on."""


def quoted(name: str) -> str:
    """The name as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """The text as a string constant."""
    return "'" + text.replace("'", "''") + "'"


def scalar_text(expression: str, value: ValueType) -> str:
    """Expression for the text of a value that is no list; NULL for NULL."""
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
