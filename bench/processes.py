"""The cost of processes, by role: CPU time, proportional memory and bytes written."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

SENDER = "walsender"
"""Role of the source's process that decodes and sends: counted with each side, since the source pays it."""

BACKGROUND = "background"
"""Roles of a subscribing PostgreSQL other than apply. Their CPU time is left out of its total, in its favour."""

_EVERY_S = 0.5
_MEMORY_EVERY = 2
"""Memory is sampled less often: to report it, the kernel walks all pages of a process, some milliseconds for ours."""

_APPLY = (
    "logical replication apply worker",
    "logical replication parallel apply worker",
    "logical replication tablesync worker",
)

_CLIENT = re.compile(r"\(\d+\) ")

Member = tuple[str, psutil.Process]


def our_role(command: Sequence[str]) -> str:
    """The role of a Penstock process, by its command line."""
    words = list(command)
    if words and Path(words[0]).name == "java":
        return "jvm"
    if any("multiprocessing.forkserver" in word for word in words):
        return "log reader"
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    known = {
        "server.cli.main": "server",
        "engine.control": "engine",
        "bench.isolated.capture": "intake",
        "pyspark.daemon": "spark workers",
    }
    return known.get(module, "other")


def native_role(command: Sequence[str]) -> str:
    """The role of a process of the subscribing PostgreSQL, by its title."""
    title = " ".join(command)
    return "apply" if any(name in title for name in _APPLY) else BACKGROUND


def target_role(command: Sequence[str]) -> str:
    """The role of a process of a PostgreSQL target, by its title, which for a session contains the client's port."""
    return "target sessions" if _CLIENT.search(" ".join(command)) else BACKGROUND


def family(pid: int, role: Callable[[Sequence[str]], str]) -> list[Member]:
    """A process and all its descendants, with their roles; [] if it has ended."""
    try:
        parent = psutil.Process(pid)
        processes = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    return [(role(command), process) for process in processes if (command := _command(process))]


def family_cpu_s(pid: int) -> float:
    """CPU seconds of a process and all its descendants until now. Includes descendants that have ended, if their parent waited for them."""
    parent = psutil.Process(pid)
    used = 0.0
    for process in [parent, *parent.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return []


def pss_bytes(rollup: str) -> int:
    """Proportional set size in bytes, from the text of a `smaps_rollup`; 0 if it has none."""
    for line in rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def written_bytes(io: str) -> int:
    """Bytes that the process caused to be written to disk, from the text of its `io`; 0 if it has none."""
    for line in io.splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def _read(process: psutil.Process, file: str) -> str:
    try:
        return Path("/proc", str(process.pid), file).read_text()
    except OSError:
        return ""


@dataclass(slots=True)
class _Seen:
    """The first and the last sample of a process."""

    role: str
    cpu_first: float
    written_first: int
    cpu: float = 0.0
    written: int = 0


@dataclass(slots=True)
class Usage:
    """Resource use of a side's processes between start and stop. Totals of memory exclude the source's sender."""

    seconds: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    peak_pss: dict[str, int] = field(default_factory=dict)
    peak_pss_total: int = 0
    written: dict[str, int] = field(default_factory=dict)
    memory: list[tuple[float, int]] = field(default_factory=list)
    """Pairs of seconds since the start and the total at that time."""

    def document(self) -> dict[str, Any]:
        return {
            "cpu_s": {role: round(value, 3) for role, value in self.cpu_s.items()},
            "cpu_s_total": round(sum(value for role, value in self.cpu_s.items() if role != BACKGROUND), 3),
            "peak_pss_mb": {role: _mb(value) for role, value in self.peak_pss.items()},
            "peak_pss_mb_total": _mb(self.peak_pss_total),
            "written_mb": {role: _mb(value) for role, value in self.written.items()},
            "memory_mb": [[round(at, 1), _mb(value)] for at, value in self.memory],
        }

    def per_million(self, row_changes: float) -> dict[str, Any]:
        """CPU seconds per million row changes, by role and in total; {} if there were no changes."""
        million = row_changes / 1e6
        if not million:
            return {}
        return {
            "cpu_s_per_million_rows": {role: round(value / million, 3) for role, value in self.cpu_s.items()},
            "cpu_s_per_million_rows_total": round(self.document()["cpu_s_total"] / million, 3),
        }


def _mb(value: float) -> float:
    return round(value / 1e6, 1)


class Sampler:
    """Samples all processes that `members` returns, from `start` to `stop`: twice a second, their memory once a second.

    For a process that ends between two samples, what it used since the last one is lost.
    """

    def __init__(self, members: Callable[[], Iterable[Member]]) -> None:
        self._members = members
        self._seen: dict[tuple[int, float], _Seen] = {}
        self._usage = Usage()
        self._began = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sample-processes", daemon=True)

    def start(self) -> None:
        self._began = perf_counter()
        self._sample_processes(first=True, memory=True)
        self._thread.start()

    def stop(self) -> Usage:
        """Take the last sample; returns the use of all processes."""
        self._stopping.set()
        self._thread.join()
        self._sample_processes(memory=True)
        usage = self._usage
        usage.seconds = perf_counter() - self._began
        for seen in self._seen.values():
            usage.cpu_s[seen.role] = usage.cpu_s.get(seen.role, 0.0) + max(0.0, seen.cpu - seen.cpu_first)
            usage.written[seen.role] = usage.written.get(seen.role, 0) + max(0, seen.written - seen.written_first)
        return usage

    def _run(self) -> None:
        for number in itertools.count(1):
            if self._stopping.wait(_EVERY_S):
                return
            self._sample_processes(memory=number % _MEMORY_EVERY == 0)

    def _sample_processes(self, *, memory: bool, first: bool = False) -> None:
        members = list(self._members())
        for role, process in members:
            self._record_usage(role, process, first=first)
        if memory:
            self._weigh(members)

    def _weigh(self, members: Iterable[Member]) -> None:
        present: dict[str, int] = {}
        for role, process in members:
            present[role] = present.get(role, 0) + pss_bytes(_read(process, "smaps_rollup"))
        for role, pss in present.items():
            self._usage.peak_pss[role] = max(self._usage.peak_pss.get(role, 0), pss)
        total = sum(pss for role, pss in present.items() if role != SENDER)
        self._usage.peak_pss_total = max(self._usage.peak_pss_total, total)
        self._usage.memory.append((perf_counter() - self._began, total))

    def _record_usage(self, role: str, process: psutil.Process, *, first: bool) -> None:
        """A process that was not there at the start counts with all that it has used."""
        try:
            times = process.cpu_times()
            key = (process.pid, process.create_time())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return
        cpu, written = float(times.user + times.system), written_bytes(_read(process, "io"))
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _Seen(role, cpu if first else 0.0, written if first else 0)
        seen.role, seen.cpu, seen.written = role, cpu, written
