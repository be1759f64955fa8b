"""Compile every numba kernel into the environment's cache, so that no user waits for it: `python -m engine.runtime.warm`."""

from __future__ import annotations

from engine import net
from engine.capture.postgres_log import frames, scan

if __name__ == "__main__":
    scan.warm()
    frames.warm()
    net.warm()
