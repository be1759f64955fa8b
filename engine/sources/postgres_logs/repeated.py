"""Leaves out what a node's session sends again that an earlier session of the same run has sent: each record is passed on once."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.source import RecordChunk
from engine.records.two_phase import two_phase_of

_FINAL = struct.Struct(">Q")
"""Start of the commit's record, which BEGIN names after its type."""
_ENDS = frozenset({ControlKind.COMMIT, ControlKind.PREPARE})
_DECISIONS = frozenset({ControlKind.COMMIT_PREPARED, ControlKind.ROLLBACK_PREPARED})


class Repeated:
    """For one session, from its beginning on. Used by one thread.

    A transaction was passed on if its commit, or for a part its PREPARE, ends at or before the position that was read. It is left out as a
    whole, but its announcements of tables hold for what follows: a session makes each only once.
    """

    def __init__(self, read: int, is_prepared: Callable[[str], bool], announce: Callable[[bytes], None]) -> None:
        """`read`: everything that ends at or before was passed on. `is_prepared`: whether a part with this gid was passed on and is
        neither committed nor rolled back. `announce`: takes announcements of tables that are left out."""
        self._read = read
        self._is_prepared = is_prepared
        self._announce = announce
        self._left_out = False
        """Whether the transaction that is open is left out."""
        self._open = False
        self._prepared: set[str] = set()
        """Parts that were left out, and of which no end was left out yet."""
        self.done = False
        """Whether everything that follows is new."""

    def cut(self, chunk: RecordChunk) -> RecordChunk:
        """The next records, without those that were passed on.

        Raises EngineFault(SOURCE_UNREACHABLE) if only a session from the target's position can continue: a part has to be passed on whose
        PREPARE is of before, as it was prepared before its slot was created.
        """
        kept = np.ones(chunk.count, np.bool_)
        first = 0
        for control in chunk.controls:
            first = self._control(chunk, control, first, kept)
        if self._left_out:
            kept[first:] = False
        known = all(self._is_prepared(gid) for gid in self._prepared)
        self.done = chunk.wal_end.value >= self._read and not self._left_out and known
        return chunk if kept.all() else _with_only(chunk, kept)

    def _control(self, chunk: RecordChunk, control: Any, first: int, kept: Any) -> int:
        """Process one control record. `first`: where the open transaction begins in this chunk; returns it."""
        kind, ordinal = ControlKind(int(control["kind"])), int(control["ordinal"])
        if kind in (ControlKind.BEGIN, ControlKind.BEGIN_PREPARE):
            self._open, self._left_out = True, self._was_read(chunk, kind, ordinal)
            return ordinal
        if kind in _ENDS:
            if kind is ControlKind.PREPARE and not self._open:
                # Some versions send a part that only locked rows without its beginning.
                self._left_out, first = int(control["end_lsn"]) <= self._read, ordinal
            if self._left_out:
                kept[first : ordinal + 1] = False
                if kind is ControlKind.PREPARE:
                    self._prepared.add(two_phase_of(_record(chunk, ordinal)).gid)
            self._open = self._left_out = False
            return ordinal + 1
        if kind in _DECISIONS:
            kept[ordinal] = int(control["end_lsn"]) > self._read
            self._decided(two_phase_of(_record(chunk, ordinal)).gid, kind, new=bool(kept[ordinal]))
        elif kind is ControlKind.RELATION and self._left_out:
            self._announce(chunk.relations[ordinal])
        return first

    def _was_read(self, chunk: RecordChunk, kind: ControlKind, ordinal: int) -> bool:
        record = _record(chunk, ordinal)
        if kind is ControlKind.BEGIN_PREPARE:
            return two_phase_of(record).end.value <= self._read
        # A position is never within a record.
        return int(_FINAL.unpack_from(record, 1)[0]) < self._read

    def _decided(self, gid: str, kind: ControlKind, *, new: bool) -> None:
        left_out = gid in self._prepared
        self._prepared.discard(gid)
        if new and left_out and kind is ControlKind.COMMIT_PREPARED and not self._is_prepared(gid):
            detail = "a part that was prepared before its slot was created has to be read from the target's position on"
            raise EngineFault(FaultKind.SOURCE_UNREACHABLE, "replication stream", detail)


def _record(chunk: RecordChunk, ordinal: int) -> bytes:
    found: bytes = chunk.data[chunk.offsets[ordinal] : chunk.offsets[ordinal + 1]].tobytes()
    return found


def _with_only(chunk: RecordChunk, kept: Any) -> RecordChunk:
    """The chunk with these of its records (bool)."""
    sizes = np.diff(chunk.offsets)
    offsets = np.zeros(int(kept.sum()) + 1, chunk.offsets.dtype)
    np.cumsum(sizes[kept], out=offsets[1:])
    base = int(chunk.offsets[0])
    data = chunk.data[base : int(chunk.offsets[-1])][np.repeat(kept, sizes)]
    moved = np.cumsum(kept) - 1
    controls = chunk.controls[kept[chunk.controls["ordinal"]]].copy()
    controls["ordinal"] = moved[controls["ordinal"]]
    relations = {int(moved[at]): record for at, record in chunk.relations.items() if kept[at]}
    return RecordChunk(data, offsets, controls, relations, chunk.wal_end)
