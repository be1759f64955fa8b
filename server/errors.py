"""Errors that users see. Each class has a status and a code; all are sent as application/problem+json (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from server.remedies import RemedyAction, actions_of

MEDIA_TYPE = "application/problem+json"


class FieldError(BaseModel):
    """One invalid part of a request."""

    pointer: str = Field(description="JSON pointer to the part, within the body unless `in` says otherwise.")
    detail: str
    location: Literal["body", "query", "path", "header"] = Field(
        default="body", validation_alias="in", serialization_alias="in"
    )

    model_config = {"validate_by_name": True, "serialize_by_alias": True}


class ProblemBody(BaseModel):
    """The body of every error answer."""

    type: str = Field(examples=["urn:penstock:problem:not_found"])
    title: str = Field(description="What kind of problem this is; the same for every occurrence.")
    status: int
    code: str = Field(description="Stable name of the kind of problem, for programs.")
    detail: str = Field(description="What happened this time.")
    remedy: str = Field(description="How to correct it.")
    actions: list[RemedyAction] = Field(default_factory=list, description="The operations that `remedy` names.")
    errors: list[FieldError] = Field(default_factory=list, description="The invalid parts of the request.")
    trace_id: str = Field(description="Identifies this request in the server's log.")


class Problem(Exception):
    """Base of all errors that end a request. Subclasses set status, code, title and usually a remedy.

    `extra` is added to the members of the problem's body, `headers` to the answer.
    """

    status: int = 500
    code: str = "internal_error"
    title: ClassVar[str] = "Internal error"
    default_remedy: ClassVar[str] = "Try again; if it happens again, look for the trace_id in the server's log."

    def __init__(
        self,
        detail: str,
        remedy: str | None = None,
        *,
        errors: Sequence[FieldError] = (),
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.remedy = remedy or self.default_remedy
        self.errors = list(errors)
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})

    def body(self, trace_id: str, known: Mapping[str, str | None] | None = None) -> dict[str, Any]:
        """The problem's JSON members. `known`: arguments of operations, from the request."""
        standard = ProblemBody(
            type=f"urn:penstock:problem:{self.code}",
            title=self.title,
            status=self.status,
            code=self.code,
            detail=self.detail,
            remedy=self.remedy,
            actions=actions_of(self.remedy, known or {}),
            errors=self.errors,
            trace_id=trace_id,
        )
        return {**self.extra, **standard.model_dump(mode="json")}


class NotFound(Problem):
    status = 404
    code = "not_found"
    title = "Not found"
    default_remedy = "Check the name; a GET on the collection lists what exists."


class Conflict(Problem):
    """The request conflicts with the current state. Subclass it where a program should distinguish the case."""

    status = 409
    code = "conflict"
    title = "Conflict"
    default_remedy = "Read the resource again, then decide."


class PreconditionFailed(Problem):
    status = 412
    code = "precondition_failed"
    title = "The resource has changed"
    default_remedy = "Read the resource again, and send its new ETag in If-Match."


class InvalidRequest(Problem):
    """The request was understood but a part of it is invalid; `errors` says which."""

    status = 422
    code = "invalid_request"
    title = "Invalid request"
    default_remedy = "Correct the parts named in errors."

    @classmethod
    def at(cls, pointer: str, detail: str, remedy: str | None = None) -> InvalidRequest:
        """The error of one invalid part of the body."""
        return cls(detail, remedy, errors=[FieldError(pointer=pointer, detail=detail)])


class NotSupportedYet(InvalidRequest):
    code = "not_supported_yet"
    title = "Not supported yet"
    default_remedy = "Leave it out, or choose one of the values that the documentation lists."


class Unauthenticated(Problem):
    status = 401
    code = "unauthenticated"
    title = "Authentication required"
    default_remedy = "Send the header 'Authorization: Bearer TOKEN'; 'penstock token create' makes a token."


class Forbidden(Problem):
    status = 403
    code = "forbidden"
    title = "Permission denied"
    default_remedy = "Use a token whose role allows this."


class MethodNotAllowed(Problem):
    status = 405
    code = "method_not_allowed"
    title = "Method not allowed"
    default_remedy = "The header Allow names the methods that this address takes."


class HttpProblem(Problem):
    """An error of the web framework without a class of ours."""

    title = "Request refused"
    default_remedy = "Check the request against the OpenAPI document."

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail, headers=headers)
        self.status = status
        self.code = f"http_{status}"


class ReportedProblem(Problem):
    """A problem that the engine reported, with the engine's status and code."""

    title = "The engine reports a problem"

    def __init__(
        self, status: int, code: str, detail: str, remedy: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail, remedy, extra=extra)
        self.status = status
        self.code = code


def responses(*classes: type[Problem]) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries for the problems that an endpoint can answer with.

    401 and 403 are added to every endpoint that needs a token.
    """
    codes: dict[int, list[type[Problem]]] = {}
    for problem in classes:
        codes.setdefault(problem.status, []).append(problem)
    return {status: _response(found) for status, found in sorted(codes.items())}


def _response(classes: Sequence[type[Problem]]) -> dict[str, Any]:
    examples = {
        problem.code: {"summary": problem.title, "value": problem("What happened.").body("0" * 32)}
        for problem in classes
    }
    return {
        "description": "; ".join(f"`{problem.code}`: {problem.title}" for problem in classes),
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}, "examples": examples}},
    }
