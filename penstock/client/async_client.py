"""The asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import httpx

from penstock.client.answers import Result
from penstock.client.commit_position import LogEnd, check_async_source, read_log_end_async
from penstock.client.exchange import BodyLost, Exchange, Pause, Reply, Send
from penstock.client.receipts import Receipt
from penstock.client.requests import DEFAULT_TIMEOUT_S, Requests, http_options

if TYPE_CHECKING:
    from penstock.client.commit_position import AsyncSource

T = TypeVar("T")


class AsyncClient:
    """As `Client`, with methods to be awaited. For the tasks of one event loop.

    A task inherits what its creator waits for; what it waits for later concerns itself only.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        subscription: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """As `Client`."""
        self._requests = Requests(url, subscription)
        self._http = httpx.AsyncClient(transport=transport, **http_options(self._requests.url, token))

    def __repr__(self) -> str:
        return f"AsyncClient{self._requests!r}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._http.aclose()

    async def wait(
        self,
        position: str | None = None,
        tables: Sequence[str] | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,  # noqa: ASYNC109, RUF100 - the server ends the wait
    ) -> Receipt:
        """As `Client.wait`. Cancelling it cancels the wait."""
        return await self._run(self._requests.wait(position, tables, timeout))

    async def query(
        self,
        sql: str,
        freshness: str = "any",
        timeout: float = DEFAULT_TIMEOUT_S,  # noqa: ASYNC109, RUF100 - the server ends the wait
        *,
        time_limit: float = DEFAULT_TIMEOUT_S,
        max_rows: int | None = None,
        read_point: str | None = None,
    ) -> Result:
        """As `Client.query`."""
        for source in self._requests.floor.sources:
            self._requests.note(await _log_end(source), last=False)
        return await self._run(self._requests.query(sql, freshness, timeout, time_limit, max_rows, read_point))

    def at_least(self, position: str | None) -> None:
        """As `Client.at_least`."""
        self._requests.at_least(position)

    @asynccontextmanager
    async def read_your_writes(self, source: AsyncSource) -> AsyncIterator[None]:
        """As `Client.read_your_writes`, of a psycopg AsyncConnection."""
        check_async_source(source)
        self._requests.open_block(source)
        failed = True
        try:
            yield
            failed = False
        finally:
            self._requests.close_block()
            end = None
            try:
                end = await _log_end(source)
            finally:
                self._requests.note(end, last=True, failed=failed)

    async def _run(self, exchange: Exchange[T]) -> T:
        try:
            action = next(exchange)
            while True:
                if isinstance(action, Pause):
                    await asyncio.sleep(action.seconds)
                    action = next(exchange)
                    continue
                lost: httpx.RequestError | None = None
                try:
                    reply = await self._send(action)
                except httpx.RequestError as error:
                    lost = error
                action = exchange.send(reply) if lost is None else exchange.throw(lost)
        except StopIteration as end:
            found: T = end.value
            return found

    async def _send(self, send: Send) -> Reply:
        headers = {"Accept": send.accept}
        async with self._http.stream(
            send.method, send.path, json=send.body, headers=headers, timeout=send.timeout
        ) as response:
            body = bytearray()
            try:
                async for piece in response.aiter_bytes():
                    body += piece
            except httpx.RequestError as error:
                raise BodyLost(str(error)) if body else error from None
            return Reply(response.status_code, response.headers, bytes(body))


async def _log_end(source: object) -> LogEnd | None:
    """The end of the source's log; None if it cannot be read, whatever the driver raises."""
    try:
        return await read_log_end_async(source)
    except Exception:  # noqa: BLE001, RUF100 - the block is about the user's transaction, which has ended
        return None
