"""Rows per call: one call for a table, an operation and a piece, whatever the buckets; sizes by powers of ten."""

from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client import generate_latest

from engine.link.messages import BatchReport
from engine.model.batch import TableChanges
from engine.model.identity import TableId
from engine.model.position import ZERO
from engine.tables.reporter import apply_calls
from server.metrics.meters import Meters


def change(table: str, piece: int = 0, **staged: int) -> TableChanges:
    return TableChanges(TableId(table), False, None, None, None, piece=piece, staged=staged)


def test_calls_are_counted_by_table_operation_and_size() -> None:
    changes = [
        change("a", insert=6),
        change("a", insert=4, delete=99),
        change("b", insert=1),
        change("b", 1, insert=100),
    ]
    assert apply_calls(changes) == {
        "a": {"insert": {"10": 1}, "delete": {"10": 1}},
        "b": {"insert": {"1": 1, "100": 1}},
    }


def test_metrics_have_them_by_path_beside_what_was_chosen() -> None:
    meters = Meters()
    report = BatchReport(
        subscription="s",
        epoch=1,
        batch=1,
        after=ZERO,
        end=ZERO,
        transactions=3,
        path="spark",
        tuning={"tasks": 2},
        apply_calls={"public.t": {"insert": {"10": 5}}},
        committed_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    meters.record_report(report)
    meters.record_report(report)
    page = generate_latest(meters.registry).decode()
    assert (
        'penstock_apply_calls_total{op="insert",path="spark",rows="10",subscription="s",table="public.t"} 10.0' in page
    )
    assert 'penstock_batch_tuning{subscription="s",what="tasks"} 2.0' in page
