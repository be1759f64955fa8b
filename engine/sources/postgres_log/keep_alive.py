"""Keeps a replication session alive from a thread of its own, independently of the thread that reads the session.

The source ends a session that sends nothing for `wal_sender_timeout`. Its request for a reply comes in the stream, possibly after a
value of hundreds of megabytes, so status messages are sent periodically without waiting for a request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from engine.model.fault import EngineFault
from engine.postgres.sessions import PostgresConnection

LONGEST_S = 5.0
"""Longest interval in seconds between status messages, also with a long or no `wal_sender_timeout`: as `stream._IDLE_STATUS_S`. Not
measured."""
_WITHIN_TIMEOUT = 4
"""Status messages per `wal_sender_timeout`: under load the thread may be late with some of them."""
_TIMEOUT = "SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'"


def period_s(connection: PostgresConnection) -> float:
    """Interval between status messages in seconds, from the source's `wal_sender_timeout`. Raises psycopg.Error."""
    timeout_ms = int(connection.execute(_TIMEOUT).fetchall()[0][0])
    return min(LONGEST_S, timeout_ms / 1000 / _WITHIN_TIMEOUT) if timeout_ms else LONGEST_S


class KeepAlive:
    """Calls `tell` every `period_s` until `end`, or until it raises EngineFault; the thread that reads the session gets the same fault."""

    def __init__(self, period_s: float, tell: Callable[[], None]) -> None:
        self._period_s = period_s
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keep-alive", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop the thread; `tell` is not called after this returns."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._period_s):
            try:
                self._tell()
            except EngineFault:
                return
