"""The rows of an answer, read in the thread of a client's call."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from engine.link.answer_frames import AnswerEnd, Frame, FrameReader, MalformedFramesError, RowsFrame
from engine.platform.pipe_file import PipeFile
from engine.sql_endpoint.answers import Answer
from engine.sql_endpoint.deliveries import Delivery
from engine.sql_endpoint.flight.errors import error_of, refused

_READ_BYTES = 1 << 20
"""Bytes that one read of the socket takes at most: its buffer, which `launcher` sets. Not measured."""
_POLL_MS = 200
"""Milliseconds after which a call that waits for rows looks whether its client is gone."""

IsGone = Callable[[], bool]


class Rows:
    """The rows of one answer. For one thread at a time; `close` in any case."""

    def __init__(self, answer: Answer, is_gone: IsGone) -> None:
        """Reads until the columns are known. `is_gone`: whether the client has left. Raises a Flight error."""
        self._delivery: Delivery = answer.rows
        self._is_gone = is_gone
        self._frames = self._read_frames()
        self._pipe = None if self._delivery.pipe is None else PipeFile(self._delivery.pipe, self._wait)
        try:
            self._stream = self._opened()
        except BaseException:
            self.close()
            raise
        self.schema = self._stream.schema

    def batches(self, is_gone: IsGone) -> Iterator[Any]:
        """The record batches, as tables if some column has a dictionary. Raises a Flight error unless the answer is complete."""
        self._is_gone = is_gone
        is_encoded = any(_has_dictionary(field.type) for field in self.schema)
        for batch in self._batches():
            if batch.num_rows:
                # The stream of pyarrow.flight sends dictionaries with tables only.
                yield pa.Table.from_batches([batch]) if is_encoded else batch

    def close(self) -> None:
        """Unless all rows were read, the statement ends on the target."""
        self._delivery.close()

    def _opened(self) -> Any:
        if self._pipe is None:
            return self._table()
        try:
            return pa.ipc.open_stream(pa.PythonFile(self._pipe, mode="r"))
        except (OSError, pa.ArrowException):
            self._end()
            raise _broken_off() from None

    def _batches(self) -> Iterator[Any]:
        if self._pipe is None:
            table = self._stream
            while table is not None:
                yield from table.to_batches()
                table = self._table()
            return
        while True:
            try:
                batch = self._stream.read_next_batch()
            except StopIteration:
                break
            except (OSError, pa.ArrowException):
                self._end()
                raise _broken_off() from None
            yield batch
        self._end()

    def _table(self) -> Any:
        """The rows of the next frame; None after the last one."""
        frame = next(self._frames, None)
        if isinstance(frame, RowsFrame):
            return frame.read()
        _check_end(frame)
        return None

    def _end(self) -> None:
        """A cut stream of rows ends like a complete one: only the frame of the engine tells them apart."""
        _check_end(next(self._frames, None))

    def _read_frames(self) -> Iterator[Frame]:
        reader = FrameReader()
        connection = self._delivery.socket
        while True:
            try:
                piece = connection.recv(_READ_BYTES)
            except BlockingIOError:
                self._wait(connection.fileno())
                continue
            except OSError:
                return
            if not piece:
                return
            try:
                yield from reader.feed(piece)
            except MalformedFramesError:
                return

    def _wait(self, descriptor: int) -> None:
        """Until there is something to read. Raises FlightCancelledError if the client leaves meanwhile."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while not poll.poll(_POLL_MS):
            if self._is_gone():
                raise refused("query_cancelled", "the client has left")


def _check_end(frame: Frame | None) -> None:
    if not isinstance(frame, AnswerEnd):
        raise _broken_off()
    if frame.problem is not None:
        raise error_of(frame.problem.model_dump(mode="json"))
    if frame.truncated:
        raise refused("query_too_large", "the answer was cut")


def _broken_off() -> flight.FlightError:
    return refused("query_unavailable", "the engine broke the answer off", "Ask again.")


def _has_dictionary(kind: Any) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    return pa.types.is_dictionary(kind) or any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))
