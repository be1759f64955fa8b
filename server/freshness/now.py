"""Reads the current position of a source for many waits at once. A reading serves only requests made before it began."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.model.positions import Marks

Reader = Callable[[], Awaitable[Marks]]


class SharedNow:
    """At most one reading in progress, and one batch of requests that wait for the next. On the event loop only."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._running: asyncio.Task[None] | None = None
        self._queued: list[asyncio.Future[Marks]] = []

    async def get(self) -> Marks:
        """Marks at or after every commit acknowledged before this call. Raises what the reading raises."""
        future: asyncio.Future[Marks] = asyncio.get_running_loop().create_future()
        self._queued.append(future)
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        try:
            while self._queued:
                asking, self._queued = [f for f in self._queued if not f.done()], []
                if asking:
                    await self._answer(asking)
        finally:
            self._running = None

    async def _answer(self, asking: list[asyncio.Future[Marks]]) -> None:
        try:
            marks = await self._read()
        except BaseException as error:
            for future in asking:
                if not future.done():
                    future.set_exception(error) if isinstance(error, Exception) else future.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for future in asking:
            if not future.done():
                future.set_result(marks)
