"""The threads of one run. The first fault ends all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from engine.model.fault import EngineFault, FaultKind

log = structlog.get_logger(__name__)


class RunStages:
    """Creates the threads of a run. `stopping` is set when the run ends. `fault`: the fault that ended it, None if it was stopped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.stopping = threading.Event()
        self.fault: EngineFault | None = None
        self._lock = threading.Lock()

    def thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """A daemon thread, not started yet. A fault or an exception in `work` ends the run."""

        def guarded() -> None:
            try:
                work()
            except EngineFault as fault:
                self.end(fault)
            except Exception as error:  # A defect must end the whole run, not only this thread.
                log.exception("stage_failed", stage=name, error=type(error).__name__)
                defect = EngineFault(FaultKind.INTERNAL, name, f"{type(error).__name__} in the {name} stage")
                defect.__cause__ = error
                self.end(defect)

        return threading.Thread(target=guarded, name=f"{self._name}-{name}", daemon=True)

    def end(self, fault: EngineFault) -> None:
        """End the run with this fault, unless it is ending already. From any thread."""
        with self._lock:
            if self.fault is None and not self.stopping.is_set():
                self.fault = fault
        self.stopping.set()
