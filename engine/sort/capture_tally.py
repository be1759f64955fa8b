"""Counts captured row changes by the position of their commit. Reads the same control records as the sorter, and shares nothing with it."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from engine.model.control import ControlKind
from engine.model.position import Lsn
from engine.sort.committed import Controls

_STREAM = (ControlKind.SESSION, ControlKind.STREAM_START, ControlKind.STREAM_STOP, ControlKind.STREAM_ABORT)


class CaptureTally:
    """The number of changes that the log reader counted in each committed transaction. Used by one thread."""

    def __init__(self, after: Lsn) -> None:
        """`after`: transactions that end at or before it are ignored."""
        self._last = after.value
        self._waiting: deque[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]] = deque()
        """End LSNs and counts (-1 = unknown) of transactions that are in no batch yet, ascending."""
        self._streams: dict[int, int] = {}
        """Changes of open streamed transactions so far by xid; -1 = unknown."""
        self._chunk = 0

    def begin_session(self, after: Lsn) -> None:
        """A session begins that continues after this position. Open transactions of the previous one are void."""
        self._last = max(self._last, after.value)
        self._streams.clear()
        self._chunk = 0

    def feed(self, controls: Controls) -> None:
        """Process the next control records of the log."""
        kinds = controls["kind"]
        streaming = np.isin(kinds, (*_STREAM, ControlKind.STREAM_COMMIT))
        ends: list[npt.NDArray[np.uint64]] = []
        counts: list[npt.NDArray[np.int64]] = []
        at = 0
        for index in [*np.flatnonzero(streaming).tolist(), len(controls)]:
            plain = controls[at:index]
            plain = plain[plain["kind"] == ControlKind.COMMIT]
            ends.append(plain["end_lsn"])
            counts.append(plain["subxid"].astype(np.int64) - 1)
            if index < len(controls):
                closed = self._streamed(controls[index])
                if closed is not None:
                    ends.append(controls["end_lsn"][index : index + 1])
                    counts.append(np.array([closed], np.int64))
            at = index + 1
        self._close(np.concatenate(ends), np.concatenate(counts))

    def take(self, end: Lsn) -> int | None:
        """The number of changes of the transactions that end at or before `end` and were not taken before; None if one of them is unknown.
        Changes of rolled back subtransactions are included."""
        total, known = 0, True
        while self._waiting and int(self._waiting[0][0][0]) <= end.value:
            ends, counts = self._waiting.popleft()
            split = int(np.searchsorted(ends, np.uint64(end.value), side="right"))
            known = known and bool((counts[:split] >= 0).all())
            total += int(counts[:split].sum())
            if split < len(ends):
                self._waiting.appendleft((ends[split:], counts[split:]))
        return total if known else None

    def _streamed(self, record: Controls) -> int | None:
        """Process a record of a streamed transaction; returns its number of changes at its commit."""
        kind, xid, subxid = int(record["kind"]), int(record["xid"]), int(record["subxid"])
        if kind == ControlKind.SESSION:
            self._streams.clear()
        elif kind == ControlKind.STREAM_START:
            self._chunk = xid
            self._streams.setdefault(xid, 0)
        elif kind == ControlKind.STREAM_STOP:
            before = self._streams.get(self._chunk, 0)
            self._streams[self._chunk] = before + xid - 1 if xid and before >= 0 else -1
        elif kind == ControlKind.STREAM_COMMIT:
            return self._streams.pop(xid, -1)
        elif xid == subxid:
            self._streams.pop(xid, None)
        return None

    def _close(self, ends: npt.NDArray[np.uint64], counts: npt.NDArray[np.int64]) -> None:
        # A new session sends again what followed its start; within one, ends ascend.
        fresh = ends > np.uint64(self._last)
        if fresh.any():
            self._waiting.append((ends[fresh].copy(), counts[fresh].copy()))
            self._last = int(ends[fresh][-1])
