"""The interface for requests to an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

from fastapi import Request

from server.errors import Problem


class EngineUnavailable(Problem):
    status = 503
    code = "engine_unavailable"
    title = "No engine is connected"
    default_remedy = "Start an engine with 'penstock engine', or wait until it has connected again."


class EngineTimeout(Problem):
    status = 504
    code = "engine_timeout"
    title = "The engine did not answer in time"
    default_remedy = "Try again; the database that the engine asks may be slow or hang."


class EngineGateway(Protocol):
    """Requests to engines, for endpoints. Used on the event loop only, except `connected_s`."""

    @property
    def connected(self) -> bool:
        """Whether an engine is connected."""
        ...

    def connected_s(self, engine_id: str | None) -> float | None:
        """Seconds for which this engine has been connected; None if it is not. Callable from any thread."""
        ...

    async def request(self, kind: str, payload: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a command of `kind` and return the body of its answer.

        `payload` is the command's fields without `kind` and `request_id`; secrets in it go straight to the wire.

        Raises:
            EngineUnavailable: no engine is connected, or it disconnected before answering.
            EngineTimeout: no answer within `timeout_s` seconds.
            Problem: the engine's.
        """
        ...


class NoEngine:
    """A gateway without engines."""

    @property
    def connected(self) -> bool:
        return False

    def connected_s(self, engine_id: str | None) -> float | None:
        return None

    async def request(self, kind: str, payload: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        raise EngineUnavailable(f"The command '{kind}' needs an engine, and none is connected.")


def gateway_of(request: Request) -> EngineGateway:
    """The application's gateway."""
    return cast("EngineGateway", request.app.state.engine_gateway)


async def ask_engine(request: Request, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """`EngineGateway.request` of the application, within the time that its settings allow."""
    return await gateway_of(request).request(kind, payload, request.app.state.settings.engine_request_timeout_s)
