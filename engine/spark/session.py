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
from traceback import walk_tb
from typing import Any, TypeVar

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from engine.model.fault import EngineFault, FaultKind
from engine.platform.child_processes import how_it_ended
from engine.spark.java import find_java
from engine.spark.outcome import attempt_all, results

log = structlog.get_logger(__name__)

D = TypeVar("D")
R = TypeVar("R")

KEEP_ALIVE_S = 25.0
"""Spark ends workers, and what they cached, after a minute without work."""
START_S = 180.0
STOP_S = 3.0
WARM_TRIES = 3
START_TRIES = 3
"""So often Spark is started at once where its Java process ends during the start; then again and again, with pauses."""
FIRST_PAUSE_S = 2.0
LAST_PAUSE_S = 60.0
NOTICE_S = 1.0
"""A Java process that does not answer any more has ended by then, where it ends."""

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

    One thread starts the session, keeps it in use, and starts another one where its Java process ends.

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
        self.on_lost: Callable[[str], None] = _nobody
        """Called, in a thread of the runner, with which Java process has ended, and how."""
        self._lock = threading.Lock()
        self._settled = threading.Event()
        """There is a session, or the last start of one failed."""
        self._stopping = threading.Event()
        self._wake = threading.Event()
        """The session's Java process has ended, or all is to end."""
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
                self._starter = threading.Thread(target=self._live, name="spark-session", daemon=True)
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
            # What is lost with its Java process needs no cancelling; a session that was stopped has no `_jsc`.
            with suppress(Py4JError, OSError, AttributeError):
                # Future jobs too: the run may be just about to submit its own.
                context._jsc.sc().cancelJobGroupAndFutureJobs(one)

    def stop(self) -> None:
        """End the session and its Java process; takes at most some seconds."""
        self._stopping.set()
        self._settled.set()
        self._wake.set()
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
                why = "was stopped" if self._stopping.is_set() else "is being started again"
                raise EngineFault(FaultKind.SPARK_FAILED, group, f"the Spark session {why}")
            outcomes = self._outcomes(context, function, descriptors, group, unique)
        finally:
            self._last_run = time.monotonic()
            self._leave(group, unique)
        return results(outcomes)

    def _outcomes(
        self, context: Any, function: Callable[[D], R], descriptors: Sequence[D], group: str, unique: str
    ) -> list[Any]:
        """One per descriptor. Raises EngineFault where there is none, whatever the libraries make of a lost Java process."""
        try:
            context.setJobGroup(unique, group)
            context.setLocalProperty("spark.scheduler.pool", re.sub(r"\d+", "", group))
            outcomes: list[Any] = (
                context.parallelize(descriptors, len(descriptors))
                .mapPartitions(partial(attempt_all, function))
                .collect()
            )
            self._slots = int(context.defaultParallelism)
        except Exception as error:
            lost = self._lost(context)
            if lost is None and not isinstance(error, Py4JError | OSError):
                raise
            raise EngineFault(FaultKind.SPARK_FAILED, group, self._reason(error, group, unique, lost)) from error
        if len(outcomes) < len(descriptors):  # What ends in the middle is read like what ends.
            lost = self._lost(context) or "the job ended without all of its results"
            raise EngineFault(FaultKind.SPARK_FAILED, group, lost)
        return outcomes

    def _lost(self, context: Any) -> str | None:
        """Which Java process has ended, and how, where that of `context` has; the session is no session any more then."""
        java = context._gateway.proc
        if not _has_ended(java, NOTICE_S if self._is_deaf(context) else 0.0):
            return None
        with self._lock:
            if self._context is context and not self._stopping.is_set():
                self._context = None
                self._settled.clear()
        return _death(java)

    @staticmethod
    def _is_deaf(context: Any) -> bool:
        try:
            context._jvm.java.lang.System.nanoTime()
        except Exception:  # noqa: BLE001, RUF100 - whatever the libraries make of a lost Java process
            return True
        return False

    def _reason(self, error: Exception, group: str, unique: str, lost: str | None) -> str:
        if self._stopping.is_set():
            return "the Spark session was stopped"
        with self._lock:
            cancelled = unique not in self._active.get(group, ())
        if cancelled:
            return "the run was cancelled"
        if lost is not None:
            return f"{lost}, and with it the job"
        java = getattr(error, "java_exception", None)
        name = java.getClass().getName() if java is not None else type(error).__name__
        return f"the job ended without a result ({name}): a Python worker of Spark was lost"

    def _leave(self, group: str, unique: str) -> None:
        with self._lock:
            running = self._active.get(group)
            if running is not None:
                running.discard(unique)
                if not running:
                    del self._active[group]

    def _live(self) -> None:
        """The session's thread."""
        pause = FIRST_PAUSE_S
        while not self._stopping.is_set():
            context = self._started()
            self._settled.set()
            if context is not None:
                pause = FIRST_PAUSE_S
                self._attend(context)
            else:
                self._stopping.wait(pause)
                pause = min(pause * 2, LAST_PAUSE_S)

    def _started(self) -> Any:
        """A session that is kept. None: there is none, and `_failure` says why."""
        for _ in range(START_TRIES):
            if self._stopping.is_set():
                return None
            try:
                context = self._launch()
            except EngineFault as fault:
                self._failure = fault
                return None
            except _JavaLostError as lost:
                self._failure = EngineFault(FaultKind.SPARK_FAILED, "spark", f"{lost} while Spark started")
                self._failure.__cause__ = lost
                self._tell(self._failure.detail)
            except Exception as error:  # noqa: BLE001, RUF100 - the thread's border: whoever waits gets it as a fault
                detail = f"the session did not start ({type(error).__name__})"
                self._failure = EngineFault(FaultKind.SPARK_FAILED, "spark", detail)
                self._failure.__cause__ = error
                return None
            else:
                return self._kept(context)
        return None

    def _attend(self, context: Any) -> None:
        """Keep the session in use until its Java process ends, or all is to end."""
        java = context._gateway.proc
        threading.Thread(target=self._watch, args=(java,), name="spark-java", daemon=True).start()
        while not self._stopping.is_set() and java.returncode is None:
            if not self._wake.wait(KEEP_ALIVE_S):
                self._use_if_idle()
            elif not self._stopping.is_set():
                self._wake.clear()
        if self._stopping.is_set():
            return
        self._tell(self._lost(context) or _death(java))
        _release(context._gateway)

    def _watch(self, java: subprocess.Popen[bytes]) -> None:
        java.wait()
        self._wake.set()

    def _tell(self, lost: str) -> None:
        if not self._stopping.is_set():
            log.warning("spark_lost", detail=lost)
            self.on_lost(lost)

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

    def _kept(self, context: Any) -> Any:
        slots = int(context.defaultParallelism)
        with self._lock:
            if not self._stopping.is_set():
                self._context, self._slots, self._failure = context, slots, None
                self._last_run = time.monotonic()
                return context
        _shut_down(context)
        return None

    def _launch(self) -> Any:
        """A session with workers that are prepared. Where it raises, nothing is left of it; _JavaLostError: its Java process ended."""
        conf = self._conf()
        gateway: Any = None
        try:
            with (self._scratch / "spark.log").open("wb") as out:
                gateway = launch_gateway(conf, {"stdout": out, "stderr": out})
            context = SparkContext(conf=conf, gateway=gateway)
            self._warm_up(context)
        except Exception as error:
            java = gateway.proc if gateway is not None else _java_of(error)
            lost = java if java is not None and _has_ended(java, NOTICE_S) else None
            if gateway is not None:
                _release(gateway)
            elif java is not None:
                _end(java)
            if lost is not None:
                raise _JavaLostError(_death(lost)) from error
            raise
        return context

    def _conf(self) -> SparkConf:
        """Of a new session. Also sets what its processes find in the environment."""
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
        return conf

    def _use_if_idle(self) -> None:
        """A tiny job now and then while no other runs, so that idle workers keep what they cached."""
        if time.monotonic() - self._last_run >= KEEP_ALIVE_S:
            with suppress(EngineFault):
                self._job(_touch, [()], "keep-alive")


class _JavaLostError(Exception):
    """The message says which Java process ended, and how."""


def _touch(nothing: tuple[()]) -> None:
    """Nothing to do: the worker was used."""


def _nobody(lost: str) -> None:
    """Nobody is there to be informed."""


def _has_ended(java: subprocess.Popen[bytes], timeout_s: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        java.wait(timeout_s)
    return java.returncode is not None


def _death(java: subprocess.Popen[bytes]) -> str:
    return f"Spark's Java process (pid {java.pid}) {how_it_ended(java.returncode)}"


def _java_of(error: Exception) -> subprocess.Popen[bytes] | None:
    """The process that PySpark has started, of which it says nothing where it then fails."""
    found = [frame.f_locals.get("proc") for frame, _ in walk_tb(error.__traceback__)]
    return next((one for one in found if isinstance(one, subprocess.Popen)), None)


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
    _end(gateway.proc)
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None


def _end(java: subprocess.Popen[bytes]) -> None:
    """It ends where nobody holds the other end of its input; if that takes long, by SIGKILL."""
    with suppress(OSError):
        if java.stdin is not None:
            java.stdin.close()
    try:
        java.wait(STOP_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


def _stop_context(context: Any) -> None:
    with suppress(Py4JError, OSError):
        context.stop()
