"""Takes the ends of all nodes' logs at once, besides the thread that reads them. A node that cannot be reached is asked until it can."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from engine.model.fault import EngineFault
from engine.model.position import Lsn
from engine.sources.postgres_logs.node_session import AWAY_KINDS

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
"""Seconds from one request to a node that cannot be reached to the next one; each is twice as long, up to the longest. Not measured."""


@dataclass(slots=True)
class _Asked:
    """A request to one node. `again_s`: by the monotonic clock, when the next one may be made; `pause_s`: after that."""

    answer: Future[Lsn]
    again_s: float
    pause_s: float = _FIRST_PAUSE_S

    @property
    def is_away(self) -> bool:
        """Whether the node could not be reached."""
        fault = self.answer.exception() if self.answer.done() else None
        return isinstance(fault, EngineFault) and fault.kind in AWAY_KINDS


class NodeEnds:
    """One round at a time: `ask`, and once `answered` is readable, `take`."""

    def __init__(self, current: Sequence[Callable[[bool], Lsn]]) -> None:
        """`current`: by node, the end of its log now; True: with the log flushed up to it, by a write if the node takes one. They are
        called in threads of their own."""
        self._current = current
        self._pool = ThreadPoolExecutor(len(current), thread_name_prefix="node-ends")
        self._round: list[_Asked] = []
        self._flushed = False
        self.answered, self._answer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        """A descriptor that is readable after each answer of a node."""

    def ask(self, *, flushed: bool = False) -> None:
        """Begin a round: each end is taken after this call."""
        self._flushed = flushed
        self._round = [_Asked(self._submit(each), time.monotonic() + _FIRST_PAUSE_S) for each in self._current]

    def take(self) -> list[int] | None:
        """The ends, if every node has answered; None before. Begins no new round.

        A node that cannot be reached is asked again by later calls. Raises EngineFault of the first node that has another one.
        """
        self._drain()
        now = time.monotonic()
        for current, asked in zip(self._current, self._round, strict=False):
            if asked.is_away and now >= asked.again_s:
                asked.pause_s = min(2 * asked.pause_s, _LONGEST_PAUSE_S)
                asked.answer, asked.again_s = self._submit(current), now + asked.pause_s
        if not self._round or not all(asked.answer.done() and not asked.is_away for asked in self._round):
            return None
        done, self._round = self._round, []
        return [asked.answer.result().value for asked in done]

    def hurry(self) -> None:
        """A node is there again: ask without a pause."""
        for asked in self._round:
            asked.again_s, asked.pause_s = 0.0, _FIRST_PAUSE_S

    def close(self) -> None:
        """Wait for a round that has begun. Idempotent."""
        self._pool.shutdown(cancel_futures=True)
        for descriptor in (self.answered, self._answer):
            if descriptor >= 0:
                os.close(descriptor)
        self.answered = self._answer = -1

    def notify(self) -> None:
        """Make `answered` readable. From any thread."""
        try:
            os.write(self._answer, b".")
        except (BlockingIOError, OSError):
            return

    def _submit(self, current: Callable[[bool], Lsn]) -> Future[Lsn]:
        answer = self._pool.submit(current, self._flushed)
        answer.add_done_callback(lambda _: self.notify())
        return answer

    def _drain(self) -> None:
        """Forget what `answered` has announced."""
        try:
            os.read(self.answered, 4096)
        except BlockingIOError:
            return
