"""Progress of copies: figures of tables, of the subscription and of reloads, as engines report them, die and are replaced."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.link.messages import Assign, CopyProgress, Reload, ReloadReport
from server.assessment.copy_progress import copy_progress, copy_totals, describe_copies
from server.db.models.table import TableRow
from tests.fixtures.channel import DEADLINE_S, FakeEngine, RunningServer, declare, running_server

_NOW = datetime(2026, 5, 4, 10, tzinfo=UTC)
_TOTAL = 1_000_000


class Rig:
    def __init__(self, server: RunningServer, client: httpx.Client, engine: FakeEngine) -> None:
        self.client, self.engine = client, engine
        self.assign: Assign = engine.assigned()
        engine.state(self.assign, "running")

    def state(self, number: int, state: str) -> None:
        self.engine.table(self.assign, self.assign.tables[number].table, state)
        assert self.engine.link.flush(DEADLINE_S)

    def copied(self, number: int, rows: int, **more: Any) -> None:
        report = {
            "subscription": "orders",
            "epoch": self.assign.epoch,
            "table": self.assign.tables[number].table,
            "rows": rows,
            "bytes": rows * 100,
            "percent": 100 * rows / 10_000,
            "total_rows": 10_000,
            "total_bytes": _TOTAL,
            "rows_per_second": 50.0,
            "bytes_per_second": 5000.0,
            "eta_seconds": (10_000 - rows) / 50,
            **more,
        }
        self.engine.link.report(CopyProgress.model_validate(report))
        assert self.engine.link.flush(DEADLINE_S)

    @property
    def subscription(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get("/subscriptions/orders").json()
        return found

    def table(self, number: int) -> dict[str, Any]:
        path = f"/subscriptions/orders/tables/{self.assign.tables[number].table}"
        found: dict[str, Any] = self.client.get(path).json()["copied"]
        return found


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with running_server(tmp_path) as server, server.client() as client:
        declare(client)
        engine = FakeEngine(server.url)
        try:
            yield Rig(server, client, engine)
        finally:
            engine.close()


def test_the_subscription_tells_of_all_its_copies_and_never_less_because_one_is_done(rig: Rig) -> None:
    for number in (0, 1):
        rig.state(number, "copying")
    rig.copied(0, 5000)
    first = rig.subscription
    assert first["copying"]["percent"] is None, "how large the other table is, is not known yet"
    rig.copied(1, 0)
    second = rig.subscription["copying"]
    assert (second["percent"], second["rows"], second["total_rows"]) == (25.0, 5000, 20_000)
    assert (second["rows_per_second"], second["eta_seconds"]) == (100.0, 150.0)
    rig.copied(0, 10_000)
    rig.state(0, "catching_up")
    rig.state(0, "live")
    third = rig.subscription
    assert (third["copying"]["percent"], third["copying"]["tables_copied"], third["copying"]["tables"]) == (50.0, 1, 2)
    assert "1 of 2 tables is being copied: 50 %, 10,000 of about 20,000 rows" in third["health"]["reason"]
    assert (third["health"]["status"], third["lag"]["tables"]) == ("moving", 1)
    rig.copied(1, 10_000, bytes=999_000)
    rig.state(1, "live")
    assert rig.subscription["copying"] is None
    done = rig.table(1)
    assert (done["bytes"], done["total_bytes"], done["rows"], done["total_rows"]) == (_TOTAL, _TOTAL, 10_000, 10_000)
    assert (done["percent"], done["eta_seconds"], done["rows_per_second"]) == (100.0, 0.0, None)


def test_a_copy_that_goes_on_after_a_restart_does_not_run_back(rig: Rig) -> None:
    rig.state(0, "copying")
    rig.copied(0, 6000)
    # Another engine begins: its table waits first; then its copy continues after the rows that the target holds.
    for state in ("registered", "copying"):
        rig.state(0, state)
        assert (rig.table(0)["rows"], rig.table(0)["percent"]) == (6000, 60.0)
    rig.copied(0, 5500, goes_on=True)
    assert [rig.table(0)[name] for name in ("rows", "bytes", "percent")] == [6000, 600_000, 60.0]
    rig.copied(0, 6500, goes_on=True)
    assert rig.table(0)["rows"] == 6500
    # A copy that begins again has nothing, and says so.
    rig.state(0, "registered")
    rig.state(0, "copying")
    rig.copied(0, 0)
    assert (rig.table(0)["rows"], rig.table(0)["percent"]) == (0, 0.0)


def test_a_reload_begins_with_nothing_and_its_figures_are_told_by_the_reload_too(rig: Rig) -> None:
    rig.state(0, "copying")
    rig.copied(0, 10_000)
    rig.state(0, "live")
    table = rig.assign.tables[0].table
    path = f"/subscriptions/orders/tables/{table}/reloads"
    reload = rig.client.post(path).json()["id"]
    assert rig.engine.seen(Reload).request_id == reload
    rig.state(0, "reloading")
    assert (rig.table(0)["rows"], rig.table(0)["percent"], rig.table(0)["total_bytes"]) == (0, None, None)
    rig.copied(0, 4000)
    # The engine reports the state again, as at each new connection to the server.
    rig.engine.table(rig.assign, table, "reloading", reason="again")
    assert rig.engine.link.flush(DEADLINE_S)
    assert rig.table(0)["rows"] == 4000

    def report_copied(rows: int, percent: float, *, goes_on: bool) -> dict[str, Any]:
        report = {"request_id": reload, "state": "running", "rows": rows, "percent": percent, "goes_on": goes_on}
        more = {"bytes": rows * 100, "total_rows": 10_000, "total_bytes": _TOTAL, "rows_per_second": 50.0}
        epoch = {"subscription": "orders", "epoch": rig.assign.epoch}
        rig.engine.link.report(ReloadReport.model_validate({**report, **more, **epoch}))
        assert rig.engine.link.flush(DEADLINE_S)
        found: dict[str, Any] = rig.client.get(f"{path}/{reload}").json()["copied"]
        return found

    assert report_copied(4000, 40.0, goes_on=False)["total_rows"] == 10_000
    assert report_copied(3000, 30.0, goes_on=True)["percent"] == 40.0
    assert report_copied(0, 0.0, goes_on=False)["percent"] == 0.0


def _row(**values: Any) -> TableRow:
    return TableRow(id="t", state_at=_NOW, created_at=_NOW, **values)


def test_a_pace_is_told_only_while_it_is_fresh_and_the_time_left_goes_down_with_the_clock() -> None:
    row = _row(
        state="copying",
        copied_rows=5,
        copied_eta_seconds=30.0,
        copied_rows_per_second=2.0,
        copied_at=_NOW,
    )
    at = [copy_progress(row, _NOW + timedelta(seconds=age), going=True) for age in (0, 10, 61)]
    assert [(each.eta_seconds, each.rows_per_second) for each in at] == [(30.0, 2.0), (20.0, 2.0), (None, None)]
    held = copy_progress(row, _NOW, going=False)
    assert (held.rows, held.eta_seconds, held.rows_per_second) == (5, None, None)


def test_a_table_that_was_copied_long_ago_does_not_count_for_the_copy_of_another() -> None:
    old = _row(
        state="live", copied_rows=9, copied_bytes=900, copied_total_bytes=900, copied_at=_NOW - timedelta(days=1)
    )
    new = _row(
        state="reloading",
        copied_rows=1,
        copied_bytes=100,
        copied_total_bytes=400,
        copied_total_rows=4,
        copied_at=_NOW,
        copy_asked_at=_NOW,
    )
    found = copy_totals([old, new], _NOW, going=True)
    assert found is not None
    assert (found.tables, found.percent, describe_copies(found)) == (1, 25.0, "25 %, 1 of about 4 rows")
    assert copy_totals([old], _NOW, going=True) is None
