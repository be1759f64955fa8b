"""Verifications on a schedule: by a clock that is set, and over HTTP with an engine that is scripted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlmodel import col, select

from engine.link.message import Problem, SubscriptionReport
from engine.link.messages import Assign, ReloadReport, TableStateReport
from engine.link.verifications import Difference, Verification, VerifiedTable, Verify
from engine.model.position import Lsn
from engine.model.subscription_state import SubscriptionState
from server.alerts.findings import Verdict, find_causes
from server.alerts.schemas import AlertCause
from server.assessment.assess import Assessment
from server.db.database import Database
from server.db.models.engine import EngineRow
from server.db.models.event import EventRow
from server.db.models.outbox import OutboxRow
from server.db.models.reload import ReloadRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.models.verification import VerificationRow
from server.engines.reports import write_reports
from server.tables import repository
from server.tables.schemas import VerificationProblem, VerifiedView
from server.tables.verified import problem_view, schedule_of, verified_view
from server.verifications import schedule, scheduled, service
from server.verifications.rolling import FIRST_DELAY, PAUSE_AFTER_FAILURE
from server.verifications.schedule import VerifiedShares, verify_round
from server.verifications.schemas import VerificationRequest
from tests.fixtures.channel import DEADLINE_S, FakeEngine
from tests.fixtures.control_rows import subscription_row
from tests.fixtures.manual_clock import ManualClock

Rig = tuple[httpx.Client, FakeEngine, Assign]
_TIMEOUT = Problem(status=504, code="source_timeout", detail="Open transactions.", remedy="End them.")
HOUR = 3600.0
DAY = 86_400.0


class Bench:
    """A control database with a running subscription of some live tables, whose engine is played."""

    def __init__(self, url: str, tables: int = 3) -> None:
        self.clock = ManualClock(datetime(2026, 5, 4, 10, 0, tzinfo=UTC))
        self.database = Database(url, self.clock)
        self.connected = True
        self._sequence = 0
        with self.database.write() as session:
            row = subscription_row(session)
            row.engine_id, row.epoch = "e1", 1
            self.name = row.name
            now = session.now()
            engine = EngineRow(id="e1", instance="i", name="n", version="1", registered_at=now, seen_at=now)
            session.add_all([row, engine, *(self.table_row(row, f"t{i}", now) for i in range(tables))])
        self.set(every_seconds=int(DAY), budget=0.1)

    @staticmethod
    def table_row(subscription: SubscriptionRow, name: str, now: datetime) -> TableRow:
        return TableRow(
            id=name,
            subscription_id=subscription.id or 0,
            schema_name="public",
            name=name,
            target_schema="public",
            target_name=name,
            desired_state="running",
            state="live",
            state_at=now,
            copied_rows=10,
            stamp="s",
            created_at=now,
        )

    def set(self, **policy: Any) -> None:
        self.change(verify=policy)

    def change(self, **members: Any) -> None:
        with self.database.write() as session:
            row = session.exec(select(SubscriptionRow)).one()
            for name, value in members.items():
                setattr(row, name, value)
            session.add(row)

    def round(self, seconds: float = 0) -> VerificationRow | None:
        """The unended verification after some time and one look for what is due."""
        self.clock.advance(seconds)
        verify_round(self.database, self.clock, lambda _: 60.0 if self.connected else None)
        return next((row for row in self.rows() if row.ended_at is None), None)

    def rows(self) -> list[VerificationRow]:
        with self.database.read() as session:
            return list(session.exec(select(VerificationRow).order_by(col(VerificationRow.created_at))))

    def table(self, name: str) -> TableRow:
        with self.database.read() as session:
            return session.get_one(TableRow, name)

    def commands(self) -> list[str]:
        with self.database.read() as session:
            return [row.kind for row in session.exec(select(OutboxRow).order_by(col(OutboxRow.id)))]

    def report(self, *reports: SubscriptionReport) -> None:
        self._sequence += 1
        with self.database.write() as session:
            assert write_reports(session, "e1", self._sequence, reports) is not None  # type: ignore[arg-type]

    def state(self, table: str, state: str) -> None:
        given = {"subscription": self.name, "epoch": 1, "table": table, "schema": "public", "name": table}
        self.report(TableStateReport.model_validate({**given, "state": state}))

    def end(
        self,
        seconds: float,
        state: str = "succeeded",
        *,
        equal: bool = True,
        position: int = 100,
        sample: float | None = None,
    ) -> str:
        """The running verification ends after so many seconds; returns its table."""
        running = next(row for row in self.rows() if row.ended_at is None)
        self.clock.advance(seconds)
        (table,) = running.asked or ()
        result = VerifiedTable(
            table=table,
            equal=equal,
            source_rows=9,
            target_rows=9 - (not equal),
            differing=() if equal else (Difference(key=("7",), kind="missing"),),
            sample=running.sample if sample is None else sample,
        )
        self.report(
            Verification(
                subscription=self.name,
                epoch=running.epoch,
                verification_id=running.id,
                state=state,  # type: ignore[arg-type]
                position=Lsn(position),
                tables=(result,) if state == "succeeded" else (),
                total=1,
                seconds=seconds,
                problem=_TIMEOUT if state == "failed" else None,
            )
        )
        return table

    def run(self, seconds: float = 1, **more: Any) -> str:
        """Begin what is due and end it."""
        assert self.round() is not None
        return self.end(seconds, **more)

    def run_after(self, seconds: float) -> str:
        self.clock.advance(seconds)
        return self.run()

    def seen(self, table: str) -> tuple[VerifiedView | None, VerificationProblem | None]:
        with self.database.read() as session:
            shown = schedule_of(session.exec(select(SubscriptionRow)).one(), self.clock.now())
            row = session.get_one(TableRow, table)
            return verified_view(row, shown), problem_view(row, shown)

    def alerted(self) -> Verdict:
        with self.database.read() as session:
            row = session.exec(select(SubscriptionRow)).one()
            tables = repository.list_present(session, row.id or 0)
            assessment = Assessment(row, tables, self.clock.now(), 60.0)
            found = find_causes(session, row, assessment, [], settled=True)
            return next(finding.verdict for finding in found if finding.cause is AlertCause.VERIFICATION_FAILED)


@pytest.fixture
def bench(settings: Any) -> Iterator[Bench]:
    made = Bench(settings.control_database)
    yield made
    made.database.close()


def test_one_table_after_another_within_the_budget(bench: Bench) -> None:
    begun = bench.round()
    assert begun is not None
    assert (begun.asked, begun.scheduled, begun.state, begun.epoch) == (["t0"], True, "queued", 1)
    assert bench.commands() == ["verify"]
    assert bench.round(HOUR) == begun
    assert bench.end(40) == "t0"
    # 40 s at a tenth of the time: the next one is 360 s later.
    assert bench.round(359) is None
    assert bench.run_after(1) == "t1"
    assert bench.run_after(HOUR) == "t2"
    # All were compared: the oldest again after the interval, from the end of its comparison.
    assert bench.round(DAY - 2 * HOUR) is None
    assert bench.run_after(2 * HOUR) == "t0"
    found, problem = bench.seen("t1")
    assert found is not None
    assert (found.equal, found.method, found.source_rows, found.before_copy, problem) == (True, "rows", 9, False, None)
    assert found.position == "0/64"


def test_a_change_of_the_schedule_takes_effect_at_once(bench: Bench) -> None:
    bench.run(100)
    assert bench.round(100) is None
    bench.set(every_seconds=int(DAY), budget=0.5)
    running = bench.round()
    assert running is not None
    bench.set()
    assert bench.round() is None
    assert [row.state for row in bench.rows()] == ["succeeded", "cancelled"]
    assert bench.commands()[-1] == "cancel"
    assert bench.round(10 * DAY) is None
    bench.set(every_seconds=60, budget=0.5)
    assert bench.round() is not None


def test_a_users_request_goes_first(bench: Bench) -> None:
    running = bench.round()
    assert running is not None
    bench.clock.advance(30)
    with bench.database.write() as session:
        users = service.begin_verification(session, bench.name, VerificationRequest()).id
    assert [(row.id, row.state) for row in bench.rows()] == [(running.id, "cancelled"), (users, "queued")]
    assert bench.commands() == ["verify", "cancel", "verify"]
    # The late end of the cancelled one counts for nothing.
    late = {"subscription": bench.name, "epoch": 1, "verification_id": running.id, "state": "succeeded"}
    result = VerifiedTable(table="t0", equal=False, source_rows=1, target_rows=0)
    bench.report(Verification.model_validate({**late, "tables": [result]}))
    assert bench.table("t0").verified_at is None
    assert [row.id for row in bench.rows() if row.ended_at is None] == [users]
    assert bench.round(HOUR) == bench.rows()[-1]
    with bench.database.write() as session, pytest.raises(service.VerificationRunning):
        service.begin_verification(session, bench.name, VerificationRequest())
    bench.report(Verification.model_validate({**late, "verification_id": users}))
    # It is compared later, after the others that were never tried.
    assert [bench.run_after(HOUR) for _ in range(3)] == ["t1", "t2", "t0"]


def test_a_user_who_cancels_one_puts_it_off(bench: Bench) -> None:
    for table in ("t1", "t2"):
        bench.state(table, "paused")
    running = bench.round()
    assert running is not None
    with bench.database.write() as session:
        service.cancel_verification(session, bench.name, running.id)
    assert bench.round(FIRST_DELAY.total_seconds() - 1) is None
    assert bench.run_after(1) == "t0"


@pytest.mark.parametrize("state", ["paused", "failed", "starting", "stopped"])
def test_what_does_not_run_is_left_alone(bench: Bench, state: str) -> None:
    bench.change(state=state)
    assert bench.round(HOUR) is None
    bench.change(state=SubscriptionState.RUNNING.value, reason="The source is away.")
    assert bench.round() is None
    bench.change(reason=None)
    bench.connected = False
    assert bench.round() is None
    bench.connected = True
    assert bench.round() is not None
    bench.change(state=state)
    assert bench.round() is None
    assert bench.rows()[-1].state == "cancelled"


def test_tables_that_follow_inserts_only_are_left_alone(bench: Bench) -> None:
    """They are not expected to be equal to their source."""
    with bench.database.write() as session:
        for name in ("t0", "t1"):
            session.get_one(TableRow, name).insert_only = True
    assert bench.run() == "t2"
    assert bench.round(HOUR) is None
    shares = VerifiedShares(bench.database, bench.clock)
    shares.count()
    assert shares.by_subscription[bench.name].tables_ratio == 1


def test_tables_that_are_copied_or_reloaded_are_left_alone(bench: Bench) -> None:
    bench.state("t0", "reloading")

    def reload(table: str | None, state: str) -> None:
        with bench.database.write() as session:
            key = session.exec(select(SubscriptionRow)).one().id or 0
            now = session.now()
            session.merge(ReloadRow(id=f"r{table}", subscription_id=key, table_id=table, state=state, created_at=now))

    reload("t1", "queued")
    assert bench.run() == "t2"
    assert bench.round(HOUR) is None
    reload(None, "running")
    bench.state("t0", "live")
    assert bench.round() is None
    reload(None, "succeeded")
    assert bench.run() == "t0"


def test_a_table_that_cannot_be_compared_is_tried_later_and_says_why(bench: Bench) -> None:
    for table in ("t1", "t2"):
        bench.state(table, "paused")
    for attempt, delay in enumerate([300, 600, 1200], 1):
        bench.run(state="failed")
        problem = bench.seen("t0")[1]
        assert problem is not None
        assert (problem.code, problem.detail, problem.attempts) == ("source_timeout", "Open transactions.", attempt)
        assert (problem.retry_at - bench.clock.now()).total_seconds() == delay
        assert bench.round(delay - 1) is None
        bench.clock.advance(1)
    assert bench.alerted() is Verdict.OVER
    bench.run()
    assert bench.seen("t0")[1] is None
    assert bench.table("t0").verify_failures == 0


def test_an_engine_that_ends_loses_the_comparison_only(bench: Bench) -> None:
    running = bench.round()
    assert running is not None
    bench.change(epoch=2)
    # A burst after a time without server or engine would read the source beyond the budget.
    assert bench.round(10 * DAY) is None
    problem = bench.seen("t0")[1]
    assert problem is not None
    assert (problem.code, bench.rows()[0].state) == ("engine_lost", "failed")
    assert bench.round(PAUSE_AFTER_FAILURE.total_seconds() - 1) is None
    begun = bench.round(1)
    assert begun is not None
    assert (begun.asked, begun.epoch) == (["t1"], 2)


def test_a_difference_is_shown_as_if_a_user_had_found_it(bench: Bench) -> None:
    bench.run(equal=False)
    assert bench.table("t0").differs
    assert bench.alerted() is Verdict.LASTS
    with bench.database.read() as session:
        events = [row.kind for row in session.exec(select(EventRow))]
    assert events.count("verification_differs") == 1
    found = bench.seen("t0")[0]
    assert found is not None
    assert (found.equal, found.target_rows, found.verification) == (False, 8, bench.rows()[0].id)


def test_a_copy_ends_what_was_known(bench: Bench) -> None:
    bench.run(equal=False)
    bench.clock.advance(1)
    bench.state("t0", "reloading")
    found = bench.seen("t0")[0]
    assert found is not None
    assert found.before_copy
    assert not bench.table("t0").differs
    bench.state("t0", "live")
    # Due at once, in its turn.
    assert [bench.run_after(HOUR) for _ in range(3)] == ["t1", "t2", "t0"]
    found = bench.seen("t0")[0]
    assert found is not None
    assert (found.before_copy, found.equal) == (False, True)


def test_a_result_of_rows_that_were_replaced_meanwhile_is_not_stored(bench: Bench) -> None:
    assert bench.round() is not None
    bench.clock.advance(1)
    bench.state("t0", "reloading")
    bench.state("t0", "live")
    bench.end(1, equal=False)
    assert (bench.seen("t0")[0], bench.table("t0").differs) == (None, False)
    # It was compared where the new rows are: the position tells.
    bench.clock.advance(HOUR)
    assert bench.run() == "t1"
    bench.clock.advance(HOUR)
    assert bench.round() is not None
    bench.clock.advance(1)
    bench.state("t2", "reloading")
    given = {"subscription": bench.name, "epoch": 1, "table": "t2", "schema": "public", "name": "t2"}
    bench.report(TableStateReport.model_validate({**given, "state": "live", "position": "0/64"}))
    bench.end(1, position=0x64)
    assert bench.seen("t2")[0] is not None


def test_a_result_counts_when_it_is_reported_and_once(bench: Bench) -> None:
    """A verification of many tables takes long; one of them is reloaded because of what it has found already."""
    with bench.database.write() as session:
        users = service.begin_verification(session, bench.name, VerificationRequest()).id
    found = [VerifiedTable(table=f"t{i}", equal=False, source_rows=9, target_rows=8) for i in range(2)]
    given = {"subscription": bench.name, "epoch": 1, "verification_id": users, "position": "0/64", "total": 2}
    bench.clock.advance(1)
    bench.report(Verification.model_validate({**given, "state": "running", "tables": found[:1]}))
    assert [bench.table(name).differs for name in ("t0", "t1")] == [True, False]
    bench.clock.advance(1)
    bench.state("t0", "reloading")
    bench.state("t0", "live")
    bench.report(Verification.model_validate({**given, "state": "succeeded", "tables": found}))
    assert [bench.table(name).differs for name in ("t0", "t1")] == [False, True]
    last = bench.seen("t0")[0]
    assert last is not None
    assert last.before_copy


def test_a_reload_of_partitions_counts_as_a_copy(bench: Bench) -> None:
    bench.run()
    bench.clock.advance(1)
    with bench.database.write() as session:
        key = session.exec(select(SubscriptionRow)).one().id or 0
        asked: dict[str, Any] = {"names": ["p1"]}
        session.add(
            ReloadRow(
                id="r", subscription_id=key, table_id="t0", asked=asked, state="running", created_at=session.now()
            )
        )
    bench.report(ReloadReport(subscription=bench.name, epoch=1, request_id="r", state="succeeded", partitions=()))
    found = bench.seen("t0")[0]
    assert found is not None
    assert found.before_copy


def test_old_ones_are_deleted_but_the_last_of_each_table(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduled, "KEPT", 2)
    bench.set(every_seconds=60, budget=1)
    first = bench.round()
    assert first is not None
    bench.end(1, equal=False)
    bench.state("t0", "paused")
    with bench.database.write() as session:
        service.begin_verification(session, bench.name, VerificationRequest())
    users = bench.rows()[-1]
    bench.report(
        Verification(subscription=bench.name, epoch=1, verification_id=users.id, state="failed", problem=_TIMEOUT)
    )
    for _ in range(6):
        bench.run_after(HOUR)
    assert bench.round(HOUR) is not None
    left = {row.id for row in bench.rows() if row.ended_at is not None}
    assert {first.id, users.id} <= left
    # Besides: the last of the two other tables, and the two newest of the rest.
    assert len(left) == 6


def test_an_engine_has_some_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduled, "AT_ONCE", 1)
    with bench.database.write() as session:
        ends = session.exec(select(SubscriptionRow)).one()
        now = session.now()
        members = ends.model_dump(exclude={"id", "name", "slot"})
        other = SubscriptionRow(**{**members, "name": "other", "slot": "o"})
        session.add(other)
        session.flush()
        session.add(bench.table_row(other, "o0", now))
    bench.run()
    running = bench.round(HOUR)
    # The one whose last attempt was longer ago goes first.
    assert running is not None
    assert running.asked == ["o0"]
    assert len([row for row in bench.rows() if row.ended_at is None]) == 1


def test_shares_count_what_is_equal_and_recent(bench: Bench) -> None:
    shares = VerifiedShares(bench.database, bench.clock)
    bench.run()
    bench.clock.advance(HOUR)
    bench.run(equal=False)
    bench.clock.advance(HOUR)
    shares.count()
    share = shares.by_subscription[bench.name]
    # Rows by the last comparison or copy, whichever has more.
    assert (share.tables, share.verified_tables, share.tables_ratio, share.rows_ratio) == (3, 1, 1 / 3, 1 / 3)
    assert share.oldest_at is None
    bench.clock.advance(DAY)
    shares.count()
    assert shares.by_subscription[bench.name].verified_tables == 0
    found = bench.seen("t0")[0]
    assert found is not None
    assert found.overdue
    bench.set()
    shares.count()
    assert shares.by_subscription == {}


def test_a_sample_that_is_equal_does_not_verify_the_table_nor_clear_a_difference(bench: Bench) -> None:
    shares = VerifiedShares(bench.database, bench.clock)
    bench.set(every_seconds=int(DAY), budget=0.5, sample=0.01)
    begun = bench.round()
    assert begun is not None
    assert begun.sample == 0.01
    assert bench.end(1) == "t0"
    found = bench.seen("t0")[0]
    assert found is not None
    assert (found.equal, found.sample, found.whole_at) == (True, 0.01, None)
    shares.count()
    share = shares.by_subscription[bench.name]
    assert (share.verified_tables, share.rows_ratio, share.sampled_tables, share.sampled_ratio) == (0, 0.0, 1, 1 / 3)
    # t1 differs as a whole; then a sample of it is equal.
    bench.set(every_seconds=int(DAY), budget=0.5)
    bench.clock.advance(HOUR)
    assert bench.run(equal=False) == "t1"
    bench.set(every_seconds=3600, budget=0.5, sample=0.01)
    assert [bench.run_after(2 * HOUR) for _ in range(3)] == ["t2", "t0", "t1"]
    found = bench.seen("t1")[0]
    assert found is not None
    assert (found.equal, found.sample, found.whole_at is not None) == (True, 0.01, True)
    assert bench.table("t1").differs
    assert bench.alerted() is Verdict.LASTS
    # A table that cannot be sampled was compared as a whole, and so was a table by a schedule without a sample.
    assert bench.run_after(HOUR) == "t2"
    assert [bench.run_after(HOUR), bench.round(HOUR) and bench.end(1, sample=1.0)] == ["t0", "t1"]
    assert not bench.table("t1").differs
    shares.count()
    assert shares.by_subscription[bench.name].verified_tables == 1


def test_a_schedule_of_whole_tables_does_not_count_samples(bench: Bench) -> None:
    bench.set(every_seconds=int(DAY), budget=0.5, sample=0.01)
    assert [bench.run_after(HOUR) for _ in range(3)] == ["t0", "t1", "t2"]
    assert bench.round(HOUR) is None
    bench.set(every_seconds=int(DAY), budget=0.5)
    assert [bench.run_after(HOUR) for _ in range(3)] == ["t0", "t1", "t2"]
    assert bench.round(HOUR) is None
    found = bench.seen("t0")[0]
    assert found is not None
    assert (found.sample, found.whole_at) == (1.0, found.at)


def test_a_comparison_without_an_end_is_cancelled_and_counts_as_failed(bench: Bench) -> None:
    begun = bench.round()
    assert begun is not None
    assert bench.round(6 * HOUR) == begun
    bench.connected = False
    assert bench.round(1) == begun
    bench.connected = True
    assert bench.round(1) is None
    (ended,) = bench.rows()
    assert (ended.state, ended.seconds) == ("failed", pytest.approx(6 * HOUR + 2))
    assert bench.commands() == ["verify", "cancel"]
    problem = bench.seen("t0")[1]
    assert problem is not None
    assert (problem.code, problem.attempts) == ("verification_timeout", 1)
    assert "6 hours" in problem.detail
    # Its late report changes nothing; the budget counts its time.
    bench.report(Verification(subscription=bench.name, epoch=1, verification_id=ended.id, state="succeeded", tables=()))
    assert bench.rows()[0].state == "failed"
    assert bench.round(53 * HOUR) is None
    assert bench.run_after(2 * HOUR) == "t1"


# Over HTTP


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server looks often for what is due."""
    monkeypatch.setattr(schedule, "EVERY_S", 0.1)


