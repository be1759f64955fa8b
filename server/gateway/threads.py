"""Threads reserved for requests of engines, so that many user requests cannot delay the reports that end their waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from server.errors import Forbidden
from server.security.principal import Role
from server.security.require import principal_of

Result = TypeVar("Result")

_THREADS = 4
_bearer = HTTPBearer(
    auto_error=False, scheme_name="token", description="A token made by the server or `penstock token`."
)


class EngineThreads:
    """A small thread pool. Created on the event loop."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(_THREADS)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run `work` in one of the threads."""
        return await to_thread.run_sync(work, limiter=self._limiter)


async def engine_only(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """A dependency that refuses callers other than engines."""
    threads = cast("EngineThreads", request.app.state.engine_threads)
    principal = await threads.run(lambda: principal_of(request, credentials))
    if not principal.has_role(Role.ENGINE):
        raise Forbidden(f"This is for engines; the token '{principal.name}' has the role {principal.role.value}.")
