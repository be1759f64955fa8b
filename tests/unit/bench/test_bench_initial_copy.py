"""The benchmark of first copies: its sizes, what it compares, and what it reports."""

from __future__ import annotations

from typing import Any

import pytest

from bench import budget, initial_copy, suite
from bench import workloads as catalogue
from bench.captures import turn
from bench.contenders import NATIVE, PENSTOCK
from bench.facts import machine
from bench.initial_copy import COPY_OUT, InitialCopy, compare, describe_copies
from bench.report import markdown
from bench.report_tables import of_initial_copies
from bench.suite import Order
from bench.workload import Mode
from bench.workloads import WORKLOADS

WAYS = (PENSTOCK, NATIVE, COPY_OUT)
ACCOUNTS, WIDE = "pgbench_accounts", "wide"


def figures_of(rows: int, seconds: float, memory_mb: float) -> dict[str, Any]:
    """The figures of one copy."""
    rate = {"rows": rows, "seconds": seconds, "rows_per_s": rows / seconds}
    return {**rate, "source_cpu_s": 12.5, "cpu_s_total": 30.0, "peak_pss_mb_total": memory_mb}


def round_of(ours: float) -> dict[str, Any]:
    """A round in which our copy of the accounts takes this number of seconds."""
    sides: dict[str, Any] = {
        PENSTOCK: {ACCOUNTS: figures_of(20_000_000, ours, 1500.0), WIDE: figures_of(5_000_000, 100.0, 2600.0)},
        NATIVE: {ACCOUNTS: figures_of(20_000_000, 90.0, 700.0), WIDE: figures_of(5_000_000, 150.0, 700.0)},
        COPY_OUT: {ACCOUNTS: figures_of(20_000_000, 15.0, 5.0), WIDE: figures_of(5_000_000, 50.0, 5.0)},
    }
    for table in (ACCOUNTS, WIDE):
        compare(sides, table)
    return {"sides": sides}


def document_of(*rounds: dict[str, Any]) -> dict[str, Any]:
    return {
        "workload": "initial-copy",
        "mode": "copy",
        "target": "duckdb",
        "machine": machine(),
        "sides": list(WAYS),
        "rounds": list(rounds),
        "summary": suite.summary(rounds),
        "checks": {"equal": True, "wrong": []},
    }


def test_the_full_size_is_that_of_the_goals() -> None:
    assert initial_copy.rows(InitialCopy.full.scale) == {ACCOUNTS: 20_000_000, WIDE: 5_000_000}
    assert [table.name for table in InitialCopy().tables()] == [ACCOUNTS, WIDE]
    assert InitialCopy.full.rounds >= len(WAYS)


def test_each_side_is_first_in_turn() -> None:
    assert [turn(number, WAYS)[0] for number in range(4)] == [*WAYS, WAYS[0]]
    assert all(sorted(turn(number, WAYS)) == sorted(WAYS) for number in range(3))


def test_rates_are_compared_with_postgresql_in_the_same_round() -> None:
    sides = round_of(40.0)["sides"]
    assert [sides[name][ACCOUNTS].get("times_native") for name in WAYS] == [2.25, None, 6.0]
    assert [sides[name][WIDE].get("times_native") for name in WAYS] == [1.5, None, 3.0]
    alone = {PENSTOCK: {ACCOUNTS: figures_of(1000, 1.0, 500.0)}}
    compare(alone, ACCOUNTS)
    assert "times_native" not in alone[PENSTOCK][ACCOUNTS]


def test_a_round_is_described_with_and_without_postgresql() -> None:
    line = describe_copies(round_of(40.0)["sides"], ACCOUNTS)
    assert line.startswith("pgbench_accounts: penstock 500,000 rows/s in 40.0 s, native ")
    assert line.endswith("2.25 times PostgreSQL's rate, 1,500 MB")
    alone = {PENSTOCK: {ACCOUNTS: figures_of(1000, 1.0, 500.0)}}
    assert describe_copies(alone, ACCOUNTS) == "pgbench_accounts: penstock 1,000 rows/s in 1.0 s, 500 MB"


def test_it_is_reported_by_table_and_side_with_the_goals() -> None:
    document = document_of(round_of(40.0), round_of(30.0), round_of(60.0))
    ((title, _, rows),) = of_initial_copies([document])
    assert title == "First copies: initial-copy"
    head, *body, goals = [list(row) for row in rows]
    assert [row[:2] for row in body] == [
        [table, side] for table in (ACCOUNTS, WIDE) for side in ("Penstock", "PostgreSQL", COPY_OUT)
    ]
    assert body[0] == [ACCOUNTS, "Penstock", 20_000_000, 40.0, 500_000.0, "2.25 (1.50 to 3.00)", 12.5, 30.0, 1500.0]
    assert body[1][5] is None
    assert len(goals) == len(head) == len(body[0])
    assert goals[5::3] == ["at least 2.0", "at most 2,500"]
    assert f"| {WIDE} | {COPY_OUT} | 5,000,000 | 50 |" in markdown([document])


def test_a_copy_that_differs_is_not_good() -> None:
    document = document_of(round_of(40.0))
    assert suite.is_good(document)
    checks = {"equal": False, "wrong": ["round 1, wide: the copy by native differs"]}
    assert not suite.is_good({**document, "checks": checks})
    assert "round 1, wide: the copy by native differs" in markdown([{**document, "checks": checks}])


def test_it_runs_only_if_it_is_named_or_its_mode_is() -> None:
    workload = WORKLOADS["initial-copy"]
    assert (workload, Mode.COPY) not in catalogue.everything(None, quick=False)
    assert catalogue.everything(Mode.COPY, quick=True) == [(workload, Mode.COPY)]


@pytest.mark.parametrize("against", [False, True])
def test_its_time_grows_with_its_size(against: bool) -> None:
    workload = WORKLOADS["initial-copy"]
    quick, full = (budget.seconds(workload, Order(quick=quick, against=against)) for quick in (True, False))
    assert 10 < quick < 120 < full < 2 * 3600
    assert budget.seconds(workload, Order(against=True)) >= full
