"""Sessions as endpoint parameters. A write session is committed after the endpoint returns and before the answer is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from server.db.database import Database
from server.db.session import ReadSession, WriteSession

Result = TypeVar("Result")


def database_of(request: Request) -> Database:
    """The application's control database."""
    return cast("Database", request.app.state.database)


async def run_read(request: Request, work: Callable[[ReadSession], Result]) -> Result:
    """Run `work` with a session in a thread, for endpoints on the event loop."""

    def run() -> Result:
        with database_of(request).read() as session:
            return work(session)

    return await run_in_threadpool(run)


async def run_write(request: Request, work: Callable[[WriteSession], Result]) -> Result:
    """As `run_read`; the session is committed when `work` returns."""

    def run() -> Result:
        with database_of(request).write() as session:
            return work(session)

    return await run_in_threadpool(run)


def _read_session(request: Request) -> Iterator[ReadSession]:
    with database_of(request).read() as session:
        yield session


def _write_session(request: Request) -> Iterator[WriteSession]:
    with database_of(request).write() as session:
        yield session


Reading = Annotated[ReadSession, Depends(_read_session, scope="function")]
Writing = Annotated[WriteSession, Depends(_write_session, scope="function")]
