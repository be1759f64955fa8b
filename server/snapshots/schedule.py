"""Takes the snapshots that schedules demand, for the lifetime of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from server.clock import Clock
from server.db.database import Database
from server.logs import get_logger
from server.snapshots.service import due_schedules, take_due

EVERY_S = 2.0
"""Seconds between two looks for what is due: the least interval of a schedule is five times that. Not measured."""

log = get_logger(__name__)


def take_round(database: Database, clock: Clock) -> None:
    """One look for what is due. Blocking: call it in a thread."""
    with database.read() as session:
        due = due_schedules(session, clock.now())
    for name in due:
        with database.write() as session:
            take_due(session, name)


async def _keep_taking(database: Database, clock: Clock) -> None:
    while True:
        try:
            await run_in_threadpool(take_round, database, clock)
        except Exception:
            log.exception("snapshot_schedules_failed")
        await asyncio.sleep(EVERY_S)


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """Take due snapshots while the context lasts. An error is logged; the next round tries again."""
    task = asyncio.create_task(_keep_taking(app.state.database, app.state.clock))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
