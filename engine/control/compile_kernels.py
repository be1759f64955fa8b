"""Compiles every numba kernel into the environment's cache, ahead of the first start: `python -m engine.control.compile_kernels`."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from engine import net
from engine.connectors import SOURCES
from engine.records import change_counts, encode, row_digest, scan


def _compile_records() -> None:
    for warm in (
        scan.warm,
        change_counts.warm,
        encode.warm,
        row_digest.warm,
        *(kind.compile_kernels for kind in SOURCES.values()),
    ):
        warm()


if __name__ == "__main__":
    # Two halves of the same length.
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for half in [pool.submit(_compile_records), pool.submit(net.warm)]:
            half.result()
