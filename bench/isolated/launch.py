"""Parts of the engine that are measured in a process of their own: `bench.isolated`."""

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
    """Run a module of that folder with this order, and return what it finds; `heard` gets each as it comes.

    Raises BenchError where the process does not end well.
    """
    found: list[Document] = []
    # It ends when its output is closed, or by itself after a time that is known beforehand.
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
