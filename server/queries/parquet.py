"""Rows of a query as a Parquet file that is sent while it is written."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from server.errors import InvalidRequest
from server.queries.render import metadata

ROW_GROUP_ROWS = 122_880
"""Rows from which a row group ends; DuckDB's own number, for which its readers are made."""
ROW_GROUP_BYTES = 8 * 1024 * 1024
"""Bytes of rows from which a row group ends. An answer takes about twice that in memory. Not measured."""


class ParquetUnsupported(InvalidRequest):
    code = "parquet_unsupported"
    title = "Parquet has no type for a column"
    default_remedy = "Cast it to text in the statement, or choose another format."


class ParquetWriter:
    """A Parquet file. Without its end it is unreadable.

    The position is added to the schema's metadata as `penstock.position`, as in snapshots, and `extra` members as JSON, with the prefix
    `penstock.`.
    """

    def __init__(self, position: str, extra: Mapping[str, Any] | None = None) -> None:
        self._metadata = {b"penstock.position": position.encode(), **metadata(extra)}
        self._sink = _Sink()
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0

    def begin(self, schema: pa.Schema) -> bytes:
        """Raises ParquetUnsupported."""
        described = schema.with_metadata({**(schema.metadata or {}), **self._metadata})
        try:
            self._writer = _open(self._sink, described)
        except pa.ArrowNotImplementedError:
            raise _unsupported(schema) from None
        return self._sink.take()

    def rows(self, table: pa.Table) -> bytes:
        self._waiting.append(table)
        self._rows, self._bytes = self._rows + table.num_rows, self._bytes + table.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._end_row_group()
        return self._sink.take()

    def end(self, *, truncated: bool) -> bytes:
        if self._rows:
            self._end_row_group()
        self._writer.close()
        return self._sink.take()

    def _end_row_group(self) -> None:
        self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=self._rows)
        self._waiting = []
        self._rows = self._bytes = 0


class _Sink(io.BytesIO):
    """Bytes that are taken while the file is written. Offsets in the file are Arrow's own count of what it wrote."""

    def take(self) -> bytes:
        """What was written since the last call."""
        written = self.getvalue()
        self.seek(0)
        self.truncate()
        return written


def _open(sink: io.BytesIO, schema: pa.Schema) -> Any:
    return pq.ParquetWriter(sink, schema, compression="zstd")


def _unsupported(schema: pa.Schema) -> ParquetUnsupported:
    """The error that names the columns whose types Parquet does not have."""
    columns = [f"'{field.name}' ({field.type})" for field in schema if not _has_type_of(field)]
    return ParquetUnsupported(f"Parquet has no type for {', '.join(columns)}.")


def _has_type_of(field: pa.Field) -> bool:
    try:
        _open(io.BytesIO(), pa.schema([field]))
    except pa.ArrowNotImplementedError:
        return False
    return True
