"""Single rows of texts, as the source prints values, as Arrow rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from engine.model.schema import Column, TableSchema


def decoded_rows(
    rows: Sequence[Sequence[str]],
    columns: Sequence[Column],
    schema: TableSchema,
    decode: Callable[[bytes, TableSchema], Any],
) -> Any:
    """Rows of texts, as the source prints them, as a pyarrow.Table with the staged types of these columns."""
    lines = "".join("\t".join(map(_escaped, row)) + "\n" for row in rows)
    form = replace(schema, columns=tuple(columns), key=tuple(column.name for column in columns))
    return pa.Table.from_batches([decode(lines.encode(), form)])


def _escaped(text: str) -> str:
    for plain, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escape)
    return text
