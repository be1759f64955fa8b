"""The catalogue, and what an order makes of a workload's sizes."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from server.bench.catalogue import WORKLOADS, everything
from server.bench.errors import BenchError
from server.bench.pgbench import PgbenchWorkload
from server.bench.suite import Order
from server.bench.workload import Mode
from server.cli.exit_codes import ExitCode
from server.cli.main import app

PROMISED = {
    "tpcb",
    "tpcc",
    "inserts",
    "night-batch",
    "hot-rows",
    "hot-rows-many",
    "tables-500",
    "wide-rows",
    "freshness",
}
PROMISED |= {"huge-transaction", "huge-aborted", "idle"}


def test_the_promised_workloads_are_there() -> None:
    assert set(WORKLOADS) >= PROMISED
    assert all(name == workload.name for name, workload in WORKLOADS.items())


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_workload_can_be_run(name: str) -> None:
    workload = WORKLOADS[name]
    assert workload.description
    assert workload.modes
    names = [(table.schema, table.name) for table in workload.tables()]
    assert len(names) == len(set(names)) > 0
    assert workload.quick.amount <= workload.full.amount


def test_the_compared_workloads_are_as_large_as_the_goals_say() -> None:
    for name in ("tpcb", "hot-rows", "hot-rows-many"):
        assert (WORKLOADS[name].full.amount, WORKLOADS[name].full.rounds) == (400_000, 5)


def test_tables_500_changes_as_many_rows_as_a_transaction_says() -> None:
    workload = WORKLOADS["tables-500"]
    assert isinstance(workload, PgbenchWorkload)
    assert len(workload.tables()) == 500
    inserted = re.search(r"generate_series\(1, (\d+)\)", workload.script)
    updated = re.search(r":first \+ (\d+)", workload.script)
    assert inserted
    assert updated
    assert int(inserted[1]) + int(updated[1]) == workload.changes


def test_what_is_said_replaces_the_size() -> None:
    size = Order(quick=True, amount=77, rounds=4).size(WORKLOADS["tpcb"])
    assert (size.amount, size.rounds, size.scale) == (77, 4, WORKLOADS["tpcb"].quick.scale)


def test_a_mode_must_be_one_of_the_workloads() -> None:
    assert Order().mode_of(WORKLOADS["huge-transaction"]) is Mode.LIVE
    assert Order(mode=Mode.BACKLOG).mode_of(WORKLOADS["huge-transaction"]) is Mode.BACKLOG
    with pytest.raises(BenchError):
        Order(mode=Mode.SUSTAINED).mode_of(WORKLOADS["idle"])


def test_the_command_lists_and_refuses() -> None:
    listed = CliRunner().invoke(app, ["bench", "list", "--json"])
    assert listed.exit_code == ExitCode.DONE
    assert '"hot-rows-many"' in listed.stdout
    assert CliRunner().invoke(app, ["bench", "run", "nothing-like-it"]).exit_code == ExitCode.USAGE


def test_all_is_every_workload_once_and_some_twice() -> None:
    quick = [(workload.name, mode) for workload, mode in everything(None, quick=True)]
    assert [name for name, _ in quick] == list(WORKLOADS)
    full = [(workload.name, mode) for workload, mode in everything(None, quick=False)]
    assert ("tables-500", Mode.SUSTAINED) in full
    assert len(full) == len(set(full)) > len(quick)
    assert {workload.name for workload, _ in everything(Mode.IDLE, quick=False)} == {"idle"}


def test_a_mode_that_is_not_there_is_wrong_usage() -> None:
    answer = CliRunner().invoke(app, ["bench", "run", "idle", "--mode", "backlog"])
    assert answer.exit_code == ExitCode.USAGE
