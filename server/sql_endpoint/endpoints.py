"""Logins and statements of the engines' SQL endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, Request

from server.db.dependencies import Reading
from server.errors import Conflict, NotFound, NotSupportedYet, responses
from server.freshness.errors import FreshnessTimeout, FreshnessUnavailable, FreshnessUnreachable
from server.gateway.interface import EngineTimeout, EngineUnavailable
from server.gateway.threads import engine_only
from server.lookup.read_points import ReadPointEnded
from server.queries.endpoints import QueryRefused, run_query
from server.security import tokens
from server.security.principal import ANYBODY, Role
from server.sql_endpoint.schemas import Login, LoginRequest, StatementAnswer, StatementRequest

router = APIRouter(prefix="/engines/sql", tags=["engines"], dependencies=[Depends(engine_only)])

Result = TypeVar("Result")


class TokenWithoutVerifier(Conflict):
    code = "token_without_verifier"
    title = "The token cannot be used as a password"
    default_remedy = "Create another token (penstock token create) and log in with it: this one is of an older version."


class StatementAbandoned(Conflict):
    code = "statement_abandoned"
    title = "The endpoint has closed the request"


@router.post("/logins", operation_id="sql_endpoint_login", responses=responses(NotFound, TokenWithoutVerifier))
def find_login(request: Request, session: Reading, body: LoginRequest) -> Login:
    """The token that logs in."""
    row = (
        tokens.find_login(session, body.user)
        if body.user is not None
        else tokens.find_by_digest(session, body.digest or "")
    )
    if request.app.state.settings.insecure_no_auth:
        settings = {} if row is None else row.settings
        return Login(name=body.user or ANYBODY.name, role=Role.ADMIN, scram=None, settings=settings)
    if row is None or row.role == Role.ENGINE.value:
        raise NotFound("No token may log in so.", "The user is the name of a token, and the password its text.")
    if row.scram is None and body.user is not None:
        raise TokenWithoutVerifier(f"The token '{row.name}' has no verifier.")
    return Login(name=row.name, role=Role(row.role), scram=row.scram, settings=row.settings)


@router.post(
    "/statements",
    operation_id="sql_endpoint_statement",
    responses=responses(
        NotFound,
        FreshnessUnreachable,
        ReadPointEnded,
        QueryRefused,
        NotSupportedYet,
        EngineUnavailable,
        FreshnessUnavailable,
        FreshnessTimeout,
        EngineTimeout,
        StatementAbandoned,
    ),
)
async def run_statement(request: Request, body: StatementRequest) -> StatementAnswer:
    """Run a statement with the requested freshness. Its rows go from the engine to its endpoint, not through the server."""
    limits = {
        "max_rows": 0 if body.describe else body.max_rows,
        "endpoint": body.endpoint,
        "client": None if body.client is None else body.client.model_dump(),
        "pipe": body.pipe,
    }
    running = run_query(request, body.subscription, body, limits)
    found = await _while_connected(request, running)
    return StatementAnswer(
        request_id=found.result.request_id,
        position=found.position,
        ran_on=found.result.ran_on,
        receipt=found.receipt,
        stale=found.stale,
        left_out=list(found.left_out),
    )


async def _while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """What `work` returns. It is cancelled if the client closes the connection.

    Raises:
        StatementAbandoned: the client is gone.
    """
    running = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise StatementAbandoned("The endpoint closed the connection before the statement ran.")
        return await running
    finally:
        gone.cancel()
        running.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
