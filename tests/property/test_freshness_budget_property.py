"""Properties of freshness goals: minutes never hold more than a minute, shares add up to the window, parts merge to the whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from server.declarations.freshness_goals import FreshnessGoal
from server.goals.budget import BudgetAlarm, Standing, judge, needed_hours
from server.goals.meter import Condition, Meter, Span
from server.goals.timeline import (
    HOUR_MS,
    MINUTE_MS,
    Changes,
    Hour,
    Interval,
    Outcome,
    Shares,
    Timeline,
    hour_from_document,
    totals_only,
)

DAY_MS = 24 * HOUR_MS
BEGUN_MS = 1_777_888_999_123
GOAL = FreshnessGoal(lag_seconds=10, percent=99.0, window_hours=24, count_pauses=True)

lengths = st.integers(1, 4 * HOUR_MS)
outcomes = st.sampled_from([*Outcome, None])
"""None: nothing is known."""
histories = st.lists(st.tuples(lengths, outcomes), max_size=8)


def laid_out(history: list[tuple[int, Outcome | None]]) -> list[tuple[Interval, Outcome | None]]:
    """The parts of a history, one after the other."""
    found, at = [], BEGUN_MS
    for length, outcome in history:
        found.append((Interval(at, at + length), outcome))
        at += length
    return found


def recorded(parts: list[tuple[Interval, Outcome | None]]) -> Timeline:
    timeline = Timeline()
    for span, outcome in parts:
        if outcome is not None:
            timeline.add(span, outcome)
            if outcome is Outcome.LATE:
                timeline.add_late(span)
    return timeline


def end_of(parts: list[tuple[Interval, Outcome | None]]) -> int:
    return parts[-1][0].end_ms if parts else BEGUN_MS


def minutes_of(timeline: Timeline) -> dict[int, Shares]:
    return {
        60 * number + minute: shares
        for number, hour in timeline.hours.items()
        for minute, shares in (hour.minutes or {}).items()
    }


def standing_of(history: list[tuple[int, Outcome | None]], goal: FreshnessGoal = GOAL) -> Standing:
    parts = laid_out(history)
    return judge(goal, BEGUN_MS, end_of(parts), recorded(parts))


@given(histories)
def test_shares_add_up_to_the_window(history: list[tuple[int, Outcome | None]]) -> None:
    found = standing_of(history)
    shares = found.shares
    parts = (shares.fresh_ms, shares.late_ms, shares.excluded_ms, found.unknown_ms, found.unmeasured_ms)
    assert sum(parts) == found.window_ms == DAY_MS
    assert min(parts) >= 0
    assert found.compliance is None or 0 <= found.compliance <= 1


@given(histories)
def test_the_standing_is_exact_while_nothing_has_expired(history: list[tuple[int, Outcome | None]]) -> None:
    parts = laid_out(history)
    goal = replace(GOAL, window_hours=2160)
    found = judge(goal, BEGUN_MS, end_of(parts), recorded(parts))

    def total(outcome: Outcome | None) -> int:
        return sum(span.length_ms for span, each in parts if each is outcome)

    assert found.shares == Shares(total(Outcome.FRESH), total(Outcome.LATE), total(Outcome.EXCLUDED))
    assert found.unknown_ms == total(None)
    assert found.used_ms == total(None) + total(Outcome.LATE)


@given(histories)
def test_the_used_budget_only_grows_while_nothing_expires(history: list[tuple[int, Outcome | None]]) -> None:
    goal = replace(GOAL, window_hours=2160)
    used = [standing_of(history[:count], goal).used_ms for count in range(len(history) + 1)]
    assert used == sorted(used)


@given(histories, st.integers(0, 10), st.integers(0, 3))
def test_parts_that_are_stored_one_by_one_make_the_whole(
    history: list[tuple[int, Outcome | None]], cut: int, lost: int
) -> None:
    """Also if the store of a part failed, and it was stored with a later one."""
    parts = laid_out(history)
    first, second = parts[:cut], parts[cut:]
    stored = Timeline()
    Changes(recorded(first)).apply_to(stored)
    rest = Changes(recorded(second[lost:]))
    rest.follow(Changes(recorded(second[:lost])))
    rest.apply_to(stored)
    whole = recorded(parts)
    assert minutes_of(stored) == minutes_of(whole)
    window = Interval(BEGUN_MS, end_of(parts))
    lengths = [found.length_ms if found else 0 for found in (stored.longest_late(window), whole.longest_late(window))]
    assert lengths[0] == lengths[1]


@given(histories)
def test_an_hour_is_stored_and_read_without_loss(history: list[tuple[int, Outcome | None]]) -> None:
    for hour in recorded(laid_out(history)).hours.values():
        read = hour_from_document(hour.to_document(), hour.worst)
        kept = {minute: shares for minute, shares in (hour.minutes or {}).items() if shares != Shares()}
        assert read == Hour(hour.total, kept, hour.worst)


@given(histories)
def test_totals_and_the_needed_hours_suffice(history: list[tuple[int, Outcome | None]]) -> None:
    parts = laid_out(history)
    end_ms, whole = end_of(parts), recorded(parts)
    reduced = totals_only({number: (hour.total, hour.worst) for number, hour in whole.hours.items()})
    needed = needed_hours(GOAL, BEGUN_MS, end_ms)
    reduced.hours.update({number: hour for number, hour in whole.hours.items() if number in needed})
    assert judge(GOAL, BEGUN_MS, end_ms, reduced) == judge(GOAL, BEGUN_MS, end_ms, whole)


@given(histories, st.lists(st.tuples(st.integers(-DAY_MS, DAY_MS), lengths, st.sampled_from(Outcome)), max_size=5))
def test_a_clock_that_is_set_back_hides_no_late_time(
    history: list[tuple[int, Outcome | None]], again: list[tuple[int, int, Outcome]]
) -> None:
    """A minute that is measured twice holds one minute, and all of its late time up to that."""
    timeline = recorded(laid_out(history))
    for shift, length, outcome in again:
        before = minutes_of(timeline)
        span = Interval(BEGUN_MS + shift, BEGUN_MS + shift + length)
        timeline.add(span, outcome)
        after = minutes_of(timeline)
        assert all(shares.known_ms <= MINUTE_MS for shares in after.values())
        assert all(after[minute].late_ms >= shares.late_ms for minute, shares in before.items())
        if outcome is Outcome.LATE:
            assert all(
                after[minute].late_ms >= span.overlap_ms(Interval(minute * MINUTE_MS, (minute + 1) * MINUTE_MS))
                for minute in range(span.begin_ms // MINUTE_MS, (span.end_ms - 1) // MINUTE_MS + 1)
            )


@given(histories, st.integers(0, DAY_MS), lengths)
def test_a_revision_moves_fresh_time_to_late_time(
    history: list[tuple[int, Outcome | None]], offset: int, length: int
) -> None:
    timeline = recorded(laid_out(history))
    before = minutes_of(timeline)
    timeline.revise(Interval(BEGUN_MS + offset, BEGUN_MS + offset + length))
    after = minutes_of(timeline)
    assert all(after[minute].known_ms == shares.known_ms for minute, shares in before.items())
    moved = sum(shares.fresh_ms - after[minute].fresh_ms for minute, shares in before.items())
    assert 0 <= moved <= length
    assert moved == sum(after[minute].late_ms - shares.late_ms for minute, shares in before.items())


moves = st.lists(
    st.tuples(
        st.floats(0.01, 60),
        st.one_of(st.floats(0, 300), st.sampled_from(Condition)),
        st.sampled_from(["one", "two"]),
    ),
    max_size=40,
)


@given(moves)
def test_no_time_is_judged_twice_and_fresh_time_is_proved(
    steps: list[tuple[float, float | Condition, str]],
) -> None:
    """Fresh is only what lies between two reports of one connection, or what the last report proves."""
    meter, now_s, spans = Meter(10.0, 30.0, 0.0, Condition.FOLLOWING), 0.0, list[Span]()
    reports: list[tuple[float, float]] = []
    for wait_s, what, origin in steps:
        now_s += wait_s
        if isinstance(what, Condition):
            spans += meter.observe(now_s, what)
        else:
            spans += meter.report(now_s, what, origin)
            reports.append((now_s, what))
    judged = [span for span in spans if not span.revises]
    assert all(one.end_s <= other.begin_s for one, other in pairwise(judged))
    assert all(0 <= span.begin_s < span.end_s <= now_s for span in judged)
    for span in judged:
        if span.outcome is Outcome.FRESH:
            proved = [at + 10.0 - lag for at, lag in reports if at <= span.begin_s]
            closed = [at for at, _ in reports if at == span.end_s or span.end_s <= at]
            assert proved
            assert span.end_s <= proved[-1] + 1e-6 or closed


@given(histories)
def test_alarms_follow_the_budget(history: list[tuple[int, Outcome | None]]) -> None:
    found = standing_of(history)
    assert (BudgetAlarm.SPENT in found.alarms) == (found.used_ms >= found.budget_ms)
    if found.used_ms == 0:
        assert found.alarms == ()
        assert found.burn_short == found.burn_long == 0


def test_a_copy_that_is_late_for_an_hour_burns_at_the_highest_rate() -> None:
    found = standing_of([(10 * HOUR_MS, Outcome.FRESH), (HOUR_MS, Outcome.LATE)])
    assert found.burn_short > 99
    assert 16 < found.burn_long < 17
    assert set(found.alarms) == set(BudgetAlarm)
    tolerant = standing_of([(10 * HOUR_MS, Outcome.FRESH), (2 * HOUR_MS, Outcome.LATE)], replace(GOAL, percent=50))
    assert tolerant.alarms == (BudgetAlarm.FAST_BURN,)


def test_what_has_left_the_window_does_not_count() -> None:
    late = [(HOUR_MS, Outcome.LATE), (24 * HOUR_MS, Outcome.FRESH)]
    found = standing_of(late)
    assert found.shares.late_ms == 0
    assert found.shares.fresh_ms == found.measured.length_ms > DAY_MS - MINUTE_MS
    assert found.worst is None
