"""Sessions with the control database. Read and write sessions are different types; services never commit."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlmodel import Session

from server.clock import Clock, SystemClock
from server.db.signals import Change, Signals

if TYPE_CHECKING:
    from server.db.models.event import EventRow

_EVENT_LOCK = 0x50454E53


class WriteInReadSession(RuntimeError):
    """A read session was used to change data: a defect of the server."""


class ReadSession(Session):
    """A read transaction; all its reads see one state of the database."""

    def flush(self, objects: Any = None) -> None:
        if self.new or self.dirty or self.deleted:
            raise WriteInReadSession("this session only reads; take a WriteSession")

    def commit(self) -> None:
        raise WriteInReadSession("this session only reads; there is nothing to commit")


class WriteSession(ReadSession):
    """A transaction that may write. Committed once, at the edge of the request, by `Database.write` or its dependency.

    Notifications are collected here and sent only after the commit.
    """

    clock: Clock = SystemClock()
    signals: Signals | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._events: list[EventRow] = []
        self._touched: set[str] = set()
        self._outbox = False
        self._declared: set[str] = set()
        self._revoked = False

    def now(self) -> datetime:
        """The time to store in rows."""
        return self.clock.now()

    def add_event(self, row: EventRow) -> None:
        """Write `row` at the commit; it has no id before that."""
        self._events.append(row)

    def touch(self, subscription: str) -> None:
        """Notify watchers, after the commit, that this subscription has changed."""
        self._touched.add(subscription)

    def ring_outbox(self) -> None:
        """Notify the channel, after the commit, that there are commands in the outbox."""
        self._outbox = True

    def declare(self, subscription: str) -> None:
        """Report, after the commit, that the in-memory status of this subscription is outdated."""
        self._declared.add(subscription)

    def revoke(self) -> None:
        """Report, after the commit, that a token is not valid any longer."""
        self._revoked = True

    def flush(self, objects: Any = None) -> None:
        Session.flush(self, objects)

    def commit(self) -> None:
        self._write_events()
        change = Change(
            outbox=self._outbox,
            events=bool(self._events),
            subscriptions=frozenset(self._touched),
            declared=frozenset(self._declared),
            revoked=self._revoked,
        )
        Session.commit(self)
        self._forget()
        if self.signals is not None and change != Change():
            self.signals.send(change)

    def rollback(self) -> None:
        self._forget()
        Session.rollback(self)

    def _forget(self) -> None:
        self._events = []
        self._touched = set()
        self._outbox = False
        self._declared = set()
        self._revoked = False

    def _write_events(self) -> None:
        """Write the events last, under a lock that is held until the commit, so that their ids increase in commit order.

        A reader that has seen number n therefore never meets a smaller new one. No lock is taken after this one, so it
        cannot deadlock.
        """
        if not self._events:
            return
        self.flush()
        if self.get_bind().dialect.name == "postgresql":
            self.connection().exec_driver_sql(f"SELECT pg_advisory_xact_lock({_EVENT_LOCK})")
        for row in self._events:
            self.add(row)
            self.flush()
