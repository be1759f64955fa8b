"""Freshness goals measured and stored: on a clock that moves by hand, with a real control database, over restarts and clock jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlmodel import select

from engine.link.messages import Progress, TableStateReport
from engine.model.position import Lsn
from engine.model.subscription_state import DesiredState
from engine.model.table_state import TableStateKind
from server.db.database import Database
from server.db.models.event import EventRow
from server.db.models.freshness_goal import FreshnessGoalRow, FreshnessHourRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.freshness.tracker import FreshnessTracker
from server.gateway.hub import Hub
from server.gateway.threads import EngineThreads
from server.goals import repository
from server.goals.budget import Standing
from server.goals.recorder import GoalRecorder, Measurement
from tests.fixtures.control_database import lay_control_database
from tests.fixtures.control_rows import subscription_row
from tests.fixtures.manual_clock import ManualClock

BEGUN = datetime(2026, 5, 4, 10, 0, 30, tzinfo=UTC)
GOAL = {"goal_seconds": 10, "goal_percent": 99}


class Rig:
    """A recorder on a clock that is moved by hand, with the tables `a` and `b`. `restart` replaces all but the control database."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        self.database, self.clock = database, clock
        self.lag_s: float | None = 0.0
        self.reports = True
        self.run = 1

    async def start(self) -> Rig:
        threads = EngineThreads()
        self.tracker = FreshnessTracker(self.database, threads, Hub(), self.clock)
        await self.tracker.refresh()
        self.recorder = GoalRecorder(self.database, threads, self.tracker, self.clock, self.clock.monotonic)
        self.recorder.observe()
        return self

    async def restart(self, away_s: float, *, killed: bool = False) -> None:
        if not killed:
            await self.recorder.stop()
        self.clock.advance(away_s)
        self.run += 1
        await self.start()

    async def pass_time(self, seconds: float) -> None:
        """With a tick each second, a report each five while the engine reports, and a write each minute; over long times less often."""
        step_s = 1 if seconds < 1800 else 15
        for second in range(0, round(seconds), step_s):
            self.clock.advance(step_s)
            if self.reports and (second + step_s) % 5 == 0:
                self.report()
            self.recorder.observe()
            if self.clock.now().second == 0 and (step_s == 1 or self.clock.now().minute % 10 == 0):
                await self.recorder.write()

    def report(self) -> None:
        position = Lsn(1)
        self.recorder.record_report(
            Progress(subscription="s", epoch=0, run=self.run, applied=position, lag_seconds=self.lag_s, at=BEGUN)
        )

    def table(self, table_id: str, state: TableStateKind) -> None:
        report = {
            "subscription": "s",
            "epoch": 0,
            "table": table_id,
            "schema": "public",
            "name": "x",
            "state": state.value,
        }
        found = TableStateReport.model_validate(report)
        self.tracker.apply_report(found)
        self.recorder.record_report(found)
        self.recorder.observe()

    async def declare(self, freshness: dict[str, Any], table_id: str = "", **fields: Any) -> None:
        with self.database.write() as session:
            query = select(TableRow).where(TableRow.id == table_id) if table_id else select(SubscriptionRow)
            row = session.exec(query).one()
            row.freshness = freshness
            for name, value in fields.items():
                setattr(row, name, value)
            session.add(row)
        await self.tracker.refresh()
        self.recorder.observe()

    async def found(self, table_id: str = "") -> Measurement:
        return (await self.recorder.read("s"))["s", table_id]

    async def standing(self, table_id: str = "") -> Standing:
        return (await self.found(table_id)).standing

    def rows(self) -> list[FreshnessGoalRow]:
        with self.database.read() as session:
            return list(session.exec(select(FreshnessGoalRow)))

    def events(self) -> list[str]:
        with self.database.read() as session:
            return [row.kind for row in session.exec(select(EventRow).order_by(EventRow.id))]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database(f"sqlite:///{lay_control_database(tmp_path)}", ManualClock(BEGUN))
    with found.write() as session:
        row = subscription_row(session)
        row.freshness = GOAL
        for name in ("a", "b"):
            session.add(
                TableRow(
                    id=name,
                    subscription_id=row.id,
                    schema_name="public",
                    name=name,
                    target_schema="public",
                    target_name=name,
                    desired_state="running",
                    state="live",
                    state_at=session.now(),
                    stamp="s",
                    created_at=session.now(),
                )
            )
    yield found
    found.close()


