"""The catalogue, and what an order makes of a workload's sizes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import budget, open_transactions, results, suite
from bench import workloads as catalogue
from bench.commands import ApplyName
from bench.errors import BenchError
from bench.pgbench import PgbenchWorkload
from bench.small_transactions import Idle
from bench.suite import Order
from bench.workload import Mode, Size, Workload
from bench.workloads import WORKLOADS, everything
from engine.model.subscription import ApplyMode
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
PROMISED |= {"huge-transaction", "huge-aborted", "open-transactions", "idle", "capture-only", "techniques", "scaling"}
PROMISED |= {"lanes", "triggers", "initial-copy"}


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
        size = WORKLOADS[name].full
        assert size.rounds == 5
        assert size.amount * size.rounds >= 400_000
    assert WORKLOADS["huge-transaction"].full.amount == 10_000_000


def test_tables_500_changes_as_many_rows_as_a_transaction_says() -> None:
    workload = WORKLOADS["tables-500"]
    assert isinstance(workload, PgbenchWorkload)
    assert len(workload.tables()) == 500
    inserted = re.search(r"generate_series\(1, (\d+)\)", workload.script)
    updated = re.search(r":first \+ (\d+)", workload.script)
    assert inserted
    assert updated
    assert int(inserted[1]) + int(updated[1]) == workload.changes


@pytest.mark.parametrize("size", [open_transactions.OpenTransactions.full, open_transactions.OpenTransactions.quick])
def test_open_transactions_never_touch_the_same_rows(size: Size) -> None:
    touched: Counter[tuple[str, int]] = Counter()
    small = re.search(r"random\((\d+), \d+\)\nBEGIN", open_transactions.OpenTransactions.script)
    assert small
    for number in range(size.amount):
        text = open_transactions.statements(number, size.scale)
        updated = re.findall(r"UPDATE (\w+) SET [^;]* WHERE id > (\d+) AND id <= (\d+)", text)
        assert len({table for table, _, _ in updated}) == 5
        assert text.endswith(f"PREPARE TRANSACTION 'open_{number}'")
        touched.update((table, row) for table, low, high in updated for row in range(int(low) + 1, int(high) + 1))
    assert set(touched.values()) == {1}
    assert max(row for _, row in touched) < int(small[1])
    followed = {table.name for table in WORKLOADS["open-transactions"].followed(size.scale)}
    assert {table for table, _ in touched} == followed
    assert len(followed) == size.scale


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
    assert [name for name, _ in quick] == [
        name for name in WORKLOADS if name not in {"lanes", "table-life", "triggers", "nodes", "initial-copy"}
    ]
    full = [(workload.name, mode) for workload, mode in everything(None, quick=False)]
    assert {name for name, _ in full} == set(WORKLOADS) - {"triggers", "nodes", "initial-copy"}
    assert ("tables-500", Mode.SUSTAINED) in full
    assert len(full) == len(set(full)) > len(quick)
    assert {workload.name for workload, _ in everything(Mode.IDLE, quick=False)} == {"idle"}


@pytest.mark.parametrize(("quick", "minutes"), [(False, 90), (True, 10)])
def test_everything_is_thought_to_end_in_time(quick: bool, minutes: int) -> None:
    order = Order(against=True, quick=quick)
    chosen = [(one, replace(order, mode=mode)) for one, mode in everything(None, quick=quick)]
    total = sum(budget.seconds(*one) for one in chosen)
    assert 0 < total < minutes * 60
    assert budget.plan(chosen).startswith(f"about {budget.clock(total)} ")


def test_more_is_thought_to_take_longer() -> None:
    def thought(name: str, **said: Any) -> float:
        return budget.seconds(WORKLOADS[name], Order(**said))

    assert thought("tpcb", against=True) > thought("tpcb") > thought("tpcb", amount=1000) > 0
    assert thought("idle", against=True) == thought("idle") > thought("idle", quick=True)
    assert thought("freshness", seconds=100) - thought("freshness", seconds=10) == pytest.approx(90)


class Broken(Idle):
    """A workload that cannot even be created."""

    name = "broken"


def test_one_that_fails_is_written_down_and_the_next_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(workload: Workload, order: Order, say: Callable[[str], None]) -> dict[str, Any]:
        if workload.name == "broken":
            raise RuntimeError("what nobody thought of")
        return suite.failure(workload, order, "") | {"failed": "a reason", "ran": True}

    monkeypatch.setattr(suite, "run", run)
    monkeypatch.setattr(catalogue, "WORKLOADS", {"broken": Broken(), "idle": Idle()})
    monkeypatch.setattr(catalogue, "_ALSO", ())
    answer = CliRunner().invoke(app, ["bench", "run", "all", "--json", "--out", str(tmp_path)])
    assert answer.exit_code == ExitCode.DIFFERENT
    first, second = json.loads(answer.stdout)
    assert "what nobody thought of" in first["failed"]
    assert second["ran"]
    assert second["took_s"] >= 0
    assert sorted(one["workload"] for one in results.read(tmp_path)) == ["broken", "idle"]


def test_a_mode_that_is_not_there_is_wrong_usage() -> None:
    answer = CliRunner().invoke(app, ["bench", "run", "idle", "--mode", "backlog"])
    assert answer.exit_code == ExitCode.USAGE


def test_the_modes_of_applying_are_those_of_a_subscription() -> None:
    assert [one.value for one in ApplyName] == [*(one.value for one in ApplyMode), "relaxed"]


@pytest.mark.parametrize("workload", ["tpcb", "all"])
@pytest.mark.parametrize("apply", ["grouped", "transactional", "relaxed"])
def test_a_mode_that_the_target_does_not_have_is_wrong_usage(workload: str, apply: str) -> None:
    answer = CliRunner().invoke(app, ["bench", "run", workload, "--apply", apply])
    assert answer.exit_code == ExitCode.USAGE
    assert "postgres" in answer.output


def test_the_command_hands_the_mode_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "run", lambda workload, order, _say: suite.failure(workload, order, "not run"))
    said = ["bench", "run", "tpcb", "--target", "postgres", "--apply", "batch", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, said).exit_code == ExitCode.DIFFERENT
    (document,) = results.read(tmp_path)
    assert (document["target"], document["apply"]) == ("postgres", "batch")
