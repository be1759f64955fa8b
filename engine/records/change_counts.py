"""Counts the row changes of each transaction while its records are captured, before anything else reads them."""

from __future__ import annotations

import numpy as np

from engine.model.control import ControlKind
from engine.platform.compiled import Array, kernel

_INSERT, _UPDATE, _DELETE, _TRUNCATE = (ord(letter) for letter in "IUDT")
_BEGIN, _COMMIT = int(ControlKind.BEGIN), int(ControlKind.COMMIT)
_STREAM_START, _STREAM_STOP = int(ControlKind.STREAM_START), int(ControlKind.STREAM_STOP)
_NOT_COUNTED = -1
"""State of a count that began before the first record."""
_MOST = 2**32 - 2
"""Highest number that a control record can hold."""


@kernel
def _count(data: Array, offsets: Array, kind: Array, ordinal: Array, pending: int, streamed: bool, found: Array) -> int:
    """Write the number of changes before each control record that ends a count, else 0; returns the count that is open at the end."""
    at = 0
    for i in range(offsets.size - 1):
        p = offsets[i]
        letter = data[p]
        if letter in (_INSERT, _UPDATE, _DELETE):
            if pending >= 0:
                pending += 1
        elif letter == _TRUNCATE and pending >= 0:
            q = p + 5 if streamed else p + 1
            if q + 4 <= offsets[i + 1]:
                for k in range(4):
                    found[at] = found[at] << 8 | np.int64(data[q + k])
                pending += found[at]
                found[at] = 0
        if at < ordinal.size and ordinal[at] == i:
            if kind[at] in (_BEGIN, _STREAM_START):
                pending = 0
                streamed = kind[at] == _STREAM_START
            elif kind[at] in (_COMMIT, _STREAM_STOP):
                if 0 <= pending <= _MOST:
                    found[at] = pending + 1
                pending = _NOT_COUNTED
                streamed = False
            at += 1
    return 2 * pending + int(streamed) if pending >= 0 else _NOT_COUNTED


class ChangeCounter:
    """Counts the changes of one session. Used by one thread."""

    def __init__(self) -> None:
        self._open = _NOT_COUNTED
        """The open count times two, plus 1 inside a streamed chunk."""

    def count(self, data: Array, offsets: Array, controls: Array) -> None:
        """Write the counts of the next records into `controls`, as `scan.find_controls` found them in these records: `subxid` of COMMIT,
        `xid` of STREAM_STOP (see CONTROL_FIELDS)."""
        pending, streamed = (self._open >> 1, bool(self._open & 1)) if self._open >= 0 else (_NOT_COUNTED, False)
        found = np.zeros(len(controls) + 1, np.int64)
        kinds = np.ascontiguousarray(controls["kind"])
        ordinals = np.ascontiguousarray(controls["ordinal"])
        self._open = int(_count(data, offsets, kinds, ordinals, pending, streamed, found))
        commits, stops = kinds == _COMMIT, kinds == _STREAM_STOP
        controls["subxid"][commits] = found[:-1][commits]
        controls["xid"][stops] = found[:-1][stops]


def warm() -> None:
    """Compile or load the kernel, for writable and for read-only buffers."""
    data = np.frombuffer(b"E", np.uint8)
    for buffer in (data, data.copy()):
        for width in (np.int32, np.int64):
            nothing = np.empty(0, np.uint8), np.empty(0, np.int64), -1, False, np.zeros(1, np.int64)
            _count(buffer, np.array([0, 1], width), *nothing)
