"""A held snapshot of a PostgreSQL target: an open transaction of one session, whose exported snapshot every query imports.

The session holds no lock on a table, so it never blocks a batch. PostgreSQL's snapshots do not cover what TRUNCATE, DROP and ALTER do to
a table: a statement that reads such a table is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import psycopg

from engine.model.identity import SubscriptionName, TableName
from engine.model.position import Lsn
from engine.model.target import (
    CHANGED,
    ENDED,
    BoundStatement,
    JudgeReads,
    QueryAnswer,
    QueryLimits,
    QueryRefused,
    SqlClient,
    TableRead,
    any_reads,
)
from engine.postgres.sessions import PostgresConnection
from engine.queries.pool import Message, QueryProcess
from engine.targets.held_state import held_state
from engine.targets.postgres.errors import TARGET
from engine.targets.postgres.metadata import PostgresMetadata
from engine.targets.postgres.query import PostgresQuery, QueryParts

_LOST = "the target's database ended the session that kept it"
_BACKSTOP_SECONDS = 60
"""Seconds beyond its time after which the database itself ends the session, should the engine hang."""
_STRUCTURE = """
WITH RECURSIVE tree (root, oid) AS (
    SELECT c.oid, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
    UNION SELECT t.root, i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid
)
SELECT n.nspname, r.relname, md5(string_agg(concat_ws(' ', c.oid, c.relfilenode, c.relkind, columns.text, rules.text), ',' ORDER BY c.oid))
FROM tree t JOIN pg_class r ON r.oid = t.root JOIN pg_namespace n ON n.oid = r.relnamespace JOIN pg_class c ON c.oid = t.oid
CROSS JOIN LATERAL (
    SELECT string_agg(concat_ws(' ', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attisdropped), ',' ORDER BY a.attnum) AS text
    FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
) AS columns
CROSS JOIN LATERAL (
    SELECT string_agg(md5(w.ev_action::text), ',' ORDER BY w.oid) AS text FROM pg_rewrite w WHERE w.ev_class = c.oid
) AS rules
GROUP BY 1, 2
"""
"""Identity, file, columns and definition of relations with their partitions, as the transaction's snapshot has them: the catalog's tables
are read like any others, unlike its functions."""


class PostgresHeld:
    """Implements HeldSnapshot."""

    def __init__(self, parts: Callable[[], QueryParts], subscription: SubscriptionName, seconds: float) -> None:
        """Raises QueryRefused(query_unavailable) if nothing is recorded, and EngineFault."""
        self.subscription = subscription
        self._parts = parts
        self._sessions = parts().sessions
        self._why: str | None = None
        self._running: set[QueryProcess] = set()
        self._lock = threading.Lock()
        """Guards the keeper, `_why` and `_running`."""
        self._keeper = self._sessions.open("penstock read point")
        try:
            self._begin(seconds)
        except psycopg.Error as error:
            self._keeper.close()
            raise TARGET.fault(error, self._sessions.name) from error
        except BaseException:
            self._keeper.close()
            raise

    def _begin(self, seconds: float) -> None:
        """Take the snapshot over from a session that reads the position in it, whose locks end with it."""
        keeper = self._keeper
        with self._sessions.session() as connection:
            try:
                self._parts().snapshot(connection, self.subscription)
                self.state = held_state(PostgresMetadata(connection), self.subscription)
                exported = connection.execute("SELECT pg_export_snapshot()").fetchall()[0][0]
                limit_ms = int((seconds + _BACKSTOP_SECONDS) * 1000)
                keeper.execute(f"SET idle_in_transaction_session_timeout = {limit_ms}".encode())
                _import(keeper, exported)
                self.exported = str(keeper.execute("SELECT pg_export_snapshot()").fetchall()[0][0])
                self._begun_at = self._log_end()
            finally:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")

    def lost(self) -> str | None:
        with self._lock:
            if self._why is None:
                try:
                    self._keeper.execute("SELECT 1")
                except psycopg.Error:
                    self._why = _LOST
            return self._why

    def kept_bytes(self) -> int:
        """Bytes of the target's log since: the rows that VACUUM cannot remove are fewer."""
        with self._lock, suppress(psycopg.Error):
            return self._log_end() - self._begun_at
        return 0

    @contextmanager
    def query(
        self,
        sql: str,
        limits: QueryLimits,
        judge: JudgeReads = any_reads,
        parameters: Sequence[str | None] = (),
        client: SqlClient | None = None,
    ) -> Iterator[QueryAnswer]:
        del client
        parts = self._parts()
        with parts.pool.process(limits) as process:
            with self._lock:
                self._running.add(process)
            try:
                refused = self.refused()
                if refused is not None:
                    raise refused
                yield from _HeldQuery(self, parts, process, limits).answers((sql, parameters), judge)
            finally:
                with self._lock:
                    self._running.discard(process)

    def end(self, why: str) -> None:
        with self._lock:
            self._why = self._why or why
            running = list(self._running)
            self._keeper.close()
        for process in running:
            process.kill(ENDED)

    @property
    def over(self) -> bool:
        """Whether it is known to have ended."""
        return self._why is not None

    def refused(self) -> QueryRefused | None:
        """The refusal of statements, if it has ended."""
        return None if self._why is None else QueryRefused(ENDED, f"the read point has ended: {self._why}")

    def begin(self, connection: PostgresConnection) -> None:
        """Begin a transaction of this snapshot. Raises QueryRefused(ENDED) if it is gone."""
        try:
            _import(connection, self.exported)
        except psycopg.Error:
            if self.lost() is None:
                raise
            raise self.refused() or QueryRefused(ENDED, _LOST) from None

    def changed(self, relations: Sequence[TableName]) -> list[str]:
        """Those of the relations that are not as they were, and so may look different to the snapshot than they did."""
        with self._sessions.session() as connection:
            try:
                self.begin(connection)
                before = _structures(connection, relations)
            finally:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
            now = _structures(connection, relations)
        return sorted(str(name) for name, one in before.items() if now.get(name) != one)

    def _log_end(self) -> int:
        row = self._keeper.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()[0]
        return Lsn.parse(row[0]).value


