"""Compiles every numba kernel into the environment's cache, ahead of the first start: `python -m engine.control.compile_kernels`."""

from __future__ import annotations

from engine import net
from engine.connectors import SOURCES
from engine.records import change_counts, encode, scan

if __name__ == "__main__":
    for warm in (
        scan.warm,
        change_counts.warm,
        encode.warm,
        *(kind.compile_kernels for kind in SOURCES.values()),
        net.warm,
    ):
        warm()
