"""Marks what our sessions write with a replication origin, so that whoever follows the target's log can tell it apart.

All that matters is that there is one. An origin serves one session at a time, so each takes the first that is free of a pool of
names which every Penstock shares in a cluster. Where none is to be had, a session writes without.
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
"""Gives the transaction under way its commit time for those who follow the log. Without it a marked session's transactions would
all bear the time of the first."""
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
    """The origins of one target's sessions. Any thread may use it."""

    def __init__(self, target: str) -> None:
        """`target`: the connection's name, for the log."""
        self._target = target
        self._lock = threading.Lock()
        self._held: WeakKeyDictionary[PostgresConnection, str] = WeakKeyDictionary()
        self._told = False

    def mark(self, connection: PostgresConnection) -> None:
        """See that what this session writes carries an origin, where that can be had. Outside a transaction."""
        with self._lock:
            why = self._try(connection)
            if why is not None and not self._told:
                self._told = True
                log.warning("written_without_origin", target=self._target, why=why)

    def marked(self, connection: PostgresConnection) -> bool:
        """Whether this session's transactions are to be stamped before they are committed."""
        return connection in self._held

    def stamp(self, connection: PostgresConnection) -> None:
        """In a transaction, shortly before its end."""
        if self.marked(connection):
            connection.execute(f"SELECT {STAMP}")

    def commit(self, connection: PostgresConnection) -> None:
        """Stamp and commit, in one go."""
        if self.marked(connection):
            connection.execute(_STAMPED_COMMIT, prepare=False)
        else:
            connection.execute("COMMIT")

    def _try(self, connection: PostgresConnection) -> str | None:
        """None where it succeeds. A session that is broken will be met as such by whoever writes."""
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
    """Set up the first origin of the pool that is free, a new one if need be. None where there is no room for more.

    `held`: names that need not be tried. A third of what the server can have is left to others: its own subscriptions could not
    start without.
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
    """Give this session's origin back, and drop all of the pool that no session has. As far as the user may."""
    with suppress(psycopg.Error):
        connection.execute("SELECT pg_catalog.pg_replication_origin_session_reset()")
    with suppress(psycopg.Error):
        for name in _pool([row[0] for row in connection.execute(_NAMES).fetchall()]):
            with suppress(errors.ObjectInUse, errors.UndefinedObject):
                connection.execute("SELECT pg_catalog.pg_replication_origin_drop(%s)", [name])


def origin_findings(connection: PostgresConnection) -> list[Finding]:
    """Whether what is written would be marked. Nothing is made; an origin that is free is taken for a moment."""
    denied = _denied(connection)
    if denied:
        what = "the user may not mark what it writes with a replication origin; only who follows this database's log needs that"
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
    """The names of all origins, and how many more we may make."""
    most = int(connection.execute(_MOST).fetchall()[0][0])
    names = [row[0] for row in connection.execute(_NAMES).fetchall()]
    return names, most - most // 3 - len(names)


def _pool(names: list[str]) -> Iterator[str]:
    """Those of the pool, in the order of their numbers."""
    numbers = sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))
    return (f"penstock_{number}" for number in numbers)


def _set_up(connection: PostgresConnection, name: str) -> bool:
    """False where another session has it, it has just gone, or the server has no room for its state."""
    try:
        connection.execute("SELECT pg_catalog.pg_replication_origin_session_setup(%s)", [name])
    except (errors.ObjectInUse, errors.UndefinedObject, errors.ConfigurationLimitExceeded):
        return False
    return True
