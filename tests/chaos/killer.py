"""Kills one part at a time, or changes the queue's mode, and reports when replication has continued."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Literal

import psutil

from server.cli.client import Document, NoServerError, ProblemError
from server.demo.embedded import EmbeddedPostgres, StopMode
from tests.chaos.failpoint_kills import READER, FailpointKills, NothingToKillError
from tests.fixtures.rig import Rig

Kind = Literal[
    "engine",
    "log_reader",
    "spark_worker",
    "server",
    "source",
    "failpoint",
    "queue_mode",
    "target",
    "sql_endpoint",
    "walsender",
    "source_crash",
    "query",
    "sessions",
    "writer",
    "write_lock",
    "node",
    "node_away",
    "sender_stopped",
    "coordinator",
]
KINDS: tuple[Kind, ...] = ("engine", "log_reader", "spark_worker", "server", "source", "failpoint", "queue_mode")
"""Every kind of the chaos run but `target`, which can only be killed where it is a server."""
BY_TURN: tuple[Kind, ...] = ("engine", "server", "log_reader", "sql_endpoint", "walsender", "source_crash")
"""The kinds that end one process and nothing else, or all of the source's at once."""

_ENDPOINT = "penstock-sql"
_QUERY = "penstock-query"
_CUT_SENDER = "SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots WHERE active"
_STARTS_ANEW = frozenset({"engine", "failpoint", "source", "target", "queue_mode"})
"""Kinds after which a run begins with the current settings."""
_MODES: tuple[Document, ...] = (
    {"mode": "auto", "lanes": None, "group_size": None},
    {"mode": "batch", "lanes": None, "group_size": None},
    {"mode": "batch", "lanes": 2, "group_size": None, "visibility": "relaxed"},
    {"mode": "auto", "lanes": 3, "group_size": None, "visibility": "relaxed"},
    {"mode": "grouped", "lanes": 1, "group_size": None},
    {"mode": "grouped", "lanes": 2, "group_size": 5},
    {"mode": "transactional", "lanes": 1, "group_size": None},
    {"mode": "transactional", "lanes": 2, "group_size": None, "policy": "pessimistic"},
    {"mode": "transactional", "lanes": 3, "group_size": None, "policy": "optimistic"},
)
_RECOVERY_S = 120.0
_PAUSED_S = 60.0


