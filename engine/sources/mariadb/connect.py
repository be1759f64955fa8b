"""Sessions of a MariaDB source, with fixed settings and a small pool of idle ones, and errors as faults by their number."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import pymysql
from pymysql.connections import Connection

from engine.model.fault import EngineFault, FaultKind
from engine.model.subscription import ConnectionSpec

MariaDbConnection: TypeAlias = Connection

CONNECT_TIMEOUT_S = 10
"""Seconds to open a connection. Not measured."""
READ_TIMEOUT_S = 60
"""Seconds without an answer after which the server counts as lost. Not measured."""
LONG_READ_TIMEOUT_S = 21_600
"""The same for the first row of a large read (6 hours). Not measured."""
LOCK_TIMEOUT_S = 5
"""Longest wait for the lock of a table in seconds: a waiting DDL statement blocks all later users of the table. Not measured."""
_IDLE_KEPT = 3
"""Idle connections that are kept: a window is closed with two. Not measured."""
_SQL_MODE = "'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"
TRIGGER_SETTINGS = f"SET NAMES utf8mb4 COLLATE utf8mb4_bin, SESSION sql_mode = {_SQL_MODE}"
"""What is stored with each trigger that a session creates, and what literals of statements depend on."""
_SETTINGS = f"""
SET SESSION sql_mode = {_SQL_MODE}, time_zone = '+00:00', autocommit = 1,
    tx_isolation = 'READ-COMMITTED', lock_wait_timeout = {LOCK_TIMEOUT_S}, innodb_lock_wait_timeout = {READ_TIMEOUT_S - 10},
    wait_timeout = 86400, net_write_timeout = {LONG_READ_TIMEOUT_S}, max_statement_time = 0, sql_select_limit = DEFAULT,
    foreign_key_checks = 1, collation_connection = 'utf8mb4_bin', sql_safe_updates = 0
"""
_K = FaultKind
_KINDS: Mapping[int, FaultKind] = {
    1044: _K.SOURCE_PRIVILEGE,
    1045: _K.SOURCE_AUTHENTICATION,
    1049: _K.TABLE_MISSING,
    1054: _K.TABLE_STRUCTURE_CHANGED,
    1130: _K.SOURCE_AUTHENTICATION,
    1142: _K.SOURCE_PRIVILEGE,
    1143: _K.SOURCE_PRIVILEGE,
    1146: _K.TABLE_MISSING,
    1205: _K.SOURCE_TIMEOUT,
    1213: _K.SOURCE_TIMEOUT,
    1227: _K.SOURCE_PRIVILEGE,
    1290: _K.SOURCE_PRIVILEGE,
    1370: _K.SOURCE_PRIVILEGE,
    1412: _K.TABLE_STRUCTURE_CHANGED,
    1419: _K.SOURCE_PRIVILEGE,
    1698: _K.SOURCE_AUTHENTICATION,
    1969: _K.SOURCE_TIMEOUT,
}
"""By error number. 1412: a table was changed after the snapshot."""
_LOST = frozenset(
    {0, 1040, 1053, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1226, 1317, 1927, 2002, 2003, 2006, 2013, 2055}
)
"""Numbers of errors after which the server can be reached later: too many connections, a killed session, a broken connection."""
_SPEAKING = frozenset(_KINDS) | _LOST | {1050, 1051, 1064, 1072, 1101, 1118, 1146, 1305, 1359, 1360, 4161, 1665}
"""Numbers of errors whose messages contain names of objects and settings only, never row values."""


def fault_of(error: BaseException, subject: str, here: Mapping[int, FaultKind] | None = None) -> EngineFault:
    """The EngineFault for an error of the driver. `here`: fault kinds of numbers that are specific to the caller's context."""
    number = number_of(error)
    if number is None:
        return EngineFault(_K.SOURCE_UNREACHABLE, subject, "the connection was lost")
    kind = (here or {}).get(number) or _KINDS.get(number)
    if kind is None:
        kind = _K.SOURCE_UNREACHABLE if number in _LOST else _K.INTERNAL
    text = str(error.args[1]) if len(error.args) > 1 and number in _SPEAKING else "an error of the server"
    return EngineFault(kind, subject, f"{text} ({number})")


