"""Starts the modules of `bench.isolated`, which measure parts of the engine in separate processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bench.errors import BenchError

Document = dict[str, Any]

_TIMEOUT_S = 900.0


def results(module: str, order: Document, heard: Callable[[Document], None]) -> list[Document]:
    """Run a module of `bench.isolated` with this order; returns its results. `heard` is called with each as it arrives.

    Raises BenchError if the process fails.
    """
    found: list[Document] = []
    # The child ends when its output is closed, or by itself after a known time.
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", f"bench.isolated.{module}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.close()
        for line in process.stdout:
            found.append(json.loads(line))
            heard(found[-1])
        if process.wait(_TIMEOUT_S) != 0:
            raise BenchError(f"the process of {module} ended with {process.returncode}")
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    return found
