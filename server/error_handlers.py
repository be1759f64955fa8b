"""Turns every exception that reaches the web framework into application/problem+json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import IntegrityError
from starlette.exceptions import HTTPException

from server.body_limit import BodyTooLarge
from server.errors import (
    MEDIA_TYPE,
    Conflict,
    FieldError,
    HttpProblem,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    Problem,
)
from server.idempotency import Replay
from server.tracing import trace_id_of

_PLACES: dict[str, Literal["body", "query", "path", "header"]] = {
    "body": "body",
    "query": "query",
    "path": "path",
    "header": "header",
}


def problem_response(request: Request, problem: Problem) -> JSONResponse:
    """The answer that carries `problem`."""
    return JSONResponse(
        problem.body(trace_id_of(request.scope), _arguments(request)),
        status_code=problem.status,
        headers=problem.headers,
        media_type=MEDIA_TYPE,
    )


def _arguments(request: Request) -> dict[str, str | None]:
    """Arguments of operations in the request's path."""
    name, table = request.path_params.get("name"), request.path_params.get("table_id")
    noun = "connection" if "/connections/" in request.url.path else "subscription"
    return {noun: name, "table": table}


def install(app: FastAPI) -> None:
    """Register the handlers."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(IntegrityError, _on_integrity)
    app.add_exception_handler(Replay, _on_replay)


async def _on_problem(request: Request, error: Exception) -> Response:
    error = cast("Problem", error)
    return problem_response(request, error)


async def _on_replay(_request: Request, error: Exception) -> Response:
    error = cast("Replay", error)
    return error.response()


async def _on_invalid(request: Request, error: Exception) -> Response:
    error = cast("RequestValidationError", error)
    found = field_errors(error.errors())
    detail = found[0].detail if len(found) == 1 else f"{len(found)} parts of the request are wrong."
    return problem_response(request, InvalidRequest(detail, errors=found))


async def _on_integrity(request: Request, _error: Exception) -> Response:
    # The driver's message would contain values. The cause of the collision is found at the next read.
    return problem_response(request, Conflict("Another request changed the same thing at the same time.", "Try again."))


async def _on_http(request: Request, error: Exception) -> Response:
    error = cast("HTTPException", error)
    if error.status_code == 404:
        return problem_response(
            request, NotFound(f"Nothing is found at {request.url.path}.", "The OpenAPI document lists all addresses.")
        )
    if error.status_code == 413:
        return problem_response(request, BodyTooLarge("The body is larger than this server takes."))
    if error.status_code == 400 and isinstance(error.__cause__, _UNREADABLE):
        return problem_response(request, _unreadable(error.__cause__))
    if error.status_code == 405:
        detail = f"{request.url.path} does not take {request.method}."
        return problem_response(request, MethodNotAllowed(detail, headers=error.headers))
    return problem_response(request, HttpProblem(error.status_code, str(error.detail), error.headers))


_UNREADABLE = (UnicodeDecodeError, RecursionError, ValueError)
"""FastAPI answers an undocumented 400 when reading a body fails other than by invalid JSON."""


def _unreadable(why: BaseException) -> InvalidRequest:
    if isinstance(why, UnicodeDecodeError):
        detail = f"The body is not JSON: it is not UTF-8 text at byte {why.start}."
    elif isinstance(why, RecursionError):
        detail = "The body nests too deeply."
    else:
        detail = "The body is not JSON: a number in it has too many digits."
    return InvalidRequest(detail, errors=[FieldError(pointer="", detail=detail)])


def field_errors(errors: Sequence[Any], prefix: Sequence[str | int] = ()) -> list[FieldError]:
    """Pydantic's errors as JSON pointers and messages, without the submitted values. `prefix` precedes body pointers."""
    found = []
    for item in errors:
        location = list(item["loc"])
        known = bool(location) and not prefix and location[0] in _PLACES
        place = _PLACES[location.pop(0)] if known else "body"
        if item["type"] == "json_invalid":
            location = []
        found.append(FieldError(pointer=json_pointer([*prefix, *location]), detail=_words(item), location=place))
    return found


def json_pointer(parts: Sequence[str | int]) -> str:
    """The JSON pointer (RFC 6901) of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _words(item: Any) -> str:
    match item["type"]:
        case "missing":
            return "This is required."
        case "extra_forbidden":
            return "Nothing of this name exists here."
        case "json_invalid":
            why = item.get("ctx", {}).get("error", "it cannot be parsed")
            at = item["loc"][-1] if item["loc"] and isinstance(item["loc"][-1], int) else None
            return f"The body is not JSON: {why}{'' if at is None else f', at character {at}'}."
        case _:
            message = str(item["msg"]).removeprefix("Value error, ")
            return message if message.endswith(".") else f"{message}."
