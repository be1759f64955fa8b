"""Estimates how long a measurement takes on two cores, from rates measured once and rounded to the slow side. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench import captures, initial_copy, lanes, nodes, scaling, table_life
from bench.contenders import NATIVE, PENSTOCK
from bench.round_trips import FORMS
from bench.suite import Order
from bench.workload import Mode, Size, Workload
from bench.workloads import ONE_SIDED

_SOURCE_S, _OURS_S, _NATIVE_S = 3.0, 13.0, 2.0
"""Seconds to set up and remove a source, and each of its sides."""
_VERIFY_S, _VERIFIED_ROWS_S = 3.0, 400_000.0
_MARK_S = 0.5
"""Seconds of a round in addition to its rests."""
_OUR_ROWS_S, _NATIVE_ROWS_S = 160_000.0, 80_000.0
_COPIED_ROWS_S = 80_000.0
"""Rows a second of a table that is copied three times under load."""
_OPEN_ROWS_S = 20_000.0
"""Rows a second of transactions that were open for long, over very many tables."""
_WARM_UP_PART = 0.1
_SMALL_PART = 0.05
_WAYS = 18
"""Number of techniques."""
_SESSION_S = 10.0
"""Seconds to start and stop a Spark session."""
_FIRST_COPY_S = {PENSTOCK: 0.8, NATIVE: 1.5, initial_copy.COPY_OUT: 0.3}
"""Seconds in which a side copies both tables of one step of the scale, and its copies are compared. Not measured at full size."""
_TO_COPY_S = 1.0
"""Seconds to fill the tables of one step."""
_LANES_WRITTEN_S, _LANES_APPLIED_S, _LANES_BEGIN_S = 8_000.0, 5_000.0, 4.0
"""Transactions a second on the source and on the target, and seconds to restart the subscription."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Units that the source writes per second, row changes of each, and seconds to fill each step of the scale."""

    written: float
    changes: float
    filling_s: float = 0.0


_PACES = {
    "tpcb": Pace(3_000, 4, 0.5),
    "capture-only": Pace(3_000, 4, 0.5),
    "tpcc": Pace(900, 15, 6),
    "inserts": Pace(4_000, 4),
    "night-batch": Pace(1.5, 50_000, 0.5),
    "hot-rows": Pace(2_500, 4),
    "hot-rows-many": Pace(2_500, 4),
    "wide-rows": Pace(1_200, 4, 0.2),
    "tables-500": Pace(300, 200, 0.04),
    "huge-transaction": Pace(200_000, 1),
    "huge-aborted": Pace(200_000, 0),
    "table-life": Pace(3_000, 4, 0.5),
    "open-transactions": Pace(300, 50, 0.1),
}


def seconds(workload: Workload, order: Order) -> float:
    """Estimated duration of a run, in seconds."""
    mode, size = order.mode_of(workload), order.size(workload)
    if mode is Mode.TECHNIQUES:
        return _WAYS * (size.seconds + 1)
    if mode is Mode.LANES:
        return _SOURCE_S + _OURS_S + _VERIFY_S + size.rounds * _lanes_round(size, order.rest_s)
    if mode is Mode.CAPTURES:
        return _captures(_PACES.get(workload.name, _PACES["tpcb"]), size, order)
    if mode is Mode.COPY:
        return _first_copies(size, order)
    if mode is Mode.NODES:
        written = size.rounds * len(nodes.COUNTS) * size.amount / _PACES["tpcb"].written
        return 4 * _SOURCE_S + 2 * written + _OURS_S + size.seconds + _VERIFY_S
    if mode is Mode.SCALING:
        jobs = scaling.JOBS * size.amount / 100_000
        return _SOURCE_S + size.amount / 3_000 + size.rounds * len(scaling.CORES) * (_SESSION_S + jobs)
    pace = _PACES.get(workload.name, Pace(1_000, 4))
    both = order.against and mode not in ONE_SIDED
    ours = _NATIVE_S if mode is Mode.CAPTURE else _OURS_S
    started = (ours, _NATIVE_S) if both else (ours,)
    filled = _SOURCE_S + pace.filling_s * size.scale
    verify = _VERIFY_S + size.rounds * size.amount * pace.changes / _VERIFIED_ROWS_S if order.verify else 0.0
    if mode in {Mode.BACKLOG, Mode.CAPTURE}:
        return filled + sum(started) + verify + _drains(pace, size, order.rest_s, both=both)
    return sum(filled + side + _measured(mode, pace, size, order) for side in started) + verify


