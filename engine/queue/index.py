"""The index file of a segment: append-only frames that describe the segment's blocks, each with length and checksum.

A frame is `length, crc32, kind` and the body. The first frame is the head: first ordinal, first ordinal of the previous segment, and the
relation records in force. Each further frame is a landing: location of a block, control records, relation records, position.

The head has the version of the format. New segments have the present one; those of earlier versions are still read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.model.batch import BlockRef
from engine.model.control import CONTROL_FIELDS
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from engine.model.source import Landed

CONTROL_DTYPE = np.dtype(CONTROL_FIELDS)
_CONTROL_DTYPE_1 = np.dtype(
    [("kind", "u1"), ("ordinal", "<i8"), ("xid", "<u4"), ("subxid", "<u4"), ("end_lsn", "<u8"), ("time_us", "<i8")]
)
_FRAME = struct.Struct("<IIB")
_HEAD = struct.Struct("<HQqQI")
_LANDED = struct.Struct("<QQQIqIII")
_RELATION = struct.Struct("<qI")
_LENGTH = struct.Struct("<I")
# The index format, which is the queue's own: its version, and the kinds of its frames.
_VERSION = 2
_KIND_HEAD = 1
_KIND_LANDED = 2
_CONTROLS_OF = {1: _CONTROL_DTYPE_1, _VERSION: CONTROL_DTYPE}
"""By version of the format: the form of the control records in a landing."""
NO_SEGMENT = -1
"""`Head.previous` of the queue's first segment: ordinals are never negative."""


class DamagedFrameError(ValueError):
    """A frame is truncated, has a wrong checksum, or cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Head:
    """First frame of an index. `begin`: everything committed up to here is before this segment. `previous`: first ordinal of the
    previous segment, NO_SEGMENT for the queue's first."""

    first: Ordinal
    previous: int
    begin: Lsn
    relations: tuple[bytes, ...]


def encode_head(head: Head) -> bytes:
    body = _HEAD.pack(_VERSION, head.first, head.previous, head.begin.value, len(head.relations))
    return _frame(_KIND_HEAD, body + b"".join(_LENGTH.pack(len(r)) + r for r in head.relations))


def encode_landed(landed: Landed) -> bytes:
    """The frame of a landing. The block's path is not stored, since it follows from the index file's name."""
    block = landed.block
    place = (block.offset, block.length, block.crc, block.first, block.count) if block is not None else (0, 0, 0, 0, 0)
    controls = np.ascontiguousarray(landed.controls, CONTROL_DTYPE)
    body = [
        _LANDED.pack(landed.wal_end.value, *place, len(controls), len(landed.relations)),
        controls.tobytes(),
    ]
    for ordinal, payload in landed.relations.items():
        body += (_RELATION.pack(ordinal, len(payload)), payload)
    return _frame(_KIND_LANDED, b"".join(body))


def read_frames(data: bytes, segment_path: str) -> Iterator[tuple[Head | Landed, int]]:
    """Frames in order, each with the offset of its end. Raises DamagedFrameError at the first damaged one."""
    at = 0
    stored: Any = None
    while at < len(data):
        kind, body, at = _next_frame(data, at)
        try:
            if kind == _KIND_HEAD:
                stored = _stored_form(body)
                yield _head(body), at
            elif stored is None:
                raise DamagedFrameError("a landing without a head before it")
            else:
                yield _landed(body, segment_path, stored), at
        except (struct.error, ValueError) as error:
            raise DamagedFrameError("the content is invalid") from error


def _frame(kind: int, body: bytes) -> bytes:
    return _FRAME.pack(len(body), zlib.crc32(body, kind), kind) + body


def _next_frame(data: bytes, at: int) -> tuple[int, bytes, int]:
    if at + _FRAME.size > len(data):
        raise DamagedFrameError("cut off")
    length, crc, kind = _FRAME.unpack_from(data, at)
    start = at + _FRAME.size
    body = data[start : start + length]
    if len(body) != length or zlib.crc32(body, kind) != crc or kind not in {_KIND_HEAD, _KIND_LANDED}:
        raise DamagedFrameError("truncated or overwritten")
    return kind, body, start + length


def _stored_form(head: bytes) -> Any:
    """The form (dtype) of the control records in a segment with this head."""
    version = _HEAD.unpack_from(head)[0]
    if version not in _CONTROLS_OF:
        raise DamagedFrameError("written by another version")
    return _CONTROLS_OF[version]


def _head(body: bytes) -> Head:
    _, first, previous, begin, count = _HEAD.unpack_from(body)
    at = _HEAD.size
    relations: list[bytes] = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        relations.append(body[at : at + length])
        at += length
    return Head(Ordinal(first), previous, Lsn(begin), tuple(relations))


def _landed(body: bytes, segment_path: str, stored: Any) -> Landed:
    wal_end, offset, length, crc, first, count, controls_count, relations_count = _LANDED.unpack_from(body)
    at = _LANDED.size
    controls = _controls(np.frombuffer(body, stored, controls_count, at))
    at += controls_count * stored.itemsize
    relations: dict[int, bytes] = {}
    for _ in range(relations_count):
        ordinal, size = _RELATION.unpack_from(body, at)
        at += _RELATION.size
        relations[ordinal] = body[at : at + size]
        at += size
    block = BlockRef(segment_path, offset, length, crc, Ordinal(first), count) if count else None
    return Landed(block, controls, relations, Lsn(wal_end))


def _controls(found: Any) -> Any:
    """Control records of any version in the present form. Fields that the version does not have are 0."""
    if found.dtype == CONTROL_DTYPE:
        return found.copy()
    controls: Any = np.zeros(len(found), CONTROL_DTYPE)
    for name in found.dtype.names:
        controls[name] = found[name]
    return controls
