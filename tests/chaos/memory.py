"""What all processes of the rig hold in memory together, second by second, and whether that is too much or grows."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from bench.processes import family, our_role, pss_bytes

_EVERY_S = 1.0
_WARM_S = 30.0
"""The first seconds are start and warm-up: they count for the bound, not for the growth."""
_JUDGED_SAMPLES = 300
"""Thirds of fewer samples say little: one restart of the engine more or less is a large part of them."""
_GROWN_SHARE = 1.25
_GROWN_MB = 200.0


def grows(samples: Sequence[float]) -> bool:
    """Whether the last third lies clearly above the first, and the second between them."""
    if len(samples) < _JUDGED_SAMPLES:
        return False
    first, second, last = thirds(samples)
    return first < second < last and last > max(first * _GROWN_SHARE, first + _GROWN_MB)


def thirds(samples: Sequence[float]) -> tuple[float, float, float]:
    """What nine of ten samples of each third stay below: near the most, because restarts empty the engine for a while."""
    size = max(1, len(samples) // 3)
    first, second, last = (sorted(part or samples) for part in (samples[:size], samples[size:-size], samples[-size:]))
    return first[_most(first)], second[_most(second)], last[_most(last)]


def _most(ordered: Sequence[float]) -> int:
    return len(ordered) * 9 // 10


class Memory:
    """Sums the proportional set sizes of the processes `pids` and all that descend from them, until `stop`."""

    def __init__(self, pids: Callable[[], Sequence[int]], bound_mb: float, every_s: float = _EVERY_S) -> None:
        self.samples: list[float] = []
        self.failure: BaseException | None = None
        self._pids = pids
        self._bound_mb = bound_mb
        self._every_s = every_s
        self._peak: Counter[str] = Counter()
        self._warm: list[float] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def found(self) -> str | None:
        """What is wrong with it, if anything."""
        if self._peak.total() > self._bound_mb:
            return f"{self._peak.total():.0f} MB in our processes, more than {self._bound_mb:.0f}: {dict(self._peak)}"
        if grows(self._warm):
            return f"memory grows: {[round(value) for value in thirds(self._warm)]} MB in the thirds of the run"
        return None

    def summary(self) -> dict[str, Any]:
        judged = self._warm or self.samples
        return {
            "bound_mb": self._bound_mb,
            "samples": len(self.samples),
            "peak_mb": round(self._peak.total()),
            "peak_by_role_mb": dict(self._peak),
            "thirds_mb": [round(value) for value in thirds(judged)] if judged else [],
        }

    def _run(self) -> None:
        began = monotonic()
        try:
            while not self._stopping.wait(self._every_s):
                present = self._look()
                self.samples.append(present.total())
                if monotonic() - began >= _WARM_S:
                    self._warm.append(present.total())
                if present.total() > self._peak.total():
                    self._peak = present
        except BaseException as error:
            self.failure = error

    def _look(self) -> Counter[str]:
        present: Counter[str] = Counter()
        for pid in self._pids():
            for role, process in family(pid, our_role):
                present[role] += round(_pss(process.pid) / 1e6)
        return present


def _pss(pid: int) -> int:
    """0 where the process has just ended."""
    try:
        return pss_bytes(Path("/proc", str(pid), "smaps_rollup").read_text())
    except OSError:
        return 0
