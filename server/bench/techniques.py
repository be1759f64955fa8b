"""`techniques`: the same changes brought into the target in different ways. No source takes part."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any, ClassVar

from server.bench.errors import BenchError
from server.bench.small_transactions import Tpcb
from server.bench.workload import Mode, Size

Document = dict[str, Any]

_TIMEOUT_S = 900.0


class Techniques(Tpcb):
    """Changes as `tpcb` makes them, made up in the process that applies them. `seconds`: the most that each way may take."""

    name = "techniques"
    description = (
        "the same changes into DuckDB row by row, prepared, in large statements, in bulk; netted or not; by group size"
    )
    modes: ClassVar[tuple[Mode, ...]] = (Mode.TECHNIQUES,)
    full = Size(1_000_000, 10, rounds=1, seconds=5)
    quick = Size(200_000, 1, rounds=1, seconds=0.5)


def measure(size: Size, say: Callable[[str], None]) -> Document:
    """What each way does a second, in the order of their running; and whether all ended right."""
    found: list[Document] = []
    folder = tempfile.mkdtemp(prefix="penstock-bench-")
    # It ends when its output is closed, or by itself after a time that is known beforehand.
    process = subprocess.Popen(
        [sys.executable, "-m", "engine.runtime.alone.techniques"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        order = {"folder": folder, "scale": size.scale, "transactions": size.amount, "seconds": size.seconds}
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.close()
        for line in process.stdout:
            found.append(json.loads(line))
            say(f"techniques: {told(found[-1])}")
        if process.wait(_TIMEOUT_S) != 0:
            raise BenchError(f"the process that applies ended with {process.returncode}")
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)
    wrong = [f"the tables are not right after: {told(one)}" for one in found if not one["equal"]]
    return {"techniques": found, "rounds": [], "checks": {"equal": not wrong, "wrong": wrong}}


def told(one: Document) -> str:
    """One way for people."""
    netted = "netted" if one["netted"] else "every change"
    group = f"{one['transactions_per_commit']:,} transactions a commit"
    return f"{one['technique']}, {netted}, {group}: {one['rows_per_s']:,.0f} rows/s"
