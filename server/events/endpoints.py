"""Events: the list, and the event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from sqlmodel import col

from server.db.database import Database
from server.db.dependencies import Reading, database_of
from server.db.models.event import EventRow
from server.errors import responses
from server.events import repository
from server.events.schemas import Changed, EventView, Severity
from server.events.stream import Watchers, watchers_of
from server.paging import Page, PageTokenInvalid, Paging
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/events", tags=["events"], dependencies=[needs(Role.VIEWER)])

_AT_ONCE = 200
_COALESCE_S = 0.25
_KEEPALIVE_S = 15.0
"""Seconds without a frame after which a comment is sent, so that proxies keep the connection."""


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


class _EventStream(StreamingResponse):
    media_type = "text/event-stream"


_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            "text/event-stream": {
                "itemSchema": {
                    "type": "object",
                    "properties": {
                        "data": {"type": "string"},
                        "event": {"type": "string"},
                        "id": {"type": "string"},
                        "retry": {"type": "integer", "minimum": 0},
                    },
                }
            }
        }
    }
}


@router.get(
    "/stream",
    operation_id="events_stream",
    summary="Watch events",
    response_class=Response,
    responses=_STREAM,
)
async def stream_events(
    request: Request,
    subscription: Annotated[str | None, Query(description="Only events of this subscription.")] = None,
    last_event_id: Annotated[
        int | None, Header(ge=0, description="Begin after this event; without it, only new events are sent.")
    ] = None,
) -> _EventStream:
    """Server-sent events: `event` brings an event with its id; `changed` names a subscription to be read again.

    `changed` has no id and is coalesced to at most four a second.
    """
    frames = _frames(database_of(request), watchers_of(request), subscription, last_event_id)
    return _EventStream(frames, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})


async def _frames(
    database: Database, watchers: Watchers, subscription: str | None, seen: int | None
) -> AsyncIterator[bytes]:
    """Frames of a stream. FastAPI's own streams pass each frame through two queues and a timeout, which costs several times as much."""

    def read(behind: int | None) -> tuple[int, list[EventRow]]:
        with database.read() as session:
            if behind is None:
                return repository.newest_id(session), []
            rows = repository.list_after(session, behind, _AT_ONCE, subscription)
            return (rows[-1].id or behind) if rows else behind, rows

    with watchers.watch() as watcher:
        yield format_sse_event(comment="connected")
        while True:
            seen, rows = await run_in_threadpool(read, seen)
            for row in rows:
                data = EventView.model_validate(row).model_dump_json()
                yield format_sse_event(data_str=data, event="event", id=str(row.id))
            there_are_more = len(rows) == _AT_ONCE
            while not there_are_more:
                try:
                    async with asyncio.timeout(_KEEPALIVE_S):
                        news = await watcher.next()
                except TimeoutError:
                    yield KEEPALIVE_COMMENT
                    continue
                for name in sorted(news.subscriptions):
                    if subscription in (None, name):
                        yield _changed_frame(name)
                await asyncio.sleep(_COALESCE_S)
                # Most commits bring none, and hundreds of streams would read for nothing four times a second.
                there_are_more = news.events


@lru_cache(maxsize=1000)
def _changed_frame(subscription: str) -> bytes:
    return format_sse_event(data_str=Changed(subscription=subscription).model_dump_json(), event="changed")