def play(database: Database, story: Callable[[Rig], Awaitable[None]]) -> None:
    async def work() -> None:
        await story(await Rig(database, ManualClock(BEGUN)).start())

    asyncio.run(work())


def seconds(found: Standing) -> tuple[float, float, float, float]:
    """Fresh, late, unknown and excluded seconds."""
    shares = found.shares
    times = (shares.fresh_ms, shares.late_ms, found.unknown_ms, shares.excluded_ms)
    return tuple(ms / 1000 for ms in times)  # type: ignore[return-value]


def test_a_lag_within_the_goal_uses_nothing_and_a_larger_one_the_budget(database: Database) -> None:
    async def story(rig: Rig) -> None:
        rig.report()
        await rig.pass_time(600)
        assert seconds(await rig.standing()) == (600, 0, 0, 0)
        rig.lag_s = 20.0
        await rig.pass_time(60)
        found = await rig.found()
        # The first report of the lag proves that it was missed for 10 s, 5 of which had been counted as fresh.
        assert seconds(found.standing) == (595, 65, 0, 0)
        assert found.late_since_ms == repository.ms_of(BEGUN + timedelta(seconds=595))
        assert found.standing.worst is not None
        assert found.standing.worst.length_ms == 65_000
        assert found.standing.left_ms == 0.01 * 168 * 3_600_000 - 65_000
        rig.lag_s = 0.0
        await rig.pass_time(10)
        assert (await rig.found()).late_since_ms is None

    play(database, story)


def test_an_engine_that_goes_silent_is_late_from_what_its_last_report_proves(database: Database) -> None:
    async def story(rig: Rig) -> None:
        rig.report()
        rig.reports = False
        await rig.pass_time(120)
        assert seconds(await rig.standing()) == (10, 110, 0, 0)
        rig.reports, rig.run = True, 2
        await rig.pass_time(60)
        assert seconds(await rig.standing()) == (65, 115, 0, 0)

    play(database, story)


def test_time_without_a_server_is_unknown_and_uses_the_budget(database: Database) -> None:
    async def story(rig: Rig) -> None:
        rig.report()
        await rig.pass_time(300)
        await rig.restart(3600)
        rig.report()
        await rig.pass_time(100)
        found = await rig.standing()
        assert seconds(found) == (400, 0, 3600, 0)
        assert found.used_ms == 3_600_000

    play(database, story)


def test_a_kill_loses_less_than_a_minute_to_unknown(database: Database) -> None:
    async def story(rig: Rig) -> None:
        rig.report()
        await rig.pass_time(290)
        await rig.restart(10, killed=True)
        rig.report()
        await rig.pass_time(60)
        # Written at 10:05:00, killed at 10:05:20.
        assert seconds(await rig.standing()) == (330, 0, 30, 0)

    play(database, story)


def test_a_copy_that_is_late_before_and_since_a_restart_has_been_late_all_the_time(database: Database) -> None:
    async def story(rig: Rig) -> None:
        rig.report()
        await rig.pass_time(60)
        rig.table("a", TableStateKind.PARKED)
        with rig.database.write() as session:
            row = session.get(TableRow, "a")
            assert row is not None
            row.state = "parked"
            session.add(row)
        await rig.pass_time(60)
        await rig.restart(100)
        await rig.pass_time(20)
        found = await rig.found()
        assert found.late_since_ms == repository.ms_of(BEGUN + timedelta(seconds=60))
        assert seconds(found.standing) == (60, 80, 100, 0)
        assert found.standing.worst is not None
        assert found.standing.worst.length_ms == 60_000

    play(database, story)


