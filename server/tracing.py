"""Gives each request a trace id, logs it, and turns unhandled exceptions into a problem without internal details."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

import structlog
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import MEDIA_TYPE, Problem
from server.logs import get_logger

_log = get_logger(__name__)
_TRACEPARENT = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$")
_QUIET = {"/livez", "/readyz", "/metrics"}


def trace_id_of(scope: Scope) -> str:
    """The trace id of the request in `scope`: 32 hexadecimal digits."""
    return str(scope.get("state", {}).get("trace_id", "0" * 32))


def _incoming_trace_id(scope: Scope) -> str | None:
    found = _TRACEPARENT.match(Headers(scope=scope).get("traceparent", ""))
    return found[1] if found and found[1] != "0" * 32 else None


class TraceMiddleware:
    """The outermost middleware of the application, so that every answer carries `X-Trace-Id`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        trace_id = _incoming_trace_id(scope) or secrets.token_hex(16)
        scope.setdefault("state", {})["trace_id"] = trace_id
        status: list[int] = []

        async def send_traced(message: Message) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])
                MutableHeaders(scope=message)["X-Trace-Id"] = trace_id
            await send(message)

        started = time.perf_counter()
        with structlog.contextvars.bound_contextvars(trace_id=trace_id):
            try:
                await self._app(scope, receive, send_traced)
            except Exception:
                _log.exception("request_failed", method=scope["method"], path=scope["path"])
                if status:
                    raise
                await _answer_500(trace_id)(scope, receive, send_traced)
            _log_request(scope, status, time.perf_counter() - started)


def _answer_500(trace_id: str) -> JSONResponse:
    problem = Problem("The server met an error that it did not expect.")
    return JSONResponse(problem.body(trace_id), status_code=500, media_type=MEDIA_TYPE)


def _log_request(scope: Scope, status: list[int], seconds: float) -> None:
    route: Any = scope.get("route")
    write = _log.debug if scope["path"] in _QUIET else _log.info
    write(
        "request",
        method=scope["method"],
        route=getattr(route, "path", None) or "-",
        status=status[0] if status else 0,
        ms=round(seconds * 1000, 1),
    )
