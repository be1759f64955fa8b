"""Runs one workload in one mode and makes the document of its result."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bench import (
    backlog,
    capture,
    captures,
    initial_copy,
    lanes,
    nodes,
    open_transactions,
    scaling,
    steady,
    table_life,
    techniques,
)
from bench import probes as watching
from bench.contenders import NATIVE, PENSTOCK, SUBSCRIBER_SETTINGS, PenstockSide
from bench.environment import Stage, sides_into
from bench.errors import BenchError
from bench.facts import machine
from bench.workload import Mode, Size, Workload
from server.cli.client import NoServerError, ProblemError
from server.cli.running import StartError
from server.clock import Clock, SystemClock
from server.demo.binaries import PostgresMissingError
from server.demo.embedded import PostgresFailedError

Document = dict[str, Any]

FORMAT = 1
_LOAD = "backlogs of pgbench are written with synchronous_commit = off, everything else as the source is set"
_APPLIED_IN = {"duckdb": ("auto", "batch")}
"""The apply modes of each kind of target that does not have all of them."""
_UNSUBSCRIBED = frozenset({Mode.TECHNIQUES, Mode.SCALING, Mode.CAPTURE})
_ALONE = frozenset({Mode.TABLE_LIFE, Mode.TECHNIQUES, Mode.SCALING, Mode.LANES, Mode.CAPTURES, Mode.NODES})
"""Modes that do not measure PostgreSQL's own replication."""
FAILURES = (BenchError, StartError, PostgresFailedError, PostgresMissingError, ProblemError, NoServerError)
"""Expected failures of a measurement; any other exception is a defect of the suite."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to run. None means the default of the workload, which is smaller with `quick`.

    Raises BenchError if the target does not have the apply mode.
    """

    mode: Mode | None = None
    against: bool = False
    target: str = "duckdb"
    apply: str = "auto"
    quick: bool = False
    verify: bool = True
    amount: int | None = None
    scale: int | None = None
    rounds: int | None = None
    seconds: float | None = None
    rate: float | None = None
    warm_up: float = 8.0
    waits: float = 20.0

    def __post_init__(self) -> None:
        fitting = _APPLIED_IN.get(self.target)
        if fitting is not None and self.apply not in fitting:
            raise BenchError(
                f"a target of the kind {self.target} cannot apply in the mode {self.apply}: it can in {' and '.join(fitting)};"
                " grouped, transactional and relaxed need the target postgres"
            )

    @property
    def rest_s(self) -> float:
        """Seconds for which a side may clean up after its drain before the next measurement."""
        return 1.0 if self.quick else 2.0

    def mode_of(self, workload: Workload) -> Mode:
        """The mode to run; BenchError if the workload does not have it."""
        mode = self.mode or workload.modes[0]
        if mode not in workload.modes:
            raise BenchError(f"{workload.name} has no mode {mode.value}; it has {', '.join(workload.modes)}")
        return mode

    def applied(self, mode: Mode) -> str:
        """The apply mode in the document. None for modes without a subscription, whatever the order says."""
        if mode is Mode.LANES:
            return lanes.APPLY
        return "auto" if mode in _UNSUBSCRIBED else self.apply

    def filled(self, mode: Mode) -> str:
        """The kind of target in the document."""
        return lanes.TARGET if mode is Mode.LANES else self.target

    def size(self, workload: Workload) -> Size:
        """The size of a run: the workload's, with the values that the order overrides."""
        own = workload.quick if self.quick else workload.full
        return Size(
            own.amount if self.amount is None else self.amount,
            own.scale if self.scale is None else self.scale,
            self.rounds or (1 if self.mode_of(workload) is Mode.SUSTAINED else own.rounds),
            own.seconds if self.seconds is None else self.seconds,
            own.rate if self.rate is None else self.rate,
        )


