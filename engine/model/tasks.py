"""How work over descriptors is run: on Spark, or in this process, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

D = TypeVar("D")
R = TypeVar("R")


class TaskRunner(Protocol):
    """Runs one function over descriptors. All methods may be called from any thread.

    The function is importable by name (a module's own function, or functools.partial of one); descriptors and results pickle and
    are small, rows travel in files.
    """

    def start(self) -> None:
        """Begin to start up; returns at once. Starting twice is one start."""
        ...

    @property
    def ready(self) -> bool:
        """True while `run` would begin without waiting for the start-up."""
        ...

    @property
    def parallelism(self) -> int:
        """How many tasks run beside each other, as far as it is known; at least 1."""
        ...

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until ready; False at the timeout. Raises EngineFault(SPARK_FAILED) where the start-up failed."""
        ...

    def run(self, function: Callable[[D], R], descriptors: Sequence[D], group: str) -> list[R]:
        """Run `function` once per descriptor, each as a task of its own; the results in the order of the descriptors.

        Blocks. Several calls may run beside each other, each in its group. An EngineFault that a task raises comes out as it is;
        anything else, a lost worker or a cancelled group raises EngineFault(SPARK_FAILED). No task is tried a second time. After a
        failure sibling tasks may go on writing for some seconds.
        """
        ...

    def cancel(self, group: str) -> None:
        """End the runs of this group; their `run` raises. Nothing happens where none runs."""
        ...

    def stop(self) -> None:
        """End everything; runs under way raise. A stopped runner does not start again."""
        ...
