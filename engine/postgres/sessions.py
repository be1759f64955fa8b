"""Sessions of one PostgreSQL database, with fixed output settings, timeouts, an application name, and errors as faults.

Errors are classified by SQLSTATE. libpq does not expose the SQLSTATE of a failed connection attempt, so the attempt is repeated with a
protocol trace that shows it.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from engine.model.fault import EngineFault, FaultKind
from engine.model.subscription import ConnectionSpec
from engine.platform.network import is_loopback

PostgresConnection = psycopg.Connection[tuple[Any, ...]]

CONNECT_TIMEOUT_S = 10
"""Seconds to open a connection, to a server that may be far away or busy; after that the fault counts as unavailable, with retries. Not
measured."""
STATEMENT_TIMEOUT_MS = 30_000
"""Default limit of a statement in ms: reads of the catalog and small writes take much less. Copies and key walks set limits of their own.
Not measured."""
LOCK_TIMEOUT_MS = 5_000
"""Longest wait for a lock in ms: a waiting DDL statement blocks all later users of the table, so it gives up early and is tried later. Not
measured."""
APPLICATION = "penstock"
_DEFAULT_HOST = "127.0.0.1"
_IDLE_KEPT = 2
"""Idle connections that are kept for reuse; further ones are closed, because each takes one of the server's `max_connections`. Not
measured."""

_PRINTING = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "search_path": "pg_catalog",
    "quote_all_identifiers": "off",
}
"""All settings that affect how values are printed. Equal on every session, so that log, copy and comparison agree."""

_UNREACHABLE_CLASSES = frozenset({"08", "53", "57", "58", "XX"})
_SPEAKING_CLASSES = frozenset({"08", "25", "28", "3D", "3F", "42", "53", "55", "57", "58"})
"""SQLSTATE classes whose messages contain names of objects and settings only, never row values."""


@dataclass(frozen=True, slots=True)
class StateKinds:
    """Maps SQLSTATEs to fault kinds for one side of a pipeline."""

    lost: FaultKind
    """Fault kind for an unreachable or failing server: no SQLSTATE, or one of the classes for that."""
    states: Mapping[str, FaultKind]

    def fault_kind(self, state: str | None) -> FaultKind:
        """The fault kind of an SQLSTATE; None means that the connection was lost."""
        if state is None:
            return self.lost
        kind = self.states.get(state)
        if kind is not None:
            return kind
        return self.lost if state[:2] in _UNREACHABLE_CLASSES else FaultKind.INTERNAL

    def fault(self, error: psycopg.Error, subject: str, here: Mapping[str, FaultKind] | None = None) -> EngineFault:
        """The EngineFault for a driver's error. `here`: fault kinds of SQLSTATEs that are specific to the caller's context."""
        state = error.sqlstate
        kind = (here or {}).get(state or "") or self.fault_kind(state)
        message = error.diag.message_primary or ("" if state else str(error))
        return EngineFault(kind, subject, describe_state(state, message))


def describe_state(state: str | None, message: str) -> str:
    """Text of a fault: the SQLSTATE, with the server's message unless it may contain row values."""
    if state is None:
        return message.strip() or "the connection was lost"
    if state[:2] in _SPEAKING_CLASSES:
        return f"{message.strip()} ({state})"
    return (
        f"SQLSTATE {state}: an internal error of the server; its log says more"
        if state[:2] == "XX"
        else f"SQLSTATE {state}"
    )


def is_on_this_machine(spec: ConnectionSpec) -> bool:
    """Whether the server's address is on this machine: a socket folder, or a loopback address. Names are not resolved."""
    host = str(spec.settings.get("host", _DEFAULT_HOST))
    return is_loopback(host) or host.startswith(("/", "@"))


