"""Runs a user's query: exactly one read-only statement, as a reader's role, in a separate process, at one batch boundary, limited in
time and size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import psycopg
import pyarrow as pa

from engine.model.identity import RelationId, SubscriptionName, TableName
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.target import JudgeReads, QueryAnswer, QueryLimits, QueryRefused, TableRead
from engine.postgres.sessions import PostgresConnection, Sessions
from engine.targets.postgres.metadata import PostgresMetadata
from engine.targets.postgres.query_process import DENIED, PIECE
from engine.targets.postgres.readers import UNUSABLE, Readers, unusable
from engine.targets.query_pool import Message, QueryPool, QueryProcess, Statement
from engine.targets.query_rows import limited, pieces

DecodeText = Callable[[bytes, TableSchema], Any]
"""Lines of COPY's text form as a pyarrow.RecordBatch with columns c0 … cn."""

GAVE_WAY = "gave way"
"""The query was killed so that a batch can replace or change a table that it reads."""
_DENIED_REMEDY = "Readers see the subscription's tables. GRANT SELECT on a table of an owner of your own to the role that queries run as."


@dataclass(frozen=True, slots=True)
class QueryParts:
    """The target's functions for its queries. `snapshot` begins a transaction that sees whole batches."""

    sessions: Sessions
    readers: Readers
    pool: QueryPool
    decode: DecodeText
    snapshot: Callable[[PostgresConnection, SubscriptionName], Lsn]
    generations: Callable[[], Mapping[TableName, int]]
    role_given: bool


@contextmanager
def run_query(
    parts: QueryParts, sql: str, limits: QueryLimits, subscription: SubscriptionName, judge: JudgeReads
) -> Iterator[QueryAnswer]:
    """Run `sql`; the answer has the position of the target that it saw.

    Raises:
        QueryRefused: `query_not_a_read`, `query_invalid`, `query_timeout`, `query_too_large`, `query_unavailable`, `query_role_missing`,
            `query_role_unfit`, `query_role_unusable`.
    """
    with parts.pool.process(limits) as process:
        yield from _Statement(parts, process, limits, subscription).answers(sql, judge)


class _Statement(Statement):
    """A statement, which the process runs in a session of its own on the target."""

    def __init__(
        self, parts: QueryParts, process: QueryProcess, limits: QueryLimits, subscription: SubscriptionName
    ) -> None:
        super().__init__(process, limits)
        self._parts = parts
        self._subscription = subscription
        self._deadline = monotonic() + limits.timeout_s

    def answers(self, sql: str, judge: JudgeReads) -> Iterator[QueryAnswer]:
        """Yields the answer. Resumes when the caller has finished with it."""
        named, position, reads = self._prepared(sql)
        judge(reads)
        self._process.send({"go": True})
        with os.fdopen(self.said("answer")[1], "rb") as file:
            schema = _schema(named["types"])
            empty = self._parts.decode(b"", schema).schema
            shown = pa.schema([field.with_name(name) for field, name in zip(empty, named["names"], strict=True)])
            yield limited(shown, position, self._batches(file, schema, shown), self._limits)

    def _prepared(self, sql: str) -> tuple[Message, Lsn, list[TableRead]]:
        """Prepare the statement. If a table it reads was replaced meanwhile, which would look empty to it, begin again."""
        login_again = True
        while monotonic() < self._deadline:
            before = self._parts.generations()
            try:
                found = self._begun(sql)
            except QueryRefused as refused:
                if refused.code == UNUSABLE and login_again:
                    self._parts.readers.forgotten(self._subscription)
                    login_again = False
                elif refused.code == UNUSABLE:
                    raise unusable(refused.detail, self._parts.role_given) from None
                elif refused.code != "query_invalid" or self._parts.generations() == before:
                    raise
                continue
            if self._parts.generations() == before:
                return found
            self._process.send({"go": False})
            self.said("end")
        raise QueryRefused("query_timeout", f"tables were replaced one after another for {self._limits.timeout_s:g} s")

    def _begun(self, sql: str) -> tuple[Message, Lsn, list[TableRead]]:
        """The answer's columns and the tables that it reads. From here on these tables cannot be replaced."""
        with self._parts.sessions.session() as connection:
            try:
                position = self._parts.snapshot(connection, self._subscription)
                records = PostgresMetadata(connection)
                records.exist()
                relations = records.readable(self._subscription)
                way_in = self._parts.readers.way_in(self._subscription, relations, self._deadline - monotonic())
                snapshot = connection.execute("SELECT pg_export_snapshot()").fetchall()[0][0]
                request = {"conninfo": way_in, "sql": sql, "snapshot": snapshot, "max_rows": self._limits.max_rows}
                self._process.send(request)
                named = self.said("named")[0]
                reads = records.reads([TableName(*name) for name in named["relations"]])
            finally:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
        return named, position, reads

    def _batches(self, file: Any, schema: TableSchema, shown: Any) -> Iterator[Any]:
        for lines in filter(None, _pieces_of_lines(file)):
            decoded = self._parts.decode(lines, schema)
            yield from pieces(pa.RecordBatch.from_arrays(decoded.columns, schema=shown))
        self.end()

    def failure(self, end: tuple[Message, int] | None = None) -> Exception:
        if self._process.killed == GAVE_WAY:
            return QueryRefused("query_unavailable", "a table had to be replaced or changed; ask again")
        return super().failure(end)

    def refusal(self, code: str, detail: str) -> QueryRefused:
        return QueryRefused("query_invalid", detail, _DENIED_REMEDY) if code == DENIED else QueryRefused(code, detail)


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
