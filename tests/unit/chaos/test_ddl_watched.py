"""What the run of random structure changes keeps of reports, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.link.messages import EventReport, SubscriptionStateReport, TableRenamed, TableStateReport
from engine.model.identity import TableId, TableName
from tests.chaos import schema_changes
from tests.chaos.ddl_run import Counts, RunFailed
from tests.chaos.ddl_standing import Watched


def state(value: Any, code: str | None = None) -> TableStateReport:
    return TableStateReport(
        subscription="s", epoch=1, table="t1", schema="public", name="orders", state=value, code=code
    )


def event(severity: Any, code: str) -> EventReport:
    return EventReport(subscription="s", epoch=1, severity=severity, code=code, subject="x", detail="y")


@pytest.fixture
def watched() -> Watched:
    return Watched(TableId("probe"))


def test_copies_made_anew_are_counted_until_the_table_is_live(watched: Watched) -> None:
    for each in ("live", "reloading", "catching_up", "reloading", "reloading"):
        watched.take(state(each, "table_structure_changed" if each == "reloading" else None))
    assert (watched.renewals["t1"], watched.renewed) == (2, 2)
    watched.take(state("live"))
    assert (watched.renewals["t1"], watched.renewed) == (0, 2)


def test_the_last_name_counts(watched: Watched) -> None:
    for name in ("a", "b"):
        watched.take(TableRenamed(subscription="s", epoch=1, table="t1", schema="public", name=name))
    assert watched.names == {"t1": TableName("public", "b")}


def test_a_source_that_cannot_decode_its_log_is_begun_again_with(watched: Watched) -> None:
    begun: list[bool] = []
    watched.begin_again = lambda: begun.append(True)
    watched.take(event("error", "log_not_decoded"))
    watched.take(
        SubscriptionStateReport(subscription="s", epoch=1, state="failed", code="log_not_decoded", reason="XX000")
    )
    assert begun == [True]
    assert watched.wait_until(lambda: "fine", "nothing is looked at as a failure") == "fine"


@pytest.mark.parametrize(
    "report",
    [
        event("error", "table_copied"),
        event("warning", "internal"),
        event("warning", "source_unreachable"),
        SubscriptionStateReport(subscription="s", epoch=1, state="failed", code="log_gap", reason="gone"),
    ],
)
def test_what_may_not_be_told_ends_a_wait_at_once(watched: Watched, report: Any) -> None:
    watched.take(report)
    with pytest.raises(AssertionError, match="reported"):
        watched.wait_until(lambda: True, "anything")
    watched.forget()
    assert watched.wait_until(lambda: True, "anything")


def test_expected_warnings_do_not(watched: Watched) -> None:
    watched.take(event("warning", "log_reader_died"))
    assert watched.wait_until(lambda: watched.events["log_reader_died"], "it was told") == 1


def test_a_wait_has_an_end(watched: Watched) -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: never"):
        watched.wait_until(lambda: False, "never", 0.01)


class PlayedRun:
    """Fails where its number says so."""

    def __init__(self, standing: object, seed: int, number: int) -> None:
        self.counts = Counts(transactions=1)
        self.counts.refused["23505"] += 1
        self._number = number

    def go(self) -> None:
        if self._number == 1:
            raise RunFailed("different", ["0.00 a: BEGIN;"])


@contextmanager
def nothing(*_: object) -> Iterator[None]:
    yield None


@pytest.mark.parametrize(
    ("arguments", "code", "runs", "failed"),
    [
        (["--runs", "1"], 0, 1, []),
        (["--runs", "3"], 1, 2, [1]),
        (["--runs", "3", "--keep-going"], 1, 3, [1]),
        (["--runs", "2", "--first", "2"], 0, 2, []),
    ],
)
def test_the_command_tells_in_json_and_by_its_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    code: int,
    runs: int,
    failed: list[int],
) -> None:
    monkeypatch.setattr(schema_changes, "Run", PlayedRun)
    monkeypatch.setattr(schema_changes, "standing", nothing)
    monkeypatch.setattr("structlog.configure", lambda **_: None)
    monkeypatch.setattr("sys.argv", ["schema_changes", *arguments, "--seed", "7", "--failures", str(tmp_path)])
    assert schema_changes.main() == code
    told = capsys.readouterr()
    summary = json.loads(told.out)
    assert (summary["runs"], summary["failed"], summary["transactions"]) == (runs, failed, runs)
    assert summary["refused"] == {"23505": runs}
    assert [file.name for file in tmp_path.iterdir()] == ["schema-changes-duckdb-7-1.txt"] * len(failed)
    assert ("seed 7, run 1: different" in told.err) is bool(failed)
