"""Frames in which the engine uploads a query's rows to the server, so that an interrupted answer is not mistaken for a complete one.

A frame of rows is an Arrow IPC stream. The last frame (AnswerEnd) says how the answer ended; without it the answer is incomplete.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from engine.link.message import Message, Problem, encode
from engine.model.target import MOST_ROW_BYTES

MOST_FRAME_BYTES = 2 * MOST_ROW_BYTES
_HEAD = struct.Struct(">cI")
_ROWS = b"r"
_END = b"e"


class MalformedFramesError(Exception):
    """The received bytes are not frames of an answer."""


class FrameTooLargeError(MalformedFramesError):
    """A frame is larger than the limit for engines."""


class AnswerEnd(Message):
    """How an answer ended. `truncated`: there are more rows than requested. `problem`: why further rows could not be read."""

    truncated: bool = False
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class RowsFrame:
    """Rows of an answer, as an Arrow IPC stream. All frames of an answer have the same schema."""

    arrow: bytes = field(repr=False)

    def read(self) -> Any:
        """The rows as a pyarrow.Table."""
        with pa.ipc.open_stream(pa.py_buffer(self.arrow)) as reader:
            return reader.read_all()


Frame = RowsFrame | AnswerEnd


def rows_frame(schema: Any, batches: Iterable[Any] = ()) -> bytes:
    """Encode record batches as one frame."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return _HEAD.pack(_ROWS, sink.tell()) + sink.getvalue()


def end_frame(end: AnswerEnd) -> bytes:
    body = encode(end)
    return _HEAD.pack(_END, len(body)) + body


def is_end(frame: bytes) -> bool:
    """Whether an encoded frame is the last one of its answer."""
    return frame.startswith(_END)


class FrameReader:
    """Cuts a byte stream, received in pieces of any size, into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Add a piece, and yield the frames that are complete now. Raises MalformedFramesError."""
        self._rest += piece
        while len(self._rest) >= _HEAD.size:
            kind, size = _HEAD.unpack_from(self._rest)
            if kind not in {_ROWS, _END}:
                message = f"a frame of kind {kind!r}"
                raise MalformedFramesError(message)
            if size > MOST_FRAME_BYTES:
                message = f"a frame of {size} bytes"
                raise FrameTooLargeError(message)
            if len(self._rest) < _HEAD.size + size:
                return
            body = bytes(self._rest[_HEAD.size : _HEAD.size + size])
            del self._rest[: _HEAD.size + size]
            yield RowsFrame(body) if kind == _ROWS else _end(body)


def _end(body: bytes) -> AnswerEnd:
    try:
        return AnswerEnd.model_validate_json(body)
    except ValidationError:
        message = "the last frame is invalid"
        raise MalformedFramesError(message) from None
