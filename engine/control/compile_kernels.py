"""Compiles every numba kernel into the environment's cache, ahead of the first start: `python -m engine.control.compile_kernels`."""

from __future__ import annotations

from engine import net
from engine.connectors import SOURCE_KERNELS
from engine.records import encode, scan

if __name__ == "__main__":
    for warm in (scan.warm, encode.warm, *SOURCE_KERNELS, net.warm):
        warm()
