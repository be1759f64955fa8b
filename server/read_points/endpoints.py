"""Read points of a subscription: create one, list them, end one."""

from __future__ import annotations

import asyncio
import secrets
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response, status

from engine.link.read_points import ReadPointPart, ReadPointsBody
from engine.model.positions import ONLY_LOG, first_uncovered
from server.db.dependencies import run_read, run_write
from server.errors import Conflict, InvalidRequest, NotFound, ReportedProblem, responses
from server.freshness.endpoints import tracker_of, waits_of
from server.freshness.errors import FreshnessTimeout, FreshnessUnavailable, FreshnessUnreachable
from server.freshness.schemas import WaitRequest
from server.freshness.wait import parse_request
from server.gateway.interface import EngineTimeout, EngineUnavailable, ask_engine
from server.lookup.read_points import unknown_read_point
from server.lookup.subscriptions import require_subscription
from server.naming import NamePath
from server.paging import Page
from server.read_points import service
from server.read_points.schemas import ReadPointFreshness, ReadPointRequest, ReadPointView
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/subscriptions/{name}/read-points", tags=["read points"], dependencies=[needs(Role.VIEWER)])


class ReadPointExists(Conflict):
    code = "read_point_exists"
    title = "There is a read point of this name"
    default_remedy = "Use another name, or delete it first."


class ReadPointLimit(Conflict):
    code = "read_point_limit"
    title = "The engine keeps as many read points as it may, or for less time"
    default_remedy = "Delete one, wait until one expires, or raise PENSTOCK_READ_POINTS of the engine."


@router.post(
    "",
    operation_id="read_points_create",
    status_code=status.HTTP_201_CREATED,
    responses=responses(
        NotFound,
        ReadPointExists,
        ReadPointLimit,
        FreshnessUnreachable,
        InvalidRequest,
        EngineUnavailable,
        FreshnessUnavailable,
        FreshnessTimeout,
        EngineTimeout,
    ),
)
async def create_read_point(
    request: Request, response: Response, name: NamePath, body: ReadPointRequest
) -> ReadPointView:
    """Keep the state of all tables at one batch boundary for queries, with the requested freshness at least."""
    position = await _wait(request, name, body.freshness)
    wanted = {"name": body.name, "id": f"rp{secrets.token_hex(8)}", "ttl_ms": body.ttl_seconds * 1000}
    kept = await _ask(request, name, "hold", **wanted)
    made = next(part for part in kept.points if part.id == wanted["id"])
    # A request that is cancelled here would leave a read point that is not stored.
    view = await asyncio.shield(_store(request, name, made, kept, position))
    response.headers["Location"] = f"{request.url.path}/{body.name}"
    return view


async def _store(
    request: Request, name: str, made: ReadPointPart, kept: ReadPointsBody, wanted: str | None
) -> ReadPointView:
    """Store what the engine created. Raises ReportedProblem if it is not at the position that was waited for."""
    form = (await tracker_of(request).current_registry(name)).status.form
    # Of a position of nodes it is only known that it was applied when the wait ended.
    marks = tuple(mark for mark in form.parse(wanted) if mark.log == ONLY_LOG) if wanted is not None else ()
    if first_uncovered({ONLY_LOG: made.position}, marks) is not None:
        await _ask(request, name, "release", name=made.name)
        raise ReportedProblem(502, "answer_too_old", "The target was set back meanwhile.", "Send the request again.")
    row = await run_write(request, lambda session: service.store_read_point(session, name, made))
    return await run_read(request, lambda session: service.read_point_view(session, name, row, kept, _now(request)))


@router.get("", operation_id="read_points_list", responses=responses(NotFound))
async def list_read_points(request: Request, name: NamePath) -> Page[ReadPointView]:
    """All read points of a subscription by name, including those that ended within the last week."""
    kept = await _kept(request, name)
    views = await run_read(request, lambda session: service.read_point_views(session, name, kept, _now(request)))
    return Page(items=views)


@router.get("/{read_point}", operation_id="read_points_get", responses=responses(NotFound))
async def get_read_point(request: Request, name: NamePath, read_point: NamePath) -> ReadPointView:
    """One read point."""
    kept = await _kept(request, name)
    return await run_read(request, lambda session: service.require_view(session, name, read_point, kept, _now(request)))


@router.delete(
    "/{read_point}",
    operation_id="read_points_delete",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=responses(NotFound, EngineUnavailable, EngineTimeout),
)
async def delete_read_point(request: Request, name: NamePath, read_point: NamePath) -> None:
    """End a read point, and the queries that read at it."""
    await run_read(request, lambda session: require_subscription(session, name))
    kept = await _ask(request, name, "release", name=read_point)
    stored = await run_write(request, lambda session: service.delete_read_point(session, name, read_point))
    if not kept.found and not stored:
        raise unknown_read_point(read_point)


async def _wait(request: Request, name: str, wanted: ReadPointFreshness) -> str | None:
    """Wait for the required freshness; returns the position that is visible then, None if any is good."""
    if (wanted.position is not None) != (wanted.mode == "position"):
        raise InvalidRequest.at("/freshness/position", "A position belongs to mode 'position', and only there.")
    if wanted.mode == "any":
        await run_read(request, lambda session: require_subscription(session, name))
        return None
    asked = WaitRequest(position=wanted.position, timeout_ms=wanted.timeout_ms)
    spec = await parse_request(tracker_of(request), name, asked, "/freshness/position")
    return (await waits_of(request).run_wait_now(spec)).position


async def _ask(request: Request, subscription: str, action: str, **fields: Any) -> ReadPointsBody:
    payload = {"subscription": subscription, "action": action, **fields}
    return ReadPointsBody.model_validate(await ask_engine(request, "read_points", payload))


async def _kept(request: Request, name: str) -> ReadPointsBody | None:
    """What the engine keeps; None if it cannot be asked."""
    await run_read(request, lambda session: require_subscription(session, name))
    try:
        return await _ask(request, name, "list")
    except (EngineUnavailable, EngineTimeout, ReportedProblem):
        return None


def _now(request: Request) -> datetime:
    now: datetime = request.app.state.clock.now()
    return now
