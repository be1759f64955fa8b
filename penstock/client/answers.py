"""Results of queries, and how the Arrow stream that carries their rows is read."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.client.errors import AnswerBrokenOff
from penstock.client.receipts import Receipt, parse_receipt

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

RECEIPT_KEY = b"penstock.receipt"
"""The entry of the stream's schema metadata that holds the receipt, as JSON."""
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""End-of-stream marker of the Arrow IPC stream format."""
BROKEN_OFF = (
    "The rows ended before their end: there are more than max_rows, the query failed or reached a limit, or the connection was lost."
    " Send it again, with more time or for fewer rows; the server's log has the reason."
)


def required(module: str, distribution: str) -> Any:
    """An optional module, imported now. Raises ImportError that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        detail = f"{distribution} is needed for this and not installed: pip install {distribution}"
        raise ImportError(detail, name=module) from error


class Result:
    """All rows of a query.

    `position`: the position that the rows show; it can be used in waits and later queries. `receipt`: what was waited
    for; None if the query asked for no freshness.
    """

    def __init__(self, table: pa.Table, position: str, receipt: Receipt | None) -> None:
        self._table = table
        self.position = position
        self.receipt = receipt

    def __repr__(self) -> str:
        return f"<Result of {len(self)} rows at {self.position}>"

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self._table

    def pandas(self) -> pd.DataFrame:
        """The rows as a pandas data frame. Raises ImportError without pandas."""
        required("pandas", "pandas")
        return self._table.to_pandas()

    def polars(self) -> pl.DataFrame:
        """The rows as a polars data frame. Raises ImportError without polars."""
        return required("polars", "polars").from_arrow(self._table)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as tuples of Python values."""
        return list(zip(*(column.to_pylist() for column in self._table.columns), strict=True))


def read_result(body: bytes, position: str) -> Result:
    """The result in the body of an answer, an Arrow IPC stream.

    Raises:
        AnswerBrokenOff: the stream has no end, or ends within a message.
    """
    pa = required("pyarrow", "pyarrow")
    # pyarrow takes a stream without its marker for a complete one. A body that only by chance ends in these bytes is cut
    # within a message when they are removed, and then cannot be read.
    if not body.endswith(_END):
        raise AnswerBrokenOff(BROKEN_OFF)
    try:
        with pa.ipc.open_stream(pa.py_buffer(memoryview(body)[: -len(_END)])) as reader:
            table = reader.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise AnswerBrokenOff(BROKEN_OFF) from error
    receipt = (table.schema.metadata or {}).get(RECEIPT_KEY)
    kept = {key: value for key, value in (table.schema.metadata or {}).items() if key != RECEIPT_KEY}
    return Result(
        table.replace_schema_metadata(kept or None),
        position,
        None if receipt is None else parse_receipt(json.loads(receipt)),
    )
