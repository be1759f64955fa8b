"""Alerts: which causes give a notice, once, repeated and recovered; delivery at least once, across failures and restarts."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi import FastAPI
from sqlmodel import select

from engine.model.table_state import TableStateKind
from server.alerts import delivery
from server.alerts.delivery import MOST_ATTEMPTS, Alerts
from server.app import create_app
from server.db.models.event import EventRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.models.verification import VerificationRow
from server.settings import Settings
from tests.fixtures.alert_receivers import HttpReceiver, http_receiver, self_signed, smtp_sink
from tests.fixtures.app_state import set_table_state
from tests.fixtures.channel import FakeEngine, declare, running_server
from tests.fixtures.manual_clock import ManualClock
from tests.fixtures.waiting import wait_until
from tests.server.conftest import ADMIN, PlayedSample, TestClient

KEY = "hidden-signing-key-0123"
BUDGET = {"slot_budget_bytes": 1_000_000_000, "guard": {"warn_share": 0.5, "persist_share": 0.6}}
BODY = {
    "source": "shop",
    "target": "mart",
    "tables": [{"schema": "public", "name": "orders"}, {"schema": "public", "name": "lines"}],
    "capture": BUDGET,
    "freshness": {"goal_seconds": 80_000},
}


class Bench:
    """The application with its alerts, driven by hand, on a clock that moves by hand. `restart` replaces both."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.clock = ManualClock(datetime(2026, 5, 4, 10, 0, tzinfo=UTC))
        self.connected_s: float | None = 600.0
        self._stack = ExitStack()
        self.app: FastAPI
        self.start()

    def start(self) -> None:
        self.app = create_app(self._settings, self.clock)
        self.app.state.sample = PlayedSample()
        headers = {"Authorization": f"Bearer {ADMIN}"}
        self.client = self._stack.enter_context(TestClient(self.app, headers=headers))
        self.alerts = Alerts(self.app.state.database, self.app.state.secret_box, self.clock, lambda _: self.connected_s)

    def restart(self) -> None:
        self._stack.close()
        self.start()

    def close(self) -> None:
        self._stack.close()

    def put(self, path: str, body: dict[str, Any]) -> None:
        answer = self.client.put(f"/api/v1/{path}", json=body)
        assert answer.status_code in {200, 201}, answer.text

    def webhook(self, receiver: HttpReceiver, name: str = "ops", **more: Any) -> None:
        body = {"kind": "webhook", "settings": {"url": receiver.url}, "secrets": {"signing_key": KEY}, **more}
        self.put(f"alert-channels/{name}", body)

    def set_goal(self) -> None:
        answer = self.client.patch("/api/v1/subscriptions/s", json={"freshness": {"goal_seconds": 30}})
        assert answer.status_code == 200

    def report(self, **fields: Any) -> None:
        """What an engine has reported of the subscription, now."""
        with self.app.state.database.write() as session:
            row = session.exec(select(SubscriptionRow)).one()
            for name, value in {"progress_at": self.clock.now(), **fields}.items():
                setattr(row, name, value)
            session.add(row)

    def table(self, name: str, state: TableStateKind, **why: str) -> None:
        found = self.client.get("/api/v1/subscriptions/s/tables").json()["items"]
        set_table_state(self.app, next(t["id"] for t in found if t["name"] == name), state, **why)

    def round(self, after_s: float = 0.0) -> None:
        """One round of the service, with its deliveries completed."""
        self.clock.advance(after_s)

        async def work() -> None:
            await self.alerts.evaluate()
            await self.alerts.start_deliveries()
            await self.alerts.finish_deliveries()

        asyncio.run(work())

    def events(self, kind: str) -> list[EventRow]:
        with self.app.state.database.read() as session:
            return list(session.exec(select(EventRow).where(EventRow.kind == kind)))


