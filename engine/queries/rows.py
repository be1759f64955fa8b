"""Divides rows of a query into pieces of bounded size, up to the row limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from engine.model.position import Lsn
from engine.model.target import (
    BATCH_BYTES,
    MOST_ROW_BYTES,
    TARGET_TYPE,
    WIRE_MODIFIER,
    WIRE_TYPE,
    QueryAnswer,
    QueryLimits,
    QueryRefused,
)


def limited(schema: Any, position: Lsn, batches: Iterable[Any], limits: QueryLimits) -> QueryAnswer:
    """An answer of these record batches; nothing after the last requested row is taken from `batches`.

    Its iterator raises QueryRefused(query_too_large) at a row larger than MOST_ROW_BYTES, and beyond `limits.max_bytes`.
    """
    answer = QueryAnswer(schema, position, iter(()))
    answer.batches = _limited(answer, batches, limits)
    return answer


def _limited(answer: QueryAnswer, batches: Iterable[Any], limits: QueryLimits) -> Iterator[Any]:
    rows = size = 0
    for whole in batches:
        batch = whole
        if limits.max_rows is not None and rows + batch.num_rows > limits.max_rows:
            answer.truncated = True
            batch = batch.slice(0, limits.max_rows - rows)
        rows += batch.num_rows
        for piece in pieces(batch):
            size += piece.nbytes
            if limits.max_bytes is not None and size > limits.max_bytes:
                raise QueryRefused(
                    "query_too_large", f"the answer is larger than {limits.max_bytes} bytes; select less"
                )
            yield piece
        if answer.truncated:
            return


def target_field(field: Any, name: str, type_name: str) -> Any:
    """The pyarrow.Field of an answer's column: its name, and the name of its type on the target."""
    return field.with_name(name).with_metadata({**(field.metadata or {}), TARGET_TYPE: type_name.encode()})


def wire_field(field: Any, oid: int, modifier: int) -> Any:
    """The pyarrow.Field with the column's type in PostgreSQL's protocol."""
    known = {WIRE_TYPE: str(oid).encode(), WIRE_MODIFIER: str(modifier).encode()}
    return field.with_metadata({**(field.metadata or {}), **known})


def grown(batches: Iterable[Any]) -> Iterator[Any]:
    """The same rows in fewer batches, of up to BATCH_BYTES. At any time at most as many rows are held back as were returned."""
    held: list[Any] = []
    returned = rows = size = 0
    for batch in batches:
        added = batch.nbytes
        if held and size + added > BATCH_BYTES:
            yield pa.concat_batches(held)
            returned += rows
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += added
        if rows >= returned:
            yield pa.concat_batches(held)
            returned += rows
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_batches(held)


def pieces(batch: Any) -> Iterator[Any]:
    """The batch in slices of about BATCH_BYTES. Raises QueryRefused at a row larger than MOST_ROW_BYTES."""
    if batch.num_rows == 0:
        return
    if batch.nbytes <= BATCH_BYTES:
        yield batch
    elif batch.num_rows == 1:
        if batch.nbytes > MOST_ROW_BYTES:
            raise QueryRefused("query_too_large", f"a row of the answer is larger than {MOST_ROW_BYTES} bytes")
        yield batch
    else:
        half = batch.num_rows // 2
        yield from pieces(batch.slice(0, half))
        yield from pieces(batch.slice(half))
