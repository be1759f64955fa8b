"""The Parquet files of a snapshot, one for each table, and the interface of all formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from engine.model.identity import TableName
from engine.model.target import QueryAnswer

ROW_GROUP_ROWS = 122_880
"""Most rows of a row group; DuckDB's own number, for which its readers are made."""
ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Bytes of rows from which a row group ends; with the encoded form, about twice that is in memory. Not measured."""
_LONGEST_NAME = 180
"""Characters of a file's name that come from the table's: file systems allow 255 bytes. Not measured."""


class SnapshotFiles(Protocol):
    """Writes the tables of a snapshot into its folder, one after another."""

    def write(self, table: TableName, answer: QueryAnswer) -> tuple[str, int]:
        """Write a table. Returns the name of the file, and the number of rows. `table`: its name on the target."""
        ...

    def close(self, facts: Mapping[str, str]) -> None:
        """End the files. `facts`: about the snapshot, by name, to be stored in a file of all tables."""
        ...

    def give_up(self) -> None:
        """End without a result; the folder is deleted afterwards."""
        ...


class ParquetFiles:
    """One Parquet file for each table, with `facts` in the metadata of its schema."""

    def __init__(self, folder: Path, facts: Mapping[str, str]) -> None:
        self._folder = folder
        self._facts = {f"penstock.{name}".encode(): value.encode() for name, value in facts.items()}
        self._names: set[str] = set()

    def write(self, table: TableName, answer: QueryAnswer) -> tuple[str, int]:
        file = self._file_of(table)
        fields = [field.with_metadata(None) for field in answer.schema]
        schema = pa.schema(fields, metadata=self._facts)
        rows = size = total = 0
        waiting: list[Any] = []
        with pq.ParquetWriter(self._folder / file, schema, compression="zstd") as writer:
            for batch in answer.batches:
                waiting.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                rows, size = rows + batch.num_rows, size + batch.nbytes
                if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(waiting), row_group_size=rows)
                    total, rows, size = total + rows, 0, 0
                    waiting = []
            if rows:
                writer.write_table(pa.Table.from_batches(waiting), row_group_size=rows)
        return file, total + rows

    def close(self, facts: Mapping[str, str]) -> None:
        """The files are complete already."""
        del facts

    def give_up(self) -> None:
        """Nothing is open."""

    def _file_of(self, table: TableName) -> str:
        """A name that no other table of this snapshot has, also where file systems ignore case."""
        stem = file_stem(table)
        name, number = f"{stem}.parquet", 2
        while name.lower() in self._names:
            name, number = f"{stem}.{number}.parquet", number + 1
        self._names.add(name.lower())
        return name


def file_stem(table: TableName) -> str:
    """Schema and name of a table in characters that are safe in a file's name: others are percent-encoded, dots within a name too."""
    parts = (quote(part, safe="").replace(".", "%2E").replace("~", "%7E") for part in (table.schema, table.name))
    return ".".join(parts)[:_LONGEST_NAME]
