"""The backlog mode: log is written while both sides are paused, then each side drains it alone.

Both slots exist before the load, and the source's two sending processes are stopped while it is written, so both sides
read the same log. Then one sender is released and timed until the last row is visible on its target, then the other.
The order alternates. Start-up and resumption are therefore not part of the measured time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import psutil

from bench.contenders import NATIVE, PENSTOCK, PenstockSide, Side
from bench.environment import Held, Stage, wait_seen
from bench.errors import BenchError
from bench.facts import core_ms, load_average
from bench.processes import Usage
from bench.source_log import LogVolume, position, volume
from bench.workload import Made

Document = dict[str, Any]
Behind = Callable[[Stage, Document], None]

_WARM_UP_PART = 10


def rounds(
    stage: Stage, amount: int, count: int, say: Callable[[str], None], behind: Behind | None = None
) -> list[Document]:
    """Run `count` rounds and return the account of each. A small warm-up round comes first and is discarded.

    `behind` is called after every round, including the warm-up, and may add to its account.
    """
    say(f"{stage.workload.name}: warming up")
    small = one_round(stage, list(stage.sides.values()), max(1, amount // _WARM_UP_PART))
    if behind is not None:
        behind(stage, small)
    done: list[Document] = []
    for number in range(count):
        order = list(stage.sides.values())
        if number % 2:
            order.reverse()
        done.append(one_round(stage, order, amount))
        if behind is not None:
            behind(stage, done[-1])
        say(f"{stage.workload.name}: round {number + 1} of {count}: {line(done[-1])}")
    return done


def one_round(stage: Stage, order: Sequence[Side], amount: int) -> Document:
    """Write a backlog while all sides are held, and let them drain it one after the other."""
    stage.wait_until_idle()
    sides: Document = {}
    with stage.held() as held:
        before, began = position(stage.source), perf_counter()
        made = stage.workload.generate(stage.source, amount)
        took = perf_counter() - began
        marked = stage.mark()
        log = volume(stage.source, before, marked[1])
        # Flush what the load has left to write, so that this cost is not attributed to either side.
        stage.source.execute("CHECKPOINT")
        load, speed = load_average(), core_ms()
        for side in order:
            sides[side.name] = _drain(stage, side, held[side.name], marked, made, log)
    return {
        "transactions": made.transactions,
        "row_changes": made.row_changes,
        "generate_s": round(took, 2),
        "log": {"bytes": log.total, "full_page_image_bytes": log.images, "measured_with": "pg_waldump"},
        "order": [side.name for side in order],
        "load_average": load,
        "core_ms": speed,
        "sides": sides,
        **ratios(sides),
    }


def _drain(stage: Stage, side: Side, held: Held, marked: tuple[int, str], made: Made, log: LogVolume) -> Document:
    if stage.sender(side) != held.process.pid:
        raise BenchError(f"{side.name} has connected again while its sender was held")
    spilled = stage.spilled_bytes(side)
    first = side.last_batch() if isinstance(side, PenstockSide) else 0
    awaited = side.arm(*marked)
    os.sync()
    sampler = stage.sampler(side)
    sampler.start()
    before = _cpu_times(side, held)
    began = held.release()
    try:
        seconds = wait_seen(awaited) - began
    finally:
        usage = sampler.stop()
    after = _cpu_times(side, held)
    stage.rest()
    return {
        **account(seconds, made, log, usage),
        # The source's cost, split in two: user mode reads and decodes, kernel mode mostly sends.
        "walsender_cpu_s": {
            "user": round(after.user - before.user, 3),
            "system": round(after.system - before.system, 3),
        },
        "source_spilled_mb": round((stage.spilled_bytes(side) - spilled) / 1e6, 1),
        **({"batches": batches(side.batches(first))} if isinstance(side, PenstockSide) else {}),
    }


def batches(done: Sequence[Document]) -> Document:
    """The number of batches of a backlog, the size of the largest, and the total time of each stage.

    Stages overlap: a stage that is busy nearly all the time is the bottleneck.
    """
    stages = sorted({stage for batch in done for stage in batch["seconds"]} - {"capture_age"})
    return {
        "count": len(done),
        "most_transactions": max((batch["transactions"] for batch in done), default=0),
        "most_mb": round(max((batch["bytes"] for batch in done), default=0) / 1e6, 1),
        "by_path": dict(Counter(batch["path"] for batch in done)),
        "seconds": {stage: round(sum(batch["seconds"][stage] for batch in done), 3) for stage in stages},
    }


def _cpu_times(side: Side, held: Held) -> Any:
    try:
        return held.process.cpu_times()
    except psutil.NoSuchProcess:
        raise BenchError(f"{side.name} has connected again in the middle") from None


def account(seconds: float, made: Made, log: LogVolume, usage: Usage) -> Document:
    """The figures of one drain. 1 GB is 10**9 bytes; full-page images are not counted."""
    return {
        "seconds": round(seconds, 3),
        "transactions_per_s": round(made.transactions / seconds, 1),
        "rows_per_s": round(made.row_changes / seconds, 1),
        "log_gb_per_h": round(log.changes / 1e9 / seconds * 3600, 2),
        **usage.per_million(made.row_changes),
        **usage.document(),
    }


def ratios(sides: Document) -> Document:
    """Penstock relative to PostgreSQL: the ratio of the rates, and of the CPU times."""
    if not {PENSTOCK, NATIVE} <= set(sides):
        return {}
    ours, theirs = sides[PENSTOCK], sides[NATIVE]
    return {
        "ratio": round(theirs["seconds"] / ours["seconds"], 3),
        "cpu_ratio": round(ours["cpu_s_total"] / theirs["cpu_s_total"], 3) if theirs["cpu_s_total"] else None,
    }


def line(done: Document) -> str:
    """One line of text for one round."""
    parts = [
        f"{name} {side['rows_per_s']:,.0f} rows/s in {side['seconds']:.1f} s" for name, side in done["sides"].items()
    ]
    if "ratio" in done:
        parts.append(f"ratio {done['ratio']:.2f}, CPU ratio {done['cpu_ratio']}")
    return ", ".join(parts)
