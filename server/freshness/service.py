"""Waits whose answer is fetched later: kept in the control database, taken up again after a restart."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from fastapi.concurrency import run_in_threadpool

from engine.model.position import Lsn
from server.clock import Clock
from server.db.database import Database
from server.db.models.freshness_wait import FreshnessWaitRow
from server.errors import Conflict, NotFound
from server.freshness import repository
from server.freshness.schemas import Receipt, WaitBody, WaitSatisfied
from server.freshness.tracker import FreshnessService
from server.freshness.wait import Ask, Ending, carry_out, problem_fields
from server.freshness.wait_registry import WaitStatus
from server.logs import get_logger

log = get_logger(__name__)

_MOST_ENDED = 10_000
_MOST_LINES = 1_000_000
"""Tables named in all the receipts that are kept: a few of very many tables, or very many of a few."""


class WaitHasEnded(Conflict):
    code = "wait_has_ended"
    title = "The wait has ended"
    default_remedy = "GET the wait to see how."


WaitObserver = Callable[[str, Ending], None]
"""Called on the event loop with the subscription's name and the ending of each wait that ran to its end; must not block or raise."""


def new_id() -> str:
    return f"w{uuid.uuid4().hex}"


class Waits:
    """All waits of users: those answered at once in memory, those fetched later in the control database."""

    def __init__(
        self, database: Database, clock: Clock, service: FreshnessService, observers: Sequence[WaitObserver] = ()
    ) -> None:
        self._database = database
        self._clock = clock
        self._service = service
        self._observers = tuple(observers)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ended: OrderedDict[str, tuple[str, WaitBody]] = OrderedDict()
        self._lines = 0

    async def answer(self, ask: Ask) -> WaitSatisfied:
        """Wait, and answer. Raises the problem of a wait that ended badly."""
        wait_id = new_id()
        began = self._clock.now()
        ending = await carry_out(self._service, ask)
        self._tell(ask.subscription, ending)
        body = WaitBody(
            id=wait_id,
            status=ending.status.value,
            timeout_ms=round(ask.timeout_s * 1000),
            created_at=began,
            deadline_at=began + timedelta(seconds=ask.timeout_s),
            **_told(ending),
        )
        self._remember(ask.subscription, body)
        if ending.problem is not None:
            ending.problem.extra["id"] = wait_id
            raise ending.problem
        return _satisfied(body)

    async def begin(self, ask: Ask) -> WaitBody:
        """Begin a wait whose answer is fetched later."""
        now = self._clock.now()
        row = FreshnessWaitRow(
            id=new_id(),
            subscription_id=0,
            status=WaitStatus.WAITING.value,
            asked=ask.position,
            position=ask.position,
            tables=sorted(ask.tables),
            named=ask.named,
            patient=ask.patient,
            timeout_ms=round(ask.timeout_s * 1000),
            created_at=now,
            deadline_at=now + timedelta(seconds=ask.timeout_s),
        )
        body = _body(row, None)
        await run_in_threadpool(self._add, ask.subscription, row)
        self._start(row.id, ask)
        return body

    async def get(self, subscription: str, wait_id: str) -> WaitBody:
        """A wait, outstanding or ended.

        Raises:
            NotFound: there is none of this id, or it ended too long ago.
        """
        book = await self._service.book(subscription)
        known = self._ended.get(wait_id)
        if known is not None and known[0] == subscription:
            return known[1]
        row = await run_in_threadpool(self._find, subscription, wait_id)
        if row is None:
            raise NotFound(f"There is no wait '{wait_id}'.", "Ended waits are kept for a day; begin a new one.")
        return _body(row, book.picture.applied)

    async def cancel(self, subscription: str, wait_id: str) -> None:
        """End a wait before its time.

        Raises:
            NotFound: there is none of this id.
            WaitHasEnded: too late.
        """
        if (await self.get(subscription, wait_id)).status != WaitStatus.WAITING.value:
            raise WaitHasEnded(f"Wait '{wait_id}' has ended already.")
        task = self._running.pop(wait_id, None)
        if task is not None:
            task.cancel()
        if not await run_in_threadpool(self._end, wait_id, WaitStatus.CANCELLED, {}):
            raise WaitHasEnded(f"Wait '{wait_id}' has ended already.")

    async def resume(self) -> None:
        """Take up the waits that had not ended when the server went down."""
        rows = await run_in_threadpool(self._still_waiting)
        now = self._clock.now()
        for subscription, row in rows:
            left_s = max(0.0, (row.deadline_at - now).total_seconds())
            ask = Ask(subscription, row.position, frozenset(row.tables), row.named, left_s, row.patient)
            self._start(row.id, ask)

    async def stop(self) -> None:
        """Let go of outstanding waits; `resume` takes them up again."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, wait_id: str, ask: Ask) -> None:
        task = asyncio.get_running_loop().create_task(self._carry_out(wait_id, ask))
        self._running[wait_id] = task
        task.add_done_callback(lambda _: self._running.pop(wait_id, None))

    async def _carry_out(self, wait_id: str, ask: Ask) -> None:
        try:
            await self._end_well_or_badly(wait_id, ask)
        except NotFound:
            log.info("wait_gone", wait=wait_id)  # Deleted with its subscription.
        except Exception:
            # It stays outstanding in the control database, and is taken up at the next start.
            log.exception("wait_failed", wait=wait_id)

    async def _end_well_or_badly(self, wait_id: str, ask: Ask) -> None:
        ending = await carry_out(self._service, ask)
        self._tell(ask.subscription, ending)
        told: dict[str, Any] = {"waited_ms": ending.waited_ms}
        told["applied"] = None if ending.applied is None else str(ending.applied)
        if ending.receipt is not None:
            told["receipt"] = ending.receipt.model_dump(mode="json")
        if ending.problem is not None:
            told["problem"] = problem_fields(ending.problem)
        fields = {"position": ending.position, "ending": told}
        await run_in_threadpool(self._end, wait_id, ending.status, fields)

    def _tell(self, subscription: str, ending: Ending) -> None:
        for observe in self._observers:
            observe(subscription, ending)

    def _remember(self, subscription: str, body: WaitBody) -> None:
        self._ended[body.id] = (subscription, body)
        self._lines += _lines(body)
        while len(self._ended) > _MOST_ENDED or (self._lines > _MOST_LINES and len(self._ended) > 1):
            _, (_, oldest) = self._ended.popitem(last=False)
            self._lines -= _lines(oldest)

    # In threads

    def _add(self, subscription: str, row: FreshnessWaitRow) -> None:
        with self._database.write() as session:
            repository.add(session, subscription, row)

    def _find(self, subscription: str, wait_id: str) -> FreshnessWaitRow | None:
        with self._database.read() as session:
            return repository.find(session, subscription, wait_id)

    def _end(self, wait_id: str, status: WaitStatus, fields: dict[str, Any]) -> bool:
        with self._database.write() as session:
            return repository.end(session, wait_id, status, fields)

    def _still_waiting(self) -> list[tuple[str, FreshnessWaitRow]]:
        with self._database.read() as session:
            return repository.still_waiting(session)


def _told(ending: Ending) -> dict[str, Any]:
    return {
        "position": None if ending.position is None else str(ending.position),
        "applied": None if ending.applied is None else str(ending.applied),
        "waited_ms": ending.waited_ms,
        "receipt": ending.receipt,
        "problem": None if ending.problem is None else problem_fields(ending.problem),
    }


def _lines(body: WaitBody) -> int:
    return 0 if body.receipt is None else len(body.receipt.tables) + len(body.receipt.left_out)


def _satisfied(body: WaitBody) -> WaitSatisfied:
    return WaitSatisfied.model_validate({name: getattr(body, name) for name in WaitSatisfied.model_fields})


def _body(row: FreshnessWaitRow, applied: Lsn | None) -> WaitBody:
    ending = row.ending or {}
    receipt = ending.get("receipt")
    return WaitBody(
        id=row.id,
        status=row.status,
        position=None if row.position is None else str(row.position),
        applied=ending.get("applied") or (None if applied is None else str(applied)),
        waited_ms=ending.get("waited_ms"),
        timeout_ms=row.timeout_ms,
        created_at=row.created_at,
        deadline_at=row.deadline_at,
        receipt=None if receipt is None else Receipt.model_validate(receipt),
        problem=ending.get("problem"),
    )
