"""Keeps the status of every subscription current, and ends the freshness waits on it.

Inputs: reports of engines and changes of the control database. Outputs: verdicts to waits, and demand for positions to engines.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from itertools import count

from engine.link.message import SubscriptionReport
from engine.link.messages import (
    Answer,
    Demand,
    NowBody,
    Progress,
    ReloadReport,
    Report,
    RowsSetAside,
    SubscriptionStateReport,
    TableStateReport,
)
from engine.link.messages import Now as NowCommand
from engine.model.positions import Mark, Marks, single_mark
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from server.clock import Clock
from server.db.database import Database
from server.errors import NotFound
from server.freshness import repository
from server.freshness.now import SharedNow
from server.freshness.readings import MOST_READINGS, Reading
from server.freshness.subscription_status import SubscriptionStatus
from server.freshness.wait_registry import Unreachable, WaitRegistry
from server.gateway.hub import EngineAwayError, Hub
from server.gateway.long_running import UNENDED
from server.gateway.threads import EngineThreads

NOW_TIMEOUT_S = 30.0


class FreshnessTracker:
    """One status and one registry of waits per subscription.

    Every method is called on the event loop; the control database is read in `threads`. Statuses are in memory only and
    are built from the control database by `refresh`, or by `current_registry` when a subscription is first asked for.
    """

    def __init__(self, database: Database, threads: EngineThreads, hub: Hub, clock: Clock) -> None:
        self._database = database
        self._threads = threads
        self._hub = hub
        self.clock = clock
        self._registries: dict[str, WaitRegistry] = {}
        self._nows: dict[str, SharedNow] = {}
        self._readings: dict[str, deque[Reading]] = {}
        self._flushing: set[str] = set()
        self._moved: dict[str, set[str] | None] = {}
        """Tables that reports have changed since waits were last judged; None: any table, or the subscription's own state."""
        self._outdated: dict[str, int] = {}
        """Subscriptions whose status lacks recent declarations, each with the number of the last such declaration."""
        self._declarations = count(1)
        self._onlookers: set[asyncio.Future[None]] = set()
        self.state_lock = asyncio.Lock()
        """Held from reading or committing states in the control database until the statuses contain them."""

    # Statuses

    @property
    def statuses(self) -> list[SubscriptionStatus]:
        return [registry.status for registry in self._registries.values()]

    def find_status(self, subscription: str) -> SubscriptionStatus | None:
        """The status of a subscription, if it was read."""
        registry = self._registries.get(subscription)
        return None if registry is None else registry.status

    def count_waits(self, subscription: str) -> int:
        """How many waits are outstanding."""
        registry = self._registries.get(subscription)
        return len(registry) if registry else 0

    async def current_registry(self, subscription: str) -> WaitRegistry:
        """The registry of a subscription, with all declarations made before this call.

        Raises:
            NotFound: there is none of this name.
        """
        if self._is_outdated(subscription):
            async with self.state_lock:
                if self._is_outdated(subscription):
                    await self._read_statuses([subscription])
            self._notify_onlookers()
        registry = self._registries.get(subscription)
        if registry is None:
            raise NotFound(f"There is no subscription named '{subscription}'.", "GET /api/v1/subscriptions lists them.")
        return registry

    async def refresh(self, subscriptions: Sequence[str] | None = None) -> None:
        """Update statuses (None: all) from the control database, and end the waits that this decides."""
        async with self.state_lock:
            await self._read_statuses(subscriptions)
        self._notify_onlookers()

    def mark_outdated(self, subscriptions: Collection[str]) -> None:
        """A commit changed declarations of these subscriptions: `current_registry` reads them before it next returns."""
        number = next(self._declarations)
        self._outdated.update(dict.fromkeys(subscriptions, number))

    def _is_outdated(self, subscription: str) -> bool:
        return subscription not in self._registries or subscription in self._outdated

    async def _read_statuses(self, subscriptions: Sequence[str] | None) -> None:
        before = dict(self._outdated)
        fresh = await self._threads.run(lambda: self._load(subscriptions))
        for name in list(self._registries) if subscriptions is None else subscriptions:
            if name not in fresh and name in self._registries:
                self._remove(name)
        for status in fresh.values():
            self._store(status)
        for name in before if subscriptions is None else subscriptions:
            if name in before and self._outdated.get(name) == before[name]:
                del self._outdated[name]  # else there was another declaration during the read

    async def find_deleted(self, subscriptions: Collection[str]) -> set[str]:
        """Those of these subscriptions that have a status or an engine, but are no longer in the control database."""
        known = {name for name in subscriptions if name in self._registries or self._hub.has_owner(name)}
        if not known:
            return set()

        def read() -> set[str]:
            with self._database.read() as session:
                return repository.list_existing(session, known)

        return known - await self._threads.run(read)

    def _load(self, subscriptions: Sequence[str] | None) -> dict[str, SubscriptionStatus]:
        with self._database.read() as session:
            return repository.load_statuses(session, subscriptions)

    def _store(self, fresh: SubscriptionStatus) -> None:
        registry = self._registries.get(fresh.name)
        if registry is None:
            fresh.stream = lambda: self._hub.stream_of(fresh.name)
            fresh.away_s = lambda: self._hub.away_s(fresh.name)
            fresh.now = self.clock.now
            self._registries[fresh.name] = WaitRegistry(fresh)
            self._nows[fresh.name] = SharedNow(lambda: self._read_now(fresh.name))
            return
        registry.status.replace_declared(fresh)
        registry.end_decided_waits()

    def _remove(self, name: str) -> None:
        self._nows.pop(name)
        self._readings.pop(name, None)
        gone = Unreachable(f"Subscription '{name}' was deleted.", "Wait on a subscription that exists.")
        self._registries.pop(name).end_all(gone)

    # Reports

    def apply_report(self, report: Report) -> bool:
        """Apply a report to the status of its subscription; `judge_waits` then ends the waits that this decides.

        Reports of an earlier epoch are ignored. Returns False if the subscription or table has no status here: call
        `refresh`.
        """
        if isinstance(report, Progress):
            return self._apply_progress(report)
        if isinstance(report, SubscriptionStateReport):
            return self._apply_subscription_state(report)
        if isinstance(report, TableStateReport):
            return self._apply_table_state(report)
        if isinstance(report, RowsSetAside):
            return self._apply_rows_set_aside(report)
        if isinstance(report, ReloadReport):
            return self._apply_reload(report)
        return True

    def _registry_of(self, report: SubscriptionReport) -> WaitRegistry | None:
        registry = self._registries.get(report.subscription)
        return registry if registry is not None and registry.status.epoch == report.epoch else None

    def _apply_progress(self, report: Progress) -> bool:
        registry = self._registry_of(report)
        if registry is None:
            return report.subscription in self._registries
        status = registry.status
        before = status.confirmed_position
        if not status.confirm_run(report.run, report.stream):
            return True
        if not status.set_progress(report, asyncio.get_running_loop().time()):
            registry.reopen_reached_waits()
        if before is None:
            self._moved[report.subscription] = None  # reached waits may be outstanding again
        else:
            self._moved.setdefault(report.subscription, set())
        return True

    def judge_waits(self, received_s: float | None = None) -> None:
        """End the waits that reports have decided. `received_s`: when the server had received them, by the clock's `monotonic`.

        Call it when all positions and states that arrived together have been applied.
        """
        moved, self._moved = self._moved, {}
        for subscription, tables in moved.items():
            registry = self._registries.get(subscription)
            if registry is None:
                continue
            registry.report_received_s = received_s
            registry.end_reached_waits()
            if tables is None or tables:
                registry.end_decided_waits(tables)
            registry.report_received_s = None
            self.schedule_demand(subscription)

    def _apply_subscription_state(self, report: SubscriptionStateReport) -> bool:
        registry = self._registry_of(report)
        if registry is None:
            return report.subscription in self._registries
        status = registry.status
        status.set_state(SubscriptionState(report.state), report.run)
        status.set_reason(report.code, report.reason, report.remedy)
        self._moved[report.subscription] = None
        self._notify_onlookers()
        return True

    def _apply_table_state(self, report: TableStateReport) -> bool:
        registry = self._registry_of(report)
        if registry is None:
            return report.subscription in self._registries
        view = registry.status.tables.get(report.table)
        if view is None:
            return False
        view.state = TableStateKind(report.state)
        view.reason = report.reason
        view.remedy = report.remedy
        moved = self._moved.setdefault(report.subscription, set())
        if moved is not None:
            moved.add(report.table)
        return True

    def _apply_rows_set_aside(self, report: RowsSetAside) -> bool:
        registry = self._registry_of(report)
        for view in registry.status.tables.values() if registry is not None else ():
            view.set_aside = report.counts.get(view.id, 0 if report.whole else view.set_aside)
        return True

    def _apply_reload(self, report: ReloadReport) -> bool:
        registry = self._registry_of(report)
        if registry is None or report.state in UNENDED:
            return True
        whole = registry.status.reload == report.request_id
        ended = registry.status.end_reload(report.request_id)
        moved = self._moved.setdefault(report.subscription, set())
        if whole:
            self._moved[report.subscription] = None
        elif moved is not None:
            moved.update(ended)
        return True

    # Demand and the current position

    def schedule_demand(self, subscription: str) -> None:
        """Send the waits' demand in the next turn of the event loop, so that many waits added at once make few demands."""
        if subscription not in self._flushing:
            self._flushing.add(subscription)
            asyncio.get_running_loop().call_soon(self._send_demand, subscription)

    def _send_demand(self, subscription: str) -> None:
        self._flushing.discard(subscription)
        registry = self._registries.get(subscription)
        for mark in registry.take_demand() if registry is not None else ():
            self._hub.send_to_subscription(
                subscription, Demand(subscription=subscription, log=mark.log, position=mark.position)
            )

    def on_engine_ready(self, subscription: str) -> None:
        """An engine runs this subscription on a new stream: send it the demand of all waits again."""
        registry = self._registries.get(subscription)
        if registry is not None:
            registry.reset_demand()
            self.schedule_demand(subscription)
        self._notify_onlookers()

    async def read_now(self, subscription: str) -> Marks:
        """Marks at or after every commit that was acknowledged before this call; concurrent calls share one reading.

        For tables that were live when this was called, the structures that the source's catalog shows there are in
        force where it is applied.

        Raises EngineAwayError, EngineSilentError, AnswerError.
        """
        reader = self._nows.get(subscription)
        if reader is None:
            raise EngineAwayError
        return await reader.get()

    async def _read_now(self, subscription: str) -> Marks:
        engine_id, registry = self._hub.owner(subscription), self._registries.get(subscription)
        if engine_id is None or registry is None:
            raise EngineAwayError
        status, began = registry.status, self.clock.now()
        run = status.current_run
        live = frozenset(view.id for view in status.tables.values() if view.state is TableStateKind.LIVE)
        reply = await self._hub.request(
            engine_id, lambda request_id: NowCommand(request_id=request_id, subscription=subscription), NOW_TIMEOUT_S
        )
        body = NowBody.model_validate(reply.body if isinstance(reply, Answer) else {})
        if body.structure is not None:
            status.structure, status.structure_at = body.structure, body.structure_at
        marks = tuple(Mark(*each) for each in sorted(body.of_logs.items())) or single_mark(body.position)
        kept = self._readings.setdefault(subscription, deque(maxlen=MOST_READINGS))
        kept.append(Reading(began, marks, run, live))
        return marks

    def readings(self, subscription: str) -> Collection[Reading]:
        """The most recent readings of the source's current position, oldest first."""
        return self._readings.get(subscription, ())

    def end_waits_of_absent(self) -> None:
        """End the waits of subscriptions whose engine or source has been unavailable for too long. Called every second."""
        for registry in self._registries.values():
            if len(registry) and registry.status.lasting_absence() is not None:
                registry.end_decided_waits()
        if self._onlookers:
            self._notify_onlookers()

    # Observers

    async def wait_for_change(self) -> None:
        """Wait until the state of any subscription changed, or an engine took one."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._onlookers.add(future)
        try:
            await future
        finally:
            self._onlookers.discard(future)

    def _notify_onlookers(self) -> None:
        for future in list(self._onlookers):
            if not future.done():
                future.set_result(None)
