"""Measures the freshness goals of all subscriptions: collects reports on the event loop, and stores each minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from engine.link.messages import Progress, Report, SubscriptionStateReport, TableStateReport
from server.assessment.health import SILENT_AFTER_S
from server.clock import Clock
from server.db.database import Database
from server.db.models.freshness_goal import FreshnessGoalRow
from server.db.session import ReadSession, WriteSession
from server.declarations.freshness_goals import FreshnessGoal
from server.freshness.subscription_status import SubscriptionStatus
from server.freshness.tracker import FreshnessTracker
from server.gateway.threads import EngineThreads
from server.goals import alarms, repository
from server.goals.budget import Standing, judge
from server.goals.conditions import condition_of, declared_in
from server.goals.meter import Meter, Span
from server.goals.repository import GoalKey
from server.goals.timeline import HOUR_MS, MINUTE_MS, Changes, Interval, Timeline
from server.logs import get_logger
from server.lookup.subscriptions import require_subscription

log = get_logger(__name__)

_TICK_S = 1.0
_AT_ONCE = 50
"""Goals stored in one transaction, about a tenth of a second: engines' reports wait for it."""
_JUMP_MS = MINUTE_MS // 2
"""A clock that differs by more from the time that has passed was set, or the machine slept."""


@dataclass(slots=True)
class _Measured:
    """One goal, with what is not stored yet. `since_ms`: when this process began to measure it. `status`: that of its subscription; one
    of the same name that is created later has another."""

    status: SubscriptionStatus
    goal: FreshnessGoal
    meter: Meter
    since_ms: int
    changes: Changes = field(default_factory=Changes)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What one goal has at `end_ms`, to be used in a thread. `late_from_ms`: the copy has been late since; None: it is not. `unbroken`:
    it has been late ever since this process began to measure it."""

    goal: FreshnessGoal
    since_ms: int
    end_ms: int
    late_from_ms: int | None
    unbroken: bool
    changes: Changes


@dataclass(frozen=True, slots=True)
class Measurement:
    """A goal with its standing. `late_since_ms`: the copy has been late since; None: it is not."""

    key: GoalKey
    standing: Standing
    late_since_ms: int | None


class GoalRecorder:
    """Called on the event loop only; the control database is accessed in threads. Durations are those of `monotonic_s`, so a clock that is
    set neither adds nor removes late time; time that it skips is unknown."""

    def __init__(
        self,
        database: Database,
        threads: EngineThreads,
        freshness: FreshnessTracker,
        clock: Clock,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._threads = threads
        self._freshness = freshness
        self._clock = clock
        self._monotonic_s = monotonic_s
        self._measured: dict[str, dict[str, _Measured]] = {}
        """By subscription, and the id of the table."""
        self._stirred: set[str] = set()
        """Subscriptions with states that were reported since the last observation."""
        self._offset_ms = self._clock_offset_ms()
        self._written_minute = 0
        self._written: set[GoalKey] = set()
        self._storing = asyncio.Lock()
        self.measurements: dict[GoalKey, Measurement] = {}
        """By goal, as of the last minute that was stored."""

    # Input

    def record_report(self, report: Report) -> None:
        """Take account of a report that was accepted."""
        if isinstance(report, Progress):
            if report.lag_seconds is not None:
                self._record_lag(report, report.lag_seconds)
        elif isinstance(report, SubscriptionStateReport | TableStateReport):
            self._observe_soon(report.subscription)

    def _observe_soon(self, subscription: str) -> None:
        """In the next turn of the event loop, so that a report of each of many tables costs one observation."""
        if not self._stirred:
            asyncio.get_running_loop().call_soon(self._observe_stirred)
        self._stirred.add(subscription)

    def _observe_stirred(self) -> None:
        stirred, self._stirred = self._stirred, set()
        for subscription in stirred:
            status = self._freshness.find_status(subscription)
            if status is not None:
                self._observe(status)

    def _record_lag(self, report: Progress, lag_s: float) -> None:
        now_s = self._monotonic_s()
        for measured in self._measured.get(report.subscription, {}).values():
            self._add(measured, measured.meter.report(now_s, lag_s, (report.epoch, report.run, report.stream)))

    def observe(self) -> None:
        """Take account of the present conditions of all subscriptions, and of the time that has passed."""
        statuses = self._freshness.statuses
        for status in statuses:
            self._observe(status)
        for gone in self._measured.keys() - {status.name for status in statuses}:
            del self._measured[gone]
        offset_ms = self._clock_offset_ms()
        if abs(offset_ms - self._offset_ms) > _JUMP_MS:
            log.warning("clock_jumped", by_seconds=round((offset_ms - self._offset_ms) / 1000, 1))
            self._offset_ms = offset_ms
            for _, measured in self._all():
                measured.since_ms = min(measured.since_ms, self._now_ms())

    def _observe(self, status: SubscriptionStatus) -> None:
        now_s, before = self._monotonic_s(), self._measured.pop(status.name, {})
        for table, goal in declared_in(status).items():
            condition = condition_of(status, table, goal)
            known = before.get(table)
            if known is None or known.status is not status or not _same_measure(known.goal, goal):
                meter = Meter(goal.lag_seconds, SILENT_AFTER_S, now_s, condition)
                known = _Measured(status, goal, meter, self._ms(now_s))
            else:
                known.goal = goal
                self._add(known, known.meter.observe(now_s, condition))
            self._measured.setdefault(status.name, {})[table] = known

    def _add(self, measured: _Measured, spans: Iterable[Span]) -> None:
        for span in spans:
            interval = Interval(self._ms(span.begin_s), self._ms(span.end_s))
            if span.revises:
                # A source whose clock is wrong may report any age.
                window_ms = measured.goal.window_hours * HOUR_MS
                measured.changes.revise(Interval(max(interval.begin_ms, interval.end_ms - window_ms), interval.end_ms))
            else:
                measured.changes.added.add(interval, span.outcome)
        late_from_s = measured.meter.late_from_s
        if late_from_s is not None:
            late = Interval(self._ms(late_from_s), self._ms(measured.meter.judged_s))
            measured.changes.added.add_late(late)

    def _ms(self, at_s: float) -> int:
        return round(at_s * 1000) + self._offset_ms

    def _now_ms(self) -> int:
        return self._ms(self._monotonic_s())

    def _clock_offset_ms(self) -> int:
        return repository.ms_of(self._clock.now()) - round(self._monotonic_s() * 1000)

    # Storage

    async def keep_recording(self) -> None:
        """Observe every second and write every minute, and when goals come or go, until cancelled."""
        while True:
            try:
                self.observe()
                is_new = {key for key, _ in self._all()} != self._written
                if is_new or self._written_minute != self._now_ms() // MINUTE_MS:
                    await self.write()
            except Exception:
                log.exception("freshness_goals_not_observed")
            await asyncio.sleep(_TICK_S)

    async def stop(self) -> None:
        """Store what was measured up to now."""
        self.observe()
        await self.write()

    async def write(self) -> None:
        """Store what was measured. What cannot be stored is stored by the next call."""
        async with self._storing:
            self._written_minute = self._now_ms() // MINUTE_MS
            taken = {key: self._snapshot(each, taken=True) for key, each in self._all()}
            self._written = set(taken)
            keys, found = list(taken), dict[GoalKey, Measurement]()
            for first in range(0, max(1, len(keys)), _AT_ONCE):
                part = {key: taken[key] for key in keys[first : first + _AT_ONCE]}
                try:
                    found |= await self._threads.run(partial(self._write, part))
                except Exception:
                    log.exception("freshness_goals_not_written", goals=len(part))
                    self._put_back(part)
                    found |= {key: known for key, known in self.measurements.items() if key in part}
            self.measurements = found

    def _all(self) -> Iterator[tuple[GoalKey, _Measured]]:
        for subscription, tables in self._measured.items():
            for table, measured in tables.items():
                yield (subscription, table), measured

    def _put_back(self, taken: Mapping[GoalKey, _Snapshot]) -> None:
        for key, measured in self._all():
            if key in taken and _same_measure(measured.goal, taken[key].goal):
                measured.changes.follow(taken[key].changes)

    def _snapshot(self, measured: _Measured, *, taken: bool = False) -> _Snapshot:
        """`taken`: its changes leave the memory."""
        meter = measured.meter
        changes = measured.changes
        if taken:
            measured.changes = Changes()
        else:
            changes = changes.copy()
        late_from_ms = None if meter.late_from_s is None else self._ms(meter.late_from_s)
        end_ms = self._ms(meter.judged_s)
        return _Snapshot(measured.goal, measured.since_ms, end_ms, late_from_ms, meter.unbroken, changes)

    def _write(self, taken: Mapping[GoalKey, _Snapshot]) -> dict[GoalKey, Measurement]:
        with self._database.write() as session:
            declared, rows = repository.declared_goals(session), repository.find_rows(session)
            for key in rows.keys() - declared.keys():
                session.delete(rows[key])
            # A goal that was changed since is measured again from its next observation.
            current = {key: each for key, each in taken.items() if key in declared}
            found = {}
            for key, each in current.items():
                if _same_measure(declared[key], each.goal):
                    found[key] = _store(session, key, rows.get(key), each)
            return found

    # Output

    async def read(self, subscription: str) -> dict[GoalKey, Measurement]:
        """The goals of a subscription and its tables, as of now.

        Raises:
            NotFound: there is no such subscription.
        """
        await self._freshness.current_registry(subscription)
        self.observe()
        async with self._storing:
            taken = {key: self._snapshot(each) for key, each in self._all() if key[0] == subscription}
            return await self._threads.run(partial(self._read, subscription, taken, self._now_ms()))

    def _read(self, subscription: str, taken: Mapping[GoalKey, _Snapshot], now_ms: int) -> dict[GoalKey, Measurement]:
        with self._database.read() as session:
            require_subscription(session, subscription)
            rows = repository.find_rows(session, subscription)
            declared = repository.declared_goals(session, subscription)
            found = {}
            for key, goal in declared.items():
                each = taken.get(key)
                if each is None or not _same_measure(each.goal, goal):
                    each = _Snapshot(goal, now_ms, now_ms, None, False, Changes())
                found[key] = _measurement(session, key, rows.get(key), each)
            return found


def _same_measure(one: FreshnessGoal, other: FreshnessGoal) -> bool:
    """Whether time is judged the same by both; the other values only evaluate what was measured."""
    return (one.lag_seconds, one.count_pauses) == (other.lag_seconds, other.count_pauses)


def _measurement(session: ReadSession, key: GoalKey, row: FreshnessGoalRow | None, each: _Snapshot) -> Measurement:
    """The goal with what is stored and what is not."""
    stored = row if row is not None and repository.is_of(row, each.goal) else None
    timeline = Timeline()
    if stored is not None:
        timeline = repository.read_timeline(session, stored, each.goal, each.end_ms, each.changes.hours)
    each.changes.apply_to(timeline)
    return Measurement(key, _standing(stored, each, timeline), _late_since_ms(stored, each))


def _standing(row: FreshnessGoalRow | None, each: _Snapshot, timeline: Timeline) -> Standing:
    """After the clock was set back, the window ends where it ended before, so that nothing leaves it unseen."""
    since_ms = each.since_ms if row is None else min(each.since_ms, repository.ms_of(row.since))
    latest_ms = timeline.end_ms
    end_ms = each.end_ms if latest_ms < each.end_ms + MINUTE_MS else latest_ms
    return judge(each.goal, since_ms, end_ms, timeline)


def _late_since_ms(row: FreshnessGoalRow | None, each: _Snapshot) -> int | None:
    """If the copy was late when the server stopped and is late since its start, it has been late since before."""
    if each.late_from_ms is None:
        return None
    since_ms = each.since_ms if row is None else repository.ms_of(row.since)
    late_from_ms = max(each.late_from_ms, since_ms)
    known = None if row is None or row.late_since is None else repository.ms_of(row.late_since)
    return min(known, late_from_ms) if known is not None and each.unbroken else late_from_ms


def _store(session: WriteSession, key: GoalKey, row: FreshnessGoalRow | None, each: _Snapshot) -> Measurement:
    if row is None:
        owner = require_subscription(session, key[0])
        row = FreshnessGoalRow(
            subscription_id=owner.id or 0,
            table_id=key[1],
            lag_seconds=each.goal.lag_seconds,
            count_pauses=each.goal.count_pauses,
            since=repository.moment_of(each.since_ms),
        )
        session.add(row)
        session.flush()
    elif not repository.is_of(row, each.goal):
        repository.delete_hours(session, row)
        row.lag_seconds, row.count_pauses = each.goal.lag_seconds, each.goal.count_pauses
        row.since, row.late_since, row.alarms = repository.moment_of(each.since_ms), None, {}
    timeline = repository.read_timeline(session, row, each.goal, each.end_ms, each.changes.hours)
    each.changes.apply_to(timeline)
    repository.store_hours(session, row, timeline, each.changes.hours)
    late_since_ms = _late_since_ms(row, each)
    row.late_since = None if late_since_ms is None else repository.moment_of(late_since_ms)
    row.since = min(row.since, repository.moment_of(each.since_ms))
    standing = _standing(row, each, timeline)
    alarms.record_alarms(session, key, row, standing)
    session.add(row)
    return Measurement(key, standing, late_since_ms)
