"""`scaling`: the Spark stages on one core and on two, over a backlog captured beforehand."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, ClassVar

from bench import capture
from bench.contenders import PENSTOCK, declared
from bench.environment import Stage
from bench.isolated.launch import results
from bench.small_transactions import Tpcb
from bench.workload import Mode, Size, Table, Workload

Document = dict[str, Any]

CORES = (1, 2)
"""Numbers of cores. Their order alternates from round to round, so that drift affects both alike."""
JOBS = 3
"""Jobs with each number of cores, in each round."""
_BATCH_BYTES = 4 * 1024 * 1024


class Scaling(Tpcb):
    """The speed-up by a second core when only Spark works."""

    name = "scaling"
    description = "scan, net change, decoding and staging of a landed tpcb backlog by Spark: on one core, on two"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.SCALING,)
    full = Size(200_000, 20, rounds=2)
    quick = Size(20_000, 2, rounds=1)


def measure(workload: Workload, size: Size, rest_s: float, say: Callable[[str], None]) -> Document:
    """The duration of every job, rows a second by number of cores, and the ratio of two cores to one."""
    with Stage(workload, size.scale, [PENSTOCK], say, side_of=capture.side, rest_s=rest_s) as stage:
        reader = stage.sides[PENSTOCK]
        if not isinstance(reader, capture.ReaderSide):
            raise AssertionError("the side that lands")
        workload.generate(stage.source, size.amount)
        stage.wait_until_idle()
        folder = reader.leave()
        order = {
            "folder": str(folder),
            "source": reader.connection,
            "tables": [declared(table) for table in (*workload.tables(), Table("marks"))],
            "batch_bytes": _BATCH_BYTES,
            "cores": [cores for number in range(size.rounds) for cores in (CORES[::-1] if number % 2 else CORES)],
            "rounds": JOBS,
        }
        found = results("scaling", order, lambda one: say(f"scaling: {describe_job(one)}"))
    return {"scaling": found, "rounds": [], "checks": {}, "rows_per_s": rates(found), "scaling_ratio": ratio(found)}


def rates(found: list[Document]) -> Document:
    """Median rows a second, by number of cores."""
    by_cores: dict[int, list[float]] = {}
    for one in found:
        by_cores.setdefault(one["cores"], []).append(one["rows"] / one["seconds"])
    return {str(cores): round(statistics.median(values)) for cores, values in sorted(by_cores.items())}


def ratio(found: list[Document]) -> float:
    """Throughput of two cores divided by that of one."""
    found_rates = rates(found)
    return round(float(found_rates["2"]) / float(found_rates["1"]), 2)


def describe_job(one: Document) -> str:
    """One line of text for one job."""
    cores = "1 core" if one["cores"] == 1 else f"{one['cores']} cores"
    return f"{cores}, {one['tasks']} tasks: {one['rows'] / one['seconds']:,.0f} rows/s, {one['cpu_s']:.1f} CPU s"
