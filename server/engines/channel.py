"""The server's end of the control channel: streams, claims, leases, and delivery of the outbox.

Lives on the event loop; the control database is used in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from sqlmodel import col, select

from engine.link.message import encode
from engine.link.messages import (
    Answer,
    Command,
    Forgotten,
    Heartbeat,
    Progress,
    Registered,
    Registration,
    ReloadReport,
    Report,
    SubscriptionStateReport,
    Sync,
    TableStateReport,
)
from server.db.database import Database
from server.db.models.outbox import OutboxRow
from server.db.signals import Change
from server.engines import assignments, reports
from server.engines.commands import initial_commands, outbox_commands
from server.errors import Problem
from server.freshness.service import WaitService
from server.freshness.tracker import FreshnessTracker
from server.gateway.hub import CommandStream, Hub
from server.gateway.hub_gateway import HubGateway
from server.gateway.threads import EngineThreads
from server.goals.recorder import GoalRecorder
from server.history.recorder import Recorder
from server.logs import get_logger
from server.metrics.gauges import Gauges
from server.metrics.meters import Meters
from server.security.secret_box import SecretBox
from server.verifications.schedule import VerifiedShares

log = get_logger(__name__)


class ServerStopping(Problem):
    status = 503
    code = "server_stopping"
    title = "The server is about to stop"
    default_remedy = "Connect again in a moment."


LEASE_S = 10.0
HEARTBEAT_S = 2.0


_STATES = SubscriptionStateReport | TableStateReport | ReloadReport | Forgotten
"""Reports that must be committed before they are applied to the statuses."""

ReportObserver = Callable[[Report], None]
"""Called on the event loop with each report that counted, once it is written; must not block or raise."""


class EngineChannel:
    """Connects the control database with the connected engines."""

    def __init__(
        self,
        database: Database,
        box: SecretBox,
        threads: EngineThreads,
        hub: Hub,
        freshness: FreshnessTracker,
        observers: Sequence[ReportObserver],
    ) -> None:
        self.lease_s = LEASE_S
        self.heartbeat_s = HEARTBEAT_S
        self.hub = hub
        self._database = database
        self._box = box
        self._threads = threads
        self._freshness = freshness
        self._observers = tuple(observers)
        self._gone_since: dict[str, float] = {}
        self._lost: set[str] = set()
        self._touched: set[str] = set()
        self._sequences: dict[str, int] = {}
        """The last bundle of each engine that was applied to the statuses."""
        self._bell = asyncio.Event()

    # Registration and streams

    async def register_engine(self, registration: Registration) -> Registered:
        """Register an engine; safe to repeat."""

        def write() -> Registered:
            with self._database.write() as session:
                row = assignments.register_engine(session, registration)
                return Registered(
                    engine_id=row.id,
                    lease_seconds=self.lease_s,
                    heartbeat_seconds=self.heartbeat_s,
                    epochs=assignments.assigned_subscriptions(session, row.id),
                    report_sequence=row.report_sequence,
                )

        return await self._threads.run(write)

    async def open_stream(self, engine_id: str) -> CommandStream:
        """Open an engine's stream.

        Raises:
            NotFound: the engine is unknown and must register.
            ServerStopping: the server is shutting down.
        """
        if self.hub.shutting:
            raise ServerStopping("The server is about to stop.")

        def require() -> None:
            with self._database.read() as session:
                assignments.require_engine(session, engine_id)

        await self._threads.run(require)
        stream = self.hub.open_stream(engine_id)
        self._gone_since.pop(engine_id, None)
        self._lost.discard(engine_id)
        return stream

    async def _begin_stream(self, stream: CommandStream) -> None:
        """Begin a stream with the whole state."""
        try:
            mine, commands = await self._claim_subscriptions(stream.engine_id, stream.name)
        except Exception:
            log.exception("greeting_failed", engine=stream.engine_id)
            stream.finish()
            return
        stream.greet(commands)
        for name in mine:
            self._freshness.on_engine_ready(name)
        self._notify_watchers(stream.engine_id)
        log.info("engine_connected", engine=stream.engine_id, subscriptions=len(mine))

    def close_stream(self, stream: CommandStream) -> None:
        """The connection of a stream has ended; the engine's lease begins to expire."""
        if self.hub.close_stream(stream):
            self._gone_since[stream.engine_id] = asyncio.get_running_loop().time()
            self._notify_watchers(stream.engine_id)
            log.info("engine_disconnected", engine=stream.engine_id)

    def _notify_watchers(self, engine_id: str) -> None:
        """Notify watchers: an engine's connection affects the health of its subscriptions without a commit."""
        self._database.signals.send(Change(subscriptions=self.hub.subscriptions_of(engine_id)))

    async def stream_lines(self, stream: CommandStream) -> AsyncIterator[bytes]:
        """Lines of the stream, with heartbeats in between, until either side ends it."""
        heartbeat = encode(Heartbeat(at_most_s=self.heartbeat_s)) + b"\n"
        yield heartbeat
        greeting_task = asyncio.ensure_future(self._begin_stream(stream))
        try:
            while True:
                try:
                    line = await asyncio.wait_for(stream.lines.get(), self.heartbeat_s)
                except TimeoutError:
                    line = heartbeat
                if line is None:
                    return
                yield line
        finally:
            greeting_task.cancel()

    async def _claim_subscriptions(self, engine_id: str, stream: str) -> tuple[dict[str, int], list[Command]]:
        def write() -> tuple[dict[str, int], dict[str, int], list[Command]]:
            with self._database.write() as session:
                before = assignments.assigned_subscriptions(session, engine_id)
                mine = assignments.claim_subscriptions(session, engine_id, self._holds_lease, self.hub.is_connected)
                return before, mine, initial_commands(session, self._box, mine, stream)

        async with self._freshness.state_lock:
            before, mine, commands = await self._threads.run(write)
        for name in mine:
            self.hub.assign_owner(name, engine_id)
        await self._freshness.refresh(list(mine))
        for name in mine.keys() - before.keys():
            log.info("subscription_assigned", subscription=name, engine=engine_id, epoch=mine[name])
        return mine, commands

    def _holds_lease(self, engine_id: str) -> bool:
        return self.hub.is_connected(engine_id) or (engine_id in self._gone_since and engine_id not in self._lost)

    # Reports

    async def apply_reports(
        self, engine_id: str, sequence: int, bundle: Sequence[Report], received_s: float | None = None
    ) -> None:
        """Apply a bundle of reports and end the waits that it satisfies. `received_s`: when its bytes had been received, by the
        clock's `monotonic`.

        Progress ends waits before it is written: it is durable on the target already. States are written first.
        """
        if any(isinstance(report, _STATES) for report in bundle):
            async with self._freshness.state_lock:
                counted = await self._write(engine_id, sequence, bundle)
                self._record_sequence(engine_id, sequence)
                unknown = self._apply_to_status(counted, received_s)
            if unknown:
                await self._freshness.refresh(sorted(unknown))
        else:
            if sequence > self._sequences.get(engine_id, 0):  # A repeated bundle may be outdated.
                self._record_sequence(engine_id, sequence)
                self._apply_to_status(bundle, received_s)
            counted = await self._write(engine_id, sequence, bundle)
        for report in counted:
            for observe in self._observers:
                observe(report)

    def apply_positions(
        self, engine_id: str, after: int, positions: Sequence[Progress], received_s: float | None = None
    ) -> bool:
        """Apply positions while the bundle `after` may still be being written, and end the waits that they satisfy.

        Returns False, and applies nothing, unless `after` is the last bundle of the engine that was applied to the statuses: the states of
        an earlier bundle must be known before, and positions that were delayed until a later bundle are outdated.
        """
        if self._sequences.get(engine_id) != after:
            return False
        for report in positions:
            self._freshness.apply_report(report)
        self._freshness.judge_waits(received_s)
        return True

    async def _write(self, engine_id: str, sequence: int, bundle: Sequence[Report]) -> list[Report]:
        def write() -> list[Report] | None:
            with self._database.write() as session:
                return reports.write_reports(session, engine_id, sequence, bundle)

        return await self._threads.run(write) or []

    def _apply_to_status(self, bundle: Sequence[Report], received_s: float | None) -> set[str]:
        """Apply reports to the statuses; returns the subscriptions whose statuses must be read again."""
        unknown = set()
        for report in bundle:
            if isinstance(report, Answer):
                self.hub.resolve_request(report.request_id, report)
            elif isinstance(report, Forgotten):
                self.hub.clear_owner(report.subscription)
                unknown.add(report.subscription)
            elif not self._freshness.apply_report(report):
                unknown.add(report.subscription)
        self._freshness.judge_waits(received_s)
        return unknown

    def _record_sequence(self, engine_id: str, sequence: int) -> None:
        self._sequences[engine_id] = max(sequence, self._sequences.get(engine_id, 0))

    # Outbox

    def notify_commit(self, change: Change, loop: asyncio.AbstractEventLoop) -> None:
        """Called in the committing thread after a commit that added to the outbox or changed subscriptions."""
        if not loop.is_closed():
            if change.outbox:
                loop.call_soon_threadsafe(self._bell.set)
            if change.subscriptions:
                loop.call_soon_threadsafe(self._touched.update, change.subscriptions)
            if change.declared:
                loop.call_soon_threadsafe(self._freshness.mark_outdated, change.declared)

    async def deliver_outbox(self) -> None:
        """Deliver the outbox until cancelled."""
        while True:
            self._bell.clear()
            try:
                while await self._deliver_batch():
                    pass
            except Exception:
                log.exception("outbox_failed")
                await asyncio.sleep(1.0)
                continue
            await self._bell.wait()

    async def _deliver_batch(self) -> int:
        """Send the oldest undelivered commands. Commands that cannot be sent are included in the start of the next stream."""

        def write() -> tuple[int, set[str], list[tuple[str, Command]]]:
            with self._database.write() as session:
                query = select(OutboxRow).where(col(OutboxRow.delivered_at).is_(None)).order_by(col(OutboxRow.id))
                rows = list(session.exec(query.limit(500)))
                for row in rows:
                    row.delivered_at = session.now()
                    session.add(row)
                names = {row.subscription for row in rows if row.subscription is not None}
                return len(rows), names, outbox_commands(session, self._box, rows)

        async with self._freshness.state_lock:
            count, names, commands = await self._threads.run(write)
            # A claim would wait for the lock: these streams are to the engines of which the commands have the epochs.
            streams = {name: self.hub.stream_of(name) for name, _ in commands}
        if names:
            await self._freshness.refresh(sorted(names))
        if None in streams.values():
            await self._assign_unowned()
        for name, command in commands:
            if streams[name] is not None and self.hub.stream_of(name) == streams[name]:
                self.hub.send_to_subscription(name, command)
        return count

    async def _assign_unowned(self) -> None:
        """Assign subscriptions without an engine to the engine that has been connected longest."""
        for engine_id in self.hub.engines[:1]:
            mine, commands = await self._claim_subscriptions(engine_id, self.hub.stream_to(engine_id))
            for command in commands:
                self.hub.send(engine_id, command)
            for name in mine:
                self._freshness.on_engine_ready(name)

    # Leases

    async def begin_leases(self) -> None:
        """After a start no engine is connected: give each the duration of a lease to reconnect."""
        await self._freshness.refresh()

        def read() -> set[str]:
            with self._database.read() as session:
                return assignments.engines_with_subscriptions(session)

        now = asyncio.get_running_loop().time()
        for engine_id in await self._threads.run(read):
            self._gone_since[engine_id] = now

    async def watch_leases(self) -> None:
        """Release engines whose lease has expired, until cancelled."""
        while True:
            await asyncio.sleep(min(1.0, self.lease_s / 4))
            now = asyncio.get_running_loop().time()
            await self._release_deleted()
            self._freshness.end_waits_of_absent()
            over = [e for e, since in self._gone_since.items() if now - since > self.lease_s and e not in self._lost]
            for engine_id in over:
                try:
                    await self._release_lost_engine(engine_id)
                except Exception:
                    log.exception("lease_failed", engine=engine_id)

    async def _release_deleted(self) -> None:
        """Tell engines to release subscriptions that were deleted by force."""
        touched, self._touched = self._touched, set()
        gone = await self._freshness.find_deleted(touched) if touched else set()
        if not gone:
            return
        owners = {owner for name in gone if (owner := self.hub.owner(name)) is not None}
        await self._freshness.refresh(sorted(gone))
        for name in gone:
            self.hub.clear_owner(name)
        for engine_id in owners:
            mine = await self._threads.run(partial(self._assigned_subscriptions, engine_id))
            self.hub.send(engine_id, Sync(subscriptions=mine, stream=self.hub.stream_to(engine_id)))

    def _assigned_subscriptions(self, engine_id: str) -> dict[str, int]:
        with self._database.read() as session:
            return assignments.assigned_subscriptions(session, engine_id)

    async def _release_lost_engine(self, engine_id: str) -> None:
        def write() -> list[str]:
            with self._database.write() as session:
                return assignments.release_engine(session, engine_id)

        async with self._freshness.state_lock:
            if engine_id not in self._gone_since:
                return
            names = await self._threads.run(write)
        self._lost.add(engine_id)
        if names:
            log.warning("engine_lost", engine=engine_id, subscriptions=len(names))
            await self._freshness.refresh(names)
            await self._assign_unowned()


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """Run channel, freshness waits, meters, history and freshness goals for the lifetime of the application."""
    database: Database = app.state.database
    hub = Hub()
    threads = EngineThreads()
    meters = Meters()
    freshness = FreshnessTracker(database, threads, hub, app.state.clock)
    recorder = Recorder(database, threads, app.state.clock)
    waits = WaitService(database, app.state.clock, freshness, (meters.record_wait, recorder.record_wait))
    shares = VerifiedShares(database, app.state.clock)
    goals = GoalRecorder(database, threads, freshness, app.state.clock)
    observers = meters.record_report, recorder.record_report, goals.record_report
    channel = EngineChannel(database, app.state.secret_box, threads, hub, freshness, observers)
    app.state.hub, app.state.channel, app.state.freshness = hub, channel, freshness
    app.state.waits, app.state.meters, app.state.engine_threads = waits, meters, threads
    app.state.recorder, app.state.goals = recorder, goals
    app.state.engine_gateway = HubGateway(hub)
    meters.registry.register(
        Gauges(hub, freshness, app.state.clock, app.version, lambda: goals.measurements, lambda: shares.by_subscription)
    )
    loop = asyncio.get_running_loop()
    # Used at shutdown: streams do not end without it.
    app.state.stop_streams = lambda: loop.call_soon_threadsafe(hub.close_all)
    stop_listening = database.signals.listen(lambda change: channel.notify_commit(change, loop))
    await channel.begin_leases()
    await waits.resume_waits()
    works = (
        channel.deliver_outbox(),
        channel.watch_leases(),
        recorder.keep_writing(),
        goals.keep_recording(),
        shares.keep_counting(),
    )
    tasks = [loop.create_task(work) for work in works]
    try:
        yield
    finally:
        stop_listening()
        await waits.stop()
        hub.close_all()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await recorder.write(everything=True)
        await goals.stop()
