"""Begins the verifications that schedules demand, and counts what is verified, for the lifetime of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from sqlmodel import select

from server.assessment.assess import ConnectedFor
from server.clock import Clock
from server.db.database import Database
from server.db.models.subscription import SubscriptionRow
from server.declarations.policies import VerifyBody
from server.logs import get_logger
from server.tables.schemas import VerifiedShare
from server.tables.verified import interval_of, share_of
from server.verifications.scheduled import due_subscriptions, take_step

EVERY_S = 3.0
"""Seconds between two looks for what is due. Not measured."""
COUNT_EVERY_S = 60.0
"""Seconds between two counts for the metrics. A count takes 1 s for 20,000 tables."""

log = get_logger(__name__)


def verify_round(database: Database, clock: Clock, connected_s: ConnectedFor) -> None:
    """One look for what is due. Blocking: call it in a thread."""
    with database.read() as session:
        due = due_subscriptions(session, clock.now(), connected_s)
    for name in due:
        with database.write() as session:
            take_step(session, name, connected_s)


class VerifiedShares:
    """How much of each subscription with a schedule is verified, for the metrics."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.by_subscription: Mapping[str, VerifiedShare] = {}

    def count(self) -> None:
        """Count again. Blocking: call it in a thread."""
        with self._database.read() as session:
            rows = session.exec(select(SubscriptionRow)).all()
            intervals = [(row, interval_of(VerifyBody.model_validate(row.verify))) for row in rows]
            now = self._clock.now()
            self.by_subscription = {
                row.name: share_of(session, row.id or 0, every, now) for row, every in intervals if every is not None
            }

    async def keep_counting(self) -> None:
        """Count every few seconds. An error is logged; the figures stay as they were."""
        while True:
            try:
                await run_in_threadpool(self.count)
            except Exception:
                log.exception("verified_shares_failed")
            await asyncio.sleep(COUNT_EVERY_S)


async def _keep_verifying(app: FastAPI) -> None:
    while True:
        try:
            connected_s = app.state.engine_gateway.connected_s
            await run_in_threadpool(verify_round, app.state.database, app.state.clock, connected_s)
        except Exception:
            log.exception("verification_schedules_failed")
        await asyncio.sleep(EVERY_S)


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """Begin due verifications while the context lasts. An error is logged; the next round tries again."""
    task = asyncio.create_task(_keep_verifying(app))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
