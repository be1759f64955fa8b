"""The rows of answers, as they arrive from the engine in this process: a socket with frames for each answer."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

from engine.link.answer_frames import AnswerEnd, Frame, FrameReader, MalformedFramesError, RowsFrame
from engine.link.message import Problem

_READ_BYTES = 1 << 20
"""Bytes that one read takes at most: the buffer of the engine's end of the socket."""
_UNCLAIMED_S = 30.0
"""Seconds for which rows wait for their statement, and a statement for its rows: the server answers right after the engine sent them."""


class BrokenOffError(Exception):
    """The rows ended without a last frame, so they are not complete."""


class AnswerProblemError(Exception):
    """The engine ended the answer with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


class Delivery:
    """The frames of one answer. `close` it in any case: the engine stops the statement then."""

    def __init__(self, connection: socket.socket, pipe: int | None = None) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.pipe = pipe
        """File descriptor of a pipe with the rows as an Arrow IPC stream; the frames only say how the answer ended then."""
        self.truncated = False
        """Whether there are more rows than asked for. Known at the end."""

    async def tables(self) -> AsyncIterator[Any]:
        """The rows as pyarrow.Table objects of one schema, at least one.

        Raises:
            AnswerProblemError: the engine ended the statement.
            BrokenOffError: the engine is gone.
        """
        async for frame in self._frames():
            if isinstance(frame, RowsFrame):
                yield frame.read()
            elif frame.problem is not None:
                raise AnswerProblemError(frame.problem)
            else:
                self.truncated = frame.truncated
                return
        raise BrokenOffError

    def close(self) -> None:
        self.socket.close()
        pipe, self.pipe = self.pipe, None
        if pipe is not None:
            os.close(pipe)

    async def _frames(self) -> AsyncIterator[Frame]:
        loop = asyncio.get_running_loop()
        reader = FrameReader()
        with suppress(OSError, MalformedFramesError):
            while piece := await loop.sock_recv(self.socket, _READ_BYTES):
                for frame in reader.feed(piece):
                    yield frame
                    if isinstance(frame, AnswerEnd):
                        return


class Deliveries:
    """Receives the engine's messages in a thread, and gives each delivery to the statement that claims it."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._arrived: dict[str, asyncio.Future[Delivery]] = {}
        threading.Thread(target=self._listen, name="deliveries", daemon=True).start()

    async def claim(self, request_id: str) -> Delivery:
        """The delivery of this request. The server answers after the engine has sent it, so it is here or about to be.

        Raises:
            BrokenOffError: it did not arrive.
        """
        future = self._future(request_id)
        try:
            delivery = await asyncio.wait_for(future, _UNCLAIMED_S)
        except BaseException as error:
            # The future is done now, so that a delivery that still arrives is closed, which ends its statement.
            self._loop.call_later(_UNCLAIMED_S, self._drop, request_id)
            if isinstance(error, TimeoutError):
                raise BrokenOffError from None
            raise
        del self._arrived[request_id]
        return delivery

    def _listen(self) -> None:
        """In a thread, until the engine is gone, which ends this process."""
        with suppress(EOFError, OSError):
            while True:
                message = json.loads(self._control.recv_bytes())
                connection = socket.socket(fileno=recv_handle(self._control))
                pipe = recv_handle(self._control) if message["pipe"] else None
                delivery = Delivery(connection, pipe)
                self._loop.call_soon_threadsafe(self._deliver, message["request_id"], delivery)
        os._exit(0)

    def _deliver(self, request_id: str, delivery: Delivery) -> None:
        future = self._future(request_id)
        if future.done():  # its statement was given up
            delivery.close()
            self._arrived.pop(request_id, None)
            return
        future.set_result(delivery)
        self._loop.call_later(_UNCLAIMED_S, self._drop, request_id)

    def _drop(self, request_id: str) -> None:
        future = self._arrived.pop(request_id, None)
        if future is not None and future.done() and not future.cancelled():
            future.result().close()

    def _future(self, request_id: str) -> asyncio.Future[Delivery]:
        return self._arrived.setdefault(request_id, self._loop.create_future())
