"""Keeps a replication session alive from a thread of its own, whatever the thread that reads the session is busy with.

The source ends a session from which it has heard nothing for `wal_sender_timeout`, and it asks before only in its stream, where
the question may be behind a value of hundreds of megabytes. So the time is kept without being asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from engine.model.fault import EngineFault
from engine.postgres.sessions import PostgresConnection

LONGEST_S = 5.0
_WITHIN_TIMEOUT = 4
"""So many times within the source's time-out: a machine under load may be late with some of them."""
_TIMEOUT = "SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'"


def period_s(connection: PostgresConnection) -> float:
    """How often this session's source has to hear something. Raises psycopg.Error."""
    timeout_ms = int(connection.execute(_TIMEOUT).fetchall()[0][0])
    return min(LONGEST_S, timeout_ms / 1000 / _WITHIN_TIMEOUT) if timeout_ms else LONGEST_S


class KeepAlive:
    """Calls `tell` every `period_s` from now on. It may raise EngineFault: who reads the session finds out too, and judges."""

    def __init__(self, period_s: float, tell: Callable[[], None]) -> None:
        self._period_s = period_s
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keep-alive", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Behind this, `tell` is not called any more."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._period_s):
            try:
                self._tell()
            except EngineFault:
                return
