"""Runs a user's query: exactly one read-only statement, as a reader's role, in a separate process, at one batch boundary, limited in
time and size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic

import psycopg

from engine.model.identity import SubscriptionName, TableName
from engine.model.position import Lsn
from engine.model.target import BoundStatement, JudgeReads, QueryAnswer, QueryLimits, QueryRefused, TableRead
from engine.postgres.query_answers import DecodeText, PostgresStatement
from engine.postgres.query_process import DENIED
from engine.postgres.sessions import PostgresConnection, Sessions
from engine.queries.pool import Message, QueryPool, QueryProcess
from engine.targets.postgres.metadata import PostgresMetadata
from engine.targets.postgres.readers import UNUSABLE, Readers, unusable

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
    parts: QueryParts,
    statement: BoundStatement,
    limits: QueryLimits,
    subscription: SubscriptionName,
    judge: JudgeReads,
) -> Iterator[QueryAnswer]:
    """Run `statement`; the answer has the position of the target that it saw.

    Raises:
        QueryRefused: `query_not_a_read`, `query_invalid`, `query_timeout`, `query_too_large`, `query_unavailable`, `query_role_missing`,
            `query_role_unfit`, `query_role_unusable`.
    """
    with parts.pool.process(limits) as process:
        yield from PostgresQuery(parts, process, limits, subscription).answers(statement, judge)


@contextmanager
def read_table(
    pool: QueryPool,
    decode: DecodeText,
    conninfo: str,
    statement: str,
    at: tuple[str, Lsn],
    unchanged: Callable[[], bool],
    limits: QueryLimits,
) -> Iterator[QueryAnswer]:
    """The rows of one table, read in a process as this login, under an exported snapshot and its position (`at`).

    `unchanged` is called once the table cannot be replaced any more; False: it was, since the snapshot. Raises QueryRefused.
    """
    snapshot, position = at
    with pool.process(limits) as process:
        reading = _OnTarget(process, limits, decode)
        named = reading.prepare((statement, ()), conninfo, snapshot)
        if not unchanged():
            process.send({"go": False})
            reading.said("end")
            raise QueryRefused("query_unavailable", "a table was replaced after the read began; ask again")
        yield from reading.rows(named, position)


class _OnTarget(PostgresStatement):
    """A statement on the target, which ends if a batch needs a table that it reads."""

    def failure(self, end: tuple[Message, int] | None = None) -> Exception:
        if self._process.killed == GAVE_WAY:
            return QueryRefused("query_unavailable", "a table had to be replaced or changed; ask again")
        return super().failure(end)


class PostgresQuery(_OnTarget):
    """A statement, which the process runs in a session of its own on the target."""

    def __init__(
        self, parts: QueryParts, process: QueryProcess, limits: QueryLimits, subscription: SubscriptionName
    ) -> None:
        super().__init__(process, limits, parts.decode)
        self._parts = parts
        self._subscription = subscription

    def answers(self, statement: BoundStatement, judge: JudgeReads) -> Iterator[QueryAnswer]:
        """Yields the answer. Resumes when the caller has finished with it."""
        named, position, reads = self._prepared(statement)
        judge(reads)
        yield from self.rows(named, position)

    def _prepared(self, statement: BoundStatement) -> tuple[Message, Lsn, list[TableRead]]:
        """Prepare the statement. If a table it reads was replaced meanwhile, which would look empty to it, begin again."""
        login_again = True
        while monotonic() < self._deadline:
            before = self._parts.generations()
            try:
                found = self.begun(statement)
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

    def begin(self, connection: PostgresConnection) -> Lsn:
        """Begin the transaction whose snapshot the statement reads, and return its position."""
        return self._parts.snapshot(connection, self._subscription)

    def readable(self, records: PostgresMetadata) -> list[TableName]:
        """The relations that the statement may read."""
        return records.readable(self._subscription)

    def begun(self, statement: BoundStatement) -> tuple[Message, Lsn, list[TableRead]]:
        """The answer's columns and the tables that it reads. From here on these tables cannot be replaced."""
        with self._parts.sessions.session() as connection:
            try:
                position = self.begin(connection)
                records = PostgresMetadata(connection)
                records.exist()
                relations = self.readable(records)
                way_in = self._parts.readers.way_in(self._subscription, relations, self._deadline - monotonic())
                snapshot = connection.execute("SELECT pg_export_snapshot()").fetchall()[0][0]
                named = self.prepare(statement, way_in, snapshot)
                reads = records.reads([TableName(*name) for name in named["relations"]])
            finally:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
        return named, position, reads

    def refusal(self, code: str, detail: str) -> QueryRefused:
        return QueryRefused("query_invalid", detail, _DENIED_REMEDY) if code == DENIED else QueryRefused(code, detail)
