"""Compile every numba kernel into the environment's cache, so that no user waits for it: `python -m engine.control.compile_kernels`."""

from __future__ import annotations

from engine import net
from engine.records import encode, scan
from engine.sources.postgres_log import frames

if __name__ == "__main__":
    scan.warm()
    encode.warm()
    frames.warm()
    net.warm()
