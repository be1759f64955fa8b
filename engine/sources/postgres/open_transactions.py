"""The transactions and sessions of a source that others depend on."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.model.application import family_of
from engine.model.fault import EngineFault, FaultKind
from engine.model.redaction import redacted
from engine.model.source import GuardReading, ReaderStatus
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.connect import Connector

FREE_TIMEOUT_S = 5.0
"""Seconds for a session to end and release its reader: longer than `reader_process.STOP_TIMEOUT_S`, after which a log reader is killed."""
_POLL_S = 0.05
"""Interval in seconds between two checks whether it has ended; each is one short query. Not measured."""

_OLDEST_OPEN = """
SELECT who || ', open for ' || greatest(0, extract(epoch FROM clock_timestamp() - since))::bigint || ' s',
       greatest(0, extract(epoch FROM clock_timestamp() - since))::float8, statement
FROM (
    SELECT 'pid ' || pid AS who, xact_start AS since, coalesce(query, '') AS statement
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
    UNION ALL
    SELECT 'prepared transaction of ' || owner, prepared, '' FROM pg_prepared_xacts
) AS open_transactions
ORDER BY since LIMIT 1
"""


def oldest_open(connector: Connector) -> tuple[str, float, str] | None:
    """The oldest open transaction that has written: as `pid 123, open for 45 s`, its age in seconds, and its last statement, redacted."""
    with connector.session() as connection:
        row = connection.execute(_OLDEST_OPEN).fetchone()
    return (str(row[0]), float(row[1]), redacted(str(row[2]))) if row is not None else None


def reading_of(connector: Connector, reader: ReaderStatus, copy_retained_bytes: int = 0) -> GuardReading:
    """What a check of the reader reports: its status, and the oldest open transaction, which may cause the retained log."""
    holder = oldest_open(connector)
    return GuardReading(
        reader=reader,
        oldest_open=holder[0] if holder else None,
        oldest_open_s=holder[1] if holder else 0.0,
        oldest_open_statement=holder[2] if holder else "",
        copy_retained_bytes=copy_retained_bytes,
    )


def end_own_session(
    connection: PostgresConnection,
    reader: str,
    application: str,
    find: Callable[[PostgresConnection], tuple[int, str | None, bool | None] | None],
) -> bool:
    """End the engine's own older session of this reader and wait until it has ended. `find`: pid and application name of the session that
    reads, and whether it has our user, which is None if the session ended while it was looked for; None if there is none.

    A session is the engine's own if it has the same user, and its application name equals `application` except for the number at the
    end (an older epoch). Returns False if no session reads. Raises EngineFault(SLOT_IN_USE) if another client's session does, or if the
    engine's own does not end.
    """
    deadline = time.monotonic() + FREE_TIMEOUT_S
    session = find(connection)
    # Of a session that is ending, the lock or slot and the activity are read one after the other: it may have only the first.
    while session is not None and session[2] is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        session = find(connection)
    if session is None:
        return False
    pid, name, same_user = session
    if not same_user or family_of(name or "") != family_of(application):
        raise EngineFault(FaultKind.SLOT_IN_USE, reader, f"pid {pid} reads it, which is not ours")
    connection.execute("SELECT pg_terminate_backend(%s)", [pid])
    deadline = time.monotonic() + FREE_TIMEOUT_S
    while time.monotonic() < deadline:
        left = find(connection)
        if left is None or left[0] != pid:
            return True
        time.sleep(_POLL_S)
    raise EngineFault(FaultKind.SLOT_IN_USE, reader, f"our own older reader, pid {pid}, does not end")
