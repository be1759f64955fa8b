"""The endpoints that engines call, and the list of engines for users."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Header, Request, Response, status
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from engine.link.answer_frames import FrameReader, FrameTooLargeError, MalformedFramesError
from engine.link.messages import PROTOCOL, REPORTS, Answer, PositionBundle, Registered, Registration, Report
from engine.link.queries import RanOn
from engine.model.position import Lsn, MalformedPosition
from server.db.dependencies import Reading
from server.engines import assignments
from server.engines.channel import EngineChannel, ServerStopping
from server.errors import Conflict, InvalidRequest, NotFound, Problem, responses
from server.gateway.hub import AnswerStream, CommandStream, QueryResult
from server.gateway.threads import engine_only
from server.logs import get_logger
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/engines", tags=["engines"])
log = get_logger(__name__)

_ENGINE = [Depends(engine_only)]


class EngineTooOld(Conflict):
    code = "engine_protocol"
    title = "Server and engine use different protocol versions"
    default_remedy = "Run the same release of server and engine."


class PositionsOutOfOrder(Conflict):
    code = "positions_out_of_order"
    title = "The positions came before or after their place"
    default_remedy = "Send them with the next reports."


class ResultTooLarge(Problem):
    status = 413
    code = "result_too_large"
    title = "The result is too large"
    default_remedy = "Ask for fewer rows or columns."


class EngineView(BaseModel):
    """An engine process."""

    id: str
    name: str
    version: str
    connected: bool
    subscriptions: list[str]
    registered_at: datetime
    seen_at: datetime
    lost_at: datetime | None


class Engines(BaseModel):
    items: list[EngineView]


class Bundle(BaseModel):
    """Reports in order. Each is parsed separately: one of an unknown kind is ignored."""

    sequence: int
    reports: list[dict[str, Any]]


def channel_of(request: Request) -> EngineChannel:
    return cast("EngineChannel", request.app.state.channel)


@router.get("", operation_id="engines_list", dependencies=[needs(Role.VIEWER)])
def list_engines(request: Request, session: Reading) -> Engines:
    """Engines that registered recently, newest first."""
    hub = channel_of(request).hub
    items = [
        EngineView(
            **row.model_dump(include={"id", "name", "version", "registered_at", "seen_at", "lost_at"}),
            connected=hub.is_connected(row.id),
            subscriptions=sorted(assignments.assigned_subscriptions(session, row.id)),
        )
        for row in assignments.list_engines(session)
    ]
    return Engines(items=items)


@router.post("", operation_id="engines_register", dependencies=_ENGINE, responses=responses(EngineTooOld))
async def register(request: Request, body: Registration) -> Registered:
    """An engine introduces itself; safe to repeat."""
    if body.protocol != PROTOCOL:
        raise EngineTooOld(f"The engine speaks protocol {body.protocol}, the server {PROTOCOL}.")
    return await channel_of(request).register_engine(body)


@router.get(
    "/{engine_id}/commands",
    operation_id="engines_commands",
    dependencies=_ENGINE,
    response_class=StreamingResponse,
    responses=responses(NotFound, ServerStopping),
)
async def commands(request: Request, engine_id: str) -> StreamingResponse:
    """The engine's commands as lines of JSON, until it disconnects."""
    channel = channel_of(request)
    stream = await channel.open_stream(engine_id)

    async def lines() -> AsyncIterator[bytes]:
        watch = asyncio.ensure_future(_close_on_disconnect(request, stream))
        try:
            async for line in channel.stream_lines(stream):
                yield line
        finally:
            watch.cancel()
            channel.close_stream(stream)

    return StreamingResponse(lines(), media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})


async def _close_on_disconnect(request: Request, stream: CommandStream) -> None:
    """End the stream as soon as the connection ends, not at the next heartbeat."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    stream.finish()


class _TimedRoute(APIRoute):
    """Notes in `request.state.received_s` when the body had been received, before it is parsed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_timed(request: Request) -> Response:
            with suppress(ClientDisconnect):  # `handle` refuses a body that is incomplete.
                await request.body()
            request.state.received_s = request.app.state.clock.monotonic()
            return await handle(request)

        return handle_timed


