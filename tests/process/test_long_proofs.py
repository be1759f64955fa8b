"""The proofs that run for an hour, for some seconds each: that they pass, and that the first one fails if a read is false."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench import dashboard_waits, many_waits
from tests.chaos import true_reads
from tests.chaos.doors import Door, SqlDoor
from tests.chaos.own_writes import Read

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.chaos, pytest.mark.xdist_group("spark")]

SHORT = ["--seconds", "10", "--rate", "100", "--sessions", "1", "--kill-every", "4"]


def test_reads_are_true_while_processes_are_killed(tmp_path: Path) -> None:
    assert true_reads.main([*SHORT, "--kinds", "sql_endpoint", "walsender", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "true-reads.json").read_text())
    assert document["kills"][0]["kind"] == "sql_endpoint"
    assert all(kill["recovered_s"] is not None for kill in document["kills"])
    assert all(session["true_reads_after_wait"] > 0 for session in document["sessions"])
    assert document["compared_row_by_row"] is True
    assert document["load"]["transactions"] > 100


def test_one_false_read_fails_the_run_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One door loses the session's last commit from one answer."""

    def makers(*given: Any) -> dict[str, Callable[[], Door]]:
        made = real(*given)
        return {**made, "SQL endpoint": lambda: _Forgetful(made["SQL endpoint"]())}

    real = true_reads.makers
    monkeypatch.setattr(true_reads, "makers", makers)
    assert true_reads.main([*SHORT, "--seconds", "90", "--kill-every", "100", "--out", str(tmp_path)]) == 1
    (found,) = json.loads((tmp_path / "true-reads-evidence.json").read_text())
    assert found["untrue"]["session"] == "SQL endpoint 2"
    assert "are missing" in found["untrue"]["found"][0]
    assert found["now"]["source"][0] == found["now"]["copy"][0][0]
    kept = Path(capsys.readouterr().out.rpartition("logs: ")[2].strip())
    assert (kept / "engine.log").is_file()
    assert (kept.parent / "copy.duckdb").is_file()
    shutil.rmtree(kept.parent)


def test_many_waits_end(tmp_path: Path) -> None:
    few = ["--waits", "60", "--hold", "3", "--sessions", "4", "--streams", "6", "--seconds", "10", "--rate", "50"]
    assert many_waits.main([*few, "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "many-waits.json").read_text())
    assert document["waits_at_once"] == 60
    assert document["wake_ups"]["after_first_answer"]["count"] > 60
    assert document["wake_ups"]["in_server"]["count"] > 60
    assert document["goal_met"] == document["wake_ups"]["in_server"]["goal_met"]
    assert document["ended_together"]["count"] > 30
    assert document["sql_sessions"]["count"] > 0
    assert document["events"]["count"] >= 12
    assert {"server", "engine", "SQL endpoint", "log reader"} <= document["memory"].keys()


def test_waits_are_measured_with_and_without_a_dashboard(tmp_path: Path) -> None:
    few = ["--sessions", "2", "--rounds", "1", "--round-seconds", "4", "--rows", "20000", "--rate", "50"]
    assert dashboard_waits.main([*few, "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "dashboard-waits.json").read_text())
    assert [document["rounds"][kind][0]["count"] for kind in ("without", "with")] == [80, 80]
    assert document["ratio"] > 0
    assert document["scans"]["count"] > 0


class _Forgetful(SqlDoor):
    def __init__(self, door: Door) -> None:
        assert isinstance(door, SqlDoor)
        self.__dict__.update(vars(door))
        self._reads = 0

    def read(self, sql: str, wanted: Any) -> Read:
        self._reads += 1
        found = super().read(sql, wanted)
        return replace(found, numbers=found.numbers[:-1]) if self._reads == 5 else found
