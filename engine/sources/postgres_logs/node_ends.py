"""Takes the ends of all nodes' logs at once, besides the thread that reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from engine.model.position import Lsn


class NodeEnds:
    """One round at a time: `ask`, and once `answered` is readable, `take`."""

    def __init__(self, current: Sequence[Callable[[bool], Lsn]]) -> None:
        """`current`: by node, the end of its log now; True: with the log flushed up to it, by a write if the node takes one. They are
        called in threads of their own."""
        self._current = current
        self._pool = ThreadPoolExecutor(len(current), thread_name_prefix="node-ends")
        self._round: list[Future[Lsn]] = []
        self.answered, self._answer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        """A descriptor that is readable after each answer of a node."""

    def ask(self, *, flushed: bool = False) -> None:
        """Begin a round: each end is taken after this call."""
        self._round = [self._pool.submit(each, flushed) for each in self._current]
        for future in self._round:
            future.add_done_callback(lambda _: self.notify())

    def take(self) -> list[int] | None:
        """The ends, if every node has answered; None before. Begins no new round.

        Raises EngineFault of the first node that could not be asked.
        """
        self._drain()
        if not self._round or not all(future.done() for future in self._round):
            return None
        done, self._round = self._round, []
        return [future.result().value for future in done]

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

    def _drain(self) -> None:
        """Forget what `answered` has announced."""
        try:
            os.read(self.answered, 4096)
        except BlockingIOError:
            return
