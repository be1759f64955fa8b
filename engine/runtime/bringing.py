"""Rows of the next batch on their way to the target while the batch before it is being committed, where the target takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from engine.model.fault import EngineFault
from engine.model.target import BroughtRows, TableCommit, Target


class Bringing:
    """What of one batch is on its way. `begin` at most once; `take` ends it."""

    def __init__(self, bring: Callable[[Sequence[TableCommit]], BroughtRows | None], pool: ThreadPoolExecutor) -> None:
        self._bring = bring
        self._pool = pool
        self._lock = threading.Lock()
        self._taken = False
        self._work: Future[BroughtRows | None] | None = None

    def begin(self, tables: Sequence[TableCommit]) -> None:
        """Does nothing where the batch's turn has come."""
        with self._lock:
            if not self._taken:
                self._work = self._pool.submit(self._bring, tables)

    def take(self) -> BroughtRows | None:
        """What arrived, which is the caller's now; None where nothing did, or it has not been begun yet. Waits for what is under way."""
        with self._lock:
            work, self._work, self._taken = self._work, None, True
        if work is None or work.cancel():
            return None
        try:
            return work.result()
        except EngineFault:
            # The commit meets it again, and says what is to be done about it.
            return None


class Bringer:
    """Brings one batch at a time. `next` and `handed_over` from the job stage, `Bringing.take` from the commit stage."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="bring")
        self._last: Bringing | None = None

    def next(self) -> Bringing:
        """For a batch that is about to be handed over."""
        self._last = Bringing(self._target.bring, self._pool)
        return self._last

    def close(self) -> None:
        """Give up what nobody took. Neither stage is at work any more."""
        if self._last is not None:
            brought = self._last.take()
            if brought is not None:
                brought.discard()
        self._pool.shutdown(cancel_futures=True)
