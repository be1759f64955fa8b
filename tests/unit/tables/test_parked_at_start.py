"""A table that was parked before a start: its code is reported, and no reason is invented for it."""

from __future__ import annotations

from typing import Any, cast

from engine.link.messages import Report, TableStateReport
from engine.model.identity import BatchId, Epoch, SubscriptionName, TableId
from engine.model.position import Lsn
from engine.model.subscription import ConnectionSpec, SubscriptionSpec
from engine.model.table_state import TableStateKind
from engine.model.target import TableRecord, TargetProgress
from engine.platform.clock import SystemClock
from engine.sources.postgres_log.position_form import PostgresLogForm
from engine.tables.parking import TableParking
from engine.tables.registry import TableRegistry
from engine.tables.reporter import Reporter
from engine.tables.start_point import StartPoint, entry_at_start
from tests.unit.tables.test_planner import A, spec

T = TableId("ta")


def test_the_reason_of_a_table_that_was_parked_before_is_left_to_who_knows_it() -> None:
    wanted = spec("a")
    record = TableRecord(T, wanted.target, A, ready=True, applied=Lsn(7), parked="value_out_of_domain")
    progress = TargetProgress(Epoch(1), BatchId(3), Lsn(9), "1", 1, "slot", {T: record})
    entry = entry_at_start(wanted, StartPoint(cast("Any", None), progress, fresh=False))
    told: list[Report] = []
    subscription = cast("SubscriptionSpec", _Named())
    book, reporter = TableRegistry(), Reporter(subscription, told.append, SystemClock(), PostgresLogForm())
    book.subscribe(reporter.table_changed)
    book.add(entry)
    TableParking(book).park(T, "value_out_of_domain", "column at: year 294270")
    first, second = (cast("TableStateReport", report) for report in told)
    assert (first.state, first.code, first.reason) == (TableStateKind.PARKED.value, "value_out_of_domain", None)
    assert first.remedy, "what can be done follows from the code"
    assert second.reason == "column at: year 294270"


class _Named:
    name = SubscriptionName("s")
    epoch = Epoch(1)
    source = ConnectionSpec("shop", "postgres", {})
