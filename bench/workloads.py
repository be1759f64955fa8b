"""Every workload of the suite, and what `run all` runs of them."""

from __future__ import annotations

from bench.bulk import HugeAborted, HugeTransaction, NightBatch, Tables500
from bench.captures import Triggers
from bench.initial_copy import InitialCopy
from bench.lanes import Lanes
from bench.nodes import Nodes
from bench.open_transactions import OpenTransactions
from bench.scaling import Scaling
from bench.small_transactions import CaptureOnly, Freshness, HotRows, HotRowsMany, Idle, Inserts, Tpcb, WideRows
from bench.table_life import TableLife
from bench.techniques import Techniques
from bench.tpcc.suite import Tpcc
from bench.workload import Mode, Workload

ONE_SIDED = frozenset(
    {Mode.IDLE, Mode.OPEN, Mode.TABLE_LIFE, Mode.TECHNIQUES, Mode.SCALING, Mode.LANES, Mode.CAPTURES, Mode.NODES}
)
"""Modes in which `run all` measures Penstock only: measuring PostgreSQL too would take time and add no information."""

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
        Triggers(),
        Nodes(),
        InitialCopy(),
    )
}

_ALSO = (("tpcb", Mode.SUSTAINED), ("tables-500", Mode.SUSTAINED))
"""Workloads that also run in a second mode if there is time."""
_FULL_ONLY = frozenset({Lanes.name, TableLife.name})
"""Workloads that small sizes leave out because their setup would take the available time."""


_NAMED_ONLY = frozenset({Triggers.name, Nodes.name, InitialCopy.name})
"""Workloads that run only if they are named, or their mode is: all others fill the time for everything."""


def everything(mode: Mode | None, *, quick: bool) -> list[tuple[Workload, Mode]]:
    """What `run all` runs, in order: each workload in its first mode, some in a second too.

    `mode`: only the workloads that have this mode, in it.
    """
    if mode is not None:
        return [(workload, mode) for workload in WORKLOADS.values() if mode in workload.modes]
    left_out = _NAMED_ONLY | (_FULL_ONLY if quick else frozenset())
    chosen = [workload for name, workload in WORKLOADS.items() if name not in left_out]
    first = [(workload, workload.modes[0]) for workload in chosen]
    return first if quick else [*first, *((WORKLOADS[name], also) for name, also in _ALSO)]
