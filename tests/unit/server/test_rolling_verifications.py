"""The schedule of verifications as pure logic, played over days by a clock that is set."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.verifications.rolling import (
    FIRST_DELAY,
    LONGEST_DELAY,
    PAUSE_AFTER_FAILURE,
    Attempt,
    Candidate,
    choose,
    delay_after,
    is_due,
    limit_of,
    may_begin,
)

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
ROUND = timedelta(seconds=3)
"""Between two looks for what is due, as in the server; the model skips the looks in which nothing can be due."""


@dataclass
class Table:
    """A table of the model. `outcomes`: of its attempts, in turn and again from the first: compared, failed, or cancelled by a user's
    own verification."""

    name: str
    seconds: float
    outcomes: list[str]
    compared_at: datetime | None = None
    tried_at: datetime | None = None
    retry_at: datetime | None = None
    failures: int = 0
    attempts: int = 0

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.name, self.compared_at, self.tried_at, self.retry_at)

    def end(self, now: datetime) -> str:
        outcome = self.outcomes[self.attempts % len(self.outcomes)]
        self.attempts += 1
        self.tried_at = now
        if outcome == "compared":
            self.compared_at, self.failures, self.retry_at = now, 0, None
        elif outcome == "failed":
            self.failures += 1
            self.retry_at = now + delay_after(self.failures)
        return outcome


@dataclass
class Played:
    """`begun`: table and time of each attempt; `due`: the tables that were due then, with their last attempts."""

    tables: list[Table]
    begun: list[tuple[str, datetime, float]] = field(default_factory=list)
    due: list[dict[str, datetime | None]] = field(default_factory=list)
    last: list[Attempt] = field(default_factory=list)


def play(tables: list[Table], every: timedelta, budget: float, attempts: int) -> Played:
    """The schedule's first attempts."""
    played, now = Played(tables), NOW
    last: Attempt | None = None
    by_name = {table.name: table for table in tables}
    while len(played.begun) < attempts:
        chosen = choose([table.candidate for table in tables], every, now) if may_begin(last, budget, now) else None
        if chosen is None:
            # To the first moment at which anything may have changed, and the look after it.
            moments = [t.retry_at for t in tables] + [t.compared_at + every for t in tables if t.compared_at]
            if last is not None:
                pause = last.ended_at + timedelta(seconds=last.seconds * (1 - budget) / budget)
                moments += [pause, last.ended_at + PAUSE_AFTER_FAILURE]
            now = min([moment for moment in moments if moment is not None and moment > now]) + ROUND
            continue
        played.due.append({t.name: t.tried_at for t in tables if is_due(t.candidate, every, now)})
        table = by_name[chosen.table]
        played.begun.append((table.name, now, table.seconds))
        now += timedelta(seconds=table.seconds)
        last = Attempt(now, table.seconds, failed=table.end(now) == "failed")
        played.last.append(last)
    return played


OUTCOMES = st.lists(st.sampled_from(["compared", "compared", "failed", "cancelled"]), min_size=1, max_size=4)
TABLES = st.lists(st.tuples(st.floats(0.1, 20_000), OUTCOMES), min_size=1, max_size=6).map(
    lambda found: [Table(f"t{i}", seconds, outcomes) for i, (seconds, outcomes) in enumerate(found)]
)


@settings(max_examples=60, deadline=None)
@given(TABLES, st.floats(0.001, 1), st.sampled_from([60.0, 3600.0, 86_400.0]))
def test_the_budget_holds_and_each_gets_its_turn(tables: list[Table], budget: float, every: float) -> None:
    played = play(tables, timedelta(seconds=every), budget, 40)
    names = [name for name, _, _ in played.begun]
    for first in range(len(names)):
        read = 0.0
        for name, begun, seconds in played.begun[first:]:
            assert read <= budget * (begun - played.begun[first][1]).total_seconds() + 0.001, name
            read += seconds
    for name, due in zip(names, played.due, strict=True):
        # The oldest first; tables that were never tried before all others.
        assert min((tried or NOW, other) for other, tried in due.items()) == (due[name] or NOW, name)
    for table in tables:
        # While a table is due, no other one has two turns.
        waiting: list[str] = []
        for name, due in zip(names, played.due, strict=True):
            waiting = [*waiting, name] if table.name in due and name != table.name else []
            assert len(waiting) == len(set(waiting)), (table.name, waiting)