def number_of(error: BaseException) -> int | None:
    """The number of a server's error; None if the connection was lost."""
    if isinstance(error, pymysql.MySQLError) and error.args and isinstance(error.args[0], int):
        return error.args[0]
    return None


ERRORS = (pymysql.MySQLError, OSError, EOFError)
"""What the driver raises."""


class Connector:
    """Opens sessions on one server. Any thread may use it."""

    def __init__(self, spec: ConnectionSpec) -> None:
        self._spec = spec
        self._idle: list[MariaDbConnection] = []
        self._lock = threading.Lock()
        self._closed = False

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def database(self) -> str:
        """The database whose tables are listed."""
        return str(self._spec.settings["database"])

    def secret(self, name: str) -> str | None:
        """A secret of the connection. It must not be printed or logged."""
        return self._spec.secrets.get(name)

    def open(self, *, read_timeout_s: int = READ_TIMEOUT_S) -> MariaDbConnection:
        """Open a session in autocommit mode, which the caller must close. Raises EngineFault."""
        settings = self._spec.settings
        host = str(settings.get("host", "127.0.0.1"))
        where: dict[str, Any] = (
            {"unix_socket": host} if host.startswith("/") else {"host": host, "port": int(settings.get("port", 3306))}
        )
        try:
            connection = pymysql.connect(
                **where,
                **_encryption(settings),
                user=str(settings["user"]),
                password=self._spec.secrets.get("password") or "",
                charset="utf8mb4",
                collation="utf8mb4_bin",
                autocommit=True,
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=read_timeout_s,
                write_timeout=READ_TIMEOUT_S,
                program_name="penstock",
                init_command=_SETTINGS,
                local_infile=False,
                defer_connect=True,
            )
            connection.connect(_unix_socket(host) if host.startswith("/") else None)
        except ERRORS as error:
            raise fault_of(error, self.name) from error
        return connection

    @contextmanager
    def session(
        self, subject: str | None = None, here: Mapping[int, FaultKind] | None = None
    ) -> Iterator[MariaDbConnection]:
        """A pooled session for the block. Errors of the driver in the block become an EngineFault about `subject`."""
        connection = self._take()
        fit = False
        try:
            yield connection
            fit = True
        except ERRORS as error:
            raise fault_of(error, subject or self.name, here) from error
        finally:
            self._give_back(connection, fit=fit)

    def close(self) -> None:
        """Close the idle sessions; sessions in use are closed when they are returned."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            close_quietly(connection)

    def _take(self) -> MariaDbConnection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self.open()
            try:
                connection.ping(reconnect=False)
            except ERRORS:
                close_quietly(connection)
            else:
                return connection

    def _give_back(self, connection: MariaDbConnection, *, fit: bool) -> None:
        with self._lock:
            if fit and not self._closed and len(self._idle) < _IDLE_KEPT:
                self._idle.append(connection)
                return
        close_quietly(connection)


def _unix_socket(path: str) -> socket.socket:
    """A connected socket. The driver does not close its own one if the server cannot be reached."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(CONNECT_TIMEOUT_S)
    try:
        found.connect(path)
    except OSError:
        found.close()
        raise
    return found


def _encryption(settings: Mapping[str, str | int]) -> dict[str, Any]:
    """Arguments of the driver for the setting `tls`."""
    mode = settings.get("tls", "disable")
    if mode == "disable":
        return {"ssl_disabled": True}
    if mode == "require":
        return {"ssl": {"check_hostname": False, "verify_mode": "none"}}
    return {"ssl": {"ca": settings.get("tls_ca"), "check_hostname": True, "verify_mode": "required"}}


def close_quietly(connection: MariaDbConnection) -> None:
    """Close a session that may be broken, or in use by a thread, which then gets an error."""
    with suppress(*ERRORS, AttributeError):
        connection._sock.shutdown(socket.SHUT_RDWR)
    with suppress(*ERRORS):
        connection._force_close()


def rows(connection: MariaDbConnection, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """All rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def run(connection: MariaDbConnection, statement: str, *values: object) -> int:
    """Execute a statement; returns the number of affected rows."""
    with connection.cursor() as cursor:
        return int(cursor.execute(statement, values or None))


def literal(text: str) -> str:
    """A string literal under our sessions' sql_mode."""
    escaped = text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0")
    return f"'{escaped}'"


def quoted(*names: str) -> str:
    """A qualified identifier."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)
