"""How values of Arrow types are sent to the engine: as a type that DuckDB reads without a loss, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

NUMERIC_TEXT = "NUMERIC TEXT"
"""Numbers of any length as text, with the texts of Arrow drivers for infinities and NaN."""
_EXTENSION = b"ARROW:extension:name"
_OF_POSTGRES = b"POSTGRESQL:type"
_KEPT_OF_POSTGRES = frozenset(
    {
        "bool",
        "int2",
        "int4",
        "int8",
        "float4",
        "float8",
        "bytea",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "interval",
    }
)
"""PostgreSQL's types that are no text, and whose values come as what they are. Others come in another form: `oid` as a signed number,
`money` in cents."""
_PLAIN: dict[Any, tuple[str, Any]] = {
    pa.bool_(): ("BOOLEAN", None),
    pa.int8(): ("TINYINT", None),
    pa.int16(): ("SMALLINT", None),
    pa.int32(): ("INTEGER", None),
    pa.int64(): ("BIGINT", None),
    pa.uint8(): ("UTINYINT", None),
    pa.uint16(): ("USMALLINT", None),
    pa.uint32(): ("UINTEGER", None),
    pa.uint64(): ("UBIGINT", None),
    pa.float16(): ("FLOAT", pa.float32()),
    pa.float32(): ("FLOAT", None),
    pa.float64(): ("DOUBLE", None),
    pa.string(): ("VARCHAR", None),
    pa.large_string(): ("VARCHAR", None),
    pa.string_view(): ("VARCHAR", pa.large_string()),
    pa.binary(): ("BLOB", None),
    pa.large_binary(): ("BLOB", None),
    pa.binary_view(): ("BLOB", pa.large_binary()),
    pa.date32(): ("DATE", None),
    pa.date64(): ("DATE", pa.date32()),
}
"""By Arrow type: DuckDB's, and the Arrow type that is sent; None: the same."""


@dataclass(frozen=True, slots=True)
class Form:
    """`read`: the type as which the values are sent, as DuckDB names it; None: they cannot be sent. `text`: they are texts of values of
    this type; None: they are what `read` says. `sent`: Arrow type."""

    read: str | None
    sent: Any = None
    text: str | None = None


_UNREADABLE = Form(None)


def form_of(field: Any) -> Form:
    """The form of an Arrow field's values."""
    kind, facts = field.type, field.metadata or {}
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if isinstance(kind, pa.UuidType):
        return Form("UUID", pa.binary())
    if isinstance(kind, pa.JsonType):
        return Form("JSON", kind.storage_type)
    if isinstance(kind, pa.OpaqueType):
        if pa.types.is_string(kind.storage_type):
            return Form(NUMERIC_TEXT if kind.type_name == "numeric" else "VARCHAR", kind.storage_type)
        return _UNREADABLE
    if isinstance(kind, pa.BaseExtensionType) or _EXTENSION in facts:
        return _UNREADABLE
    own = facts.get(_OF_POSTGRES, b"").decode("utf-8", "replace")
    if own and not pa.types.is_string(kind) and own not in _KEPT_OF_POSTGRES:
        return _UNREADABLE
    return _plain(kind, own)


def _plain(kind: Any, own: str) -> Form:
    if kind in _PLAIN:
        read, sent = _PLAIN[kind]
        return Form(read, sent or kind)
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= 38:
        return Form(f"DECIMAL({kind.precision},{kind.scale})", pa.decimal128(kind.precision, kind.scale))
    if pa.types.is_time(kind):
        return Form("TIME", pa.time64("us"))
    if pa.types.is_timestamp(kind):
        zone = "UTC" if kind.tz else None
        return Form("TIMESTAMP WITH TIME ZONE" if zone else "TIMESTAMP", pa.timestamp("us", zone))
    if pa.types.is_fixed_size_binary(kind):
        return Form("BLOB", pa.binary())
    # Of other databases it may count nanoseconds, of which DuckDB drops three digits.
    return Form("INTERVAL", kind) if pa.types.is_interval(kind) and own == "interval" else _UNREADABLE


def as_text(form: Form) -> Form:
    """The form of the same values where the driver is asked for texts of all but floats and bytes."""
    if form.read in {"DOUBLE", "FLOAT"}:
        # Drivers call a double a float too: a float of 64 bits holds both.
        return Form("DOUBLE", pa.float64())
    if form.read in {None, "VARCHAR"}:
        return form
    return Form("BLOB", pa.binary()) if form.read == "BLOB" else Form("VARCHAR", pa.string(), form.read)


def sent_batch(batch: Any, forms: Sequence[Form]) -> Any:
    """The batch in these forms, with columns named by their places.

    Raises pyarrow.ArrowInvalid if a value would be changed, or is no text in UTF-8.
    """
    arrays = []
    for place, form in enumerate(forms):
        array = batch.column(place)
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if array.type != form.sent:
            array = array.cast(form.sent, safe=True)
        array.validate(full=True)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=sent_schema(forms))


def sent_schema(forms: Sequence[Form]) -> Any:
    return pa.schema([(f"c{place}", form.sent) for place, form in enumerate(forms)])
