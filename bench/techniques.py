"""`techniques`: the same changes applied to the target by different methods, without a source."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from typing import Any, ClassVar

from bench.isolated.launch import results
from bench.small_transactions import Tpcb
from bench.workload import Mode, Size

Document = dict[str, Any]


class Techniques(Tpcb):
    """Changes like those of `tpcb`, generated in the process that applies them. `seconds`: maximum time of each method."""

    name = "techniques"
    description = (
        "the same changes into DuckDB row by row, prepared, in large statements, in bulk; netted or not; by group size"
    )
    modes: ClassVar[tuple[Mode, ...]] = (Mode.TECHNIQUES,)
    full = Size(1_000_000, 10, rounds=1, seconds=5)
    quick = Size(200_000, 1, rounds=1, seconds=0.5)


def measure(size: Size, say: Callable[[str], None]) -> Document:
    """The rate of each method in execution order, and whether the tables were right after every one."""
    folder = tempfile.mkdtemp(prefix="penstock-bench-")
    order = {"folder": folder, "scale": size.scale, "transactions": size.amount, "seconds": size.seconds}
    try:
        found = results("techniques", order, lambda one: say(f"techniques: {describe_technique(one)}"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    wrong = [f"the tables are not right after: {describe_technique(one)}" for one in found if not one["equal"]]
    return {"techniques": found, "rounds": [], "checks": {"equal": not wrong, "wrong": wrong}}


def describe_technique(one: Document) -> str:
    """One line of text for the result of one method."""
    netted = "netted" if one["netted"] else "every change"
    group = f"{one['transactions_per_commit']:,} transactions a commit"
    return f"{one['technique']}, {netted}, {group}: {one['rows_per_s']:,.0f} rows/s"
