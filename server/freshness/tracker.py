"""Keeps the pictures of all subscriptions and the waits on them; lives on the event loop.

Reports of the engine and changes of the control database come in, ends of waits and demand go out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import count

from engine.link.messages import (
    Answer,
    Demand,
    NowBody,
    Progress,
    ReloadReport,
    Report,
    RowsSetAside,
    SubscriptionReport,
    SubscriptionStateReport,
    TableStateReport,
)
from engine.link.messages import Now as NowCommand
from engine.model.position import Lsn
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableState
from server.clock import Clock
from server.db.database import Database
from server.errors import NotFound
from server.freshness import repository
from server.freshness.now import SharedNow
from server.freshness.subscription_status import Picture
from server.freshness.wait_registry import Unreachable, WaitBook
from server.gateway.hub import EngineAwayError, Hub
from server.gateway.long_running import UNENDED
from server.gateway.threads import EngineThreads

NOW_TIMEOUT_S = 30.0


class FreshnessService:
    """One book of waits per subscription. Everything is called on the event loop."""

    def __init__(self, database: Database, threads: EngineThreads, hub: Hub, clock: Clock) -> None:
        self._database = database
        self._threads = threads
        self._hub = hub
        self._clock = clock
        self._books: dict[str, WaitBook] = {}
        self._nows: dict[str, SharedNow] = {}
        self._flushing: set[str] = set()
        self._moved: dict[str, set[str] | None] = {}
        """What reports have changed since waits were last judged: these tables; None: any, or the subscription's own state."""
        self._old: dict[str, int] = {}
        """Subscriptions whose pictures lack what was declared of late, each with the number of the last such declaration."""
        self._declarations = count(1)
        self._onlookers: set[asyncio.Future[None]] = set()
        self.changing = asyncio.Lock()
        """Held from reading or committing states in the control database until they are in the pictures."""

    # Pictures

    @property
    def pictures(self) -> list[Picture]:
        return [book.picture for book in self._books.values()]

    def waiting(self, subscription: str) -> int:
        """How many waits are outstanding."""
        book = self._books.get(subscription)
        return len(book) if book else 0

    async def book(self, subscription: str) -> WaitBook:
        """The book of a subscription, with all that was declared before this call.

        Raises:
            NotFound: there is none of this name.
        """
        if self._is_old(subscription):
            async with self.changing:
                if self._is_old(subscription):
                    await self._read([subscription])
            self._tell_onlookers()
        book = self._books.get(subscription)
        if book is None:
            raise NotFound(f"There is no subscription named '{subscription}'.", "GET /api/v1/subscriptions lists them.")
        return book

    async def refresh(self, subscriptions: Sequence[str] | None = None) -> None:
        """Bring pictures (None: all) up to what the control database says, and end the waits that this decides."""
        async with self.changing:
            await self._read(subscriptions)
        self._tell_onlookers()

    def out_of_date(self, subscriptions: Collection[str]) -> None:
        """Something was declared of these subscriptions that their pictures do not have yet."""
        number = next(self._declarations)
        self._old.update(dict.fromkeys(subscriptions, number))

    def _is_old(self, subscription: str) -> bool:
        return subscription not in self._books or subscription in self._old

    async def _read(self, subscriptions: Sequence[str] | None) -> None:
        before = dict(self._old)
        fresh = await self._threads.run(lambda: self._load(subscriptions))
        for name in list(self._books) if subscriptions is None else subscriptions:
            if name not in fresh and name in self._books:
                self._remove(name)
        for picture in fresh.values():
            self._take(picture)
        for name in before if subscriptions is None else subscriptions:
            if name in before and self._old.get(name) == before[name]:
                del self._old[name]  # Else something was declared while it was read.

    async def vanished(self, subscriptions: Collection[str]) -> set[str]:
        """Those of these subscriptions that have a picture or an engine, but are no longer in the control database."""
        known = {name for name in subscriptions if name in self._books or self._hub.owns(name)}
        if not known:
            return set()

        def read() -> set[str]:
            with self._database.read() as session:
                return repository.existing(session, known)

        return known - await self._threads.run(read)

    def _load(self, subscriptions: Sequence[str] | None) -> dict[str, Picture]:
        with self._database.read() as session:
            return repository.load_pictures(session, subscriptions)

    def _take(self, fresh: Picture) -> None:
        book = self._books.get(fresh.name)
        if book is None:
            fresh.stream = lambda: self._hub.stream_of(fresh.name)
            fresh.away_s = lambda: self._hub.away_s(fresh.name)
            fresh.now = self._clock.now
            self._books[fresh.name] = WaitBook(fresh)
            self._nows[fresh.name] = SharedNow(lambda: self._read_now(fresh.name))
            return
        book.picture.restate(fresh)
        book.changed()

    def _remove(self, name: str) -> None:
        self._nows.pop(name)
        gone = Unreachable(f"Subscription '{name}' was deleted.", "Wait on a subscription that exists.")
        self._books.pop(name).end_all(gone)

    # Reports

    def apply(self, report: Report) -> bool:
        """Take a report of the current epoch into the picture; `judge` then ends the waits that this decides.

        False where the control database has to be read for it.
        """
        if isinstance(report, Progress):
            return self._progress(report)
        if isinstance(report, SubscriptionStateReport):
            return self._subscription_state(report)
        if isinstance(report, TableStateReport):
            return self._table_state(report)
        if isinstance(report, RowsSetAside):
            return self._rows_aside(report)
        if isinstance(report, ReloadReport):
            return self._reload(report)
        return True

    def _current(self, report: SubscriptionReport) -> WaitBook | None:
        book = self._books.get(report.subscription)
        return book if book is not None and book.picture.epoch == report.epoch else None

    def _progress(self, report: Progress) -> bool:
        book = self._current(report)
        if book is None:
            return report.subscription in self._books
        picture = book.picture
        before = picture.reached
        if not picture.vouch(report.run, report.stream):
            return True
        picture.source = report.source or picture.source
        picture.captured = report.captured or picture.captured
        picture.lag_bytes = report.lag_bytes
        picture.lag_seconds = report.lag_seconds
        picture.retained_bytes = report.retained_bytes
        picture.sealed_at = report.sealed_at or picture.sealed_at
        picture.committed_at = report.committed_at or picture.committed_at
        picture.structure = report.structure or picture.structure
        picture.structure_at = report.structure_at or picture.structure_at
        picture.at = report.at
        if not picture.advance(report.applied, asyncio.get_running_loop().time()):
            book.rewound()
        if before is None:
            self._moved[report.subscription] = None  # Also waits whose position was reached before count again.
        else:
            self._moved.setdefault(report.subscription, set())
        return True

    def judge(self) -> None:
        """End the waits that reports have decided: once what came together is in the pictures, positions and states alike."""
        moved, self._moved = self._moved, {}
        for subscription, tables in moved.items():
            book = self._books.get(subscription)
            if book is None:
                continue
            book.progressed()
            if tables is None or tables:
                book.changed(tables)
            self._plan_demand(subscription)

    def _subscription_state(self, report: SubscriptionStateReport) -> bool:
        book = self._current(report)
        if book is None:
            return report.subscription in self._books
        picture = book.picture
        picture.stand(SubscriptionState(report.state), report.run)
        picture.explain(report.code, report.reason, report.remedy)
        self._moved[report.subscription] = None
        self._tell_onlookers()
        return True

    def _table_state(self, report: TableStateReport) -> bool:
        book = self._current(report)
        if book is None:
            return report.subscription in self._books
        view = book.picture.tables.get(report.table)
        if view is None:
            return False
        view.state = TableState(report.state)
        view.reason = report.reason
        view.remedy = report.remedy
        moved = self._moved.setdefault(report.subscription, set())
        if moved is not None:
            moved.add(report.table)
        return True

    def _rows_aside(self, report: RowsSetAside) -> bool:
        book = self._current(report)
        for view in book.picture.tables.values() if book is not None else ():
            view.set_aside = report.counts.get(view.id, 0 if report.whole else view.set_aside)
        return True

    def _reload(self, report: ReloadReport) -> bool:
        book = self._current(report)
        if book is None or report.state in UNENDED:
            return True
        whole = book.picture.reload == report.request_id
        ended = book.picture.reload_ended(report.request_id)
        moved = self._moved.setdefault(report.subscription, set())
        if whole:
            self._moved[report.subscription] = None
        elif moved is not None:
            moved.update(ended)
        return True

    # Demand and "now"

    def _plan_demand(self, subscription: str) -> None:
        """Send what is demanded when the event loop comes round: many waits at once make few demands."""
        if subscription not in self._flushing:
            self._flushing.add(subscription)
            asyncio.get_running_loop().call_soon(self._send_demand, subscription)

    def _send_demand(self, subscription: str) -> None:
        self._flushing.discard(subscription)
        book = self._books.get(subscription)
        for position in book.demand() if book is not None else ():
            self._hub.tell(subscription, Demand(subscription=subscription, position=position))

    def added(self, subscription: str) -> None:
        """A wait was put into the book."""
        self._plan_demand(subscription)

    def engine_ready(self, subscription: str) -> None:
        """An engine has this subscription on a new stream; it has heard of no demand yet."""
        book = self._books.get(subscription)
        if book is not None:
            book.forget_demand()
            self._plan_demand(subscription)
        self._tell_onlookers()

    def has_engine(self, subscription: str) -> bool:
        """Whether a connected engine runs this subscription."""
        return self._hub.owner(subscription) is not None

    async def now(self, subscription: str) -> Lsn:
        """A position behind every commit that was acknowledged before this call.

        What the source's catalog shows there is in force where it is applied, for tables that were live when this was called.

        Raises EngineAwayError, EngineSilentError, AnswerError.
        """
        reader = self._nows.get(subscription)
        if reader is None:
            raise EngineAwayError
        return await reader.get()

    async def _read_now(self, subscription: str) -> Lsn:
        engine_id = self._hub.owner(subscription)
        if engine_id is None:
            raise EngineAwayError
        reply = await self._hub.ask(
            engine_id, lambda request_id: NowCommand(request_id=request_id, subscription=subscription), NOW_TIMEOUT_S
        )
        body = NowBody.model_validate(reply.body if isinstance(reply, Answer) else {})
        book = self._books.get(subscription)
        if book is not None and body.structure is not None:
            book.picture.structure, book.picture.structure_at = body.structure, body.structure_at
        return body.position

    def notice_absences(self) -> None:
        """End the waits of subscriptions whose engine or source is gone for too long by now. Called every second."""
        for book in self._books.values():
            if len(book) and book.picture.gone() is not None:
                book.changed()
        if self._onlookers:
            self._tell_onlookers()

    # Onlookers

    async def change(self) -> None:
        """Wait until some subscription's state changed or an engine took one."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._onlookers.add(future)
        try:
            await future
        finally:
            self._onlookers.discard(future)

    def _tell_onlookers(self) -> None:
        for future in list(self._onlookers):
            if not future.done():
                future.set_result(None)
