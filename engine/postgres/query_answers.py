"""A statement that a query process runs in a session on PostgreSQL, on targets and sources: how it is sent, and how its rows are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pyarrow as pa

from engine.model.identity import RelationId, TableName
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.target import BoundStatement, QueryAnswer, QueryLimits
from engine.postgres.query_process import PIECE
from engine.queries.pool import Message, QueryProcess, Statement
from engine.queries.rows import limited, pieces, target_field, wire_field

DecodeText = Callable[[bytes, TableSchema], Any]
"""Lines of COPY's text form as a pyarrow.RecordBatch with columns c0 … cn."""


class PostgresStatement(Statement):
    """The exchange with the process of `engine.postgres.query_process`."""

    def __init__(self, process: QueryProcess, limits: QueryLimits, decode: DecodeText) -> None:
        super().__init__(process, limits)
        self._decode = decode
        self._deadline = monotonic() + limits.timeout_s

    def prepare(self, statement: BoundStatement, conninfo: str, snapshot: str | None = None) -> Message:
        """Send the statement; returns names and types of its columns, the relations that it reads, and whether it reads one that is newer
        than its snapshot. The process then waits for `{"go": …}`. `snapshot`: an exported one; None: a snapshot of its own."""
        sql, parameters = statement
        bound = {"sql": sql, "parameters": [*parameters]}
        self._process.send({**bound, "conninfo": conninfo, "snapshot": snapshot, "max_rows": self._limits.max_rows})
        return self.said("named")[0]

    def rows(self, named: Message, position: Lsn) -> Iterator[QueryAnswer]:
        """Let the prepared statement run, and yield its answer. Resumes when the caller has finished with it."""
        self._process.send({"go": True})
        with os.fdopen(self.said("answer")[1], "rb") as file:
            schema = _schema(named["types"])
            empty = self._decode(b"", schema).schema
            columns = zip(empty, named["names"], named["type_names"], named["types"], strict=True)
            shown = pa.schema(
                [
                    wire_field(target_field(field, name, type_name), kind[0], kind[-1])
                    for field, name, type_name, kind in columns
                ]
            )
            yield limited(shown, position, self._batches(file, schema, shown), self._limits)

    def _batches(self, file: Any, schema: TableSchema, shown: Any) -> Iterator[Any]:
        for lines in filter(None, _pieces_of_lines(file)):
            decoded = self._decode(lines, schema)
            yield from pieces(pa.RecordBatch.from_arrays(decoded.columns, schema=shown))
        self.end()


def _pieces_of_lines(file: Any) -> Iterator[bytes]:
    """The complete pieces that the process has sent."""
    while len(head := file.read(PIECE.size)) == PIECE.size:
        size = PIECE.unpack(head)[0]
        if len(lines := file.read(size)) < size:
            return
        yield lines


def _schema(types: list[list[Any]]) -> TableSchema:
    columns = tuple(Column(f"c{i}", _type(row), i + 1) for i, row in enumerate(types))
    return TableSchema(TableName("", "query"), RelationId(0), columns, (), KeyMode.APPEND, ReplicaIdentity.NOTHING)


def _type(row: list[Any]) -> SourceType:
    oid, name, category, element, element_category, delimiter, modifier = row
    if element is None:
        return SourceType(name, modifier, category, oid=oid)
    inner = SourceType(element, modifier, element_category, delimiter=delimiter)
    return SourceType(name, modifier, category, inner, oid)
