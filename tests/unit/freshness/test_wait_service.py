"""Waits that were answered at once are kept for a while, within bounds."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from engine.link.messages import Progress
from engine.model.position import Lsn
from engine.model.positions import single_mark
from engine.model.table_state import TableStateKind
from engine.sources.postgres_log.position_form import PostgresLogForm
from server.clock import SystemClock
from server.db.models.freshness_wait import FreshnessWaitRow
from server.errors import NotFound
from server.freshness.service import WaitService
from server.freshness.subscription_status import SubscriptionStatus, TableView
from server.freshness.wait import WaitSpec
from server.freshness.wait_registry import WaitRegistry

_TABLES, _WAITS, _LINES = 1000, 110, 100_000


class _Service:
    """One subscription that has everything already."""

    clock = SystemClock()

    def __init__(self) -> None:
        tables = {f"t{n}": TableView(f"t{n}", "public", f"table {n}", TableStateKind.LIVE) for n in range(_TABLES)}
        at = datetime(2026, 1, 1, tzinfo=UTC)
        progress = Progress(subscription="orders", epoch=0, applied=Lsn(100), at=at)
        self.status = SubscriptionStatus(
            "orders", PostgresLogForm(), tables=tables, progress=progress, stream=lambda: "s"
        )
        self.status.confirm_run(0, "s")

    async def current_registry(self, _: str) -> WaitRegistry:
        return WaitRegistry(self.status)


async def _answered(waits: WaitService, service: _Service) -> list[str]:
    ask = WaitSpec("orders", single_mark(Lsn(50)), frozenset(service.status.tables), named=False, timeout_s=1)
    return [(await waits.run_wait_now(ask)).id for _ in range(_WAITS)]


async def test_receipts_that_name_very_many_tables_are_kept_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    service = _Service()
    waits = WaitService(cast("Any", None), SystemClock(), cast("Any", service))
    monkeypatch.setattr(waits, "_find", lambda *_: None)
    monkeypatch.setattr("server.freshness.service._MOST_LINES", _LINES)
    tracemalloc.start()
    try:
        ids = await _answered(waits, service)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 32 * _LINES
    kept = await waits.get_wait("orders", ids[-1])
    assert kept.receipt is not None
    assert len(kept.receipt.tables) == _TABLES
    assert (await waits.get_wait("orders", ids[-_LINES // _TABLES])).id == ids[-_LINES // _TABLES]
    with pytest.raises(NotFound):
        await waits.get_wait("orders", ids[0])


async def test_a_stored_wait_that_is_resumed_has_all_that_was_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = WaitService(cast("Any", None), SystemClock(), cast("Any", _Service()))
    now, resumed = SystemClock().now(), list[WaitSpec]()
    row = FreshnessWaitRow(
        id="w1", subscription_id=1, status="waiting", position="0/32", tables=["t1"], named=True, patient=True, stale=True,
        refuse_early=True,
        timeout_ms=1, created_at=now, deadline_at=now,
    )  # fmt: skip
    monkeypatch.setattr(waits, "_still_waiting", lambda: [("orders", row)])
    monkeypatch.setattr(waits, "_start_wait", lambda _, spec: resumed.append(spec))
    await waits.resume_waits()
    marks = single_mark(Lsn(50))
    asked = {"named": True, "timeout_s": 0, "patient": True, "stale": True, "refuse_early": True}
    assert resumed == [WaitSpec("orders", marks, frozenset({"t1"}), **asked)]