def run(workload: Workload, order: Order, say: Callable[[str], None], clock: Clock | None = None) -> Document:
    """Run it and return the document of its result.

    Raises:
        BenchError, StartError, PostgresFailedError, PostgresMissingError, ProblemError, NoServerError: it could not be measured.
    """
    mode, size = order.mode_of(workload), order.size(workload)
    names = [PENSTOCK, NATIVE] if order.against and mode not in _ALONE else [PENSTOCK]
    document: Document = {
        **_head(workload, mode, (clock or SystemClock()).now()),
        "quick": order.quick,
        "size": _size(workload, mode, size, order),
        "sides": names,
        "target": order.filled(mode),
        "apply": order.applied(mode),
        "limits_ms": dict(workload.limits_ms),
    }
    if mode is Mode.TECHNIQUES:
        document |= techniques.measure(size, say)
    elif mode is Mode.LANES:
        document |= lanes.measure(workload, size, order.rest_s, say, verify=order.verify)
    elif mode is Mode.CAPTURES:
        steady_ones = captures.Steady(size.rate, order.waits, order.warm_up, size.seconds)
        document |= captures.measure(workload, size, steady_ones, order.rest_s, say, verify=order.verify)
    elif mode is Mode.NODES:
        document |= nodes.measure(workload, size, order.waits, say)
    elif mode is Mode.COPY:
        side_of = sides_into(order.target, order.apply)
        stage = Stage(workload, size.scale, [], say, rest_s=order.rest_s)
        document |= initial_copy.measure(stage, side_of, names, size.rounds, say, verify=order.verify)
    elif mode is Mode.SCALING:
        document |= scaling.measure(workload, size, order.rest_s, say)
    elif mode is Mode.CAPTURE:
        document |= _capture(workload, size, order, names, say)
    elif mode is Mode.BACKLOG:
        document |= _backlog(workload, size, order, names, say)
    else:
        document |= _apart(workload, mode, size, order, names, say)
    document["summary"] = summary(document["rounds"])
    return document


def failure(workload: Workload, order: Order, text: str, clock: Clock | None = None) -> Document:
    """The document of a failed run; `text` says why."""
    mode = order.mode_of(workload)
    return {
        **_head(workload, mode, (clock or SystemClock()).now()),
        "failed": text,
        "sides": [],
        "target": order.filled(mode),
        "apply": order.applied(mode),
        "rounds": [],
        "summary": {},
    }


def _head(workload: Workload, mode: Mode, began: datetime) -> Document:
    return {
        "format": FORMAT,
        "workload": workload.name,
        "description": workload.description,
        "mode": mode.value,
        "started_at": began.isoformat(timespec="seconds"),
        "machine": machine(),
    }


def _size(workload: Workload, mode: Mode, size: Size, order: Order) -> Document:
    if mode is Mode.IDLE:
        return {"seconds": size.seconds}
    if mode is Mode.SUSTAINED:
        steady_ones = {"rate": size.rate, "waits_per_s": order.waits, "warm_up_s": order.warm_up}
        return {"scale": size.scale, "seconds": size.seconds, "rounds": size.rounds, **steady_ones}
    if mode is Mode.TECHNIQUES:
        return {"amount": size.amount, "unit": workload.unit, "scale": size.scale, "seconds_each": size.seconds}
    if mode is Mode.LANES:
        counted = {"amount": size.amount, "unit": workload.unit, "scale": size.scale, "rounds": size.rounds}
        return {**counted, "seconds_each_usual_way": size.seconds}
    if mode is Mode.COPY:
        return {"scale": size.scale, "rows": initial_copy.rows(size.scale), "rounds": size.rounds}
    if mode is Mode.NODES:
        counted = {"amount": size.amount, "unit": workload.unit, "rounds": size.rounds}
        return {**counted, "rate": size.rate, "waits_per_s": order.waits, "seconds": size.seconds}
    if mode is Mode.CAPTURES:
        beside = {"rate": size.rate, "waits_per_s": order.waits, "seconds": size.seconds}
        return {"amount": size.amount, "unit": workload.unit, "scale": size.scale, "rounds": size.rounds, **beside}
    if mode is Mode.TABLE_LIFE:
        beside = {"rate": size.rate, "waits_per_s": order.waits, "seconds": 2 * size.seconds}
        return {"amount": size.amount, "unit": workload.unit, "scale": size.scale, "rounds": size.rounds, **beside}
    if mode is Mode.OPEN:
        beside = {"rate": size.rate, "waits_per_s": order.waits, "seconds": size.seconds}
        return {"amount": size.amount, "unit": workload.unit, "tables": size.scale, "rounds": size.rounds, **beside}
    return {"amount": size.amount, "unit": workload.unit, "scale": size.scale, "rounds": size.rounds}


