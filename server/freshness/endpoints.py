"""Freshness of a subscription, and waiting for it."""

from __future__ import annotations

import asyncio
from typing import Annotated, cast

from fastapi import APIRouter, Header, Path, Query, Request, Response, status
from fastapi.responses import JSONResponse
from starlette.background import BackgroundTask

from server.errors import InvalidRequest, NotFound, responses
from server.freshness.completeness import assess
from server.freshness.errors import FreshnessRefusedEarly, FreshnessTimeout, FreshnessUnavailable, FreshnessUnreachable
from server.freshness.schemas import Completeness, Freshness, Lag, Positions, WaitBody, WaitRequest, WaitSatisfied
from server.freshness.service import WaitHasEnded, WaitService
from server.freshness.tracker import FreshnessTracker
from server.freshness.wait import WaitOutcome, parse_request
from server.gateway.interface import EngineTimeout
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/subscriptions/{name}", tags=["freshness"], dependencies=[needs(Role.VIEWER)])

_CLIENT_CLOSED = 499


def tracker_of(request: Request) -> FreshnessTracker:
    return cast("FreshnessTracker", request.app.state.freshness)


def waits_of(request: Request) -> WaitService:
    return cast("WaitService", request.app.state.waits)


@router.get("/freshness", operation_id="freshness_get", responses=responses(NotFound))
async def get_freshness(request: Request, name: str) -> Freshness:
    """The current freshness of a subscription, without waiting."""
    tracker = tracker_of(request)
    current = (await tracker.current_registry(name)).status
    known = current.progress
    engine = request.app.state.hub.owner(name) is not None
    lag_bytes, lag_seconds = current.lag_at(request.app.state.clock.now(), engine=engine)
    return Freshness(
        subscription=name,
        state=current.state.value,
        positions=Positions(
            source=current.text(current.source),
            captured=current.text(known.captured if known else None),
            applied=current.text(current.applied),
            confirmed=current.confirmed_position is not None,
        ),
        lag=Lag(bytes=lag_bytes, seconds=lag_seconds),
        at=known.at if known else None,
        waits=tracker.count_waits(name),
    )


@router.get(
    "/tables/{table_id}/completeness", operation_id="tables_completeness", responses=responses(NotFound, InvalidRequest)
)
async def get_completeness(
    request: Request,
    name: str,
    table_id: Annotated[str, Path(max_length=64, description="The table's id.")],
    until: Annotated[
        str,
        Query(
            max_length=1000,
            description="A position of the source, or a time with its offset from UTC (RFC 3339).",
            examples=["2026-01-31T06:00:00Z"],
        ),
    ],
) -> Completeness:
    """Whether everything committed up to a position or a time is visible in a table, without waiting.

    For a time: whether every transaction whose commit was acknowledged to its client before it, by the server's clock, is visible.
    """
    return await assess(tracker_of(request), request.app.state.clock, name, table_id, until)


@router.post(
    "/freshness-waits",
    operation_id="freshness_waits_create",
    response_model=WaitSatisfied,
    responses={
        202: {"model": WaitBody, "description": "With `Prefer: respond-async`: the wait, to be polled at `Location`."},
        **responses(
            NotFound,
            FreshnessUnreachable,
            InvalidRequest,
            FreshnessUnavailable,
            FreshnessTimeout,
            FreshnessRefusedEarly,
            EngineTimeout,
        ),
    },
)
async def create_wait(
    request: Request,
    name: str,
    body: WaitRequest,
    prefer: Annotated[
        str | None,
        Header(
            max_length=1000,
            description="With `respond-async`, the response is 202 at once.",
            examples=["respond-async"],
        ),
    ] = None,
) -> Response:
    """Wait until everything committed on the source up to a position, or up to now, is visible on the target."""
    waits = waits_of(request)
    spec = await parse_request(tracker_of(request), name, body)
    if _wants_async(prefer):
        wait = await waits.begin_wait(spec)
        location = f"{request.url.path}/{wait.id}"
        headers = {"Location": location, "Preference-Applied": "respond-async"}
        return JSONResponse(wait.model_dump(mode="json"), status.HTTP_202_ACCEPTED, headers)
    answer = asyncio.ensure_future(waits.answer_wait(spec))
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            return Response(status_code=_CLIENT_CLOSED)
        satisfied, outcome = answer.result()
        return JSONResponse(satisfied.model_dump(mode="json"), background=_record_wake_up(request, name, outcome))
    finally:
        answer.cancel()
        gone.cancel()


@router.get("/freshness-waits/{wait_id}", operation_id="freshness_waits_get", responses=responses(NotFound))
async def get_wait(request: Request, name: str, wait_id: str) -> WaitBody:
    """A wait and, if it has ended, its outcome."""
    return await waits_of(request).get_wait(name, wait_id)


@router.delete(
    "/freshness-waits/{wait_id}",
    operation_id="freshness_waits_cancel",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=responses(NotFound, WaitHasEnded),
)
async def cancel_wait(request: Request, name: str, wait_id: str) -> None:
    """Cancel an outstanding wait."""
    await waits_of(request).cancel_wait(name, wait_id)


def _wants_async(prefer: str | None) -> bool:
    return any(part.split(";")[0].strip().lower() == "respond-async" for part in (prefer or "").split(","))


def _record_wake_up(request: Request, subscription: str, outcome: WaitOutcome) -> BackgroundTask | None:
    """What records the wake-up of a wait once its answer has been handed to the transport."""
    reported_s = outcome.reported_s
    if reported_s is None:
        return None
    state = request.app.state

    async def record() -> None:  # A plain function would run in a thread, which costs more than it does.
        state.meters.record_wake_up(subscription, state.clock.monotonic() - reported_s)

    return BackgroundTask(record)


async def _disconnected(request: Request) -> None:
    """Returns when the client has disconnected, so that its wait is cancelled."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
