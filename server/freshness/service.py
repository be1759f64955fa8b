"""Freshness waits of users: run within their request, or stored in the control database and fetched later."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from fastapi.concurrency import run_in_threadpool

from server.clock import Clock
from server.db.database import Database
from server.db.models.freshness_wait import FreshnessWaitRow
from server.errors import Conflict, NotFound
from server.freshness import repository
from server.freshness.schemas import Receipt, Staleness, WaitBody, WaitSatisfied
from server.freshness.tracker import FreshnessTracker
from server.freshness.wait import WaitOutcome, WaitSpec, problem_fields, run_wait
from server.freshness.wait_registry import WaitStatus
from server.logs import get_logger

log = get_logger(__name__)

_MOST_ENDED = 10_000
_MOST_LINES = 1_000_000
"""Limit of tables in all kept receipts: a few receipts of very many tables, or very many of a few."""


class WaitHasEnded(Conflict):
    code = "wait_has_ended"
    title = "The wait has ended"
    default_remedy = "GET the wait to see how."


WaitObserver = Callable[[str, WaitOutcome], None]
"""Called on the event loop with the subscription's name and the outcome of each completed wait; must not block or raise."""


def new_wait_id() -> str:
    return f"w{uuid.uuid4().hex}"


class WaitService:
    """All freshness waits of users.

    A wait answered by its own request is in memory only, and can be fetched by id until newer ones displace it. A wait
    whose answer is fetched later is a row of the control database: `resume_waits` continues it after a restart.

    All methods are called on the event loop; the control database is accessed in threads. `observers` are called once
    for each completed wait, not for a cancelled one.
    """

    def __init__(
        self, database: Database, clock: Clock, tracker: FreshnessTracker, observers: Sequence[WaitObserver] = ()
    ) -> None:
        self._database = database
        self._clock = clock
        self._tracker = tracker
        self._observers = tuple(observers)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ended: OrderedDict[str, tuple[str, WaitBody]] = OrderedDict()
        self._lines = 0

    async def run_wait_now(self, spec: WaitSpec) -> WaitSatisfied:
        """As `answer_wait`, without the outcome."""
        return (await self.answer_wait(spec))[0]

    async def answer_wait(self, spec: WaitSpec) -> tuple[WaitSatisfied, WaitOutcome]:
        """Run the wait to its end. Cancelling this call cancels the wait.

        Raises:
            NotFound: there is no such subscription.
            Problem: the wait was not satisfied; `extra["id"]` is its id.
        """
        wait_id = new_wait_id()
        began = self._clock.now()
        outcome = await run_wait(self._tracker, spec)
        self._notify(spec.subscription, outcome)
        body = WaitBody(
            id=wait_id,
            status=outcome.status.value,
            timeout_ms=round(spec.timeout_s * 1000),
            created_at=began,
            deadline_at=began + timedelta(seconds=spec.timeout_s),
            **_outcome_fields(outcome),
        )
        self._remember(spec.subscription, body)
        if outcome.problem is not None:
            outcome.problem.extra["id"] = wait_id
            raise outcome.problem
        return _satisfied(body), outcome

    async def begin_wait(self, spec: WaitSpec) -> WaitBody:
        """Store a wait whose answer is fetched later, and start it. Returns it with the status `waiting`.

        Raises:
            NotFound: there is no such subscription.
        """
        now = self._clock.now()
        form = (await self._tracker.current_registry(spec.subscription)).status.form
        asked = None if spec.marks is None else form.text(spec.marks)
        row = FreshnessWaitRow(
            id=new_wait_id(),
            subscription_id=0,
            status=WaitStatus.WAITING.value,
            asked=asked,
            position=asked,
            tables=sorted(spec.tables),
            named=spec.named,
            patient=spec.patient,
            stale=spec.stale,
            refuse_early=spec.refuse_early,
            timeout_ms=round(spec.timeout_s * 1000),
            created_at=now,
            deadline_at=now + timedelta(seconds=spec.timeout_s),
        )
        body = _body(row, None)
        await run_in_threadpool(self._add, spec.subscription, row)
        self._start_wait(row.id, spec)
        return body

    async def get_wait(self, subscription: str, wait_id: str) -> WaitBody:
        """A wait, outstanding or ended.

        Raises:
            NotFound: there is none with this id, or it ended too long ago.
        """
        registry = await self._tracker.current_registry(subscription)
        known = self._ended.get(wait_id)
        if known is not None and known[0] == subscription:
            return known[1]
        row = await run_in_threadpool(self._find, subscription, wait_id)
        if row is None:
            raise NotFound(f"There is no wait '{wait_id}'.", "Ended waits are kept for a day; begin a new one.")
        return _body(row, registry.status.text(registry.status.applied))

    async def cancel_wait(self, subscription: str, wait_id: str) -> None:
        """Cancel a wait.

        Raises:
            NotFound: there is none with this id.
            WaitHasEnded: it had already ended.
        """
        if (await self.get_wait(subscription, wait_id)).status != WaitStatus.WAITING.value:
            raise WaitHasEnded(f"Wait '{wait_id}' has ended already.")
        task = self._running.pop(wait_id, None)
        if task is not None:
            task.cancel()
        if not await run_in_threadpool(self._end, wait_id, WaitStatus.CANCELLED, {}):
            raise WaitHasEnded(f"Wait '{wait_id}' has ended already.")

    async def resume_waits(self) -> None:
        """Continue the stored waits that had not ended when the server stopped, with their deadlines.

        Called once, at the start.
        """
        rows = await run_in_threadpool(self._still_waiting)
        now = self._clock.now()
        for subscription, row in rows:
            left_s = max(0.0, (row.deadline_at - now).total_seconds())
            try:
                form = (await self._tracker.current_registry(subscription)).status.form
            except NotFound:
                continue  # deleted since the rows were read, and its waits with it
            marks = None if row.position is None else form.parse(row.position)
            spec = WaitSpec(
                subscription, marks, frozenset(row.tables), row.named, left_s, row.patient, row.stale, row.refuse_early
            )
            self._start_wait(row.id, spec)

    async def stop(self) -> None:
        """Cancel the tasks of stored waits; they stay outstanding in the control database, for `resume_waits`."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_wait(self, wait_id: str, spec: WaitSpec) -> None:
        task = asyncio.get_running_loop().create_task(self._run_stored(wait_id, spec))
        self._running[wait_id] = task
        task.add_done_callback(lambda _: self._running.pop(wait_id, None))

    async def _run_stored(self, wait_id: str, spec: WaitSpec) -> None:
        try:
            await self._run_and_store(wait_id, spec)
        except NotFound:
            log.info("wait_gone", wait=wait_id)  # deleted with its subscription
        except Exception:
            # It stays outstanding in the control database, and is continued at the next start.
            log.exception("wait_failed", wait=wait_id)

    async def _run_and_store(self, wait_id: str, spec: WaitSpec) -> None:
        outcome = await run_wait(self._tracker, spec)
        self._notify(spec.subscription, outcome)
        ending: dict[str, Any] = {"waited_ms": outcome.waited_ms}
        ending["applied"] = outcome.applied
        if outcome.receipt is not None:
            ending["receipt"] = outcome.receipt.model_dump(mode="json")
        if outcome.stale is not None:
            ending["stale"] = outcome.stale.model_dump(mode="json")
        if outcome.problem is not None:
            ending["problem"] = problem_fields(outcome.problem)
        fields = {"position": outcome.position, "ending": ending}
        await run_in_threadpool(self._end, wait_id, outcome.status, fields)

    def _notify(self, subscription: str, outcome: WaitOutcome) -> None:
        for observe in self._observers:
            observe(subscription, outcome)

    def _remember(self, subscription: str, body: WaitBody) -> None:
        self._ended[body.id] = (subscription, body)
        self._lines += _lines(body)
        while len(self._ended) > _MOST_ENDED or (self._lines > _MOST_LINES and len(self._ended) > 1):
            _, (_, oldest) = self._ended.popitem(last=False)
            self._lines -= _lines(oldest)

    # In threads

    def _add(self, subscription: str, row: FreshnessWaitRow) -> None:
        with self._database.write() as session:
            repository.add_wait(session, subscription, row)

    def _find(self, subscription: str, wait_id: str) -> FreshnessWaitRow | None:
        with self._database.read() as session:
            return repository.find_wait(session, subscription, wait_id)

    def _end(self, wait_id: str, status: WaitStatus, fields: dict[str, Any]) -> bool:
        with self._database.write() as session:
            return repository.end_wait(session, wait_id, status, fields)

    def _still_waiting(self) -> list[tuple[str, FreshnessWaitRow]]:
        with self._database.read() as session:
            return repository.list_outstanding(session)


def _outcome_fields(outcome: WaitOutcome) -> dict[str, Any]:
    return {
        "position": outcome.position,
        "applied": outcome.applied,
        "waited_ms": outcome.waited_ms,
        "receipt": outcome.receipt,
        "stale": outcome.stale,
        "problem": None if outcome.problem is None else problem_fields(outcome.problem),
    }


def _lines(body: WaitBody) -> int:
    return 0 if body.receipt is None else len(body.receipt.tables) + len(body.receipt.left_out)


def _satisfied(body: WaitBody) -> WaitSatisfied:
    return WaitSatisfied.model_validate({name: getattr(body, name) for name in WaitSatisfied.model_fields})


def _body(row: FreshnessWaitRow, applied: str | None) -> WaitBody:
    ending = row.ending or {}
    receipt, stale = ending.get("receipt"), ending.get("stale")
    return WaitBody(
        id=row.id,
        status=row.status,
        position=row.position,
        applied=ending.get("applied") or applied,
        waited_ms=ending.get("waited_ms"),
        timeout_ms=row.timeout_ms,
        created_at=row.created_at,
        deadline_at=row.deadline_at,
        receipt=None if receipt is None else Receipt.model_validate(receipt),
        stale=None if stale is None else Staleness.model_validate(stale),
        problem=ending.get("problem"),
    )
