"""Events about nodes that are away or silent: one for each outage."""

from __future__ import annotations

from typing import cast

from engine.model.merged_logs import Away, LogStatus
from engine.model.position import Lsn
from engine.safety.node_watch import NodeWatch
from engine.tables.reporter import Reporter
from tests.fixtures.manual_clock import ManualEngineClock

SECOND_US = 1_000_000
HERE = LogStatus("n1", Lsn(5), Lsn(5))


class Reports:
    """Takes events."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self.details: list[str] = []

    def event(self, severity: str, code: str, subject: str, detail: str) -> None:
        del severity
        self.found.append((code, subject))
        self.details.append(detail)


def away(since_s: float) -> LogStatus:
    return LogStatus("n1", Lsn(5), late=True, away=Away(round(since_s * SECOND_US), "source_unreachable", "refused"))


def silent(since_s: float) -> LogStatus:
    return LogStatus("n1", Lsn(5), late=True, silent_since_us=round(since_s * SECOND_US))


def test_each_outage_is_reported_once_after_some_seconds() -> None:
    reports, clock = Reports(), ManualEngineClock()
    watch = NodeWatch(cast("Reporter", reports), clock)
    expected: list[tuple[str, str]] = []
    for begin_s, make in ((10.0, away), (30.0, silent)):
        for after_s, log in ((0.0, make(begin_s)), (4.9, make(begin_s)), (5.0, make(begin_s)), (9.0, make(begin_s))):
            clock.ms = (begin_s + after_s) * 1000
            watch.look([log, LogStatus("n2", Lsn(7))])
            expected += [("node_silent", "n1")] if after_s == 5.0 else []
            assert reports.found == expected
        watch.look([HERE])
        watch.look([HERE])
        expected.append(("node_heard", "n1"))
        assert reports.found == expected
    assert "refused" in reports.details[0]


def test_a_node_that_no_other_waits_for_at_a_moment_is_not_heard_before_its_log_is_read() -> None:
    reports, clock = Reports(), ManualEngineClock()
    watch = NodeWatch(cast("Reporter", reports), clock)
    for at_s in range(10, 60):
        clock.ms = at_s * 1000.0
        since_us = 0 if at_s % 20 == 19 else 10 * SECOND_US
        watch.look([LogStatus("n1", Lsn(9), read=Lsn(5), late=True, silent_since_us=since_us)])
    assert reports.found == [("node_silent", "n1")]
    watch.look([LogStatus("n1", Lsn(9), read=Lsn(6))])
    assert reports.found == [("node_silent", "n1"), ("node_heard", "n1")]


def test_a_node_is_not_heard_while_no_reader_says_what_is_read() -> None:
    """The log reader ends while the node is away."""
    reports, clock = Reports(), ManualEngineClock()
    watch = NodeWatch(cast("Reporter", reports), clock)
    clock.ms = 20_000.0
    watch.look([away(10.0)])
    watch.look([LogStatus("n1", Lsn(5))])
    assert reports.found == [("node_silent", "n1")]
    watch.look([HERE])
    assert reports.found == [("node_silent", "n1"), ("node_heard", "n1")]


def test_short_outages_and_what_is_not_known_are_not_reported() -> None:
    reports, clock = Reports(), ManualEngineClock()
    watch = NodeWatch(cast("Reporter", reports), clock)
    for at_s in range(20):
        clock.ms = at_s * 1000.0
        watch.look([silent(at_s)] if at_s % 2 else [])
        watch.look([HERE])
    assert reports.found == []


def test_an_outage_goes_from_silent_to_away_as_one() -> None:
    reports, clock = Reports(), ManualEngineClock()
    watch = NodeWatch(cast("Reporter", reports), clock)
    clock.ms = 20_000.0
    watch.look([silent(10.0)])
    watch.look([away(15.0)])
    clock.ms = 40_000.0
    watch.look([away(15.0)])
    assert reports.found == [("node_silent", "n1")]
