"""The history over HTTP: fed by an engine's reports and by waits, in steps that become coarser, kept over restarts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlmodel import select

from engine.link.messages import BatchReport, Progress
from engine.model.position import Lsn
from server.db import migrate
from server.db.database import Database
from server.db.models.history import HistoryRow
from server.db.models.subscription import SubscriptionRow
from server.errors import NotFound
from server.gateway.threads import EngineThreads
from server.history.figures import Figures
from server.history.recorder import Point, Recorder, delete_old_steps
from tests.fixtures.channel import DEADLINE_S, FakeEngine, RunningServer, declare, running_server
from tests.fixtures.control_rows import subscription_row
from tests.fixtures.manual_clock import ManualClock
from tests.fixtures.waiting import wait_until

BEGUN = datetime(2026, 5, 4, 10, tzinfo=UTC)
HISTORY = "/subscriptions/orders/history"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path) as server:
        yield server


def progress(engine: FakeEngine, epoch: int, applied: int, lag_s: float) -> None:
    engine.link.report(
        Progress(
            subscription="orders",
            epoch=epoch,
            source=Lsn(applied + 300),
            captured=Lsn(applied + 100),
            applied=Lsn(applied),
            lag_bytes=300,
            lag_seconds=lag_s,
            retained_bytes=5000,
            at=datetime.now(UTC),
        )
    )
    assert engine.link.flush(DEADLINE_S)


def points(client: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    answer = client.get(HISTORY, params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["points"]
    return found


def test_reports_and_waits_make_the_history(server: RunningServer) -> None:
    with server.client() as client:
        declare(client)
        assert points(client) == []
        engine = FakeEngine(server.url, now="0/150")
        try:
            assign = engine.run(applied="0/100")
            for lag_s, applied in ((7.0, 0x150), (2.0, 0x200)):
                progress(engine, assign.epoch, applied, lag_s)
            for number in (1, 2):
                engine.batch(assign, number)
            engine.batch(assign, 2)
            assert engine.link.flush(DEADLINE_S)
            body = {"position": "0/150", "timeout_ms": 5000}
            assert client.post("/subscriptions/orders/freshness-waits", json=body).status_code == 200
            late = {"position": "0/999", "timeout_ms": 50}
            assert client.post("/subscriptions/orders/freshness-waits", json=late).status_code == 504
            found = points(client)
        finally:
            engine.close()
    # A step may have ended meanwhile.
    newest = next(point for point in reversed(found) if point["retained_bytes"] is not None)
    assert max(point["lag_seconds"] or 0 for point in found) == 7
    assert (newest["retained_bytes"], newest["unread_bytes"], newest["unapplied_bytes"]) == (5000, 200, 256 - 156)
    assert sum(point["rows"].get("insert", 0) for point in found) == 15
    assert sum(point["transactions"] for point in found) == 21
    assert {point["stage_seconds"].get("commit") for point in found if point["batches"]} == {0.02}
    waits = [point["waits"] for point in found if point["waits"]]
    assert (sum(w["ended"] for w in waits), sum(w["timed_out"] for w in waits)) == (2, 1)
    assert max(w["p99_ms"] for w in waits) == pytest.approx(50, rel=0.4)


def test_positions_that_do_not_count_bytes_make_no_figures_of_log(server: RunningServer) -> None:
    with server.client() as client:
        declare(client, capture={"kind": "triggers"})
        engine = FakeEngine(server.url)
        try:
            assign = engine.run(applied="0/100")
            progress(engine, assign.epoch, 0x150, 7.0)
            found = points(client)
        finally:
            engine.close()
    newest = next(point for point in reversed(found) if point["lag_seconds"] is not None)
    assert (newest["unread_bytes"], newest["unapplied_bytes"]) == (None, None)
    assert {rate for point in found for rate in point["log_bytes_per_second"].values()} == {None}


def test_a_page_opened_after_a_restart_shows_what_was_before(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        declare(client)
        engine = FakeEngine(server.url)
        try:
            engine.batch(engine.run(applied="0/100"), 1)
            assert engine.link.flush(DEADLINE_S)
            wait_until(lambda: bool(points(client)))
        finally:
            engine.close()
    with running_server(tmp_path) as server, server.client() as client:
        for hours in (1, 12, 168):
            assert sum(point["rows"].get("insert", 0) for point in points(client, hours=hours)) == 5, hours


def test_what_is_asked_for_wrongly_is_refused(server: RunningServer) -> None:
    with server.client() as client:
        declare(client)
        assert client.get(HISTORY).json() == {"step_seconds": 10, "points": []}
        assert client.get(HISTORY, params={"hours": 24}).json()["step_seconds"] == 600
        for hours in ("0", "169", "x"):
            assert client.get(HISTORY, params={"hours": hours}).status_code == 422
        assert client.get("/subscriptions/other/history").status_code == 404


# Steps


class Rig:
    """A recorder with a clock that is moved by hand."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = ManualClock(BEGUN)
        self.recorder = Recorder(database, EngineThreads(), self.clock)

    def pass_time(self, seconds: int, every: int = 10) -> None:
        """With a report of one transaction in each step, and lag as many seconds as have passed."""
        for _ in range(0, seconds, every):
            passed = int(self.clock.monotonic())
            self.recorder.record_report(self._progress(passed))
            self.recorder.record_report(self._batch(passed))
            self.clock.advance(every)

    async def read(self, **span: float) -> tuple[int, list[Point]]:
        history = await self.recorder.read("orders", timedelta(**span))
        return history.resolution.seconds, list(history.points)

    def _progress(self, passed: int) -> Progress:
        return Progress(subscription="orders", epoch=1, applied=Lsn(passed), lag_seconds=passed, at=BEGUN)

    def _batch(self, passed: int) -> BatchReport:
        return BatchReport(
            subscription="orders",
            epoch=1,
            batch=passed,
            after=Lsn(passed),
            end=Lsn(passed + 1),
            transactions=1,
            rows={"insert": 2},
            path="driver",
            seconds={"job": 0.5},
            committed_at=BEGUN,
        )


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """With the subscription `orders`."""
    url = f"sqlite:///{tmp_path / 'control.db'}"
    migrate.upgrade(url)
    database = Database(url)
    with database.write() as session:
        subscription_row(session, "orders")
    yield database
    database.close()


