"""Reads from a connection of the application the position of its last commit, or one after it.

The position is `pg_current_wal_insert_lsn()`, read after the commit. PostgreSQL inserts the commit record before COMMIT
returns, also with `synchronous_commit = off`, so what is inserted later ends later. The end of the *flushed* log would be before an
asynchronous commit.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.client.errors import PenstockError

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection, Engine
    from sqlalchemy.orm import Session

    SyncSource = psycopg.Connection[Any] | Engine | Connection | Session
    AsyncSource = psycopg.AsyncConnection[Any]

_STATEMENT = "SELECT pg_current_wal_insert_lsn()::text, pg_current_xact_id_if_assigned() IS NOT NULL"


class TransactionOpen(PenstockError):
    """The connection's transaction has written and has not ended: its commit has no position yet."""

    def __init__(self) -> None:
        super().__init__(
            "The transaction has not ended, so its commit has no position yet. Commit it first, within the block."
        )


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A position of the source's log after every commit so far. `uncommitted`: the session's transaction has written and not ended."""

    position: str
    uncommitted: bool


def position_after(source: SyncSource) -> str:
    """A position at or after the last commit on this connection, as text; to be passed to a wait or a query.

    `source`: a psycopg Connection, or an Engine, Connection or Session of SQLAlchemy. Of an Engine, and of a Session
    between transactions, a connection of the pool reads it. A transaction of the connection that is open stays open;
    none is left open.

    Raises:
        TransactionOpen: the connection's transaction has written and not ended.
        TypeError: it is something else.
        Exception: the driver's, if the position cannot be read.
    """
    return _committed(read_log_end(source))


async def position_after_async(source: AsyncSource) -> str:
    """As `position_after`, of a psycopg AsyncConnection."""
    return _committed(await read_log_end_async(source))


def read_log_end(source: Any) -> LogEnd:
    """The end of the log that this connection sees; raises as `position_after`, but not TransactionOpen."""
    check_source(source)
    return _of_psycopg(source) if _is_a(source, "psycopg", "Connection") else _of_sqlalchemy(source)


async def read_log_end_async(source: Any) -> LogEnd:
    """As `read_log_end`, of a psycopg AsyncConnection."""
    check_async_source(source)
    if source.autocommit or not _is_idle(source):
        return await _fetch_async(source)
    async with source.transaction():
        return await _fetch_async(source)


def check_source(source: object) -> None:
    """Raises TypeError if `position_after` does not take it."""
    known = (
        ("psycopg", "Connection"),
        ("sqlalchemy", "Engine"),
        ("sqlalchemy", "Connection"),
        ("sqlalchemy.orm", "Session"),
    )
    if not any(_is_a(source, module, name) for module, name in known):
        kind = type(source).__qualname__
        raise TypeError(
            f"a psycopg Connection, or an Engine, Connection or Session of SQLAlchemy is needed, not {kind}"
        )


def check_async_source(source: object) -> None:
    """Raises TypeError if `position_after_async` does not take it."""
    if not _is_a(source, "psycopg", "AsyncConnection"):
        raise TypeError(f"a psycopg AsyncConnection is needed, not {type(source).__qualname__}")


def _is_a(source: object, module: str, name: str) -> bool:
    """Whether it is of this class, without importing the module: where it is not imported, nothing is of its classes."""
    found = sys.modules.get(module)
    return found is not None and isinstance(source, getattr(found, name))


def _committed(end: LogEnd) -> str:
    if end.uncommitted:
        raise TransactionOpen
    return end.position


def _is_idle(connection: Any) -> bool:
    """Whether the connection of psycopg is in no transaction, so that a statement would begin one."""
    return bool(connection.info.transaction_status == 0)


def _of_psycopg(connection: psycopg.Connection[Any]) -> LogEnd:
    if connection.autocommit or not _is_idle(connection):
        return _fetch(connection)
    with connection.transaction():
        return _fetch(connection)


def _fetch(connection: psycopg.Connection[Any]) -> LogEnd:
    from psycopg.rows import tuple_row  # noqa: PLC0415 - optional

    with connection.cursor(row_factory=tuple_row) as cursor:
        (row,) = cursor.execute(_STATEMENT, prepare=False).fetchall()
    return LogEnd(*row)


async def _fetch_async(connection: psycopg.AsyncConnection[Any]) -> LogEnd:
    from psycopg.rows import tuple_row  # noqa: PLC0415 - optional

    async with connection.cursor(row_factory=tuple_row) as cursor:
        (row,) = await (await cursor.execute(_STATEMENT, prepare=False)).fetchall()
    return LogEnd(*row)


def _of_sqlalchemy(source: Engine | Connection | Session) -> LogEnd:
    from sqlalchemy import Connection, Engine  # noqa: PLC0415 - optional

    if not isinstance(source, Engine | Connection):
        return _of_session(source)
    if isinstance(source, Connection) and source.closed:
        source = source.engine
    if isinstance(source, Engine):
        with source.connect() as connection:
            return _of_connection(connection)
    return _of_connection(source)


def _of_session(session: Session) -> LogEnd:
    if not session.in_transaction():
        return _of_sqlalchemy(session.get_bind())
    end = _of_connection(session.connection())
    # What the session has not sent yet is not committed either.
    return replace(end, uncommitted=end.uncommitted or bool(session.new or session.dirty or session.deleted))


def _of_connection(connection: Connection) -> LogEnd:
    within = connection.in_transaction()
    try:
        return LogEnd(*connection.exec_driver_sql(_STATEMENT).one())
    finally:
        if not within:
            connection.rollback()
