"""Bind parameters: Arrow values as the texts that a statement gets. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from engine.sql_endpoint.flight.errors import refused

_MOST_BYTES = 1 << 20
"""Bytes of the texts of one statement's parameters."""


def texts_of(batches: Iterable[Any], count: int) -> list[str | None]:
    """The parameters of one execution. `batches`: record batches with one row together, and `count` columns. Raises FlightServerError."""
    found: list[str | None] | None = None
    for batch in batches:
        if batch.num_columns != count:
            raise refused("invalid_request", f"{batch.num_columns} parameters are bound, and the statement has {count}")
        if batch.num_rows > 1 or (batch.num_rows and found is not None):
            raise refused("invalid_request", "more than one row of parameters", "Execute the statement for each row.")
        if batch.num_rows:
            found = [text_of(column[0]) for column in batch.columns]
    if found is None:
        raise refused("invalid_request", "no row of parameters was sent")
    if sum(len(text.encode()) for text in found if text is not None) > _MOST_BYTES:
        raise refused("invalid_request", f"the parameters are larger than {_MOST_BYTES} bytes")
    return found


def text_of(scalar: Any) -> str | None:
    """The text of a pyarrow.Scalar, as both kinds of target read it. Raises FlightServerError for types without such a text."""
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if isinstance(kind, pa.BaseExtensionType):
        return str(scalar.as_py()) if kind.extension_name == "arrow.uuid" else text_of(scalar.value)
    if pa.types.is_union(kind) or pa.types.is_dictionary(kind):
        return text_of(scalar.value)
    if pa.types.is_boolean(kind):
        return "true" if scalar.as_py() else "false"
    if pa.types.is_floating(kind):
        return _float(scalar.as_py())
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_date(kind):
        return _time(scalar)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return f"{scalar.as_py():f}" if pa.types.is_decimal(kind) else str(scalar.as_py())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return str(scalar.as_py())
    if pa.types.is_null(kind):
        return None
    detail = f"a parameter of type {kind} cannot be bound"
    raise refused("invalid_request", detail, "Bind a text, and cast it in the statement.")


def _float(value: float) -> str:
    names = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
    text = repr(float(value))
    return names.get(text, text)


def _time(scalar: Any) -> str:
    """In the form of ISO 8601; Arrow prints a time zone's offset from UTC."""
    kind = scalar.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        utc = scalar.cast(pa.timestamp(kind.unit, "UTC"))
        return str(utc.cast(pa.timestamp(kind.unit)).cast(pa.string()).as_py()) + "+00"
    return str(scalar.cast(pa.string()).as_py())