def _backlog(
    workload: Workload, size: Size, order: Order, names: Sequence[str], say: Callable[[str], None]
) -> Document:
    side_of = sides_into(order.target, order.apply)
    with Stage(workload, size.scale, names, say, side_of=side_of, rest_s=order.rest_s) as stage:
        settings = _settings(stage)
        rounds = backlog.rounds(stage, size.amount, size.rounds, say)
        return {"clusters": settings, "rounds": rounds, "checks": _checks(stage, order, say)}


def _capture(
    workload: Workload, size: Size, order: Order, names: Sequence[str], say: Callable[[str], None]
) -> Document:
    with Stage(workload, size.scale, names, say, side_of=capture.side, rest_s=order.rest_s) as stage:
        settings = {"source": stage.settings(), "load": _LOAD}
        decoding = capture.Decoding(stage)
        rounds = backlog.rounds(stage, size.amount, size.rounds, say, decoding.behind)
    return {
        "clusters": settings,
        "rounds": rounds,
        "checks": {"equal": not decoding.wrong, "wrong": decoding.wrong},
    }


def _apart(
    workload: Workload, mode: Mode, size: Size, order: Order, names: Sequence[str], say: Callable[[str], None]
) -> Document:
    """Modes in which each side needs the machine to itself: each gets a stage of its own, one after the other."""
    rounds: list[Document] = [{"sides": {}} for _ in range(size.rounds)]
    settings: Document = {}
    checks: Document = {}
    side_of = sides_into(order.target, order.apply)
    for name in names:
        with Stage(workload, size.scale, [name], say, side_of=side_of, rest_s=order.rest_s) as stage:
            settings = settings or _settings(stage)
            if mode is Mode.LIVE:
                watching.warm_up(stage, size.amount)
            for number, round_ in enumerate(rounds):
                round_["sides"][name] = _measure_side(stage, mode, size, order, name)
                say(f"{workload.name}: round {number + 1} of {size.rounds}: {name} {outline(round_['sides'][name])}")
            checks |= _checks(stage, order, say)
    return {"clusters": settings, "rounds": rounds, "checks": checks}


def _measure_side(stage: Stage, mode: Mode, size: Size, order: Order, name: str) -> Document:
    side = stage.sides[name]
    if mode is Mode.LIVE:
        return watching.live(stage, side, size.amount)
    if mode is Mode.IDLE:
        return watching.idle(stage, side, size.seconds)
    if mode is Mode.TABLE_LIFE and isinstance(side, PenstockSide):
        return table_life.measure(stage, side, size, order.waits, order.warm_up)
    if mode is Mode.OPEN:
        return open_transactions.measure(stage, side, size, order.waits)
    return steady.measure(stage, side, rate=size.rate, waits=order.waits, warm_up=order.warm_up, seconds=size.seconds)


def _settings(stage: Stage) -> Document:
    return {
        "source": stage.settings(),
        "subscriber": {**SUBSCRIBER_SETTINGS, "same_settings_as_source": True, "streaming": "on"},
        "load": _LOAD,
    }


