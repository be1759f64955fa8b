"""Evaluates causes and delivers notices, at least once each, for the lifetime of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from sqlmodel import col, func, select

from server.alerts.notices import due_steps, store_steps
from server.alerts.senders import NotDelivered, Receiver, send_in_thread
from server.assessment.assess import ConnectedFor
from server.clock import Clock
from server.db.database import Database
from server.db.models.alert import AlertChannelRow, AlertDeliveryRow
from server.events.service import record_event
from server.logs import get_logger
from server.security.secret_box import SecretBox, SecretsUnreadable

EVERY_S = 5.0
MOST_ATTEMPTS = 10
"""With the pauses between them, about 40 minutes."""
_THREADS = 2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 600.0

Result = TypeVar("Result")
log = get_logger(__name__)


class Alerts:
    """Called on the event loop. The control database is accessed in threads of its own, and each receiver in another: an endpoint that does
    not answer delays neither requests and reports nor other channels."""

    def __init__(self, database: Database, box: SecretBox, clock: Clock, connected_s: ConnectedFor) -> None:
        self._database = database
        self._box = box
        self._clock = clock
        self._connected_s = connected_s
        self._started_at = clock.now()
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._threads = CapacityLimiter(_THREADS)

    async def run(self) -> None:
        """Evaluate and deliver, until cancelled. An error is logged; the next round tries again."""
        try:
            while True:
                try:
                    await self.evaluate()
                    await self.start_deliveries()
                except Exception:
                    log.exception("alerts_failed")
                await asyncio.sleep(EVERY_S)
        finally:
            sending = list(self._sending.values())
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    async def evaluate(self) -> None:
        """Compare all causes with what channels know, and store the notices that are due."""
        await self._in_thread(self._evaluate)

    def _evaluate(self) -> None:
        now = self._clock.now()
        up_s = (now - self._started_at).total_seconds()
        with self._database.read() as session:
            due = due_steps(session, self._connected_s, now, up_s)
        if not due:
            return
        with self._database.write() as session:
            # Read again: a channel may have been changed or deleted meanwhile.
            for channel, steps in due_steps(session, self._connected_s, now, up_s):
                store_steps(session, channel, steps)

    async def start_deliveries(self) -> None:
        """Begin to deliver to each channel that has a notice due and is not being delivered to."""
        for channel in await self._in_thread(self._due_channels):
            if channel not in self._sending:
                task = self._sending[channel] = asyncio.create_task(self._deliver(channel))
                task.add_done_callback(partial(self._forget, channel))

    def _forget(self, channel: int, _: asyncio.Task[None]) -> None:
        del self._sending[channel]

    async def finish_deliveries(self) -> None:
        """Wait for the deliveries that have begun."""
        await asyncio.gather(*self._sending.values())

    async def _deliver(self, channel: int) -> None:
        """Deliver what is due to a channel, in order, until an attempt fails."""
        try:
            while (due := await self._in_thread(partial(self._next_due, channel))) is not None:
                number, notice, receiver = due
                error = "The channel's secrets cannot be opened."
                if receiver is not None:
                    error = await self._attempt(receiver, notice)
                await self._in_thread(partial(self._record, number, error))
        except Exception:
            log.exception("alert_delivery_failed", channel=channel)

    async def _attempt(self, receiver: Receiver, notice: dict[str, Any]) -> str:
        """Why the notice was not accepted; empty if it was."""
        try:
            await send_in_thread(receiver, notice, self._clock.now())
        except NotDelivered as error:
            return str(error)
        return ""

    def _due_channels(self) -> list[int]:
        with self._database.read() as session:
            now = self._clock.now()
            heads = select(func.min(AlertDeliveryRow.id)).group_by(col(AlertDeliveryRow.channel_id))
            query = select(AlertDeliveryRow.channel_id).where(
                col(AlertDeliveryRow.id).in_(heads), AlertDeliveryRow.due_at <= now
            )
            return list(session.exec(query))

    def _next_due(self, channel: int) -> tuple[int, dict[str, Any], Receiver | None] | None:
        """The oldest notice of a channel if it is due; without a receiver if the channel's secrets cannot be opened."""
        with self._database.read() as session:
            query = select(AlertDeliveryRow).where(AlertDeliveryRow.channel_id == channel)
            head = session.exec(query.order_by(col(AlertDeliveryRow.id)).limit(1)).first()
            row = session.get(AlertChannelRow, channel)
            if head is None or row is None or head.id is None or head.due_at > self._clock.now():
                return None
            try:
                return head.id, head.notice, Receiver.of(row, self._box)
            except SecretsUnreadable:
                return head.id, head.notice, None

    def _record(self, number: int, error: str) -> None:
        """Store the result of an attempt. After the last one the notice is given up, with an event."""
        with self._database.write() as session:
            head = session.get(AlertDeliveryRow, number)
            channel = None if head is None else session.get(AlertChannelRow, head.channel_id)
            if head is None or channel is None:
                return
            now = session.now()
            channel.last_error = error or None
            channel.delivered_at = channel.delivered_at if error else now
            session.add(channel)
            head.attempts += 1
            if error and head.attempts < MOST_ATTEMPTS:
                head.due_at = now + _pause(head.attempts)
                session.add(head)
                log.warning("alert_not_delivered", channel=channel.name, attempts=head.attempts, reason=error)
                return
            if error:
                record_event(
                    session,
                    kind="alert_not_delivered",
                    severity="warning",
                    subscription=head.notice["subscription"],
                    subject=channel.name,
                    detail=f"A notice to the alert channel '{channel.name}' was given up. {error}",
                    remedy="Correct the alert channel, and test it.",
                )
            session.delete(head)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await to_thread.run_sync(work, limiter=self._threads)


def _pause(attempts: int) -> timedelta:
    return timedelta(seconds=min(_FIRST_PAUSE_S * 2 ** (attempts - 1), _LONGEST_PAUSE_S))


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """Evaluate causes and deliver notices for the lifetime of the application. The engines' channel must run."""
    state = app.state
    alerts = Alerts(state.database, state.secret_box, state.clock, state.engine_gateway.connected_s)
    task = asyncio.create_task(alerts.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
