"""Exchanges with the server as generators: they yield what to do and get the reply. Each client has one loop that does it.

So that what is sent, retried and raised is written once, for the blocking client and for the asynchronous one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

import httpx

from penstock.client.answers import BROKEN_OFF
from penstock.client.errors import AnswerBrokenOff, NotPenstock, ProblemError, ServerUnreachable, problem_error

T = TypeVar("T")
_FIRST_PAUSE_S = 0.1
_MOST_PAUSE_S = 2.0
_CONNECT_S = 10.0
_GATEWAY = {502, 503, 504}
_GRACE_S = 15.0
"""Seconds beyond a request's own deadline after which no answer is expected any more."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send one request and read its whole answer. `patience_s`: seconds without a byte after which it counts as lost."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    accept: str = "application/json"
    patience_s: float = 0.0

    @property
    def timeout(self) -> httpx.Timeout:
        return httpx.Timeout(self.patience_s + _GRACE_S, connect=_CONNECT_S)


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for some time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    status: int
    headers: httpx.Headers
    body: bytes = field(repr=False)

    def document(self) -> dict[str, Any]:
        """The JSON object in the body. Raises NotPenstock if it is none."""
        found = self._json()
        if not isinstance(found, dict):
            raise NotPenstock(
                f"HTTP {self.status} without a document of Penstock. Check the address, and proxies on the way."
            )
        return found

    def problem(self) -> dict[str, Any] | None:
        """The problem document in the body; None if it is none."""
        found = self._json()
        return found if isinstance(found, dict) and "code" in found else None

    def _json(self) -> object:
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class BodyLost(httpx.ReadError):
    """The connection was lost after a part of the body had arrived."""


Exchange = Generator[Send | Pause, Reply | None, T]
"""Yields a `Send` and gets its Reply, or httpx.RequestError is thrown into it; yields a `Pause` and gets None."""


def persistent(make: Callable[[float], Send], deadline: float, *, resume: bool = True) -> Exchange[Reply]:
    """Send until a server answers, again after each lost connection. `make` gets the seconds that are left.

    `resume`: also after a part of the answer had arrived.

    Raises:
        ServerUnreachable: no server had answered at the deadline.
        AnswerBrokenOff: the answer was lost after it had begun.
        ProblemError: the answer is a problem.
    """
    pause = _FIRST_PAUSE_S
    while True:
        reply, lost, broken_off = None, "", False
        try:
            reply = yield make(max(0.0, deadline - monotonic()))
        except httpx.RequestError as error:
            lost = str(error) or type(error).__name__
            broken_off = isinstance(error, BodyLost) and not resume
        # Raised here, so that the exception does not hold the request, and with it the token.
        if reply is not None:
            document = None if reply.status == 200 else reply.problem()
            lost = _interruption(reply, document)
            if not lost:
                return _checked(reply, document)
        elif broken_off:
            raise AnswerBrokenOff(BROKEN_OFF)
        if monotonic() + pause >= deadline:
            raise ServerUnreachable(f"No Penstock server answers: {lost}. Check the address and the server.")
        yield Pause(pause)
        pause = min(2 * pause, _MOST_PAUSE_S)


def _interruption(reply: Reply, document: Mapping[str, Any] | None) -> str:
    """Why the answer is not the server's, or its last before it stops; empty if it is."""
    if reply.status not in _GATEWAY:
        return ""
    if document is None:
        return f"HTTP {reply.status} of a proxy"
    return "it is stopping" if document["code"] == "server_stopping" else ""


def _checked(reply: Reply, document: Mapping[str, Any] | None) -> Reply:
    if reply.status == 200:
        return reply
    if document is None:
        raise NotPenstock(f"HTTP {reply.status} without a problem document. Check the address, and proxies on the way.")
    error: ProblemError = problem_error(reply.status, document)
    raise error