_timed = APIRouter(route_class=_TimedRoute)


@_timed.post(
    "/{engine_id}/reports",
    operation_id="engines_report",
    dependencies=_ENGINE,
    status_code=status.HTTP_204_NO_CONTENT,
    responses=responses(NotFound),
)
async def report(request: Request, engine_id: str, body: Bundle) -> None:
    """Reports of an engine, in order; a bundle that was processed before is ignored."""
    received_s: float = request.state.received_s
    await channel_of(request).apply_reports(engine_id, body.sequence, _parse_report(body.reports), received_s)


@_timed.post(
    "/{engine_id}/positions",
    operation_id="engines_positions",
    dependencies=_ENGINE,
    status_code=status.HTTP_204_NO_CONTENT,
    responses=responses(PositionsOutOfOrder),
)
async def positions(request: Request, engine_id: str, body: PositionBundle) -> None:
    """Positions that end waits while the server still writes the reports sent before them."""
    received_s: float = request.state.received_s
    if not channel_of(request).apply_positions(engine_id, body.after, body.positions, received_s):
        raise PositionsOutOfOrder(f"Bundle {body.after} is not the last one that was applied.")


router.include_router(_timed)


def _parse_report(raw: list[dict[str, Any]]) -> list[Report]:
    found = []
    for item in raw:
        try:
            found.append(REPORTS.validate_python(item))
        except ValidationError as error:
            places = [".".join(map(str, e["loc"])) for e in error.errors()]
            log.error("report_not_understood", kind=str(item.get("kind"))[:40], places=places)
    return found


@router.post(
    "/{engine_id}/answers",
    operation_id="engines_answer",
    dependencies=_ENGINE,
    status_code=status.HTTP_204_NO_CONTENT,
    responses=responses(NotFound),
)
async def answer(request: Request, engine_id: str, body: Answer) -> None:
    """The answer to a request; ignored if the request is no longer waiting."""
    channel_of(request).hub.resolve_request(body.request_id, body)


@router.put(
    "/{engine_id}/results/{request_id}",
    operation_id="engines_put_result",
    dependencies=_ENGINE,
    status_code=status.HTTP_204_NO_CONTENT,
    responses=responses(NotFound, ResultTooLarge),
)
async def put_result(
    request: Request,
    engine_id: str,
    request_id: str,
    penstock_position: Annotated[str, Header()],
    penstock_tables: Annotated[str, Header()] = "",
    penstock_not_following: Annotated[str, Header()] = "",
    penstock_ran_on: Annotated[RanOn, Header()] = "target",
    penstock_read_point: Annotated[str | None, Header()] = None,
) -> Response:
    """Rows of a query in frames, forwarded as they arrive."""
    try:
        position = Lsn.parse(penstock_position)
    except MalformedPosition as error:
        raise InvalidRequest(f"{error}.") from None
    frames = AnswerStream()
    result = QueryResult(
        position,
        frames,
        _ids(penstock_tables),
        _ids(penstock_not_following),
        penstock_ran_on,
        read_point=penstock_read_point,
    )
    wanted = channel_of(request).hub.resolve_request(request_id, result)
    reader = FrameReader()
    try:
        async for piece in request.stream():
            for frame in reader.feed(piece) if wanted else ():
                wanted = wanted and await frames.put(frame)
            if not wanted:
                break
    except FrameTooLargeError as error:
        raise ResultTooLarge(f"The rows came in {error}.") from None
    except MalformedFramesError as error:
        raise InvalidRequest(f"The rows came in {error}.", "Run the same release of server and engine.") from None
    finally:
        await frames.put(None)
    if wanted:
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    # The rest is not read, so that the engine ends the query.
    return Response(status_code=status.HTTP_410_GONE, headers={"Connection": "close"})


def _ids(listed: str) -> frozenset[str]:
    return frozenset(filter(None, listed.split(",")))
