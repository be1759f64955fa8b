"""The loop of a stream over the windows of a shadow log, whatever database keeps it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from engine.model.fault import EngineFault, FaultKind
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.positions.windows import end_of, whole_window
from engine.model.source import RecordChunk, SourceTerms
from engine.records.history import HistoryCheck, SessionCommits
from engine.records.landing import Transactions, chunk_of

WINDOW_S = 0.2
"""Seconds between two looks for new changes; each look that finds some closes a window. A wait for "now" closes one at once."""
MOST_ROWS = 20_000
"""Most changes that are read at once; a single larger transaction is read in parts. Not measured."""
MOST_BYTES = 4 * 1024 * 1024
"""Their bytes as stored. Not measured."""
PRUNED_AT_ONCE = 10_000
"""Most changes removed with each record of what is durable, so that one takes some milliseconds. Not measured."""
_REST_SHARE = 10
"""A look that finds nothing rests so many times as long as it took. Not measured."""
_CONFIRM_S = 0.2
"""Least seconds between two records of what is durable; each is a commit on the source. Not measured."""


class Windows(Protocol):
    """Closed windows that are read together, up to number `last`."""

    @property
    def last(self) -> int: ...


Found = TypeVar("Found", bound=Windows)


class WindowLog(Protocol[Found]):
    """One session with the shadow log, for one reader and one thread. Its methods raise what `faults` turns into EngineFault."""

    def faults(self) -> AbstractContextManager[None]:
        """Raises the database's errors in the block as EngineFault."""
        ...

    def next_windows(self, after: int) -> Found | None:
        """Closed windows after that number, the last one that was read; None if there are none yet."""
        ...

    def close_if_unread(self) -> bool:
        """Close a window if something was committed after the last one that was read. Called only if that is the last one."""
        ...

    def chunks(self, windows: Found) -> Iterator[RecordChunk]:
        """Their records in parts. When the iterator ends, they are the last ones that were read; until then `confirm` is not called."""
        ...

    def confirm(self, window: int) -> bool:
        """Record that windows up to this one are durable for the reader, and remove at most PRUNED_AT_ONCE changes that are for all. False
        if it has to be tried again, because others write."""
        ...

    def wait(self, seconds: float, wake: int | None) -> bool:
        """Until a window may have been closed, or for so long. False if the descriptor `wake` is readable."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a session begins. `after`: the last window that counts as read; `start`: what the engine has."""

    start: Lsn
    after: int
    history: HistoryCheck


def begin_at(reader: str, durable: int, start: Lsn, last: LastCommit | None, terms: SourceTerms) -> Begin:
    """`durable`: the last window that was confirmed for the reader; `start`, `last`: see LogSource.open_stream.

    Raises EngineFault(LOG_GAP) if later windows were confirmed than were read.
    """
    if end_of(durable) > start:
        detail = f"window {durable} was confirmed for the reader, read was only up to {terms.text(start)}: changes between are gone"
        raise EngineFault(FaultKind.LOG_GAP, reader, detail)
    history = HistoryCheck(reader, last or LastCommit.unknown(start), start, terms)
    history.confirmed(end_of(durable))
    return Begin(start, max(durable, whole_window(history.begin)), history)


class RestedLook:
    """A look whether anything new was committed, which costs the source more the more changes are open: it passes all of them."""

    def __init__(self, look: Callable[[], bool], now: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._now = now
        self._rests_until = 0.0

    def __call__(self) -> bool:
        """False also while it rests."""
        began = self._now()
        if began < self._rests_until:
            return False
        found = self._look()
        self._rests_until = 0.0 if found else began + _REST_SHARE * (self._now() - began)
        return found


class WindowStream(Generic[Found]):
    """`LogStream` over the windows of one shadow log."""

    def __init__(self, log: WindowLog[Found], begin: Begin, wake: int | None) -> None:
        self._log = log
        self._start = begin.start
        self._after = begin.after
        self._history = begin.history
        self._wake = wake
        self._commits = SessionCommits()
        self._chunks: Iterator[RecordChunk] | None = None
        self._last = begin.after
        """The last of the windows that `_chunks` reads."""
        self._looked = 0.0
        self._reported = -1
        self._durable = -1
        self._confirmed_s = 0.0
        self._sent_durable = -1

    @property
    def verified(self) -> bool:
        return self._history.done

    def read(self, timeout_s: float) -> RecordChunk | None:
        deadline = time.monotonic() + timeout_s
        with self._log.faults():
            while True:
                chunk = self._next_chunk()
                if chunk is not None:
                    return self._checked(chunk)
                self._release()
                if self._reported != self._after:
                    self._reported = self._after
                    return self._checked(nothing(end_of(self._after)))
                if not self._log.wait(max(0.0, min(deadline, self._looked + WINDOW_S) - time.monotonic()), self._wake):
                    return None
                if time.monotonic() >= deadline:
                    return None

    def confirm(self, durable: Lsn) -> None:
        self._durable = max(self._durable, whole_window(durable))
        with self._log.faults():
            self._release()

    def ask_position(self) -> None:
        """Look for windows and changes at once."""
        self._looked = 0.0
        with self._log.faults():
            self._confirmed_s = 0.0
            self._release()

    def close(self) -> None:
        with contextlib.suppress(EngineFault), self._log.faults():
            self._confirmed_s = 0.0
            self._release()
        self._log.close()

    def _next_chunk(self) -> RecordChunk | None:
        """Records of the next part of a window; None if nothing was committed that has not been read."""
        while True:
            if self._chunks is not None:
                chunks, self._chunks = self._chunks, None  # After an error its windows are not read.
                chunk = next(chunks, None)
                if chunk is not None:
                    self._chunks = chunks
                    return chunk
                self._after = self._reported = self._last
                return nothing(end_of(self._last))
            windows = self._log.next_windows(self._after)
            if windows is not None:
                self._last = windows.last
                self._chunks = self._log.chunks(windows)
                continue
            if time.monotonic() < self._looked + WINDOW_S:
                return None
            self._looked = time.monotonic()
            if not self._log.close_if_unread():
                return None

    def _checked(self, chunk: RecordChunk) -> RecordChunk:
        if not self._history.done:
            commits = self._commits.commits_of(chunk.data, chunk.offsets, chunk.controls)
            self._history.check_commits(commits, chunk.wal_end)
        # A session begins earlier than its start, with what it has to check.
        return chunk if chunk.wal_end >= self._start else replace(chunk, wal_end=self._start)

    def _release(self) -> None:
        """Record what is durable on the target, and remove some of what all readers have made durable."""
        now = time.monotonic()
        if not self._history.done or self._durable <= self._sent_durable or now < self._confirmed_s + _CONFIRM_S:
            return
        if self._chunks is not None:
            return
        self._confirmed_s = now
        if self._log.confirm(self._durable):
            self._sent_durable = self._durable


def nothing(wal_end: Lsn) -> RecordChunk:
    """A chunk without records: only `wal_end` has moved."""
    return chunk_of(Transactions.of([]), [], wal_end, begins=True, ends=True)
