"""Threads reserved for requests of engines, so that many user requests cannot delay the reports that end their waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import Request

from server.errors import Forbidden
from server.security.principal import Role
from server.security.require import Credentials, authenticate

Result = TypeVar("Result")

_THREADS = 4


class EngineThreads:
    """A small thread pool. Created on the event loop."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(_THREADS)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run `work` in one of the threads."""
        return await to_thread.run_sync(work, limiter=self._limiter)


async def engine_only(request: Request, credentials: Credentials) -> None:
    """A dependency that refuses callers other than engines."""
    threads = cast("EngineThreads", request.app.state.engine_threads)
    principal = await authenticate(request, credentials, threads.run)
    if not principal.has_role(Role.ENGINE):
        raise Forbidden(f"This is for engines; the token '{principal.name}' has the role {principal.role.value}.")