def _lanes_round(size: Size, rest_s: float) -> float:
    written = size.amount * (1 + _WARM_UP_PART) * (1 / _LANES_WRITTEN_S + 1 / _LANES_APPLIED_S)
    usual = len(FORMS) * 2 * (size.seconds + _MARK_S)
    return len(lanes.WAYS) * (_LANES_BEGIN_S + rest_s + written) + usual


def _first_copies(size: Size, order: Order) -> float:
    starts = {PENSTOCK: _OURS_S, **({NATIVE: _NATIVE_S} if order.against else {}), initial_copy.COPY_OUT: 0.0}
    begun = len(initial_copy.rows(size.scale)) * sum(start + order.rest_s for start in starts.values())
    copied = size.scale * sum(_FIRST_COPY_S[name] for name in starts)
    return _SOURCE_S + size.scale * _TO_COPY_S + size.rounds * (begun + copied)


def _captures(pace: Pace, size: Size, order: Order) -> float:
    followed = len(captures.FOLLOWED)
    started = len(captures.WAYS) * (_SOURCE_S + pace.filling_s * size.scale) + followed * _OURS_S
    written = size.amount * (size.rounds + _WARM_UP_PART) * len(captures.WAYS) / pace.written
    read = followed * size.amount * (size.rounds + _WARM_UP_PART) * pace.changes / _OUR_ROWS_S
    rests = (size.rounds + 1) * len(captures.WAYS) * (2 * order.rest_s + _MARK_S)
    return started + written + read + rests + followed * (size.seconds + order.warm_up + _VERIFY_S)


def _drains(pace: Pace, size: Size, rest_s: float, *, both: bool) -> float:
    rows = size.amount * pace.changes
    read = rows / _OUR_ROWS_S + (rows / _NATIVE_ROWS_S if both else 0.0)
    rests = (3 if both else 2) * rest_s + _MARK_S
    return (size.rounds + _WARM_UP_PART) * (size.amount / pace.written + read) + (size.rounds + 1) * rests


def _measured(mode: Mode, pace: Pace, size: Size, order: Order) -> float:
    if mode is Mode.SUSTAINED:
        return size.rounds * (size.seconds + order.warm_up + 1)
    if mode is Mode.TABLE_LIFE:
        turns = max(1, round(size.seconds / table_life.TURN_S))
        ends = turns * (table_life.SETTLE_S + size.amount / _COPIED_ROWS_S)
        return size.rounds * (2 * size.seconds + order.warm_up + ends)
    if mode is Mode.OPEN:
        decided = size.amount / pace.written
        return size.rounds * (1.25 * size.seconds + 2 * decided + size.amount * pace.changes / _OPEN_ROWS_S)
    if mode is Mode.IDLE:
        return size.rounds * (size.seconds + min(60.0, size.seconds / 4) + order.rest_s)
    once = size.amount / pace.written + size.amount * pace.changes / _NATIVE_ROWS_S
    return (size.rounds + _SMALL_PART) * once + (size.rounds + 2) * order.rest_s


def plan(chosen: Sequence[tuple[Workload, Order]]) -> str:
    """Text for the user: what will be run, and the estimated duration."""
    parts = [(f"{one.name} {order.mode_of(one).value}", seconds(one, order)) for one, order in chosen]
    listed = ", ".join(f"{name} {clock(took)}" for name, took in parts)
    return f"about {clock(sum(took for _, took in parts))} on two quiet cores: {listed}"


def clock(took: float) -> str:
    """A duration as minutes and seconds."""
    minutes, rest = divmod(round(took), 60)
    return f"{minutes}:{rest:02d}"