def _checks(stage: Stage, order: Order, say: Callable[[str], None]) -> Document:
    """The comparison of our copy with the source, and the workload's own checks. {} if the order disables them."""
    side = stage.penstock
    if side is None or not order.verify:
        return {}
    stage.wait_until_idle()
    say(f"{stage.workload.name}: comparing source and copy")
    with stage.connect() as connection:
        wrong = stage.workload.check(connection, side.query)
    return {"equal": side.verify(), "wrong": wrong}


def is_good(document: Document) -> bool:
    """Whether the result is sound, and the waits were within the workload's limits."""
    return sound(document) and not late(document)


def sound(document: Document) -> bool:
    """Whether it was measured, every comparison was equal, and every wait was answered."""
    checks = document.get("checks") or {}
    sides = [side for round_ in document["rounds"] for side in round_["sides"].items() if "waits" in side[1]]
    failed = any(side["waits"]["failed"] or not side["waits"]["count"] for _, side in sides)
    return "failed" not in document and checks.get("equal", True) and not checks.get("wrong") and not failed


def late(document: Document) -> dict[str, float]:
    """Percentiles of our waits that were over their limit in any round: names and limits."""
    ours = [round_["sides"][PENSTOCK] for round_ in document["rounds"] if PENSTOCK in round_["sides"]]
    limits = (document.get("limits_ms") or {}).items()
    return {key: most for key, most in limits if any(side["waits"][key] > most for side in ours if "waits" in side)}


def outline(side: Document) -> str:
    """One line of text for a measurement in a mode other than backlog."""
    if "waits" in side:
        waits = side["waits"]
        if "p99_rise" in side:
            quiet = side["waits_quiet"]
            both = [f"{key} {quiet[f'{key}_ms']:.0f} to {waits[f'{key}_ms']:.0f} ms" for key in ("p50", "p95", "p99")]
            return f"{side['rounds_of_life']} rounds of a table's life; waits of the others {', '.join(both)}"
        times = ", ".join(f"{name} {waits[f'{name}_ms']:.0f} ms" for name in ("p50", "p95", "p99", "max"))
        if "all_visible_s" in side:
            memory = f"{side['peak_pss_mb_total']:,.0f} MB, {side['memory_growth_while_open_mb']:+.0f} MB while open"
            return f"waits: {times}; all visible after {side['all_visible_s']:.1f} s; {memory}"
        return f"{side['transactions_per_s']:,.0f} transactions/s, waits: {times}, {waits['failed']} failed"
    if "commit_to_visible_s" in side:
        sent = (
            f", {side['commit_to_sent_s']:.2f} s of it until the source had sent it"
            if "commit_to_sent_s" in side
            else ""
        )
        return f"{side['commit_to_visible_s']:.2f} s from commit to visible{sent}, {side['peak_pss_mb_total']:,.0f} MB"
    return f"{side['cpu_percent_total']:.1f} % of a core, {side['memory_growth_mb']:+.1f} MB"


def summary(rounds: Sequence[Document]) -> Document:
    """Medians over the rounds, by side, of the figures that all rounds have; and of the ratios."""
    names = list(rounds[0]["sides"]) if rounds else []
    result: Document = {name: _medians([round_["sides"][name] for round_ in rounds]) for name in names}
    for key in ("ratio", "cpu_ratio"):
        values = [round_[key] for round_ in rounds if round_.get(key) is not None]
        if values:
            result[key] = {"median": round(statistics.median(values), 3), "rounds": values}
    return result


def _medians(documents: Sequence[Document]) -> Document:
    result: Document = {}
    for key, value in documents[0].items():
        values = [document.get(key) for document in documents]
        if isinstance(value, dict):
            inner = _medians([document.get(key) or {} for document in documents])
            if inner:
                result[key] = inner
        elif all(isinstance(one, int | float) for one in values):
            result[key] = round(statistics.median(one for one in values if one is not None), 3)
    return result
