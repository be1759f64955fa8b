"""The task runner on Spark: one long-lived driver session that schedules descriptors onto Python workers."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from engine.model.fault import EngineFault, FaultKind
from engine.spark.java import find_java
from engine.spark.outcome import attempt_all, results

D = TypeVar("D")
R = TypeVar("R")

KEEP_ALIVE_S = 25.0
"""Spark ends workers, and what they cached, after a minute without work."""
START_S = 180.0
STOP_S = 3.0
WARM_TRIES = 3

_LOGGING = """\
status = error
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = error
rootLogger.appenderRef.err.ref = err
"""


def settings(master: str, app_name: str, logging: Path) -> dict[str, str]:
    """Spark's settings for jobs that are many, small and not to be repeated by Spark itself."""
    chosen = {
        "spark.master": master,
        "spark.app.name": app_name,
        "spark.scheduler.mode": "FAIR",
        "spark.locality.wait": "0s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.speculation": "false",
        "spark.task.maxFailures": "1",
        "spark.python.worker.reuse": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.task.killTimeout": "100ms",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{logging} -XX:+UseSerialGC -Xmn32m -XX:TieredStopAtLevel=1",
    }
    if master.startswith("local"):
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
        chosen["spark.driver.host"] = "127.0.0.1"
        chosen["spark.driver.memory"] = "512m"
    return chosen


