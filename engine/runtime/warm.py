"""Compile every numba kernel into the environment's cache, so that no user waits for it: `python -m engine.runtime.warm`."""

from __future__ import annotations

from engine.net import warm

if __name__ == "__main__":
    warm()
