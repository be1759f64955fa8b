"""Snapshots over HTTP, with an engine that is scripted; their schedule, by a clock that is set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlmodel import col, select

from engine.link.message import Problem
from engine.link.messages import Assign, Cancel
from engine.link.snapshots import DeleteSnapshot, Snapshot, SnapshotDeleted, SnapshotReport
from engine.model.position import Lsn
from engine.model.snapshots import SnapshotFormat
from engine.model.subscription_state import SubscriptionState
from server.db.database import Database
from server.db.models.event import EventRow
from server.db.models.outbox import OutboxRow
from server.db.models.snapshot import SnapshotRow, SnapshotScheduleRow
from server.db.models.subscription import SubscriptionRow
from server.gateway.long_running import WorkState
from server.security.principal import Role
from server.snapshots import service
from server.snapshots.schedule import take_round
from server.snapshots.schemas import SnapshotSchedule
from tests.fixtures.channel import DEADLINE_S, FakeEngine
from tests.fixtures.control_rows import subscription_row
from tests.fixtures.manual_clock import ManualClock

Rig = tuple[httpx.Client, FakeEngine, Assign]
_SNAPSHOTS = "/subscriptions/orders/snapshots"
_SCHEDULE = "/subscriptions/orders/snapshot-schedule"
_FULL = Problem(status=507, code="snapshot_disk_full", detail="no space left", remedy="Free space.")


def report(rig: Rig, snapshot: str, state: str, **more: Any) -> None:
    _, engine, assign = rig
    given = {"subscription": "orders", "epoch": assign.epoch, "snapshot_id": snapshot, "state": state, **more}
    engine.link.report(SnapshotReport.model_validate(given))
    assert engine.link.flush(DEADLINE_S)


def done(rig: Rig, snapshot: str) -> None:
    first, second = (table.table for table in rig[2].tables)
    table = {"table": first, "file": "public.orders.parquet", "rows": 9, "schema_version": "ab", "set_aside": 2}
    report(
        rig,
        snapshot,
        "succeeded",
        name="0-64",
        folder="/data/snapshots/orders/0-64",
        position="0/64",
        commit_time="2026-01-02T03:04:05Z",
        bytes=700,
        tables=[table],
        left_out=[{"table": second, "state": "paused"}],
    )


def test_a_snapshot_is_requested_written_and_shown(rig: Rig) -> None:
    client, engine, assign = rig
    name = assign.tables[0].source
    body = {"format": "duckdb", "tables": [{"schema": name.schema, "name": name.name}], "on_unavailable": "leave_out"}
    answer = client.post(_SNAPSHOTS, json={**body, "limit_seconds": 60, "latest": False})
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    where, snapshot = answer.headers["Location"].removeprefix("/api/v1"), answer.json()["id"]
    command = engine.seen(Snapshot)
    assert command == Snapshot(
        subscription="orders",
        snapshot_id=snapshot,
        format=SnapshotFormat.DUCKDB,
        tables=(assign.tables[0].table,),
        leave_out=True,
        latest=False,
        limit_s=60,
    )
    report(rig, snapshot, "running")
    again = client.post(_SNAPSHOTS)
    assert (again.status_code, again.json()["code"], again.json()["running"]) == (409, "snapshot_running", snapshot)
    done(rig, snapshot)
    report(rig, snapshot, "failed", problem=_FULL)
    shown = client.get(where).json()
    assert (shown["state"], shown["position"], shown["name"], shown["bytes"]) == ("succeeded", "0/64", "0-64", 700)
    assert shown["commit_time"] == "2026-01-02T03:04:05Z"
    assert shown["tables"] == [
        {
            "id": assign.tables[0].table,
            "schema": "public",
            "name": name.name,
            "file": "public.orders.parquet",
            "rows": 9,
            "schema_version": "ab",
            "rows_set_aside": 2,
        }
    ]
    assert [(table["name"], table["state"]) for table in shown["left_out"]] == [
        (assign.tables[1].source.name, "paused")
    ]
    (event,) = client.get("/events?subscription=orders&kind=snapshot_done").json()["items"]
    assert "'0-64' of 'orders' is complete at 0/64: 1 tables, 1 left out." in event["detail"]
    assert [each["id"] for each in client.get(_SNAPSHOTS).json()["items"]] == [snapshot]


def test_a_failed_one_says_why(rig: Rig) -> None:
    client, engine, _ = rig
    snapshot = client.post(_SNAPSHOTS).json()["id"]
    assert engine.seen(Snapshot).tables is None
    report(rig, snapshot, "failed", problem=_FULL)
    shown = client.get(f"{_SNAPSHOTS}/{snapshot}").json()
    assert (shown["state"], shown["problem"]["code"]) == ("failed", "snapshot_disk_full")
    (event,) = client.get("/events?subscription=orders&kind=snapshot_failed").json()["items"]
    assert (event["severity"], event["remedy"]) == ("error", "Free space.")
    assert client.delete(f"{_SNAPSHOTS}/{snapshot}").status_code == 204
    assert client.get(f"{_SNAPSHOTS}/{snapshot}").status_code == 404
    assert engine.count(DeleteSnapshot) == 0


def test_deleting_cancels_or_deletes_the_files(rig: Rig) -> None:
    client, engine, assign = rig
    first = client.post(_SNAPSHOTS).json()["id"]
    assert client.delete(f"{_SNAPSHOTS}/{first}").status_code == 204
    assert engine.seen(Cancel).request_id == first
    assert client.get(f"{_SNAPSHOTS}/{first}").json()["state"] == "cancelled"
    done(rig, first)  # published before the cancel came
    assert client.get(f"{_SNAPSHOTS}/{first}").json()["state"] == "succeeded"

    assert client.delete(f"{_SNAPSHOTS}/{first}").status_code == 204
    assert engine.seen(DeleteSnapshot).snapshot_id == first
    assert client.get(f"{_SNAPSHOTS}/{first}").json()["deleting"] is True
    gone = {"subscription": "orders", "epoch": assign.epoch, "snapshot_id": first}
    for _ in range(2):
        engine.link.report(SnapshotDeleted(**gone, problem=_FULL))
    assert engine.link.flush(DEADLINE_S)
    assert client.get(f"{_SNAPSHOTS}/{first}").json()["problem"]["code"] == "snapshot_disk_full"
    assert len(client.get("/events?subscription=orders&kind=snapshot_not_deleted").json()["items"]) == 1
    engine.link.report(SnapshotDeleted(**gone))
    assert engine.link.flush(DEADLINE_S)
    assert client.get(f"{_SNAPSHOTS}/{first}").status_code == 404


def test_an_engine_that_comes_back_is_told_what_was_begun(rig: Rig) -> None:
    client, engine, _ = rig
    snapshot = client.post(_SNAPSHOTS).json()["id"]
    assert engine.seen(Snapshot).begun is False
    report(rig, snapshot, "running")
    engine.close()
    other = FakeEngine(str(client.base_url).removesuffix("/api/v1/"), name="engine-1")
    try:
        assert other.seen(Snapshot).begun is True
    finally:
        other.close()


@pytest.mark.parametrize("path", ["..%2f..%2fetc%2fpasswd", "%2e%2e", "n1%00", "0-64"])
def test_no_id_leads_to_a_file(rig: Rig, path: str) -> None:
    client, engine, _ = rig
    for call in (client.get, client.delete):
        assert call(f"{_SNAPSHOTS}/{path}").status_code in {404, 405, 422}
    assert engine.count(DeleteSnapshot) == 0


@pytest.mark.parametrize(
    "body",
    [
        {"format": "csv"},
        {"folder": "/tmp"},
        {"name": "../x"},
        {"tables": []},
        {"tables": [{"schema": "public", "name": "../orders"}]},
        {"freshness": {"mode": "latest", "position": "0/1"}},
        {"freshness": {"mode": "position"}},
        {"freshness": {"mode": "position", "position": "nonsense"}},
        {"limit_seconds": 0},
    ],
)
def test_wrong_requests_are_refused(rig: Rig, body: dict[str, Any]) -> None:
    client, engine, _ = rig
    assert client.post(_SNAPSHOTS, json=body).status_code == 422
    assert engine.count(Snapshot) == 0


def test_it_waits_for_a_position_and_hands_it_on(rig: Rig) -> None:
    client, engine, assign = rig
    late = {"freshness": {"mode": "position", "position": "0/200", "timeout_ms": 1}}
    answer = client.post(_SNAPSHOTS, json=late)
    assert (answer.status_code, answer.json()["code"]) == (504, "freshness_timeout")
    assert client.get(_SNAPSHOTS).json()["items"] == []
    engine.progress(assign, "0/250")
    assert engine.link.flush(DEADLINE_S)
    begun = client.post(_SNAPSHOTS, json=late | {"freshness": {**late["freshness"], "timeout_ms": 5000}})
    assert begun.status_code == 202, begun.text
    assert begun.json()["receipt"]["position"] == "0/200"
    assert engine.seen(Snapshot).at_least == Lsn.parse("0/200")


def test_a_request_that_is_repeated_has_one_snapshot(rig: Rig) -> None:
    client, engine, _ = rig
    headers = {"Idempotency-Key": "once"}
    answers = [client.post(_SNAPSHOTS, json={}, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    assert engine.seen(Snapshot).snapshot_id == answers[0].json()["id"]
    assert len(client.get(_SNAPSHOTS).json()["items"]) == 1


def test_roles(client: TestClient, connections: None, as_role: Callable[[Role], dict[str, str]]) -> None:
    viewer = as_role(Role.VIEWER)
    for call in (
        client.post(f"/api/v1{_SNAPSHOTS}", json={}, headers=viewer),
        client.delete(f"/api/v1{_SNAPSHOTS}/n1", headers=viewer),
        client.put(f"/api/v1{_SCHEDULE}", json={"interval_seconds": 60}, headers=viewer),
        client.delete(f"/api/v1{_SCHEDULE}", headers=viewer),
    ):
        assert call.status_code == 403
    assert client.get(f"/api/v1{_SNAPSHOTS}", headers=viewer).status_code == 404


def test_the_schedule_is_a_resource(rig: Rig) -> None:
    client, engine, assign = rig
    assert client.get(_SCHEDULE).status_code == 404
    name = assign.tables[1].source
    body = {"interval_seconds": 3600, "keep": 3, "tables": [{"schema": "public", "name": name.name}]}
    created = client.put(_SCHEDULE, json=body)
    assert created.status_code == 201
    assert {key: created.json()[key] for key in body} == body
    assert engine.seen(Snapshot).tables == (assign.tables[1].table,)
    assert client.put(_SCHEDULE, json=body).status_code == 200
    assert client.put(_SCHEDULE, json={**body, "interval_seconds": 1}).status_code == 422
    assert client.delete(_SCHEDULE).status_code == 204
    assert client.delete(_SCHEDULE).status_code == 404


# The schedule, by a clock that is set


class Scheduled:
    """A control database with one subscription and its schedule."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(datetime(2026, 5, 4, 10, 0, tzinfo=UTC))
        self.database = Database(url, self.clock)
        with self.database.write() as session:
            row = subscription_row(session)
            row.state = SubscriptionState.RUNNING.value
            self.name = row.name
            session.add(row)

    def set(self, **body: Any) -> None:
        with self.database.write() as session:
            service.set_schedule(session, self.name, SnapshotSchedule(**body))

    def after(self, seconds: float) -> list[SnapshotRow]:
        """All snapshots, the oldest first, after the clock has moved and one look for what is due."""
        self.clock.advance(seconds)
        take_round(self.database, self.clock)
        return self.snapshots()

    def snapshots(self) -> list[SnapshotRow]:
        with self.database.read() as session:
            return list(session.exec(select(SnapshotRow).order_by(col(SnapshotRow.created_at))))

    def end(self, state: str = "succeeded") -> None:
        """The engine reports the end of the newest snapshot."""
        newest = self.snapshots()[-1]
        problem = _FULL if state == "failed" else None
        ended = {"subscription": self.name, "epoch": 1, "snapshot_id": newest.id, "problem": problem}
        with self.database.write() as session:
            subscription = session.exec(select(SubscriptionRow)).one()
            service.write_report(session, subscription, SnapshotReport.model_validate({**ended, "state": state}))

    def become(self, state: SubscriptionState) -> None:
        with self.database.write() as session:
            row = session.exec(select(SubscriptionRow)).one()
            row.state = state.value
            session.add(row)


