"""Marks our transactions with a replication origin, so that consumers of the target's log can distinguish them.

Any origin is sufficient. One origin serves one session at a time, so each session takes the first free one of a pool of names that all
engines of a cluster share. If none is available, a session writes without.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from weakref import WeakKeyDictionary

import psycopg
import structlog
from psycopg import errors

from engine.postgres.sessions import PostgresConnection
from engine.targets.postgres.preflight import Finding

log = structlog.get_logger(__name__)

_NAME = re.compile(r"penstock_([0-9]+)")
_NAMES = "SELECT roname FROM pg_catalog.pg_replication_origin"
_MOST = """
SELECT coalesce(current_setting('max_active_replication_origins', true), current_setting('max_replication_slots'))::int
"""
STAMP = "pg_catalog.pg_replication_origin_xact_setup('0/0', pg_catalog.clock_timestamp())"
"""Sets the commit time of the current transaction for consumers of the log. Without it, all transactions of a session with an origin
have the time of the first."""
_STAMPED_COMMIT = f"SELECT {STAMP}; COMMIT"
_FUNCTIONS = [
    "pg_replication_origin_create",
    "pg_replication_origin_drop",
    "pg_replication_origin_session_reset",
    "pg_replication_origin_session_setup",
    "pg_replication_origin_xact_setup",
]
_DENIED = """
SELECT p.oid::regprocedure::text, quote_ident(current_user) FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY(%s) AND NOT has_function_privilege(p.oid, 'EXECUTE')
ORDER BY 1
"""


class Origins:
    """The origins of one target's sessions. Thread-safe."""

    def __init__(self, target: str) -> None:
        """`target`: the connection's name, for logs."""
        self._target = target
        self._lock = threading.Lock()
        self._held: WeakKeyDictionary[PostgresConnection, str] = WeakKeyDictionary()
        self._warned = False

    def mark(self, connection: PostgresConnection) -> None:
        """Set an origin for this session if one is available. Outside a transaction."""
        with self._lock:
            why = self._try(connection)
            if why is not None and not self._warned:
                self._warned = True
                log.warning("written_without_origin", target=self._target, why=why)

    def marked(self, connection: PostgresConnection) -> bool:
        """Whether this session's transactions must be stamped before their commit."""
        return connection in self._held

    def stamp(self, connection: PostgresConnection) -> None:
        """Called in a transaction, shortly before its end."""
        if self.marked(connection):
            connection.execute(f"SELECT {STAMP}")

    def commit(self, connection: PostgresConnection) -> None:
        """Stamp and commit in one round trip."""
        if self.marked(connection):
            connection.execute(_STAMPED_COMMIT, prepare=False)
        else:
            connection.execute("COMMIT")

    def _try(self, connection: PostgresConnection) -> str | None:
        """None on success. A broken session is detected by its next statement."""
        try:
            if _denied(connection):
                return "the user may not"
            held = {name for other, name in self._held.items() if not other.closed}
            origin = take_origin(connection, held)
        except psycopg.Error as error:
            return f"SQLSTATE {error.sqlstate}"
        if origin is None:
            return "none is free, and no more may be made"
        self._held[connection] = origin
        return None


def take_origin(connection: PostgresConnection, held: Collection[str] = ()) -> str | None:
    """Set the first free origin of the pool, created if necessary. None if no slot is free. `held`: names to skip.

    A third of the server's limit is left to others: its own subscriptions could not start otherwise.
    """
    tried = set(held)
    while True:
        present, room = _present(connection)
        for name in _pool(present):
            if name not in tried and _set_up(connection, name):
                return name
            tried.add(name)
        if room <= 0:
            return None
        name = next(name for n in itertools.count(1) if (name := f"penstock_{n}") not in present)
        with suppress(errors.UniqueViolation):
            connection.execute("SELECT pg_catalog.pg_replication_origin_create(%s)", [name])


def drop_unused(connection: PostgresConnection) -> None:
    """Release this session's origin, and drop all unused ones of the pool, as far as the user's privileges permit."""
    with suppress(psycopg.Error):
        connection.execute("SELECT pg_catalog.pg_replication_origin_session_reset()")
    with suppress(psycopg.Error):
        for name in _pool([row[0] for row in connection.execute(_NAMES).fetchall()]):
            with suppress(errors.ObjectInUse, errors.UndefinedObject):
                connection.execute("SELECT pg_catalog.pg_replication_origin_drop(%s)", [name])


def origin_findings(connection: PostgresConnection) -> list[Finding]:
    """Whether writes would be marked. Creates nothing; a free origin is used for a moment."""
    denied = _denied(connection)
    if denied:
        what = "the user may not mark what it writes with a replication origin; only consumers of this database's log need this"
        remedy = f"GRANT EXECUTE ON FUNCTION {', '.join(row[0] for row in denied)} TO {denied[0][1]}, in this database"
        return [("info", "origin_not_permitted", what, remedy)]
    present, room = _present(connection)
    if room > 0:
        return []
    if any(_set_up(connection, name) for name in _pool(present)):
        connection.execute("SELECT pg_catalog.pg_replication_origin_session_reset()")
        return []
    setting = "max_active_replication_origins" if connection.info.server_version >= 180000 else "max_replication_slots"
    what = f"all replication origins that Penstock may have here are in use; {len(present)} are there in all, and a third is left to others"
    return [("warning", "origins_used_up", what, f"raise {setting} and restart the target")]


def _denied(connection: PostgresConnection) -> list[tuple[str, str]]:
    """Functions that the user may not call, each with the user's name."""
    return [(row[0], row[1]) for row in connection.execute(_DENIED, [_FUNCTIONS]).fetchall()]


def _present(connection: PostgresConnection) -> tuple[list[str], int]:
    """The names of all origins, and how many more we may create."""
    most = int(connection.execute(_MOST).fetchall()[0][0])
    names = [row[0] for row in connection.execute(_NAMES).fetchall()]
    return names, most - most // 3 - len(names)


def _pool(names: list[str]) -> Iterator[str]:
    """The names of the pool, in order."""
    numbers = sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))
    return (f"penstock_{number}" for number in numbers)


def _set_up(connection: PostgresConnection, name: str) -> bool:
    """False if another session has it, it was just dropped, or the server has no free slot."""
    try:
        connection.execute("SELECT pg_catalog.pg_replication_origin_session_setup(%s)", [name])
    except (errors.ObjectInUse, errors.UndefinedObject, errors.ConfigurationLimitExceeded):
        return False
    return True