class _HeldQuery(PostgresQuery):
    """A statement on a held snapshot."""

    def __init__(self, held: PostgresHeld, parts: QueryParts, process: QueryProcess, limits: QueryLimits) -> None:
        super().__init__(parts, process, limits, held.subscription)
        self._held = held
        self._then: list[TableName] = []
        """The relations that were readable at the snapshot."""

    def begin(self, connection: PostgresConnection) -> Lsn:
        self._held.begin(connection)
        return self._held.state.position

    def readable(self, records: PostgresMetadata) -> list[TableName]:
        """Readable then and now: another table may have the name of one that was removed since."""
        self._then = super().readable(records)
        with self._parts.sessions.session() as connection:
            present = PostgresMetadata(connection)
            present.exist()
            now = {*super().readable(present)}
        return [relation for relation in self._then if relation in now]

    def begun(self, statement: BoundStatement) -> tuple[Message, Lsn, list[TableRead]]:
        try:
            found = super().begun(statement)
        except QueryRefused as refused:
            changed = self._held.changed(self._then) if refused.code == "query_invalid" else []
            if changed:
                raise _changed(f"{refused.detail}; changed since the read point: {', '.join(changed)}") from None
            raise
        # From here on the process's locks keep the tables as they are.
        named = found[0]
        changed = self._held.changed([TableName(*name) for name in named["relations"]])
        if changed or named["newer"]:
            what = ", ".join(changed) or "a table of the statement"
            raise _changed(f"{what} was replaced, truncated or altered since the read point")
        return found

    def failure(self, end: tuple[Message, int] | None = None) -> Exception:
        return self._held.refused() or super().failure(end)


def _import(connection: PostgresConnection, snapshot: str) -> None:
    connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())


def _structures(connection: PostgresConnection, relations: Sequence[TableName]) -> dict[TableName, str]:
    names = {"schemas": [one.schema for one in relations], "names": [one.name for one in relations]}
    return {TableName(*row[:2]): row[2] for row in connection.execute(_STRUCTURE, names).fetchall()}


def _changed(detail: str) -> QueryRefused:
    remedy = "Create another read point, or query without one; PostgreSQL does not keep such a table as it was."
    return QueryRefused(CHANGED, detail, remedy)
