"""Checks that a session continues the log that was read before, and not another one with the same positions.

A source that was restored from a backup and written to since has the same system identifier and the same slot, and its log may have
grown past the end of the old one. So each session starts at the last transaction already held, which the source sends again, and no
record of the session is used until that transaction, and everything up to the start position, has been verified.
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
from engine.model.source import SourceTerms

Array = npt.NDArray[Any]
_ROWS = np.frombuffer(b"IUDT", np.uint8)
_MESSAGE = ord("M")
_EMPTY = 2
"""Records of a transaction without changes: BEGIN and COMMIT. Some versions of PostgreSQL send such transactions."""
_WITH_XID = 5
"""Bytes of a record's type, and of the transaction id that follows it inside a streamed transaction."""


class Commit(NamedTuple):
    """A transaction as a session delivers it. `changes`: it contains changes, whether it was streamed or not."""

    end: int
    time_us: int
    changes: bool


class HistoryCheck:
    """The check for one session. `done`: the log up to `start` has been verified; the session's records are used from there on.

    The reader's confirmed position only covers transactions that were read, so the log before it is the same. After it, the session must
    deliver the last held transaction unchanged, and no other transaction that ends at or before `start`. Positions alone prove nothing,
    because both logs contain them.
    """

    def __init__(self, reader: str, last: LastCommit, start: Lsn, terms: SourceTerms) -> None:
        """`last`: the last transaction up to `start`."""
        self._reader = reader
        self._last = last
        self._start = start
        self._text = terms.text
        self._awaited = last.known and last.certain
        self.done = False

    @property
    def begin(self) -> Lsn:
        """The position at or before which the session must start. What it delivers of the log before is not checked."""
        return min(self._last.after if self._last.known else self._last.end, self._start)

    def confirmed(self, confirmed: Lsn) -> None:
        """Set the reader's confirmed position: the session delivers no transaction that ends at or before it."""
        self._awaited &= confirmed < self._last.end
        self.done = confirmed >= self._start

    def check_commits(self, commits: Iterable[Commit], read: Lsn) -> None:
        """Check `commits`, in commit order; with them, every transaction that ends at or before `read` was delivered.

        Raises EngineFault(LOG_GAP) if the log is another one."""
        for commit in commits:
            if self.done:
                return
            self._judge(commit)
        if not self.done and read >= self._start:
            self._reached(f"the log is read up to {self._text(read)}")

    def _judge(self, commit: Commit) -> None:
        end, last = Lsn(commit.end), self._last
        if end > self._start:
            self._reached(f"the next one ends at {self._text(end)}")
        elif end == last.end and last.known:
            if commit.time_us != last.time_us:
                raise self._other(f"the transaction that ends at {self._text(end)} is another one")
            self._awaited = False
        elif commit.changes and end > self.begin and (end > last.end or not last.certain):
            raise self._other(f"a transaction ends at {self._text(end)}, where there was none")

    def _reached(self, where: str) -> None:
        if self._awaited:
            raise self._other(f"the transaction that ends at {self._text(self._last.end)} did not come, and {where}")
        self.done = True

    def _other(self, what: str) -> EngineFault:
        start = self._text(self._start)
        detail = f"{what}: this is not the log that was read up to {start}, the source was restored from an older copy"
        return EngineFault(FaultKind.LOG_GAP, self._reader, detail)


@dataclass(slots=True)
class _Open:
    """An open streamed transaction: the (sub)transactions that wrote rows, those that were rolled back, and whether it has messages."""

    writers: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    messages: bool = False

    @property
    def changes(self) -> bool:
        """Whether it has changes. A message does not name the subtransaction that wrote it, so a rollback cannot remove it."""
        return bool(self.writers - self.aborted) or (self.messages and not self.aborted)


class SessionCommits:
    """Finds the committed transactions in the records of one session, from its start on.

    A prepared transaction is committed by COMMIT PREPARED, which each session sends, even if it does not send the changes again.
    """

    def __init__(self) -> None:
        self._records = 0
        """Records of the session before the current chunk."""
        self._begin = 0
        self._streams: dict[int, _Open] = {}
        self._stream = 0
        """The streamed transaction between STREAM_START and STREAM_STOP; 0 = none."""

    def commits_of(self, data: Array, offsets: Array, controls: Array) -> Iterator[Commit]:
        """Commits in the next records, given as in RecordChunk. Exhaust the iterator before the next call, which continues its state."""
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
            elif kind == ControlKind.COMMIT_PREPARED:
                yield Commit(int(control["end_lsn"]), int(control["time_us"]), changes=True)
        if self._stream:
            self._written(data, offsets[at:])
        self._records += len(offsets) - 1

    def _aborted(self, xid: int, subxid: int) -> None:
        if subxid == xid:
            self._streams.pop(xid, None)
        elif xid in self._streams:
            self._streams[xid].aborted.add(subxid)

    def _written(self, data: Array, borders: Array) -> None:
        """Note the writers of records inside a streamed transaction."""
        starts = borders[:-1][np.diff(borders) >= _WITH_XID].astype(np.int64)
        found = self._streams.setdefault(self._stream, _Open())
        rows = starts[np.isin(data[starts], _ROWS)]
        writers = data[rows[:, None] + np.arange(1, _WITH_XID)].astype(np.int64) @ (256 ** np.arange(3, -1, -1))
        found.writers.update(np.unique(writers).tolist())
        found.messages = found.messages or bool((data[starts] == _MESSAGE).any())
