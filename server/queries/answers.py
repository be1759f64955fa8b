"""Sends answers of queries to the client: small ones whole, others in chunks as the engine sends them.

An error in the middle leaves the body unfinished, so that no client takes the answer for complete.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping

import anyio
from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from engine.link.answer_frames import AnswerEnd, RowsFrame
from server.errors import Problem, ReportedProblem
from server.gateway.hub import AnswerStream
from server.gateway.interface import EngineTimeout, EngineUnavailable
from server.logs import get_logger
from server.queries.render import Writer

HEAD_BYTES = 1 << 20
"""Answers up to this size are sent whole: an error in them is a problem document."""

_WRITING = threading.Lock()
"""Rendering rows holds the interpreter lock: more than one thread for it would delay the event loop."""

log = get_logger(__name__)


class AnswerCut(Problem):
    status = 422
    code = "answer_cut"
    title = "There are more rows than max_rows"
    default_remedy = (
        "Raise max_rows or leave it out; or put a LIMIT into the statement, where only some of the rows are wanted."
    )


class HttpTooOld(Problem):
    status = 505
    code = "http_version_not_supported"
    title = "HTTP/1.0 cannot distinguish a complete answer from a broken one"
    default_remedy = "Use HTTP/1.1, also in a proxy on the way (nginx: proxy_http_version 1.1), or ask for less."


class Rows:
    """An answer as it arrives from the engine, rendered in the requested format."""

    def __init__(self, frames: AnswerStream, writer: Writer, deadline: float, most_rows: int | None) -> None:
        """`deadline`: by the event loop's clock. `most_rows`: exceeding it is an error; None: the writer decides."""
        self._frames = frames
        self._writer = writer
        self._deadline = deadline
        self._most_rows = most_rows
        self._begun = False
        self._pieces = self._written()
        self.truncated = False
        """Whether more rows exist. Known at the end."""

    async def head(self) -> tuple[bytes, bool]:
        """The answer or its beginning, and whether it is complete. Raises the problem that ended it."""
        head = bytearray()
        async for piece in self._pieces:
            head += piece
            if len(head) > HEAD_BYTES:
                return bytes(head), False
        return bytes(head), True

    def rest(self) -> AsyncIterator[bytes]:
        """The rest after `head`. Raises the problem that ended it."""
        return self._pieces

    def close(self) -> None:
        self._frames.close()

    async def _written(self) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout_at(self._deadline):
                    frame = await self._frames.next_frame()
            except TimeoutError:
                raise EngineTimeout("The engine did not send the whole answer in time.") from None
            if frame is None:
                raise EngineUnavailable("The engine broke the answer off.", "Send the query again.")
            if isinstance(frame, AnswerEnd):
                yield await run_in_threadpool(self._ended, frame)
                return
            yield await run_in_threadpool(self._rows, frame)

    def _ended(self, end: AnswerEnd) -> bytes:
        if end.problem is not None:
            raise ReportedProblem(end.problem.status, end.problem.code, end.problem.detail, end.problem.remedy)
        if end.truncated and self._most_rows is not None:
            raise AnswerCut(f"The statement returns more than {self._most_rows} rows.")
        self.truncated = end.truncated
        with _WRITING:
            return self._writer.end(truncated=end.truncated)

    def _rows(self, frame: RowsFrame) -> bytes:
        with _WRITING:
            table = frame.read()
            begin = b"" if self._begun else self._writer.begin(table.schema)
            self._begun = True
            return begin + self._writer.rows(table)


class StreamedAnswer(Response):
    """An answer that is sent as it arrives. `ended` is called once, with the problem if one interrupted it."""

    def __init__(
        self,
        head: bytes,
        rows: Rows,
        media_type: str,
        headers: Mapping[str, str],
        ended: Callable[[str], None],
    ) -> None:
        super().__init__(media_type=media_type, headers=headers)
        del self.headers["content-length"]
        self._head = head
        self._rows = rows
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as group:

                async def watch() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    group.cancel_scope.cancel()

                group.start_soon(watch)
                await self._send(send)
                group.cancel_scope.cancel()
        finally:
            self._rows.close()

    async def _send(self, send: Send) -> None:
        outcome = "left"
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._head, "more_body": True})
            async for piece in self._rows.rest():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            outcome = "answered"
        except Problem as problem:
            outcome = problem.code
            log.warning("answer_broke_off", code=problem.code)
        finally:
            self._ended(outcome)
