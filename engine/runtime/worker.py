"""What a task does, wherever it runs: functions that a Spark worker imports by name, and the driver calls itself."""

from __future__ import annotations

import gc
from functools import cache
from importlib import import_module
from pathlib import Path

from engine import net
from engine.capture.postgres_log import scan
from engine.capture.postgres_log.scan import PgOutputScanner
from engine.model.batch import TaskDescriptor, TaskResult
from engine.net import run_task, spill_result, staging_prefix
from engine.queue import read_blocks
from engine.runtime.failpoints import Failpoint, arm_from_environment, hit

_scanner = PgOutputScanner()


@cache
def settle() -> None:
    """Load every kernel, once per process, and take what lives for good out of the garbage collector's sight.

    Spark collects garbage after each task: over all that the libraries keep, that takes longer than a small task itself.
    """
    import_module("engine.copy.chunk_task")
    scan.warm()
    net.warm()
    gc.collect()
    gc.freeze()


def net_here(descriptor: TaskDescriptor) -> TaskResult:
    """Scan, net and decode in this process; rows stay in memory."""
    return run_task(descriptor, read_blocks, _scanner)


def net_to_files(descriptor: TaskDescriptor) -> TaskResult:
    """The same; rows go to Arrow files in the descriptor's staging folder."""
    return spill_result(net_here(descriptor), descriptor.staging, staging_prefix(descriptor))


def net_task(descriptor: TaskDescriptor) -> TaskResult:
    """The same in a Spark worker."""
    settle()
    arm_from_environment()
    hit(Failpoint.TASK_RUNNING)
    return net_to_files(descriptor)


def sweep(staging: Path) -> None:
    """Remove what earlier batches or attempts left in a staging folder."""
    staging.mkdir(parents=True, exist_ok=True)
    for leftover in staging.iterdir():
        if leftover.is_file():
            leftover.unlink(missing_ok=True)