def test_every_table_is_compared_again_when_it_is_time() -> None:
    tables = [Table(f"t{i}", 10, ["compared"]) for i in range(3)]
    played = play(tables, HOUR, 0.5, 9)
    assert [name for name, _, _ in played.begun] == ["t0", "t1", "t2"] * 3
    again = played.begun[3][1] - played.begun[0][1]
    assert HOUR <= again - timedelta(seconds=10) < HOUR + 2 * ROUND


def test_a_table_that_cannot_be_compared_does_not_keep_the_others_waiting() -> None:
    broken, good = Table("broken", 5, ["failed"]), Table("good", 5, ["compared"])
    played = play([broken, good], timedelta(minutes=1), 1, 60)
    names = [name for name, _, _ in played.begun]
    assert names.count("good") > 40
    waits = [now for name, now, _ in played.begun if name == "broken"]
    gaps = [(b - a).total_seconds() for a, b in pairwise(waits)]
    assert gaps == sorted(gaps)
    assert gaps[0] >= FIRST_DELAY.total_seconds()


@pytest.mark.parametrize(
    ("failures", "delay"),
    [
        (1, FIRST_DELAY),
        (2, 2 * FIRST_DELAY),
        (4, 8 * FIRST_DELAY),
        (9, timedelta(minutes=1280)),
        (10, LONGEST_DELAY),
        (10**6, LONGEST_DELAY),
    ],
)
def test_delays_grow_to_a_day(failures: int, delay: timedelta) -> None:
    assert delay_after(failures) == delay


@pytest.mark.parametrize(
    ("compared", "retry", "due"),
    [
        (None, None, True),
        (-HOUR, None, True),
        (-HOUR + ROUND, None, False),
        (None, ROUND, False),
        (None, timedelta(0), True),
        # A clock that was set back: such times do not keep the table waiting.
        (HOUR, None, True),
        (None, LONGEST_DELAY + ROUND, True),
    ],
)
def test_what_is_due(compared: timedelta | None, retry: timedelta | None, due: bool) -> None:
    def at(ago: timedelta | None) -> datetime | None:
        return None if ago is None else NOW + ago

    assert is_due(Candidate("t", at(compared), None, at(retry)), HOUR, NOW) is due


@pytest.mark.parametrize(
    ("last", "budget", "begins"),
    [
        (None, 0.1, True),
        (Attempt(NOW - timedelta(seconds=89), 10), 0.1, False),
        (Attempt(NOW - timedelta(seconds=90), 10), 0.1, True),
        (Attempt(NOW, 10), 1, True),
        (Attempt(NOW, 0, failed=True), 1, False),
        (Attempt(NOW - PAUSE_AFTER_FAILURE, 0, failed=True), 1, True),
        (Attempt(NOW - PAUSE_AFTER_FAILURE, 100, failed=True), 0.5, False),
        (Attempt(NOW + HOUR, 10), 0.1, True),
    ],
)
def test_when_the_next_may_begin(last: Attempt | None, budget: float, begins: bool) -> None:
    assert may_begin(last, budget, NOW) is begins


@pytest.mark.parametrize(
    ("seconds", "failures", "hours"),
    [((), 0, 6), ((60.0, 1800.0), 0, 6), ((3600.0, 9000.0), 0, 10), ((9000.0,), 2, 40), ((), 3, 48), ((), 99, 96)],
)
def test_a_comparison_may_take_some_times_what_the_last_ones_took(
    seconds: tuple[float, ...], failures: int, hours: int
) -> None:
    assert limit_of(seconds, failures) == hours * HOUR
