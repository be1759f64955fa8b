"""The session that reads one node's log: live, or away, and opened again by a thread of its own until it is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.last_commit import LastCommit
from engine.model.merged_logs import Away
from engine.model.position import ZERO, Lsn
from engine.model.source import RecordChunk
from engine.sources.postgres_log.stream import PostgresLogStream

AWAY_KINDS = frozenset(
    {
        FaultKind.SOURCE_UNREACHABLE,
        FaultKind.SOURCE_TIMEOUT,
        FaultKind.SOURCE_NO_SENDERS,
        FaultKind.SLOT_IN_USE,
    }
)
"""Faults that pass: a session that ends with one of them is opened again."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
"""Seconds between two attempts to open a session again: a quarter of the time for which it has been away, within these limits, so that it
is back soon after the node. Not measured."""
_UNANSWERED = 100
"""Requests for a position without an answer, after which they are sent every _SELDOM_S only: a sender that takes nothing would have its
socket fill up, and sending would block the other nodes. Those of a second."""
_SELDOM_S = 1.0
"""See _UNANSWERED."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a session continues. `read`: everything up to here was read, and `last` is the last transaction there. `kept`: the slot was not
    confirmed further."""

    read: Lsn
    last: LastCommit
    kept: Lsn


OpenAgain = Callable[[Resume, float], PostgresLogStream]
"""Opens a session that continues there, with every check of the first one. The second argument: for how many seconds it has been away.
Raises EngineFault; one of AWAY_KINDS: try again."""


