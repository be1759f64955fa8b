"""Waits for locks on the owner's tables in short tries.

While a lock on a table is waited for, writers that come later wait too. So each try is short, and between two tries they get through.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from engine.postgres.sessions import PostgresConnection

TRY_MS = 1_000
"""Longest wait for a lock in one try, in milliseconds: as long are new writers of the table held up."""
_PAUSES_S = (0.5, 1.0, 2.0)
"""Seconds between two tries. At most 8 seconds in all, since the checks of the source wait meanwhile; the caller repeats it later."""

Result = TypeVar("Result")


def in_short_tries(connection: PostgresConnection, act: Callable[[], Result]) -> Result:
    """The result of `act`, in a transaction of its own; from its beginning again, after a pause, if a lock is not free in time.

    Raises psycopg.errors.LockNotAvailable after the last try.
    """
    for pause in _PAUSES_S:
        try:
            return _once(connection, act)
        except psycopg.errors.LockNotAvailable:
            time.sleep(pause)
    return _once(connection, act)


def _once(connection: PostgresConnection, act: Callable[[], Result]) -> Result:
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {TRY_MS}")
        return act()
