"""The retention job: deletes expired events, steps of the history, hours of freshness goals, stored answers and delivered commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col, delete

from server import idempotency
from server.db.database import Database
from server.db.models.outbox import OutboxRow
from server.events import repository as events
from server.goals import repository as goals
from server.history import recorder as history
from server.logs import get_logger
from server.settings import Settings

_log = get_logger(__name__)
_EVERY_S = 3600
_DELIVERED_DAYS = 1


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """Run the job at the start and every hour while the context lasts. A database error is logged; the next round retries."""
    task = asyncio.create_task(_delete_expired_hourly(app.state.database, app.state.settings))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _delete_expired_hourly(database: Database, settings: Settings) -> None:
    while True:
        try:
            await run_in_threadpool(delete_expired, database, settings)
        except SQLAlchemyError:
            _log.exception("upkeep_failed")
        await asyncio.sleep(_EVERY_S)


def delete_expired(database: Database, settings: Settings) -> None:
    """One round, in one transaction. Blocking: call it in a thread."""
    with database.write() as session:
        now = session.now()
        events.delete_before(session, now - timedelta(days=settings.event_retention_days))
        history.delete_old_steps(session)
        goals.delete_expired(session)
        idempotency.delete_old_answers(session, settings.idempotency_hours)
        session.exec(delete(OutboxRow).where(col(OutboxRow.delivered_at) < now - timedelta(days=_DELIVERED_DAYS)))
