"""Read-only queries on a subscription's target."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, cast
from urllib.parse import quote

from fastapi import APIRouter, Header, Request, Response

from server.db.dependencies import run_read
from server.errors import InvalidRequest, NotFound, Problem, ReportedProblem, responses
from server.freshness.endpoints import tracker_of, waits_of
from server.freshness.errors import FreshnessRefusedEarly, FreshnessTimeout, FreshnessUnavailable, FreshnessUnreachable
from server.freshness.subscription_status import SubscriptionStatus
from server.freshness.wait import left_out_tables, parse_position, receipt_of_point
from server.gateway.hub import QueryResult
from server.gateway.hub_gateway import HubGateway
from server.gateway.interface import EngineTimeout, EngineUnavailable, gateway_of
from server.lookup.read_points import ReadPointEnded, ended_or_unknown
from server.metrics.meters import Meters
from server.queries import render
from server.queries.answers import AnswerCut, HttpTooOld, Rows, StreamedAnswer
from server.queries.fresh import FoundRows, FreshnessRequirement, FreshQuery, Otherwise, engine_too_old
from server.queries.parquet import ParquetUnsupported, ParquetWriter
from server.queries.schemas import (
    DEFAULT_ROWS,
    MOST_JSON_BYTES,
    QueryAnswer,
    QueryFreshness,
    QueryRequest,
    parameter_text,
)
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/subscriptions/{name}", tags=["queries"], dependencies=[needs(Role.VIEWER)])

_UNKNOWN_POINT = "read_point_unknown"
"""The engine's code for a read point that it does not know."""
_GRACE_S = 5.0
"""Seconds beyond the query's own timeout, for the round trip to the engine."""


class NotAcceptable(Problem):
    status = 406
    code = "not_acceptable"
    title = "No such format"
    default_remedy = (
        "Accept application/json, text/csv, application/vnd.apache.arrow.stream or application/vnd.apache.parquet."
    )


class QueryRefused(InvalidRequest):
    code = "query_refused"
    title = "The query was refused"
    default_remedy = "Send exactly one SELECT, without functions that reach files or the network."


class Format(StrEnum):
    """Formats of rows."""

    JSON = "application/json"
    CSV = "text/csv"
    ARROW = "application/vnd.apache.arrow.stream"
    PARQUET = "application/vnd.apache.parquet"


@router.post(
    "/queries",
    operation_id="queries_create",
    response_model=QueryAnswer,
    responses={
        200: {"content": {kind.value: {} for kind in Format if kind is not Format.JSON}},
        **responses(
            NotFound,
            NotAcceptable,
            FreshnessUnreachable,
            ReadPointEnded,
            QueryRefused,
            ParquetUnsupported,
            InvalidRequest,
            EngineUnavailable,
            FreshnessUnavailable,
            FreshnessTimeout,
            FreshnessRefusedEarly,
            EngineTimeout,
            AnswerCut,
            HttpTooOld,
        ),
    },
)
async def create_query(
    request: Request, name: str, body: QueryRequest, accept: Annotated[str | None, Header(max_length=1000)] = None
) -> Response:
    """Run one SELECT on the target, at a batch boundary, with the requested freshness; by option on the source if the target does not
    have it."""
    wanted = _format(accept)
    meters = cast("Meters", request.app.state.meters)
    began = time.perf_counter()

    def ended(outcome: str) -> None:
        meters.record_query(name, outcome, time.perf_counter() - began)

    try:
        found = await _run(request, name, body, wanted)
        return await _answer(request, body, wanted, found, ended)
    except Problem as problem:
        ended(problem.code)
        raise


async def _answer(
    request: Request,
    body: QueryRequest,
    wanted: Format,
    found: FoundRows,
    ended: Callable[[str], None],
) -> Response:
    """The answer: whole, or streamed if it is large."""
    deadline = asyncio.get_running_loop().time() + body.timeout_ms / 1000 + _GRACE_S
    most_rows = None if wanted is Format.JSON else body.max_rows
    rows = Rows(found.result.frames, _writer(wanted, found), deadline, most_rows)
    headers = {"Penstock-Position": found.position, "Vary": "Accept", **_headers_of_age(found)}
    streamed = False
    try:
        head, whole = await rows.head()
        if whole:
            ended("answered")
            return Response(
                head, media_type=wanted.value, headers=headers | {"Penstock-Truncated": str(rows.truncated).lower()}
            )
        if request.scope.get("http_version") == "1.0":
            raise HttpTooOld("The answer is too large to be sent whole.")
        streamed = True
        return StreamedAnswer(head, rows, wanted.value, headers, ended)
    finally:
        if not streamed:
            rows.close()


