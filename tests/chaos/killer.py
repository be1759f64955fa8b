"""Kills one part at a time, and tells whether the kill counts."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import psutil

from engine.model.position import Lsn
from engine.runtime.failpoints import Failpoint
from server.cli.client import Document
from tests.fixtures.rig import Rig

Kind = Literal["engine", "log_reader", "spark_worker", "server", "source", "failpoint"]
KINDS: tuple[Kind, ...] = ("engine", "log_reader", "spark_worker", "server", "source", "failpoint")

FAILPOINTS: tuple[Failpoint, ...] = tuple(
    point
    for point in Failpoint
    # these are passed only while a subscription or a table begins
    if point
    not in {Failpoint.SLOT_CREATED, Failpoint.COPY_RUNNING, Failpoint.HANDOVER_BEFORE, Failpoint.HANDOVER_AFTER}
)
_IN_READER = "reader."
_IN_WORKER = "task."
_RECOVERY_S = 90.0
_HIT_S = 60.0
_READER_MODULE = "engine.runtime.reader_main"


class NothingToKillError(Exception):
    """The process is not there just now."""


class Killer:
    """`kill(kind)` returns a description of what was killed."""

    def __init__(self, rig: Rig, rng: random.Random) -> None:
        self._rig = rig
        self._rng = rng
        self._failpoints = list(FAILPOINTS)
        rng.shuffle(self._failpoints)
        self._turn = 0

    def kill(self, kind: Kind) -> Document:
        act: dict[Kind, Callable[[], Document]] = {
            "engine": lambda: self._child("engine"),
            "log_reader": self._log_reader,
            "spark_worker": self._spark_worker,
            "server": lambda: self._child("server"),
            "source": self._source,
            "failpoint": self._failpoint,
        }
        return act[kind]()

    def wait_for_progress(self, beyond: Lsn) -> Lsn:
        """Wait until a batch with transactions in it ends after `beyond`; returns where the newest one ends."""
        found = [beyond]

        def newer() -> bool:
            for batch in self._rig.api.get(f"{self._rig.path}/batches", page_size=20)["items"]:
                if int(batch["transactions"]) > 0:
                    found[0] = max(found[0], Lsn.parse(batch["end"]))
            return found[0] > beyond

        self._rig.until(newer, _RECOVERY_S, f"a batch behind {beyond} was committed")
        return found[0]

    def _child(self, name: str) -> Document:
        pid = self._rig.running.supervisor.pid(name)
        if pid is None:
            raise NothingToKillError(name)
        os.kill(pid, signal.SIGKILL)
        return {"pid": pid}

    def _log_reader(self) -> Document:
        return _kill_one(self._readers(), self._rng)

    def _spark_worker(self) -> Document:
        """A Python worker that runs tasks, not the daemon that forks them."""
        workers = [
            process
            for process in self._family()
            if "pyspark.daemon" in _command(process) and "pyspark.daemon" in _command(process.parent())
        ]
        return _kill_one(workers, self._rng)

    def _source(self) -> Document:
        how = self._rng.choice(["fast", "immediate", "kill -9"])
        if how == "kill -9":
            self._rig.postgres.kill9()
            self._rig.postgres.start()
        else:
            self._rig.postgres.restart("fast" if how == "fast" else "immediate")
        return {"how": how}

    def _failpoint(self) -> Document:
        """Start the engine with a failpoint armed, see something of it die there, and start it unarmed again."""
        supervisor = self._rig.running.supervisor
        point = self._failpoints[self._turn % len(self._failpoints)]
        self._turn += 1
        passing = self._rng.randint(2, 30)
        unarmed = supervisor.spec("engine")
        armed = {**unarmed.environment, "PENSTOCK_FAILPOINTS": f"{point.value}=kill@{passing}"}
        supervisor.replace(replace(unarmed, environment=armed))
        self._restart_engine()
        supervisor.replace(unarmed)
        if point.value.startswith((_IN_READER, _IN_WORKER)):
            hit = self._comes_true(
                self._another_reader() if point.value.startswith(_IN_READER) else self._worker_lost()
            )
            self._restart_engine()  # later readers and workers would be armed too
        else:
            deaths = supervisor.deaths("engine")
            hit = self._comes_true(lambda: supervisor.deaths("engine") > deaths)
            if not hit:
                self._restart_engine()
        return {"failpoint": point.value, "passing": passing, "hit": hit}

    def _restart_engine(self) -> None:
        supervisor = self._rig.running.supervisor
        deaths = supervisor.deaths("engine")
        self._rig.until(lambda: supervisor.pid("engine") is not None, 60, "the engine ran")
        self._child("engine")
        self._rig.until(lambda: supervisor.deaths("engine") > deaths, 30, "the engine was dead")
        self._rig.until(lambda: supervisor.pid("engine") is not None, 60, "the engine ran again")

    def _another_reader(self) -> Callable[[], bool]:
        """Whether the log reader is no longer the one it was when this was first asked and there was one."""
        first: set[int] = set()

        def changed() -> bool:
            now = {process.pid for process in self._readers()}
            if not first:
                first.update(now)
            return bool(now - first)

        return changed

    def _worker_lost(self) -> Callable[[], bool]:
        """Whether the engine has written of a lost Spark worker since this was called."""
        log = self._rig.home / "logs" / "engine.log"
        start = log.stat().st_size if log.is_file() else 0
        return lambda: log.is_file() and b"spark_failed" in log.read_bytes()[start:]

    def _comes_true(self, done: Callable[[], bool]) -> bool:
        try:
            self._rig.until(done, _HIT_S, "the failpoint was passed")
        except AssertionError:
            return False
        return True

    def _readers(self) -> list[psutil.Process]:
        return [process for process in self._family() if _READER_MODULE in _command(process)]

    def _family(self) -> list[psutil.Process]:
        pid = self._rig.running.supervisor.pid("engine")
        if pid is None:
            return []
        try:
            return psutil.Process(pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _command(process: psutil.Process | None) -> str:
    try:
        return " ".join(process.cmdline()) if process is not None else ""
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def _kill_one(processes: list[psutil.Process], rng: random.Random) -> Document:
    if not processes:
        raise NothingToKillError
    victim = rng.choice(processes)
    try:
        victim.kill()
    except psutil.NoSuchProcess:
        raise NothingToKillError from None
    return {"pid": victim.pid}
