"""The control database: one engine, and contexts that open sessions on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url

from server.clock import Clock, SystemClock
from server.db.session import ReadSession, WriteSession
from server.db.signals import Signals

_BUSY_MS = 30_000


class Database:
    """Opens sessions. Thread-safe; a session is used by one thread at a time."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.url = url
        self.signals = Signals()
        self._clock = clock or SystemClock()
        self.engine = _make_engine(url)
        self._writing = self.engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")

    @contextmanager
    def read(self) -> Iterator[ReadSession]:
        """A reading session. No transaction is open before the first statement."""
        with ReadSession(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[WriteSession]:
        """A write session, committed at the end of the block, rolled back if it raises.

        For the edges: endpoints, reports of engines, background work. Services receive a session and never open one.
        """
        with self.open_write() as session:
            try:
                yield session
            except BaseException:
                session.rollback()
                raise
            session.commit()

    def open_write(self) -> WriteSession:
        """A writing session that its caller commits."""
        session = WriteSession(self._writing, expire_on_commit=False)
        session.clock = self._clock
        session.signals = self.signals
        return session

    def close(self) -> None:
        self.engine.dispose()


def _make_engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed, pool_size=10, max_overflow=20, pool_pre_ping=True, pool_timeout=30)
    if parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    # As many as threads may ask for at once: a connection beyond the pool's size would be made and closed for each use.
    engine = create_engine(parsed, pool_size=50, max_overflow=0, connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # Transactions are begun explicitly: the driver would begin them too late, and never for reads.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", f"busy_timeout={_BUSY_MS}", "foreign_keys=ON", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later fails at once if another wrote in between. One that takes the
    # write lock at its start waits for its turn.
    connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN"))
