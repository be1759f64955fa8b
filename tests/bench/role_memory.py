"""Memory and CPU time of each kind of process over time, in a thread."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Self

import psutil

from bench.processes import family, our_role, pss_bytes
from tests.bench.lateness import slope_per_minute
from tests.fixtures.rig import Rig

_EVERY_S = 2.0
_WARM_SHARE = 0.2
"""The first part of the time is warm-up, and does not count for the slope."""
_NAMES = {"penstock-sql": "SQL endpoint", "penstock-query": "queries", "penstock-reader": "log reader"}


class RoleMemory:
    """Samples proportional set sizes for the duration of the block."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._samples: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._cpu: dict[tuple[int, float], tuple[str, float, float]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="role-memory", daemon=True)
        self._began = self._took = 0.0

    def __enter__(self) -> Self:
        self._began = monotonic()
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._look()
        self._took = monotonic() - self._began

    def document(self) -> dict[str, Any]:
        """By role: megabytes at the begin, at most and at the end, slope per minute after warm-up, and CPU in percent of a processor."""
        cpu: Counter[str] = Counter()
        for role, first, last in self._cpu.values():
            cpu[role] += last - first  # type: ignore[assignment]
        found = {}
        for role, samples in sorted(self._samples.items()):
            sizes = [size for _, size in samples]
            warm = [each for each in samples if each[0] >= _WARM_SHARE * self._took]
            found[role] = {
                "first_mb": round(sizes[0]),
                "most_mb": round(max(sizes)),
                "last_mb": round(sizes[-1]),
                "slope_mb_per_min": round(slope_per_minute(warm), 2),
                "cpu_percent": round(100 * cpu[role] / self._took, 1),
                "series_mb": [[round(at), round(size)] for at, size in samples[:: max(1, len(samples) // 60)]],
            }
        return found

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        at = monotonic() - self._began
        present: Counter[str] = Counter()
        for name in ("server", "engine"):
            pid = self._rig.running.supervisor.pid(name)
            for role, process in family(pid, our_role) if pid is not None else ():
                with suppress(psutil.Error, OSError):
                    role = _NAMES.get(process.name(), role)  # noqa: PLW2901
                    present[role] += pss_bytes(Path("/proc", str(process.pid), "smaps_rollup").read_text())
                    times = process.cpu_times()
                    used, key = times.user + times.system, (process.pid, process.create_time())
                    # A process that started since counts with all that it has used.
                    first = self._cpu[key][1] if key in self._cpu else (used if not self._samples else 0.0)
                    self._cpu[key] = role, first, used
        for role, size in present.items():
            self._samples[role].append((at, size / 1e6))
