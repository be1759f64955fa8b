"""Functions that tasks execute. Spark workers import them by name; the engine process calls them directly."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from engine import net
from engine.model.batch import TaskDescriptor, TaskResult
from engine.net import run_task, spill_result, staging_prefix
from engine.platform.failpoints import Failpoint, arm_from_environment, hit
from engine.queue import read_blocks
from engine.records import scan
from engine.records.scan import RecordScanner

_scanner = RecordScanner()


@cache
def load_kernels() -> None:
    """Load every kernel, once per process, and exclude the objects that exist by then from garbage collection.

    Spark collects garbage after each task; over all objects of the libraries, that takes longer than a small task.
    """
    import_module("engine.copy.split_task")
    scan.warm()
    net.warm()
    gc.collect()
    gc.freeze()


def net_here(descriptor: TaskDescriptor) -> TaskResult:
    """Scan, net and decode in this process; rows stay in memory."""
    return run_task(descriptor, read_blocks, _scanner)


def net_all_here(descriptors: Sequence[TaskDescriptor]) -> list[TaskResult]:
    """Process a whole batch in this process. The rows of a single task stay in memory until their commit. With several tasks, which have
    many or large rows, the rows of each are written to files before the next task begins."""
    work = net_here if len(descriptors) == 1 else _net_to_files
    return [work(descriptor) for descriptor in descriptors]


def net_task(descriptor: TaskDescriptor) -> TaskResult:
    """Scan, net and decode in a Spark worker; rows are written to files."""
    load_kernels()
    arm_from_environment()
    hit(Failpoint.TASK_RUNNING)
    return _net_to_files(descriptor)


def _net_to_files(descriptor: TaskDescriptor) -> TaskResult:
    """As `net_here`, with the rows in Arrow files in the descriptor's staging folder."""
    return spill_result(net_here(descriptor), descriptor.staging, staging_prefix(descriptor))


def sweep(staging: Path) -> None:
    """Create the staging folder if it does not exist, and remove the files that earlier batches or attempts left in it."""
    staging.mkdir(parents=True, exist_ok=True)
    for leftover in staging.iterdir():
        if leftover.is_file():
            leftover.unlink(missing_ok=True)
