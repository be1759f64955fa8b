"""Read-only queries on a subscription's target."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, cast

from fastapi import APIRouter, Header, Request, Response
from fastapi.concurrency import run_in_threadpool

from engine.model.position import Lsn
from server.engines.gateway import EngineTimeout, EngineUnavailable, gateway_of
from server.engines.hub import QueryResult
from server.engines.requests import HubGateway
from server.errors import FieldError, InvalidRequest, NotFound, NotSupportedYet, Problem, ReportedProblem, responses
from server.freshness.endpoints import service_of, waits_of
from server.freshness.errors import FreshnessTimeout, FreshnessUnreachable
from server.freshness.schemas import Receipt, WaitRequest
from server.freshness.waiting import understand
from server.metrics.meters import Meters
from server.queries import render
from server.queries.schemas import QueryAnswer, QueryFreshness, QueryRequest
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/subscriptions/{name}", tags=["queries"], dependencies=[needs(Role.VIEWER)])

_GRACE_S = 5.0
"""Beyond the query's own timeout, for its way to the engine and back."""


class NotAcceptable(Problem):
    status = 406
    code = "not_acceptable"
    title = "No such format"
    default_remedy = "Accept application/json, text/csv or application/vnd.apache.arrow.stream."


class QueryRefused(InvalidRequest):
    code = "query_refused"
    title = "The query was refused"
    default_remedy = "Send exactly one SELECT, without functions that reach files or the network."


class Format(StrEnum):
    """Formats of rows."""

    JSON = "application/json"
    CSV = "text/csv"
    ARROW = "application/vnd.apache.arrow.stream"


@router.post(
    "/queries",
    operation_id="queries_create",
    response_model=QueryAnswer,
    responses={
        200: {"content": {"text/csv": {}, "application/vnd.apache.arrow.stream": {}}},
        **responses(
            NotFound,
            NotAcceptable,
            FreshnessUnreachable,
            QueryRefused,
            InvalidRequest,
            NotSupportedYet,
            EngineUnavailable,
            FreshnessTimeout,
            EngineTimeout,
        ),
    },
)
async def create_query(
    request: Request, name: str, body: QueryRequest, accept: Annotated[str | None, Header(max_length=1000)] = None
) -> Response:
    """Run one read on the target, on one batch boundary, as fresh as asked for."""
    wanted = _format(accept)
    await service_of(request).book(name)
    meters = cast("Meters", request.app.state.meters)
    began = time.perf_counter()
    try:
        receipt = await _freshen(request, name, body.freshness)
        result = await _run(request, name, body, receipt)
    except Problem as problem:
        meters.query_ended(name, problem.problem_code, time.perf_counter() - began)
        raise
    meters.query_ended(name, "answered", time.perf_counter() - began)
    content = await run_in_threadpool(_render, result, wanted, receipt)
    headers = {"Penstock-Position": str(result.position), "Penstock-Truncated": str(result.truncated).lower()}
    return Response(content, media_type=wanted.value, headers=headers | {"Vary": "Accept"})


async def _freshen(request: Request, name: str, freshness: QueryFreshness) -> Receipt | None:
    if freshness.on_timeout != "error":
        detail = f"on_timeout '{freshness.on_timeout}' does not work yet."
        wrong = [FieldError(pointer="/freshness/on_timeout", detail=detail)]
        raise NotSupportedYet(detail, "Leave on_timeout out, or send 'error'.", errors=wrong)
    if (freshness.position is not None) != (freshness.mode == "position"):
        detail = "A position belongs to mode 'position', and only there."
        raise InvalidRequest.at("/freshness/position", detail)
    if freshness.mode == "any":
        return None
    wait = WaitRequest(position=freshness.position, timeout_ms=freshness.timeout_ms)
    ask = await understand(service_of(request), name, wait, pointer="/freshness/position")
    return (await waits_of(request).answer(ask)).receipt


async def _run(request: Request, name: str, body: QueryRequest, receipt: Receipt | None) -> QueryResult:
    gateway = cast("HubGateway", gateway_of(request))
    payload = {"subscription": name, "sql": body.sql, "max_rows": body.max_rows, "timeout_ms": body.timeout_ms}
    result = await gateway.query(payload, body.timeout_ms / 1000 + _GRACE_S)
    if receipt is not None and result.position < Lsn.parse(receipt.position):
        raise ReportedProblem(
            502,
            "answer_too_old",
            f"The engine answered from {result.position}, before {receipt.position}.",
            "Send the query again.",
        )
    return result


def _render(result: QueryResult, wanted: Format, receipt: Receipt | None) -> bytes:
    if wanted is Format.ARROW:
        return result.arrow
    table = render.read_arrow(result.arrow)
    if wanted is Format.CSV:
        return render.as_csv(table)
    extra = {} if receipt is None else {"receipt": receipt.model_dump(mode="json")}
    return render.as_json(table, str(result.position), truncated=result.truncated, extra=extra)


def _format(accept: str | None) -> Format:
    """The first format of ours among those that the client likes best.

    Raises:
        NotAcceptable: there is none.
    """
    liked: list[tuple[float, int, str]] = []
    for place, part in enumerate((accept or "*/*").split(",")):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        liked.append((-_quality(parameters), place, kind))
    for quality, _, kind in sorted(liked):
        for known in Format:
            if quality < 0 and kind in {known.value, "*/*", known.value.split("/", maxsplit=1)[0] + "/*"}:
                return known
    raise NotAcceptable("Rows come as JSON, CSV or Arrow.")


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
