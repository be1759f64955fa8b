"""Facts about the machine of a measurement."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

_STEPS = 500_000
_PACKAGES = ("penstock", "pyspark", "duckdb", "numba", "pyarrow")


def machine() -> dict[str, Any]:
    """Processor, memory, kernel, and the versions of the software measured."""
    return {
        "cores": os.cpu_count(),
        "cpu": cpu_model(_text("/proc/cpuinfo")),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "load_average": load_average(),
        "core_ms": core_ms(),
    }


def load_average() -> list[float]:
    """The machine's load over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def core_ms() -> float:
    """Milliseconds of CPU time for a fixed computation: the current speed of a core, including the effect of other guests."""
    began = time.thread_time()
    sum(number * number for number in range(_STEPS))
    return round((time.thread_time() - began) * 1000, 1)


def cpu_model(cpuinfo: str) -> str:
    """The processor's name, from the text of `/proc/cpuinfo`; "unknown" if it has none."""
    for line in cpuinfo.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() in {"model name", "Model"}:
            return value.strip()
    return platform.processor() or "unknown"


def _text(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError:
        return ""