class NodeSession:
    """Used by the thread that reads; `Away` may be read by any thread.

    A session that is lost after its log was verified is away: it sends nothing, and another thread opens it again. The new one begins with
    what the slot retains, so it sends again what was read.
    """

    def __init__(
        self,
        stream: PostgresLogStream,
        begin: Resume | None = None,
        open_again: OpenAgain | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`begin`: where `stream` continues. Without `open_again` a lost session is a fault. `wake`: called when there is something for
        `resume`."""
        self._stream: PostgresLogStream | None = stream
        self._begin = begin or Resume(ZERO, LastCommit.unknown(ZERO), ZERO)
        self._open_again = open_again
        self._wake = wake
        self._read, self._end, self._last = self._begin.read, self._begin.read, self._begin.last
        self._confirmed = ZERO
        self._verified = False
        self._unanswered = 0
        self._asked_s = 0.0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._taking = threading.Lock()
        """Guards what the other thread hands over: the two that follow."""
        self._opened: PostgresLogStream | None = None
        self._failed: BaseException | None = None
        self.away: Away | None = None
        """None while it is live."""

    @property
    def verified(self) -> bool:
        """Whether its log was once verified to continue what was read before. See LogStream.verified."""
        self._verified = self._verified or (self._stream is not None and self._stream.verified)
        return self._verified

    @property
    def clock_us(self) -> int:
        """See PostgresLogStream."""
        return 0 if self._stream is None else self._stream.clock_us

    @property
    def read_to(self) -> Lsn:
        """What was read of the node's log, by all sessions."""
        return self._read if self._stream is None else max(self._read, self._stream.read_to)

    @property
    def pause_s(self) -> float:
        """See PostgresLogStream."""
        return 0.0 if self._stream is None else self._stream.pause_s

    def fileno(self) -> int | None:
        """See PostgresLogStream; None while it is away."""
        return None if self._stream is None else self._stream.fileno()

    def resume(self) -> bool:
        """Take a session that was opened again, if there is one. True: what is read from now on begins again with what the slot retains,
        and a transaction of which a part was read comes as a whole.

        Raises EngineFault if the node cannot continue: LOG_GAP and others of `open_stream`.
        """
        with self._taking:
            stream, self._opened = self._opened, None
            failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        if stream is None:
            return False
        self._stream, self.away, self._unanswered = stream, None, 0
        self.confirm(self._confirmed)
        return True

    def read(self, timeout_s: float) -> RecordChunk | None:
        """As PostgresLogStream.read; None while it is away. Raises EngineFault if it cannot be opened again."""
        if self._stream is None:
            return None
        try:
            chunk = self._stream.read(timeout_s)
        except EngineFault as fault:
            self._lose(fault)
            return None
        if chunk is not None:
            self._unanswered = 0
            self._note(chunk)
        return chunk

    def confirm(self, durable: Lsn) -> None:
        """As PostgresLogStream.confirm; while it is away, it is confirmed afterwards."""
        self._confirmed = max(self._confirmed, durable)
        if self._stream is not None and self._confirmed > ZERO:
            try:
                self._stream.confirm(self._confirmed)
            except EngineFault as fault:
                self._lose(fault)

    def ask_position(self) -> None:
        """As PostgresLogStream.ask_position. Some requests are left out if earlier ones were not answered."""
        now = time.monotonic()
        if self._stream is None or (self._unanswered >= _UNANSWERED and now < self._asked_s + _SELDOM_S):
            return
        self._unanswered, self._asked_s = self._unanswered + 1, now
        try:
            self._stream.ask_position()
        except EngineFault as fault:
            self._lose(fault)

    def close(self) -> None:
        """End the session. An attempt to open it that has begun ends by itself. Idempotent."""
        with self._taking:
            self._closed.set()
            opened, self._opened = self._opened, None
        for stream in (self._stream, opened):
            if stream is not None:
                stream.close()

    def _note(self, chunk: RecordChunk) -> None:
        """Note the last transaction of what was read. What is sent again was noted before."""
        kinds = chunk.controls["kind"]
        at = np.flatnonzero((kinds == ControlKind.COMMIT) | (kinds == ControlKind.COMMIT_PREPARED))
        for one in at[-2:].tolist():
            end = Lsn(int(chunk.controls["end_lsn"][one]))
            if end > self._end:
                self._last = LastCommit(self._end, end, int(chunk.controls["time_us"][one]))
                self._end = end
        self._read = max(self._read, chunk.wal_end)

    def _lose(self, fault: EngineFault) -> None:
        """The session has ended. Raises the fault if it is not opened again."""
        stream = self._stream
        if not self.verified or stream is None or self._open_again is None or fault.kind not in AWAY_KINDS:
            raise fault
        if stream.verified:
            self._begin = Resume(self._read, self._last, max(self._begin.kept, self._confirmed))
        self._stream = None
        self.away = Away(time.time_ns() // 1000, fault.kind.value, fault.detail)
        name = f"open-{fault.subject}"
        self._thread = threading.Thread(
            target=self._open, args=(stream, self._begin, self._open_again), name=name, daemon=True
        )
        self._thread.start()

    def _open(self, lost: PostgresLogStream, begin: Resume, open_again: OpenAgain) -> None:
        """Open the session again, however long that takes. In a thread of its own."""
        with suppress(EngineFault, OSError):
            lost.close()
        since = time.monotonic()
        while not self._closed.wait(min(max((time.monotonic() - since) / 4, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)):
            try:
                stream = open_again(begin, time.monotonic() - since)
            except EngineFault as fault:
                if fault.kind in AWAY_KINDS:
                    self._still_away(fault)
                    continue
                self._hand_over(None, fault)
            except BaseException as error:
                self._hand_over(None, error)
            else:
                self._hand_over(stream, None)
            return

    def _still_away(self, fault: EngineFault) -> None:
        known = self.away
        if known is not None:
            self.away = Away(known.since_us, fault.kind.value, fault.detail)

    def _hand_over(self, stream: PostgresLogStream | None, failed: BaseException | None) -> None:
        with self._taking:
            closed = self._closed.is_set()
            if not closed:
                self._opened, self._failed = stream, failed
                self._wake()
        if closed and stream is not None:
            stream.close()
