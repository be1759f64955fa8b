"""Rows that wait for the merge: in memory, or in a file without a name where they do not fit there."""

from __future__ import annotations

import os
import tempfile
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from engine.model.fault import EngineFault, FaultKind
from engine.platform.compiled import Array
from engine.queue.files import fault_of, write_all

_OBJECT_BYTES = 1024
"""Bytes of memory that rows count besides their arrays, since many small transactions need more for the objects of each than for their
rows. An estimate that includes what the merge keeps of them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Arrays in a spool. `forms`: type and length of each."""

    start: int
    size: int
    crc: int
    forms: tuple[tuple[np.dtype[Any], int], ...]


class Spool:
    """The file of one node. It has no name and is not readable by other users, and nothing is left of it when the process has ended: no
    session reads what another one has written, so nothing is synced. Used by one thread.

    Space that is free is used again, and the file ends where its last rows do. All methods raise EngineFault: QUEUE_DISK_FULL, and
    QUEUE_CORRUPT for other errors of the file system and for rows that are not read as they were written.
    """

    def __init__(self, folder: Path | None) -> None:
        """`folder`: where the file is from the first `put` on; it is created if it is missing. None: the system's folder for
        temporary files."""
        self._folder = Path(tempfile.gettempdir()) if folder is None else folder
        self._file: IO[bytes] | None = None
        self._free: list[tuple[int, int]] = []
        """Start and size of each gap before the end, in ascending order; no two touch each other."""
        self.size = 0
        """Bytes of the file."""
        self.bytes = 0
        """Bytes of the rows in it."""
        self._last: tuple[Place, tuple[Array, ...]] | None = None
        """What was read last: many small parts of transactions are at one place."""

    def put(self, arrays: Sequence[Array]) -> Place:
        """Write arrays, those with larger items first, so that all are aligned when they are read."""
        crc, views = 0, [each.view(np.uint8).data for each in arrays]
        for view in views:
            crc = zlib.crc32(view, crc)
        size = sum(view.nbytes for view in views)
        gap = next((at for at, (_, room) in enumerate(self._free) if room >= size), None)
        start = at = self.size if gap is None else self._free[gap][0]
        try:
            descriptor = self._open().fileno()
            for view in views:
                write_all(descriptor, view, at)
                at += view.nbytes
        except OSError as error:
            raise self._fault(error) from error
        if gap is None:
            self.size = at
        else:
            room = self._free[gap][1]
            self._free[gap : gap + 1] = [(at, room - size)] if room > size else []
        self.bytes += size
        return Place(start, size, crc, tuple((each.dtype, len(each)) for each in arrays))

    def get(self, place: Place) -> tuple[Array, ...]:
        """The arrays that were put there."""
        if self._last is not None and self._last[0] is place:
            return self._last[1]
        found = np.empty(place.size, np.uint8)
        view, at = found.data, 0
        try:
            descriptor = self._open().fileno()
            while at < place.size and (count := os.preadv(descriptor, [view[at:]], place.start + at)):
                at += count
        except OSError as error:
            raise self._fault(error) from error
        if at < place.size or zlib.crc32(view) != place.crc:
            detail = "rows that wait for other nodes are not read as they were written"
            raise EngineFault(FaultKind.QUEUE_CORRUPT, str(self._folder), detail)
        arrays, at = [], 0
        for dtype, length in place.forms:
            arrays.append(np.frombuffer(found, dtype, length, at))
            at += length * dtype.itemsize
        self._last = place, tuple(arrays)
        return self._last[1]

    def free(self, place: Place) -> None:
        """The space of these arrays is free. Once for each place."""
        self._last = None
        self.bytes -= place.size
        start, stop = place.start, place.start + place.size
        at = bisect_left(self._free, (start, 0))
        if at < len(self._free) and self._free[at][0] == stop:
            stop += self._free.pop(at)[1]
        if at and sum(self._free[at - 1]) == start:
            at -= 1
            start = self._free.pop(at)[0]
        if stop < self.size:
            self._free.insert(at, (start, stop - start))
            return
        self.size = start
        try:
            self._open().truncate(start)
        except OSError as error:
            raise self._fault(error) from error

    def close(self) -> None:
        """Remove everything. Idempotent."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _open(self) -> IO[bytes]:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(buffering=0, prefix="penstock-", dir=self._folder)  # noqa: SIM115
        return self._file

    def _fault(self, error: OSError) -> EngineFault:
        fault = fault_of(error, self._folder)
        if fault.kind is not FaultKind.QUEUE_DISK_FULL:
            return fault
        detail = (
            f"{fault.detail}: {self.bytes} bytes of transactions that wait for other nodes are here already; free space on this disk,"
            " or end transactions that have been prepared for long"
        )
        return EngineFault(fault.kind, fault.subject, detail)


class Kept:
    """Arrays that are kept, in memory until they are moved to a spool. Those with larger items are first."""

    __slots__ = ("_arrays", "_objects", "_place", "_spool", "memory_bytes")

    def __init__(self, arrays: Sequence[Array], spool: Spool, transactions: int = 1) -> None:
        """`transactions`: how many of them they are of."""
        self._spool = spool
        self._objects = transactions * _OBJECT_BYTES
        self._place: Place | None = None
        self._arrays: Sequence[Array] | None = None
        self.memory_bytes = 0
        """Bytes of memory; 0 while they are in the spool."""
        self._hold(arrays)

    def move(self) -> None:
        """Move them to the spool."""
        if self._arrays is not None:
            self._place = self._spool.put(self._arrays)
            self._arrays, self.memory_bytes = None, 0

    def bring_back(self) -> None:
        """Move them to memory."""
        if self._place is not None:
            arrays = self._spool.get(self._place)
            self.drop()
            self._hold(arrays)

    def read(self) -> tuple[Array, ...]:
        """The arrays, which stay where they are. Empty after `drop`."""
        if self._place is not None:
            return self._spool.get(self._place)
        return tuple(self._arrays or ())

    def drop(self) -> None:
        """They are not needed any more. Idempotent."""
        if self._place is not None:
            self._spool.free(self._place)
        self._arrays, self._place, self.memory_bytes = None, None, 0

    def _hold(self, arrays: Sequence[Array]) -> None:
        self._arrays = arrays
        self.memory_bytes = sum(each.nbytes for each in arrays) + self._objects