def test_a_copy_that_was_fresh_for_a_moment_is_late_since_then(database: Database) -> None:
    async def story(rig: Rig) -> None:
        rig.report()
        await rig.pass_time(60)
        for state, lasts_s in ((TableStateKind.PARKED, 40), (TableStateKind.LIVE, 10), (TableStateKind.PARKED, 5)):
            rig.table("a", state)
            await rig.pass_time(lasts_s)
        assert rig.rows()[0].late_since == BEGUN + timedelta(seconds=60)
        assert (await rig.found()).late_since_ms == repository.ms_of(BEGUN + timedelta(seconds=110))

    play(database, story)


@pytest.mark.parametrize("jump_s", [7200, -7200])
def test_a_clock_that_is_set_hides_no_late_time(database: Database, jump_s: int) -> None:
    async def story(rig: Rig) -> None:
        rig.report()
        await rig.pass_time(3600)
        rig.lag_s = 1000.0
        await rig.pass_time(600)
        late_s, left_ms = seconds(await rig.standing())[1], (await rig.standing()).left_ms
        rig.clock.set_wall(rig.clock.now() + timedelta(seconds=jump_s))
        rig.lag_s = 0.0
        await rig.pass_time(300)
        assert (await rig.standing()).left_ms <= left_ms
        _, late, unknown, _ = seconds(await rig.standing())
        if jump_s > 0:
            assert late == late_s
            assert unknown == pytest.approx(jump_s, abs=5)
        else:
            assert late >= late_s
            rig.lag_s = 1000.0
            await rig.pass_time(60)
            assert seconds(await rig.standing())[1] >= late_s + 60

    play(database, story)


def test_states_of_tables_count_as_declared(database: Database) -> None:
    async def story(rig: Rig) -> None:
        await rig.declare({"goal_seconds": 60}, "b")
        rig.report()
        for state, late in (
            (TableStateKind.PARKED, True),
            (TableStateKind.RELOADING, True),
            (TableStateKind.CATCHING_UP, True),
            (TableStateKind.LIVE, False),
        ):
            before = seconds(await rig.standing())
            rig.table("a", state)
            await rig.pass_time(30)
            after = seconds(await rig.standing())
            assert (after[1] - before[1] > 25) == late, state
        # The other table has a goal of its own, and followed all the time.
        assert seconds(await rig.standing("b")) == (120, 0, 0, 0)
        # A first copy is no part of a goal.
        rig.table("b", TableStateKind.COPYING)
        await rig.pass_time(30)
        assert seconds(await rig.standing("b")) == (120, 0, 0, 30)

    play(database, story)


@pytest.mark.parametrize("counted", [True, False])
def test_a_pause_counts_or_does_not(database: Database, counted: bool) -> None:
    async def story(rig: Rig) -> None:
        await rig.declare({**GOAL, "count_pauses": counted})
        rig.report()
        await rig.pass_time(60)
        await rig.declare({**GOAL, "count_pauses": counted}, desired_state=DesiredState.PAUSED.value)
        rig.reports = False
        await rig.pass_time(600)
        assert seconds(await rig.standing()) == ((60, 600, 0, 0) if counted else (60, 0, 0, 600))
        # From the request to resume on, it counts in any case.
        await rig.declare({**GOAL, "count_pauses": counted}, desired_state=DesiredState.RUNNING.value)
        await rig.pass_time(60)
        assert seconds(await rig.standing())[1] >= (650 if counted else 50)

    play(database, story)


def test_a_goal_that_is_changed_is_measured_again_and_a_removed_one_is_forgotten(database: Database) -> None:
    async def story(rig: Rig) -> None:
        rig.report()
        await rig.pass_time(300)
        await rig.declare({**GOAL, "goal_percent": 95, "window_hours": 24})
        assert seconds(await rig.standing()) == (300, 0, 0, 0)
        assert (await rig.standing()).budget_ms == 72 * 60_000
        await rig.declare({**GOAL, "goal_seconds": 20})
        rig.report()
        await rig.pass_time(120)
        assert sum(seconds(await rig.standing())) == 120
        await rig.declare({"goal_seconds": 20})
        assert await rig.recorder.read("s") == {}
        await rig.pass_time(60)
        assert rig.rows() == []
        with rig.database.read() as session:
            assert session.exec(select(FreshnessHourRow)).all() == []

    play(database, story)