@pytest.mark.usefixtures("often")
def test_a_schedule_runs_and_is_shown(rig: Rig) -> None:
    client, engine, assign = rig
    shown = client.get("/subscriptions/orders").json()
    none = {"every_seconds": None, "budget": 0.1, "method": "rows", "sample": 1.0}
    assert (shown["verify"], shown["verified"]) == (none, None)
    policy = {"every_seconds": 3600, "method": "checksum", "sample": 0.5}
    changed = client.patch("/subscriptions/orders", json={"verify": policy}).json()
    assert changed["verify"] == {"budget": 0.1, **policy}
    command = engine.seen(Verify)
    assert (command.method, command.sample) == ("checksum", 0.5)
    (table,) = command.tables
    report = {
        "subscription": "orders",
        "epoch": assign.epoch,
        "verification_id": command.verification_id,
        "state": "succeeded",
        "position": "0/55",
        "tables": [VerifiedTable(table=table, equal=True, source_rows=9, target_rows=9)],
        "total": 1,
        "seconds": 5.0,
    }
    engine.link.report(Verification.model_validate(report))
    assert engine.link.flush(DEADLINE_S)
    found = client.get(f"/subscriptions/orders/tables/{table}").json()["verified"]
    assert found == {
        "position": "0/55",
        "at": found["at"],
        "method": "rows",
        "equal": True,
        "sample": 1.0,
        "whole_at": found["at"],
        "source_rows": 9,
        "target_rows": 9,
        "verification": command.verification_id,
        "before_copy": False,
        "overdue": False,
    }
    listed = "/subscriptions/orders/verifications"
    assert [v["id"] for v in client.get(f"{listed}?trigger=schedule").json()["items"]] == [command.verification_id]
    assert client.get(f"{listed}?trigger=user").json()["items"] == []
    assert client.get(f"{listed}?trigger=me").status_code == 422
    share = client.get("/subscriptions/orders").json()["verified"]
    assert (share["tables"], share["verified_tables"], share["tables_ratio"]) == (2, 1, 0.5)