async def test_steps_become_coarser_and_lose_nothing(database: Database) -> None:
    rig = Rig(database)
    rig.pass_time(1500)
    before = [await rig.read(hours=hours) for hours in (1, 12, 24)]
    await rig.recorder.write()
    after = [await rig.read(hours=hours) for hours in (1, 12, 24)]
    assert before == after
    assert [(step, len(found)) for step, found in after] == [(10, 150), (60, 25), (600, 3)]
    for _, found in after:
        assert sum(point.figures.transactions for point in found) == 150
        assert sum(point.figures.rows["insert"] for point in found) == 300
    assert [point.figures.lag_seconds for point in after[2][1]] == [590, 1190, 1490]
    assert [point.at for point in after[2][1]] == [BEGUN + timedelta(minutes=10 * n) for n in range(3)]


async def test_a_step_cut_by_a_restart_is_put_together(database: Database) -> None:
    first = Rig(database)
    first.pass_time(70)
    await first.recorder.write(everything=True)
    second = Rig(database)
    second.clock.advance(70)
    second.pass_time(50)
    await second.recorder.write(everything=True)
    _, (minute, next_minute) = await second.read(hours=12)
    assert (minute.figures.transactions, next_minute.figures.transactions) == (6, 6)
    assert next_minute.figures.seconds == {"job": 3.0}


async def test_what_is_too_old_is_forgotten_and_so_is_what_was_deleted(database: Database) -> None:
    rig = Rig(database)
    rig.pass_time(7200, every=60)
    await rig.recorder.write(everything=True)
    database_now = Database(database.url, rig.clock)
    with database_now.write() as session:
        delete_old_steps(session)
    with database_now.write() as session:
        kept = session.exec(select(HistoryRow)).all()
        assert sorted({row.step_seconds for row in kept}) == [10, 60, 600]
        assert min(row.at for row in kept if row.step_seconds == 10) == BEGUN + timedelta(hours=1)
        assert min(row.at for row in kept if row.step_seconds == 60) == BEGUN
        session.delete(session.exec(select(SubscriptionRow)).one())
    with database_now.read() as session:
        assert session.exec(select(HistoryRow)).first() is None
    database_now.close()
    rig.pass_time(20)
    await rig.recorder.write(everything=True)
    with pytest.raises(NotFound):
        await rig.read(hours=1)


def test_shares_of_waits_are_told_within_five_percent() -> None:
    figures = Figures()
    for waited_ms in range(1, 1001):
        figures.add_wait(waited_ms, late=False)
    for share in (0.5, 0.95, 0.99):
        assert figures.wait_ms(share) == pytest.approx(share * 1000, rel=0.06)
    assert Figures().wait_ms(0.5) is None
    assert Figures.from_document({**figures.to_document(), "of_a_later_release": 1}) == figures
