"""Events: the list, and the event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlmodel import col

from server.db.dependencies import Reading, database_of
from server.db.models.event import EventRow
from server.errors import responses
from server.events import repository
from server.events.schemas import Changed, EventView, Severity
from server.events.stream import watchers_of
from server.paging import Page, PageTokenInvalid, Paging
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/events", tags=["events"], dependencies=[needs(Role.VIEWER)])

_AT_ONCE = 200
_COALESCE_S = 0.25


@router.get("", operation_id="events_list", summary="List events", responses=responses(PageTokenInvalid))
def list_events(
    session: Reading,
    paging: Paging,
    subscription: Annotated[str | None, Query(description="Only those of this subscription.")] = None,
    kind: Annotated[str | None, Query(description="Only those of this kind.")] = None,
    severity: Annotated[Severity | None, Query(description="Only those of this severity.")] = None,
    subject: Annotated[
        str | None, Query(description="Only those about this table, slot or file; a table as schema.name.")
    ] = None,
) -> Page[EventView]:
    """What happened, newest first."""
    query = repository.select_events(subscription=subscription, kind=kind, severity=severity, subject=subject)
    return paging.read(session, query, EventView.model_validate, col(EventRow.id), newest_first=True)


@router.get("/stream", operation_id="events_stream", summary="Watch events", response_class=EventSourceResponse)
async def stream_events(
    request: Request,
    subscription: Annotated[str | None, Query(description="Only events of this subscription.")] = None,
    last_event_id: Annotated[
        int | None, Header(ge=0, description="Begin after this event; without it, only new events are sent.")
    ] = None,
) -> AsyncIterable[ServerSentEvent]:
    """Server-sent events: `event` brings an event with its id; `changed` names a subscription to be read again.

    `changed` has no id and is coalesced to at most four a second.
    """
    database = database_of(request)

    def read(behind: int | None) -> tuple[int, list[EventRow]]:
        with database.read() as session:
            if behind is None:
                return repository.newest_id(session), []
            rows = repository.list_after(session, behind, _AT_ONCE, subscription)
            return (rows[-1].id or behind) if rows else behind, rows

    with watchers_of(request).watch() as watcher:
        seen = last_event_id
        yield ServerSentEvent(comment="connected")
        while True:
            seen, rows = await run_in_threadpool(read, seen)
            for row in rows:
                yield ServerSentEvent(data=EventView.model_validate(row), event="event", id=str(row.id))
            there_are_more = len(rows) == _AT_ONCE
            while not there_are_more:
                news = await watcher.next()
                for name in sorted(news.subscriptions):
                    if subscription in (None, name):
                        yield ServerSentEvent(data=Changed(subscription=name), event="changed")
                await asyncio.sleep(_COALESCE_S)
                # Most commits bring none, and hundreds of streams would read for nothing four times a second.
                there_are_more = news.events
