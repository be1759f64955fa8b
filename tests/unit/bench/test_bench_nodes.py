"""The benchmark of several nodes: what it compares, and what it reports."""

from __future__ import annotations

from typing import Any

import pytest

from bench import budget, nodes, suite
from bench import workloads as catalogue
from bench.nodes import COUNTS, PLAIN, describe_round, never_lowered
from bench.report_tables import of_nodes
from bench.suite import Order
from bench.workload import Mode
from bench.workloads import WORKLOADS

NAMES = ("1 node", "2 nodes", "4 nodes")


def round_of(*rates: float) -> dict[str, Any]:
    """A round with these rates of one, two and four nodes."""
    sides = {name: {"records_per_s": rate} for name, rate in zip((PLAIN, *NAMES), (100.0, *rates), strict=True)}
    return {"sides": sides, "ratio": rates[0] / 100, "merge_share": 0.02, "merge_share_of_reader": 0.04}


@pytest.mark.parametrize(
    ("rates", "never"), [((90, 90, 120), True), ((90, 89, 120), False), ((90, 120, 119), False)], ids=str
)
def test_a_node_that_lowers_the_total_shows(rates: tuple[float, ...], never: bool) -> None:
    assert never_lowered([round_of(*rates)]) is never
    assert never_lowered([round_of(1, 2, 3), round_of(*rates), round_of(*rates)]) is never


def test_what_was_not_read_is_wrong() -> None:
    found = {
        count: ({"transactions": 9, "records": 1, "seconds": 1, "merge_s": 0, "cpu_s": 1, "senders_cpu_s": 1},) * 2
        for count in COUNTS
    }
    assert nodes._wrong([nodes._round(found, 9)]) == []
    assert len(nodes._wrong([nodes._round(found, 10)])) == len(COUNTS) + 1


def test_it_is_reported_with_the_waits() -> None:
    rounds = [round_of(90, 95, 120), round_of(80, 99, 130), round_of(85, 97, 125)]
    document = {"mode": "nodes", "sides": list(rounds[0]["sides"]), "rounds": rounds, "summary": suite.summary(rounds)}
    ((title, _, rows),) = of_nodes([{**document, "waits": {"nodes": 3, "p50_ms": 70.5}}])
    assert title == "Logs of several nodes"
    assert [list(row) for row in rows][1:] == [
        [PLAIN, 100.0],
        ["1 node", 85],
        ["2 nodes", 97],
        ["4 nodes", 125],
        ["share of the merge in the capture's processor time", "2.0%"],
        ["share of the merge in the reader's processor time", "4.0%"],
        ["median wait over 3 nodes, ms", 70.5],
    ]
    assert "2 nodes 95 records/s" in describe_round(rounds[0])


def test_it_runs_only_if_it_is_named_or_its_mode_is() -> None:
    workload = WORKLOADS["nodes"]
    assert (workload, Mode.NODES) not in catalogue.everything(None, quick=False)
    assert catalogue.everything(Mode.NODES, quick=True) == [(workload, Mode.NODES)]
    assert budget.seconds(workload, Order(quick=True)) < budget.seconds(workload, Order()) < 1800
