"""Every workload of the suite, and what `run all` runs of them."""

from __future__ import annotations

from bench.bulk import HugeAborted, HugeTransaction, NightBatch, Tables500
from bench.lanes import Lanes
from bench.open_transactions import OpenTransactions
from bench.scaling import Scaling
from bench.small_transactions import CaptureOnly, Freshness, HotRows, HotRowsMany, Idle, Inserts, Tpcb, WideRows
from bench.table_life import TableLife
from bench.techniques import Techniques
from bench.tpcc.suite import Tpcc
from bench.workload import Mode, Workload

ONE_SIDED = frozenset({Mode.IDLE, Mode.OPEN, Mode.TABLE_LIFE, Mode.TECHNIQUES, Mode.SCALING, Mode.LANES})
"""Modes in which `run all` measures us only: a second one would take its time and tell nothing."""

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Tpcb(),
        Tpcc(),
        Inserts(),
        NightBatch(),
        HotRows(),
        HotRowsMany(),
        WideRows(),
        Tables500(),
        HugeTransaction(),
        HugeAborted(),
        OpenTransactions(),
        Freshness(),
        TableLife(),
        Idle(),
        CaptureOnly(),
        Techniques(),
        Scaling(),
        Lanes(),
    )
}

_ALSO = (("tpcb", Mode.SUSTAINED), ("tables-500", Mode.SUSTAINED))
"""Run in a second mode, if there is the time."""
_FULL_ONLY = frozenset({Lanes.name, TableLife.name})
"""Left out of small sizes: beginning takes the time that is left there."""


def everything(mode: Mode | None, *, quick: bool) -> list[tuple[Workload, Mode]]:
    """What `run all` runs, in order: each workload in its first mode and some in another; or all that have the mode given."""
    if mode is not None:
        return [(workload, mode) for workload in WORKLOADS.values() if mode in workload.modes]
    chosen = [workload for name, workload in WORKLOADS.items() if not (quick and name in _FULL_ONLY)]
    first = [(workload, workload.modes[0]) for workload in chosen]
    return first if quick else [*first, *((WORKLOADS[name], also) for name, also in _ALSO)]
