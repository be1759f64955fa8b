"""Whether a session reads the log of which everything up to some position is held, or another one with the same positions.

A source that was set back to an older copy of itself, and written to since, is the same cluster, has the same slot, and its log may have
grown past where the old one ended. So each session begins at the last transaction that is held, which the source sends once more, and
nothing that the session brings counts before that has been found, and all up to the position with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn

Array = npt.NDArray[Any]
_ROWS = np.frombuffer(b"IUDT", np.uint8)
_MESSAGE = ord("M")
_EMPTY = 2
"""Records of a transaction without changes, which some versions of the source send: BEGIN and COMMIT."""
_WITH_XID = 5
"""Bytes of a record's type and, inside a chunk of an open transaction, of the transaction that wrote it."""


class Commit(NamedTuple):
    """A transaction as a session brings it. `changes`: it has some, however the source chooses to send it."""

    end: int
    time_us: int
    changes: bool


class HistoryCheck:
    """The rule, for one session. `done` once all up to `start` is known to be the same; the session counts from there on.

    The source's slot was confirmed for transactions that were read, so what lies before that is the same. Behind it the last transaction
    that is held must come, the same, and behind that none up to `start`. Positions alone prove nothing: both logs have them.
    """

    def __init__(self, slot: str, last: LastCommit, start: Lsn) -> None:
        """`last`: the last transaction up to `start`."""
        self._slot = slot
        self._last = last
        self._start = start
        self._awaited = last.known and last.certain
        self.done = False

    @property
    def begin(self) -> Lsn:
        """Where the session has to begin."""
        return min(self._last.after if self._last.known else self._last.end, self._start)

    def confirmed(self, confirmed: Lsn) -> None:
        """The slot brings nothing that ends at or before this."""
        self._awaited &= confirmed < self._last.end
        self.done = confirmed >= self._start

    def take(self, commits: Iterable[Commit], read: Lsn) -> None:
        """Transactions in the order of their commits; all that end at or before `read` have come then. Raises EngineFault(LOG_GAP)."""
        for commit in commits:
            if self.done:
                return
            self._judge(commit)
        if not self.done and read >= self._start:
            self._reached(f"the log is read up to {read}")

    def _judge(self, commit: Commit) -> None:
        end, last = Lsn(commit.end), self._last
        if end > self._start:
            self._reached(f"the next one ends at {end}")
        elif end == last.end and last.known:
            if commit.time_us != last.time_us:
                raise self._other(f"the transaction that ends at {end} is another one")
            self._awaited = False
        elif commit.changes and (end > last.end or not last.certain):
            raise self._other(f"a transaction ends at {end}, where there was none")

    def _reached(self, where: str) -> None:
        if self._awaited:
            raise self._other(f"the transaction that ends at {self._last.end} did not come, and {where}")
        self.done = True

    def _other(self, what: str) -> EngineFault:
        detail = (
            f"{what}: this is not the log that was read up to {self._start}, the source was set back to an older copy"
        )
        return EngineFault(FaultKind.LOG_GAP, self._slot, detail)


@dataclass(slots=True)
class _Open:
    """Of an open transaction that the source streams: who wrote its rows, who was rolled back, and whether it has messages."""

    writers: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    messages: bool = False

    @property
    def changes(self) -> bool:
        """A message does not say which subtransaction wrote it."""
        return bool(self.writers - self.aborted) or (self.messages and not self.aborted)


class SessionCommits:
    """Finds the transactions in what one session brings, from its beginning on."""

    def __init__(self) -> None:
        self._records = 0
        """Before the chunk."""
        self._begin = 0
        self._streams: dict[int, _Open] = {}
        self._stream = 0
        """The transaction of which a chunk is open."""

    def of(self, data: Array, offsets: Array, controls: Array) -> Iterator[Commit]:
        """Of the next records, as in RecordChunk. To be taken to the end, unless nothing behind them is asked for."""
        at = 0
        for control in controls:
            kind, ordinal, xid = int(control["kind"]), int(control["ordinal"]), int(control["xid"])
            if kind == ControlKind.BEGIN:
                self._begin = self._records + ordinal
            elif kind == ControlKind.COMMIT:
                changes = self._records + ordinal + 1 - self._begin > _EMPTY
                yield Commit(int(control["end_lsn"]), int(control["time_us"]), changes)
            elif kind == ControlKind.STREAM_START:
                self._stream, at = xid, ordinal + 1
            elif kind == ControlKind.STREAM_STOP:
                self._written(data, offsets[at : ordinal + 1])
                self._stream = 0
            elif kind == ControlKind.STREAM_ABORT:
                self._aborted(xid, int(control["subxid"]))
            elif kind == ControlKind.STREAM_COMMIT:
                changes = self._streams.pop(xid, _Open()).changes
                yield Commit(int(control["end_lsn"]), int(control["time_us"]), changes)
        if self._stream:
            self._written(data, offsets[at:])
        self._records += len(offsets) - 1

    def _aborted(self, xid: int, subxid: int) -> None:
        if subxid == xid:
            self._streams.pop(xid, None)
        elif xid in self._streams:
            self._streams[xid].aborted.add(subxid)

    def _written(self, data: Array, borders: Array) -> None:
        """Records of a chunk of the open transaction."""
        starts = borders[:-1][np.diff(borders) >= _WITH_XID].astype(np.int64)
        found = self._streams.setdefault(self._stream, _Open())
        rows = starts[np.isin(data[starts], _ROWS)]
        writers = data[rows[:, None] + np.arange(1, _WITH_XID)].astype(np.int64) @ (256 ** np.arange(3, -1, -1))
        found.writers.update(np.unique(writers).tolist())
        found.messages = found.messages or bool((data[starts] == _MESSAGE).any())
