"""Rejects request bodies that are too large before they are read into memory."""

from __future__ import annotations

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import MEDIA_TYPE, Problem
from server.tracing import trace_id_of


class BodyTooLarge(Problem):
    status = 413
    code = "body_too_large"
    title = "The body is too large"
    default_remedy = "Send less at once, or raise max_body_bytes in the server's settings."


class BodyLimitMiddleware:
    """Counts the bytes of bodies up to `limit`; paths below `exempt` have limits of their own."""

    def __init__(self, app: ASGIApp, limit: int, exempt: str) -> None:
        self._app = app
        self._limit = limit
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(self._exempt):
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > self._limit:
            problem = BodyTooLarge(f"The body has {announced} bytes; at most {self._limit} are accepted.")
            answer = JSONResponse(problem.body(trace_id_of(scope)), problem.status, media_type=MEDIA_TYPE)
            await answer(scope, receive, send)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._limit:
                # Only this class passes unchanged through the framework's reading of bodies.
                raise HTTPException(413)
            return message

        await self._app(scope, counted, send)
