"""The readers of the shadow log, as the engine controls them."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from engine.model.application import family_of
from engine.model.fault import EngineFault, FaultKind
from engine.model.positions.windows import end_of
from engine.model.redaction import redacted
from engine.model.source import ExportedSnapshot, GuardReading, ReaderStatus
from engine.sources.mariadb.connect import Connector, MariaDbConnection, number_of, rows, run
from engine.sources.mariadb_triggers.catalog import load_tables, names_of
from engine.sources.mariadb_triggers.objects import (
    INSTALL_LOCK,
    derived_triggers,
    drop_statements,
    is_installed,
    read_triggers,
)
from engine.sources.mariadb_triggers.snapshots import exported
from engine.sources.mariadb_triggers.stream import lock_of

_NONE = 1 << 62
"""Greater than every number of a change."""
_STATUS = f"""
SELECT r.durable, EXISTS (SELECT 1 FROM penstock.windows w WHERE w.no = r.durable), IS_USED_LOCK(%s),
    LEAST(IFNULL((SELECT file_size FROM information_schema.innodb_sys_tablespaces WHERE name = 'penstock/changes'), 0),
        IFNULL((SELECT AVG(LENGTH(IFNULL(old, '')) + LENGTH(IFNULL(new, '')) + 60)
                FROM (SELECT old, new FROM penstock.changes ORDER BY no DESC LIMIT 100) AS sample), 0)
        * GREATEST(0, 1 + CAST(IFNULL((SELECT MAX(no) FROM penstock.changes), 0) AS SIGNED) - LEAST(
            IFNULL((SELECT CAST(no AS SIGNED) FROM penstock.changes WHERE `window` > r.durable
                    ORDER BY `window`, source, no LIMIT 1), {_NONE}),
            IFNULL((SELECT CAST(no AS SIGNED) FROM penstock.changes WHERE `window` IS NULL ORDER BY source, no LIMIT 1), {_NONE}))))
FROM penstock.readers r WHERE r.name = %s
"""
"""What is retained is estimated: the table does not shrink when changes are removed, and a dead reader's share is not that of others. 60:
bytes of a row's header and index entry."""
_OLDEST_OPEN = """
SELECT trx_mysql_thread_id,
    GREATEST(0, TIMESTAMPDIFF(MICROSECOND, trx_started, CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM')) / 1000000), IFNULL(trx_query, '')
FROM information_schema.innodb_trx WHERE trx_rows_modified > 0 ORDER BY trx_started LIMIT 1
"""
_STALE_S = 0.12
"""Seconds for which the server may return the previous list of transactions (0.1 s)."""
_FREE_TIMEOUT_S = 5.0
"""Seconds for a session to end after the command. Not measured."""
_NO_SUCH_SESSION = 1094
"""Error number of KILL for a session that has ended."""
_POLL_S = 0.05
"""Interval in seconds between two checks whether it has ended. Not measured."""