@pytest.mark.usefixtures("often")
def test_a_new_engine_does_not_get_the_comparison_of_the_one_before(rig: Rig) -> None:
    client, engine, _ = rig
    client.patch("/subscriptions/orders", json={"verify": {"every_seconds": 3600}})
    lost = engine.seen(Verify).verification_id
    engine.close()
    second = FakeEngine(str(client.base_url).removesuffix("/api/v1/"))
    try:
        second.run()
        users = client.post("/subscriptions/orders/verifications")
        assert users.status_code == 202
        second.seen(Verify, lambda command: command.verification_id == users.json()["id"])
        assert all(command.verification_id != lost for command in second.commands if isinstance(command, Verify))
        assert client.get(f"/subscriptions/orders/verifications/{lost}").json()["state"] in {"failed", "cancelled"}
    finally:
        second.close()


@pytest.mark.parametrize(
    ("verify", "member"),
    [
        ({"every_seconds": 59}, "every_seconds"),
        ({"every_seconds": 10**9}, "every_seconds"),
        ({"every_seconds": "1 day"}, "every_seconds"),
        ({"budget": 0}, "budget"),
        ({"budget": 1.1}, "budget"),
        ({"sample": 0}, "sample"),
        ({"sample": 1.5}, "sample"),
        ({"every": 60}, "every"),
    ],
)
def test_wrong_schedules_are_refused(client: Any, connections: None, verify: dict[str, Any], member: str) -> None:
    body = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
    assert client.put("/api/v1/subscriptions/s", json=body).status_code == 201
    for answer in (
        client.put("/api/v1/subscriptions/s", json={**body, "verify": verify}),
        client.patch("/api/v1/subscriptions/s", json={"verify": verify}),
    ):
        assert answer.status_code == 422
        assert [error["pointer"] for error in answer.json()["errors"]] == [f"/verify/{member}"]
