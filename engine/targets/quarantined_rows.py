"""The stored form of quarantined rows on a target, and conversions between their texts and typed columns. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId
from engine.model.position import ZERO, Lsn
from engine.model.quarantine import RefusedCause, RefusedRow, RefusedState, Texts
from engine.model.schema import Column, TableSchema
from engine.model.values import value_type
from engine.targets.text import as_text

DecodeText = Callable[[bytes, TableSchema], Any]
"""Parses lines of COPY's text form to a pyarrow.RecordBatch with columns c0 … cn. Raises EngineFault(VALUE_OUT_OF_DOMAIN)."""
RefusedByTarget = list[tuple[Any, RefusedCause]]
"""Rows (each a pyarrow.Table of one row, columns c0 … cn) that the target rejected, and why."""


def no_decoder(lines: bytes, schema: TableSchema) -> Any:
    """The default if no decoder was given: rows cannot be quarantined."""
    del lines
    raise EngineFault(FaultKind.INTERNAL, str(schema.name), "no decoder of texts was given to the target")


_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True, slots=True)
class Origin:
    """The common properties of rows rejected in one batch."""

    batch: BatchId
    position: Lsn


OF_COPY = Origin(BatchId(0), ZERO)


def refused_row(
    schema: TableSchema, values: Texts, key: Texts, operation: str, cause: RefusedCause, origin: Origin
) -> RefusedRow:
    """A newly rejected row, to be stored."""
    return RefusedRow(
        uuid4().hex,
        RefusedState.SET_ASIDE,
        operation,
        key,
        tuple((column.name, column.type.name, column.attnum) for column in schema.columns),
        values,
        cause,
        origin.position,
        origin.batch,
        refused_at="",
    )


def moment(micros: int) -> str:
    """Microseconds since 1970 as RFC 3339."""
    return datetime.fromtimestamp(micros / 1e6, tz=UTC).isoformat(timespec="milliseconds")


def body_of(row: RefusedRow) -> str:
    """Everything that is stored except id and state, as JSON."""
    fields = asdict(row) | {"position": str(row.position)}
    del fields["row"], fields["state"]
    return json.dumps(fields, ensure_ascii=False)


def row_from(row: str, state: str, body: str) -> RefusedRow:
    fields = json.loads(body)
    fields |= {
        "key": tuple(fields["key"]),
        "columns": tuple((name, type_, number) for name, type_, number in fields["columns"]),
        "values": tuple(fields["values"]),
        "cause": RefusedCause(**fields["cause"]),
        "position": Lsn.parse(fields["position"]),
        "batch": BatchId(fields["batch"]),
    }
    return RefusedRow(row=row, state=RefusedState(state), **fields)


def in_order(rows: Sequence[RefusedRow]) -> list[RefusedRow]:
    return sorted(rows, key=lambda row: (row.position, row.refused_at, row.row))


def texts_of(rows: Any, names: Sequence[str], columns: Sequence[Column]) -> list[Texts]:
    """The named columns of a pyarrow.Table, by row, as texts that are equal if the values are."""
    if rows is None or not rows.num_rows:
        return []
    whole = rows.combine_chunks()
    texts = []
    for name, column in zip(names, columns, strict=True):
        found = whole.column(name)
        array = found.chunk(0) if found.num_chunks == 1 else pa.concat_arrays(found.chunks)
        texts.append(as_text(array, value_type(column)).to_pylist())
    return list(zip(*texts, strict=True)) if texts else [()] * rows.num_rows


def typed(schema: TableSchema, rows: Sequence[Texts], decode: DecodeText) -> Any:
    """Rows with columns c0 … cn from their texts. Raises EngineFault(VALUE_OUT_OF_DOMAIN)."""
    lines = "".join("\t".join(map(_escaped, row)) + "\n" for row in rows)
    return pa.Table.from_batches([decode(lines.encode("utf-8", "surrogatepass"), schema)])


def typed_one(schema: TableSchema, row: Texts, decode: DecodeText) -> Any | RefusedCause:
    """The same for one row; otherwise the reason why it is impossible."""
    try:
        return typed(schema, [row], decode)
    except EngineFault as fault:
        if fault.kind is not FaultKind.VALUE_OUT_OF_DOMAIN:
            raise
        return RefusedCause(fault.kind.value, fault.detail)


def texts_in_form(schema: TableSchema, rows: Sequence[Texts], decode: DecodeText) -> list[Texts]:
    """Rows of texts, as a PostgreSQL prints them, in the form of `texts_of`; unchanged if the columns cannot hold them."""
    try:
        found = typed(schema, rows, decode) if rows else None
    except EngineFault as fault:
        if fault.kind is not FaultKind.VALUE_OUT_OF_DOMAIN:
            raise
        return [tuple(row) for row in rows]
    return texts_of(found, [f"c{i}" for i in range(len(schema.columns))], schema.columns)


def key_of(schema: TableSchema, values: Texts, decode: DecodeText) -> Texts:
    """The key of a row of texts, in the form of `texts_of` if the key columns can hold it."""
    names = [column.name for column in schema.columns]
    return same_form(schema, tuple(values[names.index(name)] for name in schema.key), decode)


def same_form(schema: TableSchema, key: Texts, decode: DecodeText) -> Texts:
    """A key's texts in the form of `texts_of`, or unchanged if its columns cannot hold them."""
    if not key:
        return key
    keys = replace(schema, columns=schema.key_columns)
    found = typed_one(keys, key, decode)
    if isinstance(found, RefusedCause):
        return key
    return texts_of(found, [f"c{i}" for i in range(len(key))], keys.columns)[0]


def lifted(row: RefusedRow, schema: TableSchema) -> Texts:
    """A row's values for the table's current schema; a later column has the value that earlier rows have in it."""
    known = dict(zip((number for _, _, number in row.columns), row.values, strict=True))
    return tuple(known.get(column.attnum, column.fill) for column in schema.columns)


def _escaped(value: str | None) -> str:
    return "\\N" if value is None else value.translate(_ESCAPES)
