"""Appends to the queue: raw records to segments, and a description of each landing to the segment's index."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.model.batch import BlockRef
from engine.model.control import SESSION_ORIGINS, ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.position import ZERO, Lsn
from engine.model.source import Landed, RecordChunk
from engine.model.subscription import OriginFilter
from engine.queue.block import END_OF_STREAM, encode_block, schema_message
from engine.queue.files import SegmentName, fault_of, list_segments, lock_writer, sync_folder, write_all
from engine.queue.index import CONTROL_DTYPE, NO_SEGMENT, Head, encode_head, encode_landed
from engine.queue.recovery import mend_last
from engine.queue.relations import RelationLedger

SEGMENT_BYTES = 64 * 1024 * 1024
"""Size of a segment's file in bytes from which the next one begins. Disk space is released by whole segments; smaller ones mean more files
and more fsyncs. Not measured."""
INDEX_BYTES = 16 * 1024 * 1024
"""The same for the index, which a start reads whole: many small transactions fill it faster than the segment. Not measured."""


@dataclass(frozen=True, slots=True)
class SessionHead:
    """What the records of a session follow.

    `begin`: everything committed up to here is before them. `relations`: relation records (without a transaction id) in force then.
    `origin`: the session's origin filter, recorded with its start.
    """

    begin: Lsn = ZERO
    relations: Sequence[bytes] = ()
    origin: OriginFilter = OriginFilter.ANY


class SegmentWriter:
    """Appends to one queue; used by one thread of one process at a time. Opening it begins a session.

    `first_ordinal`: ordinal of the next record, above every ordinal used before; if a segment of that ordinal exists, the next one is
    used. With `fsync` every finished segment is synced, and `sync` syncs the open one; without it `sync` does nothing. `keep_durable`
    changes this later.

    Raises EngineFault: SLOT_IN_USE if another process appends; QUEUE_DISK_FULL and QUEUE_CORRUPT from every method. After
    QUEUE_DISK_FULL the queue is as it was before the call.
    """

    def __init__(
        self,
        folder: Path,
        first_ordinal: Ordinal,
        fsync: bool,
        session: SessionHead = SessionHead(),
        *,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._folder = folder
        self._fsync = fsync
        self._segment_bytes = segment_bytes
        self._origin = session.origin
        self._relations = RelationLedger(session.relations)
        self._wal_end = self._indexed_end = session.begin
        self._segment_fd = self._index_fd = -1
        self._lock = lock_writer(folder)
        try:
            mend_last(folder)
            existing = list_segments(folder)
            self._previous = existing[-1].first if existing else NO_SEGMENT
            self._next = int(first_ordinal)
            if self._next <= self._previous:
                self._next = self._previous + 1
            self._open_segment()
            self.begin_session()
        except BaseException:
            self._release()
            raise

    @property
    def next_ordinal(self) -> Ordinal:
        """Ordinal of the next record."""
        return Ordinal(self._next)

    @property
    def wal_end(self) -> Lsn:
        """Everything committed up to here is in the queue, or before its start."""
        return self._wal_end

    @property
    def path(self) -> Path:
        """Path of the open segment."""
        return self._name.segment(self._folder)

    def append(self, chunk: RecordChunk) -> Landed:
        """Write a chunk. A chunk without records only moves the position, which is written with the next landing or `sync`."""
        if chunk.count == 0:
            self._wal_end = max(self._wal_end, chunk.wal_end)
            return Landed(None, np.empty(0, CONTROL_DTYPE), {}, self._wal_end)
        message = encode_block(chunk.data, chunk.offsets)
        if self._blocks and (self._segment_at + message.size > self._segment_bytes or self._index_at > INDEX_BYTES):
            self._roll()
        controls: Any = np.array(chunk.controls, CONTROL_DTYPE)
        controls["ordinal"] += self._next
        landed = Landed(
            block=self._write_block(message, chunk.count),
            controls=controls,
            relations={ordinal + self._next: payload for ordinal, payload in chunk.relations.items()},
            wal_end=max(self._wal_end, chunk.wal_end),
        )
        self._write_index(encode_landed(landed))
        self._segment_at += message.size
        self._blocks += 1
        self._next += chunk.count
        self._wal_end = self._indexed_end = landed.wal_end
        self._relations.feed(landed.controls, landed.relations)
        return landed

    def begin_session(self) -> Landed:
        """Write a SESSION record: a new connection begins here, and transactions uncommitted before it are void."""
        controls: Any = np.zeros(1, CONTROL_DTYPE)
        controls["kind"] = ControlKind.SESSION
        controls["ordinal"] = self._next
        controls["subxid"] = SESSION_ORIGINS[self._origin]
        landed = Landed(None, controls, {}, self._wal_end)
        self._write_index(encode_landed(landed))
        self._indexed_end = self._wal_end
        self._relations.begin_session()
        return landed

    def sync(self) -> None:
        """Make all landings and the current position durable. The folder was synced when the segment was created.

        Raises EngineFault(QUEUE_CORRUPT) if the folder or the files were deleted meanwhile.
        """
        if not self._fsync:
            return
        if self._wal_end > self._indexed_end:
            self._write_index(encode_landed(Landed(None, np.empty(0, CONTROL_DTYPE), {}, self._wal_end)))
            self._indexed_end = self._wal_end
        self._sync_files()

    def keep_durable(self, on: bool) -> None:
        """Turn fsync on or off. On: the open segment is synced too, with its existing contents.

        The caller must sync segments that were finished before (`durable.Backlog`), and write or remove the durability mark.
        """
        self._fsync = on
        if on:
            try:
                sync_folder(self._folder)
            except OSError as error:
                raise fault_of(error, self._folder) from error
            self.sync()

    def close(self) -> None:
        """Finish the open segment and release the queue. Idempotent."""
        if self._segment_fd < 0:
            return
        try:
            self._finish_segment()
        finally:
            self._release()

    def _release(self) -> None:
        for fd in (self._segment_fd, self._index_fd):
            if fd >= 0:
                os.close(fd)
        self._segment_fd = self._index_fd = -1
        self._lock.close()

    def _roll(self) -> None:
        """Finish the open segment and create the next one."""
        self._finish_segment()
        old = (self._segment_fd, self._index_fd)
        self._previous = self._name.first
        self._open_segment()
        for fd in old:
            os.close(fd)

    def _finish_segment(self) -> None:
        try:
            write_all(self._segment_fd, END_OF_STREAM, self._segment_at)
        except OSError as error:
            raise fault_of(error, self.path) from error
        self.sync()

    def _open_segment(self) -> None:
        name = SegmentName(self._next)
        start = schema_message()
        head = encode_head(Head(Ordinal(self._next), self._previous, self._wal_end, self._relations.known))
        paths = name.segment(self._folder), name.index(self._folder)
        fds: list[int] = []
        try:
            for path, content in zip(paths, (start, head), strict=True):
                fds.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                write_all(fds[-1], content, 0)
            if self._fsync:
                sync_folder(self._folder)
        except OSError as error:
            for fd, path in zip(fds, paths, strict=False):
                os.close(fd)
                path.unlink(missing_ok=True)
            raise fault_of(error, paths[0]) from error
        self._name, self._blocks = name, 0
        self._segment_fd, self._index_fd = fds
        self._segment_at, self._index_at = len(start), len(head)

    def _write_block(self, message: Any, count: int) -> BlockRef:
        view = memoryview(message)
        try:
            write_all(self._segment_fd, view, self._segment_at)
        except OSError as error:
            self._cut_back(self._segment_fd, self._segment_at)
            raise fault_of(error, self.path) from error
        return BlockRef(str(self.path), self._segment_at, view.nbytes, zlib.crc32(view), Ordinal(self._next), count)

    def _write_index(self, frame: bytes) -> None:
        try:
            write_all(self._index_fd, frame, self._index_at)
        except OSError as error:
            self._cut_back(self._index_fd, self._index_at)
            raise fault_of(error, self._name.index(self._folder)) from error
        self._index_at += len(frame)

    @staticmethod
    def _cut_back(fd: int, length: int) -> None:
        """Truncate a partly written tail, so that the next attempt finds the file as it was."""
        os.ftruncate(fd, length)

    def _sync_files(self) -> None:
        try:
            for fd in (self._segment_fd, self._index_fd):
                os.fdatasync(fd)
                if os.fstat(fd).st_nlink == 0:
                    raise EngineFault(
                        FaultKind.QUEUE_CORRUPT, str(self.path), "the file was deleted while it was written"
                    )
        except OSError as error:
            raise fault_of(error, self.path) from error


__all__ = ["Landed", "SegmentWriter", "SessionHead"]