class Sessions:
    """Opens sessions on one database, with a small pool of idle ones. Any thread may use it."""

    def __init__(self, spec: ConnectionSpec, kinds: StateKinds, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: server parameters of each session, in addition to the common ones."""
        self._spec = spec
        self._kinds = kinds
        self._settings = settings or {}
        self._idle: list[PostgresConnection] = []
        self._lock = threading.Lock()
        self._closed = False

    @property
    def name(self) -> str:
        return self._spec.name

    def secret(self, name: str) -> str | None:
        """A secret of the connection. It must not be printed or logged."""
        return self._spec.secrets.get(name)

    @property
    def database(self) -> str:
        return str(self._spec.settings.get("database", "postgres"))

    def open(
        self,
        application: str = APPLICATION,
        *,
        replication: bool = False,
        statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
    ) -> PostgresConnection:
        """Open a session in autocommit mode, which the caller must close. Raises EngineFault of the kinds of `StateKinds`."""
        conninfo = self.conninfo(application, replication=replication, statement_timeout_ms=statement_timeout_ms)
        try:
            connection: PostgresConnection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise self._connect_fault(error, conninfo, replication=replication) from error
        with suppress(psycopg.Error):
            _lift_transaction_timeout(connection)
        return connection

    def conninfo(self, application: str, *, replication: bool, statement_timeout_ms: int) -> str:
        """The connection string. It contains the password, and must not be printed."""
        settings, secrets = self._spec.settings, self._spec.secrets
        options = {**_PRINTING, **self._settings}
        options["synchronous_commit"] = "on"
        options["statement_timeout"] = "0" if replication else str(statement_timeout_ms)
        options["lock_timeout"] = "0" if replication else str(LOCK_TIMEOUT_MS)
        options["idle_in_transaction_session_timeout"] = "0"
        parts: dict[str, Any] = {
            "host": settings.get("host", _DEFAULT_HOST),
            "port": settings.get("port", 5432),
            "dbname": self.database,
            "user": settings.get("user", "postgres"),
            "password": secrets.get("password"),
            "sslmode": settings.get("sslmode"),
            "sslrootcert": settings.get("sslrootcert") or secrets.get("sslrootcert"),
            "gssencmode": "disable",
            "application_name": _application(application),
            "client_encoding": "UTF8",
            "connect_timeout": CONNECT_TIMEOUT_S,
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
            "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
        }
        if replication:
            parts["replication"] = "database"
        return make_conninfo("", **{name: value for name, value in parts.items() if value is not None})

    @contextmanager
    def session(self, subject: str | None = None) -> Iterator[PostgresConnection]:
        """A pooled session for the block. Driver errors in the block become an EngineFault about `subject`."""
        connection = self._take_connection()
        try:
            yield connection
        except psycopg.Error as error:
            raise self._kinds.fault(error, subject or self.name) from error
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Close the idle sessions; sessions in use are closed when they are returned."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_connection(self) -> PostgresConnection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self.open()
            if _is_fresh(connection):
                return connection
            connection.close()

    def _give_back(self, connection: PostgresConnection) -> None:
        idle = pq.TransactionStatus.IDLE
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE_KEPT and connection.info.transaction_status == idle:
                self._idle.append(connection)
                return
        connection.close()

    def _connect_fault(self, error: psycopg.Error, conninfo: str, *, replication: bool) -> EngineFault:
        refused = None if isinstance(error, psycopg.errors.ConnectionTimeout) else _state_of_refusal(conninfo)
        kind = self._kinds.fault_kind(refused)
        if refused == "53300" and replication:
            kind = FaultKind.SOURCE_NO_SENDERS
        detail = str(error).strip().splitlines()
        return EngineFault(
            kind, self.name, (detail[0] if detail else "no connection") + (f" ({refused})" if refused else "")
        )


def _application(name: str) -> str:
    return name.encode()[:63].decode(errors="ignore")


def _lift_transaction_timeout(connection: PostgresConnection) -> None:
    """Reset transaction_timeout (PostgreSQL 17): one set for the role would end copies and exported snapshots."""
    if connection.info.server_version >= 170000:
        connection.execute("SET transaction_timeout = 0")


def _is_fresh(connection: PostgresConnection) -> bool:
    """Whether an idle session is usable: if its socket is readable, the server has ended it, or is about to."""
    if connection.closed:
        return False
    readable, _, _ = select.select([connection.fileno()], [], [], 0)
    return not readable


def _state_of_refusal(conninfo: str) -> str | None:
    """Connect again and return the SQLSTATE of the server's refusal; None if it does not answer or accepts the connection.

    libpq does not expose the fields of an error during connection start, but its protocol trace shows them. The trace is kept in memory,
    and only the SQLSTATE is returned.
    """
    trace = os.memfd_create("trace", os.MFD_CLOEXEC)
    try:
        connection = pq.PGconn.connect_start(conninfo.encode())
        try:
            if connection.status == pq.ConnStatus.BAD:
                return None
            connection.trace(trace)
            _poll_to_end(connection)
            connection.untrace()
            if connection.needs_password:
                return "28P01"
        finally:
            connection.finish()
        with os.fdopen(os.dup(trace), "rb") as file:
            file.seek(0)
            return _last_state(file.read())
    except (OSError, psycopg.Error):
        return None
    finally:
        os.close(trace)


def _poll_to_end(connection: pq.abc.PGconn) -> None:
    while True:
        status = connection.connect_poll()
        if status == pq.PollingStatus.READING:
            ready, _, _ = select.select([connection.socket], [], [], CONNECT_TIMEOUT_S)
        elif status == pq.PollingStatus.WRITING:
            _, ready, _ = select.select([], [connection.socket], [], CONNECT_TIMEOUT_S)
        else:
            return
        if not ready:
            return


def _last_state(trace: bytes) -> str | None:
    state = None
    for line in trace.splitlines():
        _, found, fields = line.partition(b"ErrorResponse")
        _, quoted, rest = fields.partition(b' C "')
        if found and quoted:
            state = rest[:5].decode("ascii", "replace")
    return state
