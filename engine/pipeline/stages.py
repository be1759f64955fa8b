"""The threads of one run. The first fault ends all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from engine.model.fault import EngineFault, FaultKind

log = structlog.get_logger(__name__)


class RunStages:
    """Makes the threads of a run. `stopping` is set when the run ends, `fault` is what ended it; None if it was stopped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.stopping = threading.Event()
        self.fault: EngineFault | None = None
        self._lock = threading.Lock()

    def thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """A thread, not started yet, whose fault ends the run."""

        def guarded() -> None:
            try:
                work()
            except EngineFault as fault:
                self.end(fault)
            except Exception as error:  # a defect of ours must end the run visibly, never one of its threads alone
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
