"""Progress of a reload of several tables: computed over all of them, and never decreasing."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from engine.copy.progress import Course
from engine.copy.reload_requests import ReloadRequests
from engine.link.messages import ReloadReport, Report
from engine.model.copies import CopyProgress
from engine.model.identity import Epoch, SubscriptionName, TableId
from engine.model.subscription import ConnectionSpec, SubscriptionSpec
from engine.platform.clock import SystemClock
from engine.sources.postgres_log.position_form import PostgresLogForm
from engine.tables.reporter import Reporter

A, B = TableId("ta"), TableId("tb")


class _Named:
    name = SubscriptionName("s")
    epoch = Epoch(1)
    source = ConnectionSpec("shop", "postgres", {})


class Told:
    """A reload of two tables, and its reports."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.book = ReloadRequests(
            Reporter(cast("SubscriptionSpec", _Named()), self.reports.append, SystemClock(), PostgresLogForm())
        )
        self.book.begin("r1", [A, B])

    def progressed(self, progress: CopyProgress) -> ReloadReport:
        self.book.progressed(progress)
        return cast("ReloadReport", self.reports[-1])


def _at(course: Course, now: float, rows: int, of: int) -> CopyProgress:
    return course.at(now, rows=rows, share=rows / of, total_rows=of, total_bytes=of * 10)


def test_a_small_table_that_is_done_does_not_make_a_large_one_half_done() -> None:
    told, small, large = Told(), Course(A), Course(B)
    assert told.progressed(_at(small, 0.0, 10, 10)).total_bytes is None, "the other's size is not known"
    report = told.progressed(_at(large, 0.0, 0, 990))
    assert (report.bytes, report.total_bytes, report.total_rows) == (100, 10_000, 1000)
    report = told.progressed(_at(large, 10.0, 490, 990))
    assert (report.percent, report.rows, report.rows_per_second, report.eta_seconds) == (50.0, 500, 49.0, 10.2)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100)), max_size=40))
def test_no_figure_runs_back_whatever_order_the_tables_report_in(steps: list[tuple[bool, int]]) -> None:
    told, courses = Told(), {A: Course(A), B: Course(B)}
    found = [
        told.progressed(_at(courses[B if second else A], float(number), rows, 200))
        for number, (second, rows) in enumerate(steps)
    ]
    for before, after in pairwise(found):
        assert (before.rows or 0) <= (after.rows or 0)
        assert (before.bytes or 0) <= (after.bytes or 0)
        assert (before.percent or 0) <= (after.percent or 0)
