"""How time is judged by reports of the lag, by silence, and by conditions; on a clock that moves by hand."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from server.goals.meter import Condition, Meter, Span

FOLLOWING, HALTED, EXCLUDED = Condition.FOLLOWING, Condition.HALTED, Condition.EXCLUDED
GOAL_S, SILENT_S, RUN = 10.0, 30.0, (1, 1, "stream")


def meter(condition: Condition = FOLLOWING) -> Meter:
    return Meter(GOAL_S, SILENT_S, 0.0, condition)


def judged(spans: Iterable[Span]) -> list[tuple[float, float, str]]:
    return [(span.begin_s, span.end_s, ("was " if span.revises else "") + span.outcome.value) for span in spans]


def heard(at_s: float = 0.0, lag_s: float = 0.0) -> Meter:
    """A meter of an engine that has reported this lag at this time."""
    found = meter()
    found.report(at_s, lag_s, RUN)
    return found


def test_time_before_the_first_report_is_unknown_and_late_when_the_engine_stays_silent() -> None:
    found = meter()
    assert judged(found.report(20.0, 0.0, RUN)) == []
    silent = meter()
    assert judged(silent.observe(30.0, FOLLOWING)) == []
    assert judged(silent.observe(35.0, FOLLOWING)) == [(30.0, 35.0, "late")]


def test_a_report_judges_the_time_since_the_one_before() -> None:
    found = heard()
    assert judged(found.report(5.0, 0.0, RUN)) == [(0.0, 5.0, "fresh")]
    # At the goal is fresh; the oldest change is of 2, so the goal is missed from 12 on.
    assert judged(found.report(12.0, 10.0, RUN)) == [(5.0, 12.0, "fresh")]
    assert judged(found.report(15.0, 13.0, RUN)) == [(12.0, 15.0, "late")]
    assert found.late_from_s == 12.0
    # The change became visible, and no newer one waits.
    assert judged(found.report(16.0, 0.5, RUN)) == [(15.0, 16.0, "fresh")]
    assert found.late_from_s is None


def test_a_report_may_divide_the_time() -> None:
    assert judged(heard().report(20.0, 15.0, RUN)) == [(0.0, 15.0, "fresh"), (15.0, 20.0, "late")]


def test_what_was_counted_as_fresh_is_revised_when_an_old_change_is_found() -> None:
    found = heard()
    found.report(5.0, 0.0, RUN)
    found.report(10.0, 0.0, RUN)
    found.report(15.0, 0.0, RUN)
    assert judged(found.report(20.0, 18.0, RUN)) == [(12.0, 15.0, "was late"), (15.0, 20.0, "late")]
    assert found.late_from_s == 12.0
    # It is revised once, not at each report of the same change.
    assert judged(found.report(21.0, 19.0, RUN)) == [(20.0, 21.0, "late")]


def test_silence_is_fresh_only_as_long_as_the_last_report_proves() -> None:
    found = heard(lag_s=4.0)
    assert judged(found.observe(29.0, FOLLOWING)) == []
    assert judged(found.observe(31.0, FOLLOWING)) == [(0.0, 6.0, "fresh"), (6.0, 31.0, "late")]
    assert judged(found.observe(32.0, FOLLOWING)) == [(31.0, 32.0, "late")]
    assert judged(found.report(33.0, 0.0, RUN)) == [(32.0, 33.0, "late")]
    assert judged(found.report(34.0, 0.0, RUN)) == [(33.0, 34.0, "fresh")]


@pytest.mark.parametrize("origin", [(2, 1, "stream"), (1, 2, "stream"), (1, 1, "another")])
def test_reports_of_another_run_or_connection_do_not_prove_the_time_between(origin: tuple[int, int, str]) -> None:
    assert judged(heard().report(20.0, 0.0, origin)) == [(0.0, 10.0, "fresh"), (10.0, 20.0, "late")]


def test_a_halt_is_late_and_an_exclusion_neither() -> None:
    found = heard()
    assert judged(found.observe(2.0, HALTED)) == [(0.0, 2.0, "fresh")]
    assert judged(found.observe(5.0, HALTED)) == [(2.0, 5.0, "late")]
    assert judged(found.report(6.0, 0.0, RUN)) == [(5.0, 6.0, "late")]
    assert judged(found.observe(7.0, EXCLUDED)) == [(6.0, 7.0, "late")]
    assert judged(found.observe(9.0, FOLLOWING)) == [(7.0, 9.0, "excluded")]
    assert found.late_from_s is None
    assert judged(found.report(10.0, 0.0, RUN)) == [(9.0, 10.0, "fresh")]


def test_late_without_interruption_is_one_time() -> None:
    found = heard()
    found.report(20.0, 15.0, RUN)
    found.observe(22.0, HALTED)
    found.observe(30.0, HALTED)
    assert (found.late_from_s, found.judged_s) == (15.0, 30.0)


def test_whether_all_was_late_is_known() -> None:
    assert meter().unbroken
    halted = meter(HALTED)
    halted.observe(5.0, HALTED)
    assert halted.unbroken
    halted.observe(6.0, EXCLUDED)
    halted.observe(7.0, HALTED)
    assert not halted.unbroken
