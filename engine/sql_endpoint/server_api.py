"""The server, as the endpoint calls it: logins, and statements with their freshness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

_CONNECT_S = 5.0
"""Seconds for a connection to the server, which is on the same machine or near."""
_LATE_S = 15.0
"""Seconds beyond the time limits of a statement after which the server's answer is not awaited any more."""


class ProblemError(Exception):
    """The server's problem document."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(str(problem.get("code")))
        self.problem = problem


def wrong_parts(problem: Mapping[str, Any]) -> list[str]:
    """JSON pointers to the parts of a request that a problem document names as wrong."""
    return [part["pointer"] for part in problem.get("errors") or [] if part.get("pointer")]


@dataclass(frozen=True, slots=True)
class Login:
    """A token that may log in. `scram`: its verifier; None: no password is needed. `settings`: run-time parameters with which its sessions
    begin."""

    name: str
    role: str
    scram: str | None = field(repr=False)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Started:
    """A statement that runs: the id of its rows, the position that they show, and the receipt of the wait."""

    request_id: str
    position: str
    ran_on: str
    receipt: dict[str, Any] | None
    stale: dict[str, Any] | None
    """How old the rows are, if they are older than requested."""
    left_out: list[dict[str, Any]]
    """The statement's tables whose rows are older than the position."""


class ServerApi:
    """Asynchronous client of the server, with the engine's token."""

    def __init__(self, url: str, token: str, endpoint: str) -> None:
        base = httpx.URL(url)
        self._endpoint = endpoint
        self._http = httpx.AsyncClient(
            base_url=base.join("/api/v1/engines/sql/"),
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(_CONNECT_S, read=30.0, pool=None),
            # Below the five seconds after which the server closes an idle connection.
            limits=httpx.Limits(max_connections=None, keepalive_expiry=4.0),
            trust_env=base.host not in {"127.0.0.1", "::1", "localhost"},
        )

    async def login(self, *, user: str | None = None, digest: str | None = None) -> Login:
        """The token of this name, or with this SHA-256. Raises ProblemError."""
        found = await self._post("logins", {"user": user} if digest is None else {"digest": digest}, 30.0)
        return Login(found["name"], found["role"], found["scram"], found.get("settings", {}))  # none of an older server

    async def start(self, request: dict[str, Any]) -> Started:
        """Run a statement; returns when the engine sends its first rows. If cancelled, the statement ends. Raises ProblemError."""
        limit_s = (request["timeout_ms"] + request["freshness"]["timeout_ms"]) / 1000 + _LATE_S
        found = await self._post("statements", request | {"endpoint": self._endpoint}, limit_s)
        return Started(*(found[name] for name in ("request_id", "position", "ran_on", "receipt", "stale", "left_out")))

    async def _post(self, what: str, body: dict[str, Any], read_s: float) -> dict[str, Any]:
        try:
            response = await self._http.post(what, json=body, timeout=httpx.Timeout(_CONNECT_S, read=read_s, pool=None))
        except httpx.HTTPError as error:
            detail = f"the server does not answer ({type(error).__name__})"
            raise ProblemError({"code": "server_unavailable", "detail": detail, "remedy": "Retry."}) from None
        try:
            found: dict[str, Any] = response.json()
        except ValueError:
            found = {"code": "server_unavailable", "detail": f"the server answered with status {response.status_code}"}
        if response.is_error:
            raise ProblemError(found)
        return found