@pytest.fixture
def bench(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The subscription `s` runs within its goal, with two live tables."""
    monkeypatch.setattr("server.app.SERVICES", ())
    made = Bench(settings)
    try:
        shop = {"host": "db", "database": "shop", "user": "penstock"}
        made.put("connections/shop", {"kind": "postgres", "settings": shop})
        made.put("connections/mart", {"kind": "duckdb", "settings": {"path": "/data/mart.duckdb"}})
        made.put("subscriptions/s", BODY)
        made.report(state="running", lag_seconds=1.0, retained_bytes=1000)
        for name in ("orders", "lines"):
            made.table(name, TableStateKind.LIVE)
        yield made
    finally:
        made.close()


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as found:
        yield found


def statuses(receiver: HttpReceiver) -> list[tuple[str, str]]:
    return [(notice["cause"], notice["status"]) for notice in receiver.notices]


def test_a_missed_goal_gives_one_notice_a_repeat_and_a_recovery(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver, repeat_seconds=3600)
    bench.set_goal()
    bench.round()
    assert receiver.received == []
    bench.report(lag_seconds=31.0)
    for _ in range(3):
        bench.round(1)
    assert statuses(receiver) == [("freshness_goal_missed", "firing")]
    assert receiver.notices[0]["subscription"] == "s"
    assert "30" in receiver.notices[0]["detail"]
    bench.clock.advance(3600)
    bench.report()
    bench.round()
    bench.round(1)
    assert statuses(receiver)[1:] == [("freshness_goal_missed", "repeated")]
    bench.report(lag_seconds=1.0)
    bench.round()
    assert len(receiver.received) == 2
    # It comes back before it counts as over: nothing ended.
    bench.report(lag_seconds=31.0)
    bench.round(10)
    bench.report(lag_seconds=1.0)
    bench.round(10)
    bench.clock.advance(59)
    bench.report()
    bench.round()
    assert len(receiver.received) == 2
    bench.round(1)
    assert statuses(receiver)[2:] == [("freshness_goal_missed", "recovered")]
    first, *others = receiver.notices
    assert {notice["alert"] for notice in others} == {first["alert"]}
    assert len({notice["id"] for notice in receiver.notices}) == 3
    bench.round(1)
    assert len(receiver.received) == 3


def test_the_signature_covers_time_and_body(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver)
    bench.report(state="failed", code="slot_dropped", reason="the slot is gone", remedy="Reload it.")
    bench.round()
    (got,) = receiver.received
    stamp = got.headers["Penstock-Timestamp"]
    assert int(stamp) == int(bench.clock.now().timestamp())
    wanted = hmac.digest(KEY.encode(), stamp.encode() + b"." + got.body, hashlib.sha256).hex()
    assert got.headers["Penstock-Signature"] == f"v1={wanted}"
    notice = got.notice
    assert (notice["cause"], notice["remedy"]) == ("fault", "Reload it.")
    assert "slot_dropped" in notice["detail"]


def test_a_restart_repeats_nothing_and_forgets_no_recovery(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver)
    bench.report(state="failed", reason="no")
    bench.round()
    bench.restart()
    bench.round(5)
    assert statuses(receiver) == [("fault", "firing")]
    bench.report(state="running", reason=None, code=None)
    bench.restart()
    bench.round(5)
    bench.restart()
    bench.round(60)
    assert statuses(receiver) == [("fault", "firing"), ("fault", "recovered")]


def test_a_notice_that_was_stored_is_sent_after_a_restart(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver)
    bench.report(state="failed", reason="no")
    asyncio.run(bench.alerts.evaluate())
    bench.restart()
    bench.round()
    assert statuses(receiver) == [("fault", "firing")]


def test_a_restart_of_server_or_engine_is_no_missed_goal(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver)
    bench.set_goal()
    bench.clock.advance(300)
    bench.restart()
    bench.connected_s = None
    bench.round(5)
    bench.connected_s = 5.0
    bench.round(5)
    assert receiver.received == []
    bench.connected_s = None
    bench.round(60)
    assert statuses(receiver) == [("freshness_goal_missed", "firing")]


def test_what_is_not_known_neither_fires_nor_recovers(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver)
    bench.set_goal()
    bench.report(lag_seconds=31.0, retained_bytes=700_000_000)
    bench.round()
    assert len(receiver.received) == 2
    bench.report(state="starting", lag_seconds=None, retained_bytes=None)
    for _ in range(3):
        bench.round(100)
    assert len(receiver.received) == 2


def test_each_level_of_the_guard_gives_a_notice(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver)
    for retained in (499_000_000, 501_000_000, 550_000_000, 601_000_000, 550_000_000, 601_000_000):
        bench.report(retained_bytes=retained)
        bench.round(1)
    assert statuses(receiver) == [("slot_risk", "firing"), ("slot_risk", "worse")]


def test_faults_of_tables_are_causes_of_their_own(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver)
    for name in ("orders", "lines"):
        bench.table(name, TableStateKind.PARKED, code="value_out_of_domain", reason="NaN", remedy="Reload it.")
    bench.round()
    bench.table("orders", TableStateKind.RELOADING)
    bench.round(100)
    bench.round(100)
    firing = sorted((notice["table"], notice["status"]) for notice in receiver.notices)
    assert firing == [("public.lines", "firing"), ("public.orders", "firing")]
    bench.table("orders", TableStateKind.LIVE)
    bench.report()
    bench.round()
    bench.clock.advance(60)
    bench.report()
    bench.round()
    assert [(n["table"], n["status"]) for n in receiver.notices[2:]] == [("public.orders", "recovered")]


def test_verifications_that_fail_or_differ(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver)

    def ended(name: str, state: str) -> None:
        with bench.app.state.database.write() as session:
            key = session.exec(select(SubscriptionRow)).one().id
            now = session.now()
            session.add(
                VerificationRow(
                    id=name,
                    subscription_id=key,
                    state=state,
                    created_at=now,
                    ended_at=now,
                    problem={"detail": "no snapshot"} if state == "failed" else None,
                )
            )

    ended("v1", "failed")
    bench.round()
    assert (statuses(receiver), "no snapshot" in receiver.notices[0]["detail"]) == (
        [("verification_failed", "firing")],
        True,
    )
    with bench.app.state.database.write() as session:
        table = bench.client.get("/api/v1/subscriptions/s/tables").json()["items"][0]["id"]
        session.get_one(TableRow, table).differs = True
    bench.clock.advance(1)
    ended("v2", "succeeded")
    bench.round()
    assert statuses(receiver)[1:] == [("verification_failed", "worse")]


def test_a_channel_receives_what_its_filter_selects(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver, "slots", causes=["slot_risk"])
    bench.webhook(receiver, "other", subscriptions=["t"])
    bench.report(state="failed", reason="no")
    bench.round()
    assert receiver.received == []
    bench.webhook(receiver, "other", subscriptions=["s"])
    bench.round()
    assert statuses(receiver) == [("fault", "firing")]
    # Nothing recovers because it is not selected any more.
    bench.webhook(receiver, "other", subscriptions=["t"])
    bench.round(100)
    bench.round(100)
    assert len(receiver.received) == 1


def test_a_deleted_subscription_ends_its_causes(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver)
    bench.report(state="failed", reason="no")
    bench.round()
    with bench.app.state.database.write() as session:
        session.delete(session.exec(select(SubscriptionRow)).one())
    bench.round()
    bench.round(60)
    assert statuses(receiver) == [("fault", "firing"), ("fault", "recovered")]


def test_a_failed_attempt_is_repeated_with_growing_pauses(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver)
    receiver.answers = [500, 307]
    bench.report(state="failed", reason="no")
    bench.round()
    bench.round(9)
    assert len(receiver.received) == 1
    assert bench.client.get("/api/v1/alert-channels/ops").json()["last_error"] == "The answer was 500."
    bench.round(1)
    bench.round(19)
    assert len(receiver.received) == 2
    bench.round(1)
    bench.round(600)
    assert len({notice["id"] for notice in receiver.notices}) == 1
    # The redirect was not followed.
    assert [got.path for got in receiver.received] == ["/hook"] * 3
    channel = bench.client.get("/api/v1/alert-channels/ops").json()
    assert (channel["last_error"], channel["delivered_at"] is None) == (None, False)


def test_a_notice_is_given_up_with_an_event_and_the_next_one_follows(bench: Bench, receiver: HttpReceiver) -> None:
    bench.webhook(receiver, repeat_seconds=2_592_000)
    receiver.answers = [500] * MOST_ATTEMPTS
    bench.report(state="failed", reason="no")
    bench.round()
    for _ in range(MOST_ATTEMPTS):
        assert not bench.events("alert_not_delivered")
        bench.round(600)
        if len(receiver.received) == MOST_ATTEMPTS:
            break
    (event,) = bench.events("alert_not_delivered")
    assert (event.subject, KEY in event.detail, str(receiver.port) in event.detail) == ("ops", False, False)
    bench.report(state="running", reason=None)
    bench.round()
    bench.round(60)
    assert statuses(receiver)[MOST_ATTEMPTS:] == [("fault", "recovered")]


def test_a_receiver_that_does_not_answer_holds_up_no_other(bench: Bench, receiver: HttpReceiver) -> None:
    with http_receiver() as dead:
        dead.held = threading.Event()
        bench.webhook(dead, "dead")
        bench.webhook(receiver, "ops")
        bench.report(state="failed", reason="no")

        async def work() -> None:
            await bench.alerts.evaluate()
            await bench.alerts.start_deliveries()
            await asyncio.to_thread(wait_until, lambda: dead.received and receiver.received)
            # It is not sent a second time meanwhile.
            await bench.alerts.start_deliveries()
            assert dead.held is not None
            dead.held.set()
            await bench.alerts.finish_deliveries()

        asyncio.run(work())
        assert (len(dead.received), len(receiver.received)) == (1, 1)


def test_slack_gets_escaped_text(bench: Bench, receiver: HttpReceiver) -> None:
    bench.put("alert-channels/chat", {"kind": "slack", "secrets": {"url": receiver.url}})
    bench.report(state="failed", reason="a <!channel> & more", remedy="Reload it.")
    bench.round()
    (got,) = receiver.received
    assert got.notice.keys() == {"text"}
    text = got.notice["text"]
    assert "a &lt;!channel&gt; &amp; more" in text
    assert "Reload it." in text
    assert "Penstock-Signature" not in got.headers


def email(port: int, **more: Any) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port, "sender": "p@test", "recipients": ["a@test", "b@test"], **more}


def test_mail_is_sent_after_starttls(bench: Bench, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    context, certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with smtp_sink(context) as sink:
        settings = email(sink.port, user="penstock")
        bench.put("alert-channels/mail", {"kind": "email", "settings": settings, "secrets": {"password": "word"}})
        bench.report(state="failed", reason="the slot is gone")
        bench.round()
        (mail,) = sink.mails
        assert "Subject: Penstock: Alert: fault, s" in mail
        assert "the slot is gone" in mail
        recipients = [line for line, encrypted in sink.commands if encrypted and line.lower().startswith("rcpt")]
        assert len(recipients) == 2
        assert [encrypted for line, encrypted in sink.commands if line.startswith("AUTH")] == [True]


@pytest.mark.parametrize("offered", [True, False])
def test_no_mail_goes_to_a_server_that_is_not_trusted(bench: Bench, tmp_path: Any, offered: bool) -> None:
    with smtp_sink(self_signed(tmp_path)[0] if offered else None) as sink:
        settings = email(sink.port, user="penstock")
        bench.put("alert-channels/mail", {"kind": "email", "settings": settings, "secrets": {"password": "word"}})
        answer = bench.client.post("/api/v1/alert-channels/mail/test").json()
        assert (answer["delivered"], sink.mails) == (False, [])
        assert not [line for line, _ in sink.commands if line.startswith(("AUTH", "MAIL", "mail"))]


def test_mail_without_encryption(bench: Bench) -> None:
    with smtp_sink() as sink:
        settings = email(sink.port, security="none")
        bench.put("alert-channels/mail", {"kind": "email", "settings": settings})
        answer = bench.client.post("/api/v1/alert-channels/mail/test").json()
        assert (answer["delivered"], len(sink.mails)) == (True, 1)


def test_the_service_runs_with_the_server(
    tmp_path: Any, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "EVERY_S", 0.1)
    with http_receiver() as dead, running_server(tmp_path) as server, server.client() as client:
        dead.held = threading.Event()
        declare(client)
        engine = FakeEngine(server.url)
        try:
            assign = engine.run(applied="0/50")
            body = {"kind": "webhook", "settings": {"url": receiver.url}, "secrets": {"signing_key": KEY}}
            assert client.put("/alert-channels/ops", json=body).status_code == 201
            body["settings"] = {"url": dead.url}
            assert client.put("/alert-channels/dead", json=body).status_code == 201
            engine.state(assign, "failed", code="log_gap", reason="a gap")
            wait_until(lambda: receiver.received and dead.received)
            assert statuses(receiver) == [("fault", "firing")]
            # The stop of the server does not wait for the answer of the other one.
        finally:
            engine.close()
