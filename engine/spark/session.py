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
from engine.model.tasks import Unfinished
from engine.platform.child_processes import how_it_ended
from engine.spark.java import find_java
from engine.spark.outcome import attempt_all, results

log = structlog.get_logger(__name__)

D = TypeVar("D")
R = TypeVar("R")

KEEP_ALIVE_S = 25.0
"""Interval of idle jobs. Spark ends Python workers, with their caches, after a minute without work."""
START_S = 180.0
"""Longest wait of a job for a session in seconds. A cold start was measured at 5 to 13 s; the rest is for START_TRIES attempts and a slow
cluster."""
STOP_S = 3.0
"""Seconds for Spark's own stop, and then for its Java process to end, before the process is killed. Nothing is lost then. Not measured."""
WARM_TRIES = 3
"""Attempts to prepare the workers: the loss of one is survived, a lasting cause is reported soon. Not measured."""
START_TRIES = 3
"""Immediate attempts if the Java process ends during the start; further attempts follow with pauses."""
FIRST_PAUSE_S = 2.0
"""Pause after the first failed start in seconds; each further one is twice as long. A start itself takes longer. Not measured."""
LAST_PAUSE_S = 60.0
"""Longest pause between starts in seconds: a cluster that is back is used after at most this time. Not measured."""
NOTICE_S = 1.0
"""Wait for the end of a Java process that stopped to answer; if it still runs after that, it has not ended."""

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
    """Spark settings for many small jobs, which Spark must not retry."""
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
    """Implements engine.model.tasks.TaskRunner with classic Spark. One per process: Spark allows one session only.

    A thread of the runner starts the session, keeps its workers busy, and starts a new session if the Java process ends.

    `scratch`: folder for the Java wrapper, the logging configuration and Spark's output (`spark.log`). `prepare`: called in the
    workers before the runner is ready. `overrides`: Spark settings that take precedence.
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
        """Called in a thread of the runner when the Java process has ended, with a text that says which and how."""
        self._lock = threading.Lock()
        self._settled = threading.Event()
        """Set while there is a session, or after the last start failed."""
        self._stopping = threading.Event()
        self._wake = threading.Event()
        """Set when the session's Java process has ended, or the runner is to stop."""
        self._starter: threading.Thread | None = None
        self._context: Any = None
        self._failure: EngineFault | None = None
        self._numbers = itertools.count(1)
        self._active: dict[str, set[str]] = {}
        self._last_run = 0.0
        self._slots = 1
        """Parallelism as of the last job. Cached, because each read is a call to Java, and batches that run without Spark need it too."""

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
            raise EngineFault(FaultKind.SPARK_FAILED, group, "there is no Spark session")
        return self._job(function, descriptors, group)

    def unfinished(self, group: str) -> Unfinished | None:
        with self._lock:
            running = list(self._active.get(group, ()))
            context = self._context
        if context is None or not running:
            return None
        with suppress(Py4JError, OSError, AttributeError):  # As for `cancel`.
            tracker = context.statusTracker()
            jobs = [tracker.getJobInfo(job) for one in running for job in tracker.getJobIdsForGroup(one)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
            known = [stage for stage in stages if stage is not None]
            if known:
                tasks = sum(stage.numTasks for stage in known)
                return Unfinished(tasks, tasks - sum(stage.numCompletedTasks for stage in known))
        return None

    def cancel(self, group: str) -> None:
        with self._lock:
            running = list(self._active.pop(group, ()))
            context = self._context
        for one in running if context is not None else ():
            # If the Java process is gone there is nothing to cancel; a stopped session has no `_jsc`.
            with suppress(Py4JError, OSError, AttributeError):
                # Future jobs too: the run may be about to submit its job.
                context._jsc.sc().cancelJobGroupAndFutureJobs(one)

    def stop(self) -> None:
        """End the session and its Java process, within some seconds."""
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
            # PySpark forgets it once the session is discarded, while jobs of the session still end.
            java = None if context is None else context._gateway.proc
            self._active.setdefault(group, set()).add(unique)
        try:
            if context is None:
                why = "was stopped" if self._stopping.is_set() else "is being restarted"
                raise EngineFault(FaultKind.SPARK_FAILED, group, f"the Spark session {why}")
            outcomes = self._outcomes(context, java, function, descriptors, group, unique)
        finally:
            self._last_run = time.monotonic()
            self._leave(group, unique)
        return results(outcomes)

    def _outcomes(
        self, context: Any, java: Any, function: Callable[[D], R], descriptors: Sequence[D], group: str, unique: str
    ) -> list[Any]:
        """One outcome per descriptor. Raises EngineFault otherwise: PySpark reports a lost Java process in several ways."""
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
            lost = self._lost(context, java)
            if lost is None and not isinstance(error, Py4JError | OSError):
                raise
            raise EngineFault(FaultKind.SPARK_FAILED, group, self._reason(error, group, unique, lost)) from error
        if len(outcomes) < len(descriptors):  # PySpark reads a stream that broke off like one that ended.
            lost = self._lost(context, java) or "the job ended without all of its results"
            raise EngineFault(FaultKind.SPARK_FAILED, group, lost)
        return outcomes

    def _lost(self, context: Any, java: Any) -> str | None:
        """Text on the end of `context`'s Java process, after which the session is discarded; None if the process runs."""
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
        """Main loop of the session's thread."""
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
        """Start and keep a session. None: the start failed, and `_failure` says why."""
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
                self._report_loss(self._failure.detail)
            except Exception as error:  # noqa: BLE001, RUF100 - the thread's border: callers that wait get it as a fault
                detail = f"the session did not start ({type(error).__name__})"
                self._failure = EngineFault(FaultKind.SPARK_FAILED, "spark", detail)
                self._failure.__cause__ = error
                return None
            else:
                return self._kept(context)
        return None

    def _attend(self, context: Any) -> None:
        """Keep the session's workers busy until its Java process ends or the runner stops."""
        java = context._gateway.proc
        threading.Thread(target=self._watch, args=(java,), name="spark-java", daemon=True).start()
        while not self._stopping.is_set() and java.returncode is None:
            if not self._wake.wait(KEEP_ALIVE_S):
                self._use_if_idle()
            elif not self._stopping.is_set():
                self._wake.clear()
        if self._stopping.is_set():
            return
        self._report_loss(self._lost(context, java) or _death(java))
        _release(context._gateway)

    def _watch(self, java: subprocess.Popen[bytes]) -> None:
        java.wait()
        self._wake.set()

    def _report_loss(self, lost: str) -> None:
        if not self._stopping.is_set():
            log.warning("spark_lost", detail=lost)
            self.on_lost(lost)

    def _warm_up(self, context: Any) -> None:
        """Prepare the workers. The loss of a worker meanwhile must not leave this process without Spark permanently."""
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
        """Start a session with prepared workers. On an exception nothing of it is left; _JavaLostError: its Java process ended."""
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
        """Configuration of a new session. Also sets the environment variables of its processes."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        logging = (self._scratch / "log4j2.properties").resolve()
        logging.write_text(_LOGGING)
        os.environ["JAVA_HOME"] = str(find_java(self._scratch.resolve()))
        if self._master.startswith("local"):
            os.environ["PYSPARK_PYTHON"] = sys.executable
        else:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        conf = SparkConf(loadDefaults=False)
        for key, value in (settings(self._master, self._app_name, logging) | self._overrides).items():
            conf.set(key, value)
        return conf

    def _use_if_idle(self) -> None:
        """Run a tiny job if no other is running, so that Spark does not end idle workers with their caches."""
        if time.monotonic() - self._last_run >= KEEP_ALIVE_S:
            with suppress(EngineFault):
                self._job(_touch, [()], "keep-alive")


class _JavaLostError(Exception):
    """The Java process ended; the message says which and how."""


def _touch(nothing: tuple[()]) -> None:
    """Empty task of the idle job."""


def _nobody(lost: str) -> None:
    """Default of `on_lost`: no listener."""


def _has_ended(java: subprocess.Popen[bytes], timeout_s: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        java.wait(timeout_s)
    return java.returncode is not None


def _death(java: subprocess.Popen[bytes]) -> str:
    return f"Spark's Java process (pid {java.pid}) {how_it_ended(java.returncode)}"


def _java_of(error: Exception) -> subprocess.Popen[bytes] | None:
    """The Java process that PySpark started before it raised `error`, which does not expose it."""
    found = [frame.f_locals.get("proc") for frame, _ in walk_tb(error.__traceback__)]
    return next((one for one in found if isinstance(one, subprocess.Popen)), None)


def _nothing() -> None:
    """Default of `prepare`: no preparation."""


def _prepare(prepare: Callable[[], None], parts: Iterable[int]) -> Iterator[int]:
    prepare()
    return iter(list(parts))


def _warm(context: Any, prepare: Callable[[], None]) -> None:
    slots = context.defaultParallelism
    context.parallelize(range(slots), slots).mapPartitions(partial(_prepare, prepare)).collect()


def _shut_down(context: Any) -> None:
    """Stop the session; if that takes long, kill its Java process. Afterwards a new session may be started."""
    gateway = context._gateway
    polite = threading.Thread(target=_stop_context, args=(context,), daemon=True)
    polite.start()
    polite.join(STOP_S)
    if polite.is_alive():
        gateway.proc.kill()
    _release(gateway)


def _release(gateway: Any) -> None:
    """Close the gateway of an ended Java process, and clear the class attributes of PySpark that refer to it and prevent a new session."""
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    _end(gateway.proc)
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None


def _end(java: subprocess.Popen[bytes]) -> None:
    """End the process: it exits when its standard input is closed; if that takes long, SIGKILL."""
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
