"""Idempotency-Key: a repeated creating POST gets the first one's answer and has no effect."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse
from sqlmodel import col, delete, select

from server.db.dependencies import Writing
from server.db.models.idempotency import IdempotencyRow
from server.db.session import WriteSession
from server.errors import InvalidRequest
from server.security.principal import Principal
from server.security.require import principal_of

Body = TypeVar("Body")


class IdempotencyKeyReused(InvalidRequest):
    code = "idempotency_key_reused"
    title = "Idempotency-Key used for another request"
    default_remedy = "Take a new key for each new request; send an old one only with the very same body."


class Replay(Exception):
    """Ends the request with the answer to the first request with its key."""

    def __init__(self, status: int, headers: dict[str, str], body: Any) -> None:
        super().__init__("the answer of an earlier request")
        self._status = status
        self._headers = headers
        self._body = body

    def response(self) -> Response:
        return JSONResponse(self._body, self._status, {**self._headers, "Idempotency-Replayed": "true"})


class Idempotency:
    """The key of this request, if it has one."""

    def __init__(self, session: WriteSession, response: Response, row: IdempotencyRow | None) -> None:
        self._session = session
        self._response = response
        self._row = row

    def answer(self, status: int, body: Body, headers: dict[str, str]) -> Body:
        """Answer with these headers. With a key, the answer is stored in the transaction that does the work.

        `status` is that of the endpoint. Returns `body`.
        """
        self._response.headers.update(headers)
        if self._row is not None:
            self._row.status = status
            self._row.body = jsonable_encoder(body)
            self._row.headers = headers
            self._session.add(self._row)
        return body


async def _begin(
    request: Request,
    response: Response,
    session: Writing,
    principal: Annotated[Principal, Depends(principal_of)],
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=255,
            description="Identifies this request: sending it again returns the first answer and has no further effect.",
        ),
    ] = None,
) -> Idempotency:
    if idempotency_key is None:
        return Idempotency(session, response, None)
    fingerprint = hashlib.sha256(await request.body()).hexdigest()
    route = f"{request.method} {request.url.path}"
    row = await run_in_threadpool(_claim, session, principal.id, route, idempotency_key, fingerprint)
    return Idempotency(session, response, row)


def _claim(session: WriteSession, principal: str, route: str, key: str, fingerprint: str) -> IdempotencyRow:
    found = session.exec(
        select(IdempotencyRow).where(
            IdempotencyRow.principal == principal, IdempotencyRow.route == route, IdempotencyRow.key == key
        )
    ).first()
    if found is not None:
        if found.fingerprint != fingerprint:
            raise IdempotencyKeyReused("This Idempotency-Key came before with another body.")
        raise Replay(found.status, found.headers, found.body)
    row = IdempotencyRow(
        principal=principal, route=route, key=key, fingerprint=fingerprint, status=0, created_at=session.now()
    )
    # Flush at once: a concurrent repetition then waits here, or fails with a conflict.
    session.add(row)
    session.flush()
    return row


Idempotent = Annotated[Idempotency, Depends(_begin, scope="function")]


def delete_old_answers(session: WriteSession, hours: int) -> None:
    """Delete answers older than `hours`."""
    oldest = session.now() - timedelta(hours=hours)
    session.exec(delete(IdempotencyRow).where(col(IdempotencyRow.created_at) < oldest))