def _headers_of_age(found: FoundRows) -> dict[str, str]:
    """CSV, Arrow and Parquet have no other place for what is older than requested, and for where the statement ran."""
    headers: dict[str, str] = {"Penstock-Ran-On": found.result.ran_on}
    if found.left_out:
        headers["Penstock-Left-Out"] = ",".join(quote(f"{table.schema_name}.{table.name}") for table in found.left_out)
    if found.stale is not None:
        behind = found.stale.seconds_behind
        headers |= {"Penstock-Stale": "true", "Penstock-Seconds-Behind": "unknown" if behind is None else f"{behind:g}"}
    return headers


def _writer(wanted: Format, found: FoundRows) -> render.Writer:
    if wanted is Format.CSV:
        return render.CsvWriter()
    extra: dict[str, Any] = {}
    if found.left_out:
        extra["left_out"] = [table.model_dump(mode="json") for table in found.left_out]
    if found.stale is not None:
        extra["stale"] = found.stale.model_dump(mode="json")
    if found.receipt is not None:
        extra["receipt"] = found.receipt.model_dump(mode="json")
    if wanted is Format.ARROW:
        return render.ArrowWriter(extra)
    if wanted is Format.PARQUET:
        return ParquetWriter(found.position, extra)
    return render.JsonWriter(found.position, extra, ran_on=found.result.ran_on)


def _requirement_of(freshness: QueryFreshness, status: SubscriptionStatus) -> FreshnessRequirement:
    if (freshness.position is not None) != (freshness.mode == "position"):
        detail = "A position belongs to mode 'position', and only there."
        raise InvalidRequest.at("/freshness/position", detail)
    return FreshnessRequirement(
        waits=freshness.mode != "any",
        marks=parse_position(freshness.position, "/freshness/position", status),
        timeout_s=freshness.timeout_ms / 1000,
        on_timeout=Otherwise(freshness.on_timeout),
        on_unavailable=Otherwise(freshness.on_unavailable),
        refuse_early=freshness.refuse_early,
    )


async def _run(request: Request, name: str, body: QueryRequest, wanted: Format) -> FoundRows:
    limits: dict[str, Any] = {"max_rows": body.max_rows}
    if wanted is Format.JSON:
        limits = {"max_rows": body.max_rows or DEFAULT_ROWS, "max_bytes": MOST_JSON_BYTES}
    return await run_query(request, name, body, limits)


async def run_query(request: Request, name: str, body: QueryRequest, limits: Mapping[str, Any]) -> FoundRows:
    """The rows of the query with the required freshness. `limits`: further fields of the engine's command."""
    gateway = cast("HubGateway", gateway_of(request))
    parameters = [parameter_text(value) for value in body.parameters]
    payload = {"subscription": name, "sql": body.sql, "parameters": parameters, "timeout_ms": body.timeout_ms, **limits}

    if body.read_point is not None:
        return await _rows_at_point(request, name, body, payload)

    async def run(*, following: bool = False, available: bool = False, on_source: bool = False) -> QueryResult:
        asked = payload | {"following": following, "available": available, "on_source": on_source}
        return await gateway.query(asked, body.timeout_ms / 1000 + _GRACE_S)

    status = (await tracker_of(request).current_registry(name)).status
    requirement = _requirement_of(body.freshness, status)
    return await FreshQuery(waits_of(request), status, requirement, run).rows()


async def _rows_at_point(request: Request, name: str, body: QueryRequest, payload: Mapping[str, Any]) -> FoundRows:
    """The rows of the query at a read point."""
    wanted, gateway = body.freshness, cast("HubGateway", gateway_of(request))
    if wanted.mode != "any" or wanted.on_unavailable == "source":
        detail = "A read point has its own position, and is on the target."
        raise InvalidRequest.at("/freshness", detail, "Leave freshness out, or the read point.")
    point = body.read_point or ""
    asked = {**payload, "read_point": point, "available": wanted.on_unavailable == "error"}
    status = (await tracker_of(request).current_registry(name)).status
    try:
        result = await gateway.query(asked, body.timeout_ms / 1000 + _GRACE_S)
    except ReportedProblem as problem:
        if problem.code != _UNKNOWN_POINT:
            raise
        now = request.app.state.clock.now()
        raise await run_read(request, lambda session: ended_or_unknown(session, name, point, now)) from None
    if result.read_point != point:
        result.frames.close()
        raise engine_too_old("The engine has no read points.")
    shown = str(status.text(result.position))
    receipt = receipt_of_point(status, shown, result.tables, result.not_following)
    return FoundRows(result, shown, receipt, left_out_tables(status, result.not_following))


def _format(accept: str | None) -> Format:
    """The client's most preferred format among ours.

    Raises:
        NotAcceptable: it accepts none of them.
    """
    liked: list[tuple[float, int, str]] = []
    for place, part in enumerate((accept or "*/*").split(",")):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        liked.append((-_quality(parameters), place, kind))
    for quality, _, kind in sorted(liked):
        for known in Format:
            if quality < 0 and kind in {known.value, "*/*", known.value.split("/", maxsplit=1)[0] + "/*"}:
                return known
    raise NotAcceptable("Rows come as JSON, CSV, Arrow or Parquet.")


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
