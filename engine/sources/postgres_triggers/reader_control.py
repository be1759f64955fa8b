"""The readers of the shadow log, as the engine controls them."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from functools import partial

import psycopg

from engine.model.identity import TableName
from engine.model.positions.windows import end_of
from engine.model.source import ExportedSnapshot, GuardReading, ReaderStatus
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.open_transactions import end_own_session, reading_of
from engine.sources.postgres_triggers.given import Given
from engine.sources.postgres_triggers.objects import INSTALL_LOCK, drop_statements, is_installed
from engine.sources.postgres_triggers.stream import READER_LOCK
from engine.sources.postgres_triggers.table_locks import TRY_MS, in_short_tries
from engine.sources.postgres_triggers.windows import shadow_log_faults, snapshot_at_window

_STATUS = """
SELECT r.durable, w.no IS NOT NULL,
       coalesce(least(pg_total_relation_size('penstock.changes'), greatest(0, last.no - first.no + 1) * (sample.bytes + 60)), 0)::bigint
FROM penstock.readers r LEFT JOIN penstock.windows w ON w.no = r.durable
LEFT JOIN LATERAL (SELECT no FROM penstock.changes WHERE xid >= pg_snapshot_xmin(w.snapshot) ORDER BY xid, no LIMIT 1) AS first ON true
LEFT JOIN LATERAL (SELECT no FROM penstock.changes ORDER BY xid DESC, no DESC LIMIT 1) AS last ON true
LEFT JOIN LATERAL (SELECT avg(pg_column_size(c.*)) AS bytes
                   FROM (SELECT * FROM penstock.changes ORDER BY xid DESC, no DESC LIMIT 100) AS c) AS sample ON true
WHERE r.name = %s
"""
"""What is retained is estimated: the table does not shrink when changes are removed, and a dead reader's share is not that of others. 60:
bytes of a row's header, item and index entry."""
_SESSION = f"""
SELECT l.pid, a.application_name, a.usename = current_user
FROM (SELECT {READER_LOCK} AS key) AS k JOIN pg_locks l
  ON l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND (l.classid::bigint << 32 | l.objid::bigint) = k.key
 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
"""
_UNFOLLOWED = """
DELETE FROM penstock.followed f WHERE reader = %s
RETURNING (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation),
          (SELECT relname FROM pg_class WHERE oid = relation),
          EXISTS (SELECT FROM penstock.followed o WHERE o.relation = f.relation AND o.reader <> f.reader) OR f.triggers = 'application'
"""


class TriggerReaderControl:
    """`ReaderControl`: a row of penstock.readers, and a lock of the session that reads."""

    def __init__(self, connector: Connector, given: Given) -> None:
        self._connector = connector
        self._given = given

    def create(self, reader: str) -> AbstractContextManager[ExportedSnapshot]:
        return snapshot_at_window(self._connector, reader)

    def status(self, reader: str) -> ReaderStatus:
        with self._connector.session(reader) as connection:
            if not is_installed(connection):
                return ReaderStatus(exists=False)
            with shadow_log_faults():
                row = connection.execute(_STATUS, [reader]).fetchone()
            if row is None:
                return ReaderStatus(exists=False)
            session = connection.execute(_SESSION, [reader]).fetchone()
        durable, is_there, retained = row
        confirmed = end_of(int(durable))
        lost = None if is_there else f"window {durable} of the shadow log was removed"
        return ReaderStatus(
            True, confirmed, confirmed, session[0] if session else None, retained_bytes=int(retained), lost=lost
        )

    def check_reader(self, reader: str) -> GuardReading:
        """See SourceSafety.check_reader."""
        return reading_of(self._connector, self.status(reader))

    def release(self, reader: str) -> list[str]:
        """As `remove`: what records changes that are read by none would fill the source."""
        return self.remove(reader)

    def remove(self, reader: str) -> list[str]:
        """The reader goes, with the triggers of tables that no other reader follows, and with the changes if there is no other one. What
        cannot be dropped stays as a whole, and is returned as text. Triggers of an administrator stay, and are returned."""
        with self._connector.session(reader) as connection:
            if not is_installed(connection):
                return []
            try:
                statements = in_short_tries(connection, partial(self._unfollow, connection, reader))
                if connection.execute("SELECT FROM penstock.readers LIMIT 1").fetchone() is None:
                    # A later reader removes them little by little if writers hold the lock for too long now.
                    with contextlib.suppress(psycopg.errors.LockNotAvailable), connection.transaction():
                        connection.execute(f"SET LOCAL lock_timeout = {TRY_MS}")
                        connection.execute("TRUNCATE penstock.changes")
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.LockNotAvailable) as error:
                return [f"triggers of the shadow log: {error.diag.message_primary}"]
        if self._given.install or not statements:
            return []
        return [f"triggers that only an administrator may drop, and that go on recording: {'; '.join(statements)}"]

    def _unfollow(self, connection: PostgresConnection, reader: str) -> list[str]:
        """The reader goes. Returns the statements that remove the triggers of tables without another reader; run if they are ours."""
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
        rows = connection.execute(_UNFOLLOWED, [reader]).fetchall()
        alone = [TableName(schema, name) for schema, name, kept in rows if name is not None and not kept]
        statements = drop_statements(alone)
        for statement in statements if self._given.install else ():
            connection.execute(statement.encode())
        connection.execute("DELETE FROM penstock.readers WHERE name = %s", [reader])
        return statements

    def end_other(self, reader: str, application: str) -> bool:
        with self._connector.session(reader) as connection:
            return end_own_session(
                connection, reader, application, lambda session: session.execute(_SESSION, [reader]).fetchone()
            )