class ShadowReaderControl:
    """`ReaderControl`: a row of penstock.readers, and a lock of the session that reads."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._listed_s = 0.0

    def create(self, reader: str) -> AbstractContextManager[ExportedSnapshot]:
        return exported(self._connector, reader)

    def status(self, reader: str) -> ReaderStatus:
        with self._connector.session(reader) as connection:
            if not is_installed(connection):
                return ReaderStatus(exists=False)
            found = rows(connection, _STATUS, lock_of(reader), reader)
        if not found:
            return ReaderStatus(exists=False)
        durable, is_there, session, retained = found[0]
        confirmed = end_of(int(durable))
        lost = None if is_there else f"window {durable} of the shadow log was removed"
        return ReaderStatus(True, confirmed, confirmed, session, retained_bytes=max(0, int(retained)), lost=lost)

    def check_reader(self, reader: str) -> GuardReading:
        """See SourceSafety.check_reader."""
        with self._connector.session(reader) as connection:
            self._rest()
            found = rows(connection, _OLDEST_OPEN)
        if not found:
            return GuardReading(self.status(reader))
        session, age_s, statement = found[0]
        return GuardReading(
            self.status(reader),
            oldest_open=f"connection {session}, open for {int(age_s)} s",
            oldest_open_s=float(age_s),
            oldest_open_statement=redacted(str(statement)),
        )

    def _rest(self) -> None:
        """Wait until the server no longer returns the list of the last call."""
        time.sleep(max(0.0, self._listed_s + _STALE_S - time.monotonic()))
        self._listed_s = time.monotonic()

    def release(self, reader: str) -> list[str]:
        """As `remove`: what records changes that are read by none would fill the source."""
        return self.remove(reader)

    def remove(self, reader: str) -> list[str]:
        """The reader goes, with the triggers of tables that no other reader follows, and with the changes if there is no other one. If a
        trigger cannot be dropped, the reader stays, and that is returned as text."""
        with self._connector.session(reader) as connection:
            if not is_installed(connection):
                return []
            run(connection, "DO GET_LOCK(%s, 30)", INSTALL_LOCK)
            try:
                return self._remove(connection, reader)
            finally:
                run(connection, "DO RELEASE_LOCK(%s)", INSTALL_LOCK)

    def _remove(self, connection: MariaDbConnection, reader: str) -> list[str]:
        alone = rows(
            connection,
            "SELECT relation FROM penstock.followed f WHERE reader = %s AND NOT EXISTS (SELECT 1 FROM penstock.followed o"
            " WHERE o.relation = f.relation AND o.reader <> f.reader)",
            reader,
        )
        names = names_of(connection, [int(row[0]) for row in alone])
        tables = load_tables(connection, names.values())
        there = dict(read_triggers(connection, tables.values()))
        gone = {int(row[0]) for row in alone} - {table.relation for table in tables.values()}
        left = [derived_triggers(connection, relation) for relation in sorted(gone)]
        for name, triggers in [
            *((str(name), one) for name, one in there.items()),
            *(("a dropped table", one) for one in left),
        ]:
            for statement in drop_statements(triggers):
                try:
                    run(connection, statement)
                except Exception as error:
                    if number_of(error) is None:
                        raise
                    return [f"triggers of the shadow log on {name}: error {number_of(error)}"]
        run(connection, "DELETE FROM penstock.followed WHERE reader = %s", reader)
        run(connection, "DELETE FROM penstock.readers WHERE name = %s", reader)
        if not rows(connection, "SELECT 1 FROM penstock.readers LIMIT 1"):
            _empty(connection)
        return []

    def end_other(self, reader: str, application: str) -> bool:
        with self._connector.session(reader) as connection:
            session = _session(connection, reader)
            if session is None:
                return False
            found = rows(connection, "SELECT application, session FROM penstock.readers WHERE name = %s", reader)
            name = str(found[0][0]) if found and found[0][1] == session else ""
            if family_of(name) != family_of(application):
                raise EngineFault(FaultKind.SLOT_IN_USE, reader, f"connection {session} reads it, which is not ours")
            try:
                run(connection, f"KILL CONNECTION {int(session)}")
            except Exception as error:
                if number_of(error) != _NO_SUCH_SESSION:
                    raise
            deadline = time.monotonic() + _FREE_TIMEOUT_S
            while time.monotonic() < deadline:
                if _session(connection, reader) != session:
                    return True
                time.sleep(_POLL_S)
        raise EngineFault(FaultKind.SLOT_IN_USE, reader, f"our own older reader, connection {session}, does not end")


def _session(connection: MariaDbConnection, reader: str) -> int | None:
    """The session that reads for the reader."""
    if not is_installed(connection):
        return None
    found = rows(connection, "SELECT IS_USED_LOCK(%s)", lock_of(reader))[0][0]
    return None if found is None else int(found)


def _empty(connection: MariaDbConnection) -> None:
    """Remove all changes, unless writers hold the table for too long now; then a later reader removes them little by little."""
    try:
        run(connection, "TRUNCATE penstock.changes")
    except Exception as error:
        if number_of(error) is None:
            raise
