"""Exceptions of the clients. All are `PenstockError`; those with a problem document of the server are `ProblemError`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PenstockError(Exception):
    """Base of all exceptions of the clients."""


class ServerUnreachable(PenstockError):
    """No server answered at the address before the deadline, though connecting was retried."""


class NotPenstock(PenstockError):
    """What answered is no Penstock server: for instance a proxy, or another program at the address."""


class AnswerBrokenOff(PenstockError):
    """The rows of a query ended before their end. None of them are returned; the query may be sent again.

    The query failed or reached a limit after its answer had begun, or the connection was lost.
    """


class ProblemError(PenstockError):
    """The server answered with a problem document (RFC 9457).

    `code` names the kind of problem and is stable; `detail` says what happened, `remedy` how to correct it. `document` has
    all members.
    """

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        self.status = status
        self.document = dict(document)
        self.code = str(document.get("code", ""))
        self.detail = str(document.get("detail") or document.get("title") or "")
        self.remedy = str(document.get("remedy") or "")
        super().__init__(" ".join(part for part in (f"{self.code}: {self.detail}", self.remedy) if part))

    def __reduce__(self) -> tuple[type[ProblemError], tuple[int, dict[str, Any]]]:
        return type(self), (self.status, self.document)


class _Progressed(ProblemError):
    """A problem of a wait: `position` is what it waited for, `applied` the last applied position known; as text, or None."""

    @property
    def position(self) -> str | None:
        return _text(self.document.get("position"))

    @property
    def applied(self) -> str | None:
        return _text(self.document.get("applied"))


class FreshnessTimeout(_Progressed):
    """The position was not visible at the deadline."""

    @property
    def estimate(self) -> float | None:
        """How much longer it would take at the present pace, in seconds; None if that is unknown."""
        found = self.document.get("estimate_ms")
        return None if found is None else float(found) / 1000

    @property
    def beyond_source(self) -> bool:
        """Whether the position is after the last known end of the source's log, and may never be reached."""
        return bool(self.document.get("beyond_source"))


class FreshnessUnreachable(_Progressed):
    """The position cannot become visible: the subscription or a table is paused, stopped, parked or failed."""


class Unavailable(_Progressed):
    """Engine or source cannot be reached, or the server is starting or stopping. `cause` names what is unavailable, if known."""

    @property
    def cause(self) -> str | None:
        return _text(self.document.get("cause"))


class QueryRefused(ProblemError):
    """The statement is no single SELECT, is invalid, or needs more than a query may use."""


class QueryTimeout(ProblemError):
    """The statement reached its time limit."""


class AnswerCut(ProblemError):
    """There are more rows than `max_rows`. None of them are returned."""


class AccessDenied(ProblemError):
    """The token is missing or unknown, or its role does not allow this."""


_CLASSES: dict[str, type[ProblemError]] = {
    "freshness_timeout": FreshnessTimeout,
    "freshness_unreachable": FreshnessUnreachable,
    "query_timeout": QueryTimeout,
    "query_unavailable": Unavailable,
    "answer_cut": AnswerCut,
    "unauthenticated": AccessDenied,
    "forbidden": AccessDenied,
}
_UNAVAILABLE = {502, 503, 504}


def problem_error(status: int, document: Mapping[str, Any]) -> ProblemError:
    """The exception for a problem document; of a code that is unknown here, by its status."""
    code = str(document.get("code", ""))
    if code in _CLASSES:
        return _CLASSES[code](status, document)
    if code.startswith("query_"):
        return QueryRefused(status, document)
    return (Unavailable if status in _UNAVAILABLE else ProblemError)(status, document)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
