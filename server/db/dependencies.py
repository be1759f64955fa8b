"""Sessions as endpoint parameters. A write session is committed after the endpoint returns and before the answer is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, cast

from fastapi import Depends, Request

from server.db.database import Database
from server.db.session import ReadSession, WriteSession


def database_of(request: Request) -> Database:
    """The application's control database."""
    return cast("Database", request.app.state.database)


def _read_session(request: Request) -> Iterator[ReadSession]:
    with database_of(request).read() as session:
        yield session


def _write_session(request: Request) -> Iterator[WriteSession]:
    with database_of(request).write() as session:
        yield session


Reading = Annotated[ReadSession, Depends(_read_session, scope="function")]
Writing = Annotated[WriteSession, Depends(_write_session, scope="function")]
