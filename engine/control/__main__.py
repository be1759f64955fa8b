"""`python -m engine.control`: the engine process."""

from __future__ import annotations

import os
import signal
import sys
import threading

from engine.connectors import import_kinds
from engine.control.engine import Engine
from engine.pipeline.reader_process import prepare
from engine.pipeline.task_functions import load_kernels
from engine.platform.clock import SystemClock
from engine.platform.failpoints import arm_from_environment
from engine.platform.logs import configure_logs
from engine.platform.settings import EngineSettingsError, load_settings
from engine.spark.session import SparkRunner

SWITCH_S = 0.0005
"""Python's thread switch interval, in seconds: the longest time for which a computing thread delays a thread that returns from the
target, the network or the queue. A commit returns about a dozen times; with Python's default of 5 ms it could wait longer than it works.
"""
FORCED_EXIT_S = 4.5
"""Seconds from the signal after which a stop that has not ended is aborted (exit code 3), also while the engine starts. A clean stop takes
less. After an abort, the next start resumes
at the last batch boundary."""


def main() -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code: 0 after a clean stop, 2 if a setting is invalid."""
    configure_logs()
    arm_from_environment()
    try:
        settings = load_settings()
    except EngineSettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - for the operator who starts the process
        return 2
    stop = threading.Event()

    def end(*_: object) -> None:
        if not stop.is_set():
            stop.set()
            timer = threading.Timer(FORCED_EXIT_S, os._exit, (3,))
            timer.daemon = True
            timer.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    prepare()
    import_kinds()
    sys.setswitchinterval(SWITCH_S)
    runner = SparkRunner(settings.spark_master, "penstock", settings.home / "spark", prepare=load_kernels)
    engine = Engine(settings, runner, SystemClock())
    runner.on_lost = engine.spark_lost
    engine.start()
    load_kernels()
    stop.wait()
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