class Killer:
    """`kill(kind)` returns a description of what was killed. `failpoints`: needed for that kind only. `others`: of the source's own."""

    def __init__(
        self,
        rig: Rig,
        rng: random.Random,
        failpoints: FailpointKills | None = None,
        others: Mapping[Kind, Callable[[], Document]] | None = None,
    ) -> None:
        self._rig = rig
        self._rng = rng
        self._failpoints = failpoints
        self._others = others or {}
        self._seen: dict[int, str] = {}

    @property
    def modes(self) -> Counter[str]:
        """Number of examined batches by mode, with those written in several parts counted separately."""
        return Counter(self._seen.values())

    def kill(self, kind: Kind) -> Document:
        act: dict[Kind, Callable[[], Document]] = {
            "engine": lambda: self._child("engine"),
            "log_reader": lambda: _kill_one(self._named(READER), self._rng),
            "spark_worker": self._spark_worker,
            "server": lambda: self._child("server"),
            "source": lambda: self._cluster(self._rig.postgres),
            "target": self._target,
            "failpoint": self._failpoint,
            "queue_mode": self._queue_mode,
            "sql_endpoint": lambda: _kill_one(self._named(_ENDPOINT), self._rng),
            "walsender": self._walsender,
            "source_crash": lambda: self._restart(self._rig.postgres, "immediate"),
            "query": lambda: _kill_one(self._named(_QUERY), self._rng),
            **self._others,
        }
        if kind in _STARTS_ANEW and self._rig.target is not None:
            with suppress(NoServerError, ProblemError):
                self._rig.api.patch(self._rig.path, self._some_mode())
        return act[kind]()

    def _some_mode(self) -> Document:
        """Another way to write."""
        return {"apply": {"visibility": "atomic", **self._rng.choice(_MODES)}}

    def in_batches(self) -> None:
        """From now on in batches, whose copy is never far behind: a comparison waits until the copy is there."""
        if self._rig.target is None:
            return
        batch = {"apply": {"visibility": "atomic", **_MODES[1]}, "desired_state": "paused"}

        def paused() -> bool:
            self._rig.api.patch(self._rig.path, batch)
            return self._state() == "paused"

        self._rig.wait_until(paused, _PAUSED_S, "the subscription was paused")
        self._rig.wait_until(self._resumed, _PAUSED_S, "the subscription was to run again")

    def wait_for_progress(self, since: datetime) -> None:
        """Wait until a batch with transactions in it was committed later than `since`."""

        def newer() -> bool:
            newest = self._rig.api.get(f"{self._rig.path}/batches", page_size=20)["items"]
            self._seen |= {int(b["batch"]): _mode(b) for b in newest if int(b["transactions"]) > 0}
            return any(int(b["transactions"]) > 0 and datetime.fromisoformat(b["committed_at"]) > since for b in newest)

        self._rig.wait_until(newer, _RECOVERY_S, f"a batch was committed after {since:%H:%M:%S}")

    def _child(self, name: str) -> Document:
        pid = self._rig.running.supervisor.pid(name)
        if pid is None:
            raise NothingToKillError(name)
        os.kill(pid, signal.SIGKILL)
        return {"pid": pid}

    def _failpoint(self) -> Document:
        assert self._failpoints is not None
        return self._failpoints.kill()

    def _walsender(self) -> Document:
        """The source ends the session that sends its log."""
        ((ended,),) = self._rig.postgres.execute(_CUT_SENDER)
        if not ended:
            raise NothingToKillError("the log is not being read")
        return {"ended": ended}

    def _spark_worker(self) -> Document:
        """A Python worker that runs tasks, not the daemon that forks them."""
        workers = [
            process
            for process in self._family()
            if "pyspark.daemon" in _command(process) and "pyspark.daemon" in _command(process.parent())
        ]
        return _kill_one(workers, self._rng)

    def _target(self) -> Document:
        """The server, or only our sessions on it."""
        if self._rig.target is None:
            raise NothingToKillError("the target is a file")
        if self._rng.random() < 0.4:
            ended = (
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'penstock%'"
            )
            return {"how": "sessions", "ended": self._rig.target.execute(ended)[0][0]}
        return self._cluster(self._rig.target)

    def _cluster(self, cluster: EmbeddedPostgres) -> Document:
        how = self._rng.choice(["fast", "immediate", "kill -9"])
        if how != "kill -9":
            return self._restart(cluster, "fast" if how == "fast" else "immediate")
        cluster.kill9()
        cluster.start()
        return {"how": how}

    @staticmethod
    def _restart(cluster: EmbeddedPostgres, how: StopMode) -> Document:
        cluster.restart(how)
        return {"how": how}

    def _queue_mode(self) -> Document:
        """To the other mode. It takes hold at the next start of the run: in this engine after a pause, or in the next engine."""
        try:
            before = str(self._rig.api.get(self._rig.path)["queue"]["mode"])
            mode = "memory" if before == "persist" else "persist"
            self._rig.api.patch(self._rig.path, {"queue": {"mode": mode}})
            how = self._rng.choice(["pause", "kill"])
            if how == "kill":
                with suppress(NothingToKillError):  # an engine that is just starting gets the new mode all the same
                    self._child("engine")
                return {"mode": mode, "how": how}
            self._rig.api.patch(self._rig.path, {"desired_state": "paused"})
        except NoServerError as error:
            raise NothingToKillError("the server is away") from error
        except ProblemError as problem:
            if problem.status < 500:
                raise
            raise NothingToKillError(problem.code) from problem
        self._rig.wait_until(lambda: self._state() == "paused", _PAUSED_S, "the subscription was paused")
        self._rig.wait_until(self._resumed, _PAUSED_S, "the subscription was to run again")
        return {"mode": mode, "how": how}

    def _state(self) -> str:
        return str(self._rig.api.get(self._rig.path)["state"])

    def _resumed(self) -> bool:
        self._rig.api.patch(self._rig.path, {"desired_state": "running"})
        return True

    def _named(self, name: str) -> list[psutil.Process]:
        return [process for process in self._family() if _name(process) == name]

    def _family(self) -> list[psutil.Process]:
        pid = self._rig.running.supervisor.pid("engine")
        if pid is None:
            return []
        try:
            return psutil.Process(pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _mode(batch: Document) -> str:
    in_parts = batch["tuning"].get("parts", 1) > 1
    return f"{batch['mode']} in parts" if in_parts else str(batch["mode"])


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


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
