"""The rule, kind by kind, by which a value on DuckDB is the value that PostgreSQL prints. It needs no other knowledge of either."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable

from engine.model.values import Kind, ValueType

Held = str | float | None

_ERA = re.compile(r"^(\S+) \(BC\)(.*)$")


def selected(column: str, value: ValueType) -> str:
    """SQL that reads the column as text (floats as DOUBLE), without loss; a list as a list of such."""
    if value.element is None:
        return _expression(column, value)
    return f"[{_expression('x', value.element)} FOR x IN {column}]"


def _expression(column: str, value: ValueType) -> str:
    if value.kind in (Kind.FLOAT32, Kind.FLOAT64):
        return f"CAST({column} AS DOUBLE)"
    if value.kind is Kind.BYTES:
        return f"'\\x' || lower(hex({column}))"
    return f"CAST({column} AS VARCHAR)"


def same(value: ValueType, printed: str | None, held: Held) -> bool:
    """Whether `held`, read from DuckDB by `selected`, is exactly the value that PostgreSQL prints as `printed`."""
    if printed is None or held is None:
        return printed is held
    if value.kind is Kind.FLOAT64:
        return _same_bits(">d", float(printed), float(held))
    if value.kind is Kind.FLOAT32:
        # The shortest text that PostgreSQL prints for a float4 stands for the float4 nearest to it.
        return _same_bits(">f", float(printed), float(held))
    assert isinstance(held, str)
    return printed == _AS_POSTGRES.get(value.kind, _unchanged)(held)


def rendered(value: ValueType, held: Held) -> str | None:
    """The text that PostgreSQL prints for what DuckDB holds; floats as Python prints them. Lists are not rendered."""
    if held is None or isinstance(held, float):
        return None if held is None else repr(held)
    return _AS_POSTGRES.get(value.kind, _unchanged)(held)


def _same_bits(form: str, left: float, right: float) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return struct.pack(form, left) == struct.pack(form, right)


def _unchanged(text: str) -> str:
    return text


def _bool(text: str) -> str:
    return {"true": "t", "false": "f"}[text]


def _era(text: str) -> str:
    """`0044-03-15 (BC) 12:00:00+00` on DuckDB is `0044-03-15 12:00:00+00 BC` on PostgreSQL."""
    found = _ERA.match(text)
    return f"{found[1]}{found[2]} BC" if found else text


def _decimal(text: str) -> str:
    """DuckDB leaves out the 0 before the point of a DECIMAL without digits there."""
    return re.sub(r"^(-?)\.", r"\g<1>0.", text)


_AS_POSTGRES: dict[Kind, Callable[[str], str]] = {
    Kind.BOOL: _bool,
    Kind.DECIMAL: _decimal,
    Kind.DATE: _era,
    Kind.TIMESTAMP: _era,
    Kind.TIMESTAMPTZ: _era,
}
