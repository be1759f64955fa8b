"""Protocol of task runners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

D = TypeVar("D")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Of `tasks` tasks of a group, `left` have not ended."""

    tasks: int
    left: int


class TaskRunner(Protocol):
    """Runs a function over descriptors. All methods may be called from any thread.

    The function must be importable by name (a module-level function, or a functools.partial of one). Descriptors and results must be
    picklable and small; rows are passed in files.
    """

    def start(self) -> None:
        """Begin the start-up; returns at once. Idempotent."""
        ...

    @property
    def ready(self) -> bool:
        """True while `run` would begin without waiting for the start-up."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of tasks that run in parallel, as far as known; at least 1."""
        ...

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until ready; False at the timeout. Raises EngineFault(SPARK_FAILED) if the start-up failed."""
        ...

    def run(self, function: Callable[[D], R], descriptors: Sequence[D], group: str) -> list[R]:
        """Run `function` once per descriptor, each as a separate task; returns the results in the order of the descriptors.

        Blocks. Concurrent calls are allowed, each in its own group. An EngineFault of a task is raised unchanged; any other exception, a
        lost worker or a cancelled group raises EngineFault(SPARK_FAILED). Tasks are not retried. After a failure sibling tasks may
        continue to write for some seconds.
        """
        ...

    def unfinished(self, group: str) -> Unfinished | None:
        """The tasks of the runs of this group, as of some 100 ms ago; None if there is no run, or it is not known."""
        ...

    def cancel(self, group: str) -> None:
        """Cancel the runs of this group; their `run` raises. No effect if there is none."""
        ...

    def stop(self) -> None:
        """Stop the runner; active runs raise. It cannot be started again."""
        ...
