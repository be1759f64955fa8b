"""Interfaces of `model.source` that depend on the catalog and on SQL only, whichever way changes are captured.

The protocols document the methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.model.identity import TableId, TableName
from engine.model.schema import Column
from engine.model.sequences import SourceSequence
from engine.sources.postgres import generated_columns, sequences
from engine.sources.postgres.connect import Connector


class PostgresSequences:
    """`SequenceReader` over the catalog."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def read(self, tables: Sequence[TableName]) -> list[SourceSequence]:
        return sequences.of_tables(self._connector, tables)


class PostgresComputedColumns:
    """`ComputedColumns` by SQL expressions."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def compute(self, table: TableId, columns: Sequence[Column], inputs: Mapping[int, str], rows: int) -> bytes:
        return generated_columns.compute(self._connector, table, columns, inputs, rows)
