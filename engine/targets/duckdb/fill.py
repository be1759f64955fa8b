"""SQL constants for the value of an added column in existing rows, from PostgreSQL's text. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from engine.duckdb.value_text import literal
from engine.model.values import Kind, ValueType
from engine.net.decode import ValueOutOfDomain, decode_column
from engine.net.plan import ColumnPlan
from engine.targets.duckdb.types import duckdb_type
from engine.targets.text import as_text

_STORED = {Kind.DATE: pa.int32(), Kind.TIMESTAMP: pa.int64(), Kind.TIMESTAMPTZ: pa.int64()}
"""Values that DuckDB is given as days or microseconds since 1970: it prints and reads other texts of them."""
_LAST_US = 9_223_372_022_400_000_000
"""The largest number of microseconds from which DuckDB builds timestamps."""


class OutsideDomain(ValueError):
    """The text is not a value of the column's type on the target. The message contains no value."""


def fill_expression(text: str, value: ValueType, delimiter: str = ",") -> str:
    """SQL for the value that PostgreSQL prints as `text`, which is read as values of the log are.

    `delimiter`: what parts the elements, where it is an array.

    Raises:
        OutsideDomain: DuckDB's type cannot represent it exactly.
    """
    raw = np.frombuffer(text.encode(), np.uint8).copy()
    plan = ColumnPlan("", value, ord(delimiter))
    try:
        found = decode_column(raw, np.zeros(1, np.int64), np.array([raw.size], np.int32), plan)
    except ValueOutOfDomain:
        raise OutsideDomain("no value of its type on the target") from None
    return _constants(found, value)[0]


def _constants(array: Any, value: ValueType) -> list[str]:
    """SQL for each value of the array."""
    if value.element is not None:
        return [f"CAST([{', '.join(_constants(array.flatten(), value.element))}] AS {duckdb_type(value)})"]
    texts = as_text(array, value).to_pylist()
    numbers = array.view(_STORED[value.kind]).to_pylist() if value.kind in _STORED else [0] * len(texts)
    pairs = zip(texts, numbers, strict=True)
    return ["NULL" if text is None else _constant(text, number, value) for text, number in pairs]


def _constant(text: str, number: int, value: ValueType) -> str:
    """`number`: the value of a date or timestamp."""
    kind, type_ = value.kind, duckdb_type(value)
    if kind is Kind.TEXT:
        return literal(text)
    if kind is Kind.BOOL:
        return "TRUE" if text == "t" else "FALSE"
    if kind is Kind.BYTES:
        return f"from_hex('{text[2:]}')"
    if kind not in _STORED or text in ("infinity", "-infinity"):
        return f"CAST({literal(text)} AS {type_})"
    if kind is Kind.DATE:
        return f"(DATE '1970-01-01' + CAST({number} AS INTEGER))"
    if abs(number) > _LAST_US:
        raise OutsideDomain("a timestamp beyond the target's range")
    return f"CAST(make_timestamp({number}) AS {type_})"