@pytest.fixture
def scheduled(settings: Any) -> Iterator[Scheduled]:
    made = Scheduled(settings.control_database)
    yield made
    made.database.close()


def test_the_schedule_takes_snapshots_by_the_clock(scheduled: Scheduled) -> None:
    scheduled.set(interval_seconds=600, keep=5)
    assert len(scheduled.after(0)) == 1
    scheduled.end()
    assert len(scheduled.after(599)) == 1
    assert len(scheduled.after(1)) == 2
    # The one before has not ended: the next one waits for it, and those that were missed are not made up for.
    assert len(scheduled.after(1900)) == 2
    scheduled.end("failed")
    assert len(scheduled.after(0)) == 3
    scheduled.end()
    assert len(scheduled.after(499)) == 3
    assert len(scheduled.after(1)) == 4
    assert all(row.scheduled for row in scheduled.snapshots())
    with scheduled.database.read() as session:
        kinds = [row.kind for row in session.exec(select(EventRow))]
    assert kinds.count("snapshot_failed") == 1


def test_only_the_newest_are_kept(scheduled: Scheduled) -> None:
    with scheduled.database.write() as session:
        subscription = session.exec(select(SubscriptionRow)).one()
        by_hand = SnapshotRow(
            id="n0",
            subscription_id=subscription.id or 0,
            state=WorkState.SUCCEEDED.value,
            format="parquet",
            limit_s=60,
            created_at=session.now(),
        )
        session.add(by_hand)
    scheduled.set(interval_seconds=60, keep=2)
    for _ in range(5):
        scheduled.after(60)
        scheduled.end()
    scheduled.after(60)
    scheduled.end("failed")
    rows = scheduled.after(0)
    assert [(row.scheduled, row.state, row.deleting) for row in rows] == [
        (False, "succeeded", False),
        *[(True, "succeeded", True)] * 3,
        *[(True, "succeeded", False)] * 2,
        (True, "failed", False),
    ]
    with scheduled.database.read() as session:
        deletions = [row.payload["id"] for row in session.exec(select(OutboxRow)) if row.kind == "delete_snapshot"]
    assert deletions == [row.id for row in rows[1:4]]


@pytest.mark.parametrize(
    "state", [SubscriptionState.PAUSED, SubscriptionState.STOPPED, SubscriptionState.FAILED, SubscriptionState.CREATED]
)
def test_it_waits_while_the_subscription_does_not_run(scheduled: Scheduled, state: SubscriptionState) -> None:
    scheduled.set(interval_seconds=60)
    scheduled.become(state)
    assert scheduled.after(3600) == []
    scheduled.become(SubscriptionState.RUNNING)
    assert len(scheduled.after(0)) == 1
    with scheduled.database.read() as session:
        schedule = session.exec(select(SnapshotScheduleRow)).one()
    assert scheduled.clock.now() < schedule.next_at


def test_failures_do_not_pile_up(scheduled: Scheduled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_FAILURES_KEPT", 2)
    scheduled.set(interval_seconds=60)
    for _ in range(5):
        scheduled.after(60)
        scheduled.end("failed")
    assert len(scheduled.after(0)) == 2
    scheduled.set(interval_seconds=120)
    assert len(scheduled.after(119)) == 2
    assert len(scheduled.after(1)) == 3
