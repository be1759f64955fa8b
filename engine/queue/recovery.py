"""Recovery of a queue that an earlier process left: keeps everything up to the first damage and removes the rest."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engine.model.control import ControlKind
from engine.model.identity import Ordinal
from engine.model.position import ZERO, Lsn
from engine.model.source import Landed
from engine.queue.durable import whole_from
from engine.queue.files import SegmentName, delete_segment, fault_of, list_segments, sync_folder
from engine.queue.index import NO_SEGMENT, DamagedFrameError, Head, read_frames
from engine.queue.relations import RelationLedger

_READ_BYTES = 1 << 20
"""Bytes read at once to check a block, which may be larger than memory allows. Not measured."""
_ENDS = frozenset({ControlKind.COMMIT, ControlKind.STREAM_STOP})
_TELLING = [
    *_ENDS,
    ControlKind.BEGIN,
    ControlKind.STREAM_START,
    ControlKind.STREAM_COMMIT,
    ControlKind.STREAM_ABORT,
    ControlKind.SESSION,
]
"""Kinds of control record of which the first in a queue shows whether the queue begins inside a transaction."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A recovered queue. `begin`: transactions committed up to here are not in it. `end`: everything committed after `begin` and up to
    here is in it, or was (retention).

    `relations`: relation records in force at the end, for the next writer. `damaged`: something was removed, and the log from `end` on
    must be read from the source again.
    """

    landed: list[Landed]
    next_ordinal: Ordinal
    relations: tuple[bytes, ...]
    begin: Lsn
    end: Lsn
    damaged: bool


def recover(folder: Path, *, thorough: bool = False) -> Recovered:
    """Read the indexes of a queue that no process has open, and truncate it at the first damage.

    Every block's location is checked against its file's length. Checksums are verified for the last segment, the only one that may be
    partly written; those of other segments when they are read, or here if `thorough`. Raises EngineFault(QUEUE_CORRUPT) if the folder
    cannot be read.
    """
    return _Recovery(folder, thorough=thorough).run()


def mend_last(folder: Path) -> None:
    """Remove the incomplete tail that a killed process wrote to the last segment, so that the next landings are readable.

    To be called by the appending process before it appends.
    """
    names = list_segments(folder)
    if not names:
        return
    index, segment = names[-1].index(folder), names[-1].segment(folder)
    try:
        data = index.read_bytes() if index.exists() and segment.exists() else b""
        whole = _whole(data, segment)
        if whole == 0:
            delete_segment(folder, names[-1])
        elif whole < len(data):
            os.truncate(index, whole)
    except OSError as error:
        raise fault_of(error, index) from error


def _whole(data: bytes, segment: Path) -> int:
    """Length of the index's prefix of undamaged frames."""
    whole = 0
    with suppress(DamagedFrameError):
        for _, behind in read_frames(data, str(segment)):
            whole = behind
    return whole


class _Recovery:
    def __init__(self, folder: Path, *, thorough: bool) -> None:
        self._folder = folder
        self._thorough = thorough
        self._landed: list[Landed] = []
        self._ledger = RelationLedger(())
        self._next = 0
        self._begin: Lsn | None = None
        self._end = ZERO

    def run(self) -> Recovered:
        names = list_segments(self._folder)
        previous = NO_SEGMENT
        damaged = False
        for number, name in enumerate(names):
            try:
                verify = self._thorough or number == len(names) - 1
                damaged = not self._recover_segment(name, previous if number else None, verify=verify)
            except OSError as error:
                raise fault_of(error, name.segment(self._folder)) from error
            if damaged:
                self._drop(names[number + 1 :])
                break
            previous = name.first
        begin = self._begin if self._begin is not None else self._end
        try:
            begin = max(begin, whole_from(self._folder) or ZERO)
        except ValueError:
            begin, damaged = self._end, True
        return Recovered(without_rest(self._landed), Ordinal(self._next), self._ledger.known, begin, self._end, damaged)

    def _recover_segment(self, name: SegmentName, previous: int | None, *, verify: bool) -> bool:
        """Recover one segment. False if it is damaged, or does not follow the previous one; it then ends at its last intact landing."""
        index, segment = name.index(self._folder), name.segment(self._folder)
        if not index.exists() or not segment.exists():
            delete_segment(self._folder, name)
            return False
        data = index.read_bytes()
        whole, block_end = 0, 0
        with segment.open("rb") as blocks:
            size = os.fstat(blocks.fileno()).st_size
            try:
                for frame, behind in read_frames(data, str(segment)):
                    if isinstance(frame, Head):
                        if not self._head(frame, name, previous):
                            break
                    elif not self._block_is_whole(frame, blocks.fileno(), size, verify=verify):
                        break
                    else:
                        self._land(frame)
                        block_end = _end_of(frame, block_end)
                    whole = behind
            except DamagedFrameError:
                pass
        if whole == 0:
            delete_segment(self._folder, name)
        elif whole < len(data):
            self._cut(index, whole)
            if block_end:
                self._cut(segment, block_end)
        return whole == len(data) > 0

    def _head(self, head: Head, name: SegmentName, previous: int | None) -> bool:
        if head.first != name.first or (previous is not None and head.previous != previous):
            return False
        if self._begin is None:
            self._begin = head.begin
            self._end = max(self._end, head.begin)
        self._ledger = RelationLedger(head.relations) if not self._landed else self._ledger
        self._next = max(self._next, head.first)
        return True

    def _land(self, landed: Landed) -> None:
        self._landed.append(landed)
        if landed.block is not None:
            self._next = max(self._next, landed.block.first + landed.block.count)
        self._end = max(self._end, landed.wal_end)
        self._ledger.feed(landed.controls, landed.relations)

    @staticmethod
    def _block_is_whole(landed: Landed, fd: int, size: int, *, verify: bool) -> bool:
        block = landed.block
        if block is None:
            return True
        if block.offset + block.length > size:
            return False
        if not verify:
            return True
        crc, at, stop = 0, block.offset, block.offset + block.length
        while at < stop:
            piece = os.pread(fd, min(_READ_BYTES, stop - at), at)
            if not piece:
                return False
            crc = zlib.crc32(piece, crc)
            at += len(piece)
        return crc == block.crc

    def _cut(self, path: Path, length: int) -> None:
        os.truncate(path, length)
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _drop(self, names: list[SegmentName]) -> None:
        for name in names:
            delete_segment(self._folder, name)
        sync_folder(self._folder)


def without_rest(landed: list[Landed]) -> list[Landed]:
    """The landings without the control records of a transaction that began in a deleted segment.

    Only a target that has this transaction may continue from here, see `durable.whole_from`.
    """
    for number, one in enumerate(landed):
        kinds = one.controls["kind"]
        telling = np.flatnonzero(np.isin(kinds, _TELLING))
        if len(telling):
            first = int(telling[0])
            if kinds[first] not in _ENDS:
                return landed
            before = [replace(rest, controls=rest.controls[:0]) for rest in landed[:number]]
            return [*before, replace(one, controls=one.controls[first + 1 :]), *landed[number + 1 :]]
    return landed


def _end_of(landed: Landed, before: int) -> int:
    return landed.block.offset + landed.block.length if landed.block is not None else before
