"""Deletes what nobody needs any more: old events, history, remembered answers, delivered commands."""

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
from server.history import recorder as history
from server.logs import get_logger
from server.settings import Settings

_log = get_logger(__name__)
_EVERY_S = 3600
_DELIVERED_DAYS = 1


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """Upkeep at the start and every hour while the context lasts."""
    task = asyncio.create_task(_loop(app.state.database, app.state.settings))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _loop(database: Database, settings: Settings) -> None:
    while True:
        try:
            await run_in_threadpool(tidy, database, settings)
        except SQLAlchemyError:
            _log.exception("upkeep_failed")
        await asyncio.sleep(_EVERY_S)


def tidy(database: Database, settings: Settings) -> None:
    """One round."""
    with database.write() as session:
        now = session.now()
        events.delete_before(session, now - timedelta(days=settings.event_retention_days))
        history.forget_old(session)
        idempotency.forget_old(session, settings.idempotency_hours)
        session.exec(delete(OutboxRow).where(col(OutboxRow.delivered_at) < now - timedelta(days=_DELIVERED_DAYS)))
