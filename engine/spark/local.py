"""The task runner without Spark: threads of this process. For tests, and for engines configured to run without Java."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from engine.model.fault import EngineFault, FaultKind
from engine.spark.outcome import Done, Failed, attempt, results

D = TypeVar("D")
R = TypeVar("R")


class LocalRunner:
    """Implements engine.model.tasks.TaskRunner. A cancelled run raises at once; its running tasks finish in the background."""

    def __init__(self, threads: int = 2) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="task")
        self._lock = threading.Lock()
        self._ends: dict[str, list[Future[None]]] = {}
        self._stopped = False

    def start(self) -> None:
        """Nothing to start."""

    @property
    def ready(self) -> bool:
        return not self._stopped

    @property
    def parallelism(self) -> int:
        return self._threads

    def wait_ready(self, timeout_s: float) -> bool:  # noqa: ARG002, RUF100 - the protocol's
        return self.ready

    def run(self, function: Callable[[D], R], descriptors: Sequence[D], group: str) -> list[R]:
        end = self._enter(group)
        try:
            tasks = [self._pool.submit(attempt, function, descriptor) for descriptor in descriptors]
            return results(self._outcomes(tasks, end, group))
        finally:
            self._leave(group, end)

    def _outcomes(
        self, tasks: Sequence[Future[Done[R] | Failed]], end: Future[None], group: str
    ) -> list[Done[R] | Failed]:
        waiting: set[Future[Done[R] | Failed]] = set(tasks)
        while waiting:
            events: list[Future[Any]] = [*waiting, end]
            wait(events, return_when=FIRST_COMPLETED)
            if end.done():
                for task in waiting:
                    task.cancel()
                raise EngineFault(FaultKind.SPARK_FAILED, group, "the run was cancelled")
            waiting = {task for task in waiting if not task.done()}
        return [task.result() for task in tasks]

    def cancel(self, group: str) -> None:
        with self._lock:
            for end in self._ends.get(group, ()):
                _resolve(end)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for end in [end for ends in self._ends.values() for end in ends]:
                _resolve(end)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _enter(self, group: str) -> Future[None]:
        end: Future[None] = Future()
        with self._lock:
            if self._stopped:
                raise EngineFault(FaultKind.SPARK_FAILED, group, "the runner was stopped")
            self._ends.setdefault(group, []).append(end)
        return end

    def _leave(self, group: str, end: Future[None]) -> None:
        with self._lock:
            ends = self._ends[group]
            ends.remove(end)
            if not ends:
                del self._ends[group]


def _resolve(end: Future[None]) -> None:
    """Wake the run that waits for `end`. Cancelling the future would not wake it."""
    if not end.done():
        end.set_result(None)
