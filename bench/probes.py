"""The live mode (rows are replicated while the load writes; timed from its last commit) and the idle mode."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import Any

from bench.contenders import DRAIN_TIMEOUT_S, Side, wait_until
from bench.environment import Stage, wait_seen
from bench.facts import load_average
from bench.processes import Usage
from bench.source_log import position, volume
from engine.model.position import Lsn

Document = dict[str, Any]

_DIGEST_SHARE = 0.2
_QUIET_MOST_S = 60.0
_WARM_UP_PART = 20


def warm_up(stage: Stage, amount: int) -> None:
    """Write a small part of the `live` load without measuring, so that no side is timed from its first batch."""
    stage.workload.generate(stage.source, max(1, amount // _WARM_UP_PART))
    stage.wait_until_idle()


def live(stage: Stage, side: Side, amount: int) -> Document:
    """Write `amount` while the side follows; the result is the time from the last commit until it is visible."""
    stage.wait_until_idle()
    spilled = stage.spilled_bytes(side)
    sampler = stage.sampler(side)
    sampler.start()
    before, began = position(stage.source), perf_counter()
    try:
        made = stage.workload.generate(stage.source, amount)
        committed = perf_counter()
        number, reached = stage.mark()
        awaited = side.arm(number, reached)
        wait_until(lambda: stage.sent(side) >= Lsn.parse(reached), DRAIN_TIMEOUT_S, "the source has sent everything")
        sent = perf_counter()
        visible = wait_seen(awaited)
    finally:
        usage = sampler.stop()
    log = volume(stage.source, before, reached)
    return {
        "transactions": made.transactions,
        "row_changes": made.row_changes,
        "generate_s": round(committed - began, 2),
        "commit_to_visible_s": round(visible - committed, 3),
        # Before this time the source's sender had not sent the row, so no side could have had it.
        "commit_to_sent_s": round(sent - committed, 3),
        "seconds": round(visible - began, 2),
        "rows_per_s": round(made.row_changes / (visible - began), 1),
        "log": {"bytes": log.total, "full_page_image_bytes": log.images, "measured_with": "pg_waldump"},
        "source_spilled_mb": round((stage.spilled_bytes(side) - spilled) / 1e6, 1),
        **usage.per_million(made.row_changes),
        "load_average": load_average(),
        **usage.document(),
    }


def idle(stage: Stage, side: Side, seconds: float) -> Document:
    """The cost of a side while nothing is written, some time after its start."""
    stage.wait_until_idle()
    threading.Event().wait(min(_QUIET_MOST_S, seconds / 4))
    sampler = stage.sampler(side)
    sampler.start()
    threading.Event().wait(seconds)
    usage = sampler.stop()
    percent = {role: round(value / usage.seconds * 100, 2) for role, value in usage.cpu_s.items()}
    return {
        "seconds": round(usage.seconds, 1),
        "cpu_percent": percent,
        "cpu_percent_total": round(usage.document()["cpu_s_total"] / usage.seconds * 100, 2),
        "memory_growth_mb": round(growth(usage) / 1e6, 1),
        **usage.document(),
    }


def growth(usage: Usage) -> float:
    """Growth of memory in bytes: the mean of the last fifth of the time less that of the first."""
    values = [value for _, value in usage.memory]
    part = max(1, int(len(values) * _DIGEST_SHARE))
    if not values:
        return 0.0
    return sum(values[-part:]) / part - sum(values[:part]) / part
