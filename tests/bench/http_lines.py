"""HTTP/1.1 over asyncio streams, for thousands of connections in one process: a tenth of the cost of a client library."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Self

_LARGEST = 1 << 20


class LostError(Exception):
    """The connection was refused or lost before the answer was complete."""


class HttpLine:
    """One connection, with one request at a time. It is opened by the first request, and again after it was lost."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON document of the answer; LostError."""
        sent = b"" if body is None else json.dumps(body).encode()
        kind = f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n"
        try:
            reader, status, headers = await self._begin(
                f"{method} /api/v1{path} HTTP/1.1\r\n{self._head}{kind}\r\n", sent
            )
            content = await reader.readexactly(int(headers.get("content-length", 0)))
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            await self.close()
            raise LostError(type(error).__name__) from error
        return status, json.loads(content) if content else None

    async def events(self, path: str) -> AsyncIterator[tuple[str, str]]:
        """Kind and data of the server-sent events of a stream, until it is lost: LostError."""
        try:
            head = f"GET /api/v1{path} HTTP/1.1\r\n{self._head}Accept: text/event-stream\r\n\r\n"
            reader, status, _ = await self._begin(head, b"")
            if status != 200:
                raise LostError(f"HTTP {status}")
            kind = data = ""
            while True:
                line = (await reader.readuntil(b"\n")).decode().rstrip("\r\n")
                # The size of a chunk is a line of its own here, which no field begins like.
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    data = value
                elif not line and kind:
                    yield kind, data
                    kind = data = ""
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise LostError(type(error).__name__) from error
        finally:
            await self.close()

    async def _begin(self, head: str, body: bytes) -> tuple[asyncio.StreamReader, int, dict[str, str]]:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=_LARGEST)
        self._writer.write(head.encode() + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = (line.partition(":") for line in lines[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in fields}
        return self._reader, int(lines[0].split(" ")[1]), headers
