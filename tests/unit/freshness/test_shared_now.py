"""One reading of "now" serves many requests, but only those that came before it began."""

from __future__ import annotations

import asyncio

import pytest

from engine.model.position import Lsn
from server.freshness.now import SharedNow


class _Source:
    """A source whose answers a test gives by hand."""

    def __init__(self) -> None:
        self.readings: list[asyncio.Future[Lsn]] = []

    async def read(self) -> Lsn:
        future: asyncio.Future[Lsn] = asyncio.get_running_loop().create_future()
        self.readings.append(future)
        return await future


async def _settle() -> None:
    """Let the event loop run everything that is ready."""
    loop = asyncio.get_running_loop()
    for _ in range(5):
        turn: asyncio.Future[None] = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


async def test_a_reading_serves_only_requests_that_came_before_it_began() -> None:
    source = _Source()
    now = SharedNow(source.read)
    first = [asyncio.ensure_future(now.get()) for _ in range(3)]
    await _settle()
    assert len(source.readings) == 1
    late = [asyncio.ensure_future(now.get()) for _ in range(3)]
    await _settle()
    assert len(source.readings) == 1
    source.readings[0].set_result(Lsn(5))
    assert await asyncio.gather(*first) == [Lsn(5)] * 3
    await _settle()
    assert len(source.readings) == 2
    assert not any(future.done() for future in late)
    source.readings[1].set_result(Lsn(9))
    assert await asyncio.gather(*late) == [Lsn(9)] * 3
    await _settle()
    again = asyncio.ensure_future(now.get())
    await _settle()
    assert len(source.readings) == 3
    source.readings[2].set_result(Lsn(10))
    assert await again == Lsn(10)


async def test_a_failed_reading_fails_its_own_requests_only() -> None:
    source = _Source()
    now = SharedNow(source.read)
    first = asyncio.ensure_future(now.get())
    await _settle()
    late = asyncio.ensure_future(now.get())
    await _settle()
    source.readings[0].set_exception(ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await first
    await _settle()
    source.readings[1].set_result(Lsn(7))
    assert await late == Lsn(7)


async def test_requests_that_gave_up_cause_no_reading() -> None:
    source = _Source()
    now = SharedNow(source.read)
    first = asyncio.ensure_future(now.get())
    await _settle()
    late = asyncio.ensure_future(now.get())
    await _settle()
    late.cancel()
    source.readings[0].set_result(Lsn(1))
    await first
    await _settle()
    assert len(source.readings) == 1