def test_a_source_whose_clock_is_wrong_is_late_since_the_measurement_began(database: Database) -> None:
    async def story(rig: Rig) -> None:
        rig.report()
        await rig.pass_time(60)
        rig.lag_s = 50 * 365 * 86_400.0
        await rig.pass_time(60)
        found = await rig.found()
        assert found.late_since_ms == repository.ms_of(BEGUN)
        assert seconds(found.standing) == (0, 120, 0, 0)
        await rig.restart(0)
        assert seconds(await rig.standing()) == (0, 120, 0, 0)

    play(database, story)


def test_a_subscription_that_is_created_again_is_measured_from_its_begin(database: Database) -> None:
    async def story(rig: Rig) -> None:
        rig.report()
        await rig.pass_time(100)
        with database.write() as session:
            session.delete(session.exec(select(SubscriptionRow)).one())
        await rig.tracker.refresh()
        assert rig.rows() == []
        with database.write() as session:
            subscription = SubscriptionRow(
                **{**FIELDS, "slot": "other"}, state_at=BEGUN, created_at=BEGUN, updated_at=BEGUN
            )
            session.add(subscription)
        await rig.tracker.refresh()
        rig.recorder.observe()
        await rig.pass_time(30)
        assert sum(seconds(await rig.standing())) == 30

    play(database, story)


FIELDS = {
    "name": "s",
    "source_id": 1,
    "target_id": 2,
    "desired_state": "running",
    "state": "running",
    "stamp": "s",
    "freshness": GOAL,
}


def test_each_minute_is_one_row_that_is_written_once(database: Database) -> None:
    writes: list[str] = []

    async def story(rig: Rig) -> None:
        rig.report()
        await rig.pass_time(90)
        event.listen(
            database.engine,
            "before_cursor_execute",
            lambda *args: writes.append(args[2]) if _is_write(args[2]) else None,
        )
        await rig.pass_time(60)

    play(database, story)
    assert len(writes) == 1, writes
    assert writes[0].startswith("UPDATE freshness_hours")


def _is_write(statement: str) -> bool:
    return statement.split(maxsplit=1)[0] in {"INSERT", "UPDATE", "DELETE"}


def test_what_could_not_be_stored_is_stored_later(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(rig: Rig) -> None:
        rig.report()
        await rig.pass_time(100)
        with monkeypatch.context() as broken:
            broken.setattr(repository, "find_rows", lambda _: 1 / 0)
            await rig.pass_time(60)
        await rig.pass_time(200)
        await rig.restart(0)
        assert seconds(await rig.standing()) == (360, 0, 0, 0)

    play(database, story)


def test_alarms_are_events_when_they_begin_and_end(database: Database) -> None:
    async def story(rig: Rig) -> None:
        await rig.declare({**GOAL, "window_hours": 6})
        rig.report()
        await rig.pass_time(3600)
        assert rig.events() == []
        rig.lag_s = 50.0
        await rig.pass_time(1410)
        assert set(rig.events()) == {
            "freshness_budget_fast_burn",
            "freshness_budget_slow_burn",
            "freshness_budget_spent",
        }
        (row,) = rig.rows()
        assert set(row.alarms) == {"fast_burn", "slow_burn", "spent"}
        rig.lag_s = 0.0
        await rig.pass_time(7 * 3600)
        assert rig.events().count("freshness_budget_recovered") == 1
        assert len(rig.events()) == 4
        assert rig.rows()[0].alarms == {}

    play(database, story)


def test_hours_before_the_window_are_deleted(database: Database) -> None:
    async def story(rig: Rig) -> None:
        await rig.declare({**GOAL, "window_hours": 6})
        rig.report()
        await rig.pass_time(9 * 3600)
        with Database(database.url, rig.clock).write() as session:
            assert len(session.exec(select(FreshnessHourRow)).all()) == 9
            repository.delete_expired(session)
        with database.read() as session:
            assert len(session.exec(select(FreshnessHourRow)).all()) == 6
        found = await rig.standing()
        assert found.shares.fresh_ms == found.measured.length_ms > 6 * 3_600_000 - 60_000

    play(database, story)