class SparkRunner:
    """Fulfils engine.model.tasks.TaskRunner with classic Spark. One per process: Spark allows no second session.

    `scratch`: a folder of ours for the Java wrapper, logging settings and Spark's own output (`spark.log`). `prepare` is called
    in the workers before the runner counts as ready. `overrides` are Spark settings that win over ours.
    """

    def __init__(
        self,
        master: str,
        app_name: str,
        scratch: Path,
        *,
        prepare: Callable[[], None] | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        self._master = master
        self._app_name = app_name
        self._scratch = scratch
        self._prepare = prepare or _nothing
        self._overrides = dict(overrides or {})
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._stopping = threading.Event()
        self._starter: threading.Thread | None = None
        self._context: Any = None
        self._failure: EngineFault | None = None
        self._numbers = itertools.count(1)
        self._active: dict[str, set[str]] = {}
        self._last_run = 0.0
        self._slots = 1
        """As of the last job: every look at it is a question to Java, and batches ask for it that run without Spark."""

    def start(self) -> None:
        with self._lock:
            if self._starter is None:
                self._starter = threading.Thread(target=self._start, name="spark-start", daemon=True)
                self._starter.start()

    @property
    def ready(self) -> bool:
        return self._settled.is_set() and self._failure is None and not self._stopping.is_set()

    @property
    def parallelism(self) -> int:
        return self._slots if self._context is not None else 1

    def wait_ready(self, timeout_s: float) -> bool:
        if not self._settled.wait(timeout_s):
            return False
        if self._failure is not None:
            raise EngineFault(self._failure.kind, self._failure.subject, self._failure.detail) from self._failure
        return not self._stopping.is_set()

    def run(self, function: Callable[[D], R], descriptors: Sequence[D], group: str) -> list[R]:
        if not descriptors:
            return []
        self.start()
        if not self.wait_ready(START_S):
            raise EngineFault(FaultKind.SPARK_FAILED, group, "the Spark session is not there")
        return self._job(function, descriptors, group)

    def cancel(self, group: str) -> None:
        with self._lock:
            running = list(self._active.pop(group, ()))
            context = self._context
        for one in running if context is not None else ():
            # Future jobs too: the run may be just about to submit its own.
            context._jsc.sc().cancelJobGroupAndFutureJobs(one)

    def stop(self) -> None:
        """End the session and its Java process; takes at most some seconds."""
        self._stopping.set()
        self._settled.set()
        with self._lock:
            context, self._context = self._context, None
        if context is not None:
            _shut_down(context)

    def _job(self, function: Callable[[D], R], descriptors: Sequence[D], group: str) -> list[R]:
        unique = f"{group}#{next(self._numbers)}"
        with self._lock:
            context = self._context
            self._active.setdefault(group, set()).add(unique)
        try:
            if context is None:
                raise EngineFault(FaultKind.SPARK_FAILED, group, "the Spark session was stopped")
            context.setJobGroup(unique, group)
            context.setLocalProperty("spark.scheduler.pool", re.sub(r"\d+", "", group))
            outcomes = (
                context.parallelize(descriptors, len(descriptors))
                .mapPartitions(partial(attempt_all, function))
                .collect()
            )
            self._slots = int(context.defaultParallelism)
        except (Py4JError, OSError) as error:
            self._revive_if_gone(context)
            raise EngineFault(FaultKind.SPARK_FAILED, group, self._reason(error, group, unique)) from error
        finally:
            self._last_run = time.monotonic()
            self._leave(group, unique)
        return results(outcomes)

    def _revive_if_gone(self, context: Any) -> None:
        """Start a new session where the Java process of `context` has ended."""
        try:
            context._gateway.proc.wait(1.0 if self._is_deaf(context) else 0.0)
        except subprocess.TimeoutExpired:
            return
        with self._lock:
            if self._context is not context or self._stopping.is_set():
                return
            self._context = None
            self._settled.clear()
            self._starter = None
        _release(context._gateway)
        self.start()

    @staticmethod
    def _is_deaf(context: Any) -> bool:
        try:
            context._jvm.java.lang.System.nanoTime()
        except (Py4JError, OSError):
            return True
        return False

    def _reason(self, error: Exception, group: str, unique: str) -> str:
        if self._stopping.is_set():
            return "the Spark session was stopped"
        with self._lock:
            cancelled = unique not in self._active.get(group, ())
        if cancelled:
            return "the run was cancelled"
        java = getattr(error, "java_exception", None)
        name = java.getClass().getName() if java is not None else type(error).__name__
        return f"the job ended without a result ({name}): a worker or the Spark session was lost"

    def _leave(self, group: str, unique: str) -> None:
        with self._lock:
            running = self._active.get(group)
            if running is not None:
                running.discard(unique)
                if not running:
                    del self._active[group]

    def _start(self) -> None:
        try:
            context = self._launch()
            self._warm_up(context)
        except EngineFault as fault:
            self._failure = fault
        except Exception as error:  # noqa: BLE001, RUF100 - the thread's border: whoever waits gets it as a fault
            self._failure = EngineFault(
                FaultKind.SPARK_FAILED, "spark", f"the session did not start ({type(error).__name__})"
            )
            self._failure.__cause__ = error
        else:
            self._keep(context)
        self._settled.set()
        while self._keeps(context := self._context) and not self._stopping.wait(KEEP_ALIVE_S):
            self._use_if_idle(context)

    def _warm_up(self, context: Any) -> None:
        """Prepare the workers. One that is lost meanwhile must not leave this process without Spark for good."""
        for left in reversed(range(WARM_TRIES)):
            try:
                _warm(context, self._prepare)
            except Py4JJavaError:
                if not left:
                    raise
            else:
                return

    def _keep(self, context: Any) -> None:
        slots = int(context.defaultParallelism)
        with self._lock:
            if not self._stopping.is_set():
                self._context, self._slots = context, slots
                self._last_run = time.monotonic()
                return
        _shut_down(context)

    def _launch(self) -> Any:
        self._scratch.mkdir(parents=True, exist_ok=True)
        logging = (self._scratch / "log4j2.properties").resolve()
        logging.write_text(_LOGGING)
        os.environ["JAVA_HOME"] = str(find_java(self._scratch.resolve()).home)
        if self._master.startswith("local"):
            os.environ["PYSPARK_PYTHON"] = sys.executable
        else:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        conf = SparkConf(loadDefaults=False)
        for key, value in (settings(self._master, self._app_name, logging) | self._overrides).items():
            conf.set(key, value)
        with (self._scratch / "spark.log").open("wb") as log:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})
        return SparkContext(conf=conf, gateway=gateway)

    def _keeps(self, context: Any) -> bool:
        return context is not None and context is self._context

    def _use_if_idle(self, context: Any) -> None:
        """A tiny job now and then while no other runs, so that idle workers keep what they cached."""
        if self._keeps(context) and time.monotonic() - self._last_run >= KEEP_ALIVE_S:
            with suppress(EngineFault):
                self.run(_touch, [()], "keep-alive")


def _touch(nothing: tuple[()]) -> None:
    """Nothing to do: the worker was used."""


def _nothing() -> None:
    """Workers need no preparation."""


def _prepare(prepare: Callable[[], None], parts: Iterable[int]) -> Iterator[int]:
    prepare()
    return iter(list(parts))


def _warm(context: Any, prepare: Callable[[], None]) -> None:
    slots = context.defaultParallelism
    context.parallelize(range(slots), slots).mapPartitions(partial(_prepare, prepare)).collect()


def _shut_down(context: Any) -> None:
    """Stop the session; if that takes long, end its Java process. Afterwards a new session may be made."""
    gateway = context._gateway
    polite = threading.Thread(target=_stop_context, args=(context,), daemon=True)
    polite.start()
    polite.join(STOP_S)
    if polite.is_alive():
        gateway.proc.kill()
    _release(gateway)


def _release(gateway: Any) -> None:
    """Let go of a Java process that was stopped or is gone, and of what Spark's classes keep of it: one session per process."""
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    with suppress(OSError):
        gateway.proc.stdin.close()
    try:
        gateway.proc.wait(STOP_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None


def _stop_context(context: Any) -> None:
    with suppress(Py4JError, OSError):
        context.stop()
