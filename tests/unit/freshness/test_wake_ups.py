"""The histogram of wake-ups: from the receipt of the engine's report to the answer, of waits that were open then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI

from engine.link.messages import Progress, Report, TableStateReport
from engine.model.position import Lsn
from engine.model.table_state import TableStateKind
from engine.sources.postgres_log.position_form import PostgresLogForm
from server import error_handlers
from server.engines import endpoints as engines
from server.engines.channel import EngineChannel
from server.freshness import endpoints as freshness
from server.freshness.service import WaitService
from server.freshness.subscription_status import SubscriptionStatus, TableView
from server.freshness.tracker import FreshnessTracker
from server.gateway.hub import Hub
from server.gateway.threads import engine_only
from server.metrics.meters import Meters
from server.security.require import principal_of
from tests.fixtures.manual_clock import ManualClock

_AT = datetime(2026, 1, 1, tzinfo=UTC)
_METRIC = "penstock_freshness_wake_up_seconds"


class _Channel(EngineChannel):
    """It writes nothing; a write takes as long as the test says."""

    def __init__(self, rig: Rig) -> None:
        nothing = cast("Any", None)
        super().__init__(nothing, nothing, nothing, rig.hub, rig.tracker, ())
        self._clock = rig.clock
        self.write_s = 0.0
        self.before_the_write = asyncio.Event()
        self.may_write = asyncio.Event()
        self.may_write.set()

    async def _write(self, engine_id: str, sequence: int, bundle: Sequence[Report]) -> list[Report]:
        self.before_the_write.set()
        await self.may_write.wait()
        self._clock.advance(self.write_s)
        return list(bundle)


class Rig:
    """The endpoints of waits and reports, on a clock that is moved by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock(_AT)
        self.hub = Hub()
        self.tracker = FreshnessTracker(cast("Any", None), cast("Any", None), self.hub, self.clock)
        table = TableView("t", "public", "orders", TableStateKind.LIVE)
        self.tracker._store(SubscriptionStatus("s", PostgresLogForm(), epoch=1, tables={"t": table}))
        self.stream = self.hub.open_stream("e")
        self.stream.greet([])
        self.hub.assign_owner("s", "e")
        self.channel = _Channel(self)
        self.meters = Meters()
        app = FastAPI()
        app.state.clock, app.state.meters, app.state.freshness = self.clock, self.meters, self.tracker
        app.state.waits, app.state.channel = WaitService(cast("Any", None), self.clock, self.tracker), self.channel
        app.include_router(freshness.router)
        app.include_router(engines.router)
        error_handlers.install(app)
        principal = type("Anybody", (), {"has_role": lambda *_: True})()
        app.dependency_overrides = {principal_of: lambda: principal, engine_only: lambda: None}
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
        self._sequence = 0

    async def begin_wait(self, position: int) -> asyncio.Task[httpx.Response]:
        """Begin a wait, and return once it is open."""
        body = {"position": str(Lsn(position)), "timeout_ms": 60_000}
        task = asyncio.create_task(self.client.post("/subscriptions/s/freshness-waits", json=body))
        await self.stream.lines.get()  # The demand for it.
        return task

    async def report(self, *reports: Report) -> None:
        self._sequence += 1
        body = {"sequence": self._sequence, "reports": [one.model_dump(mode="json", by_alias=True) for one in reports]}
        answer = await self.client.post("/engines/e/reports", json=body)
        assert answer.status_code == 204, answer.text

    async def position(self, after: int, applied: int) -> int:
        """Send a position that overtakes; returns the status of the answer."""
        body = {"after": after, "positions": [self.progress(applied).model_dump(mode="json")]}
        return (await self.client.post("/engines/e/positions", json=body)).status_code

    def progress(self, applied: int) -> Progress:
        return Progress(subscription="s", epoch=1, stream=self.stream.name, applied=Lsn(applied), at=_AT)

    def recorded(self) -> tuple[float, float]:
        """How many wake-ups were recorded, and the seconds that they took together."""
        found = self.meters.registry.get_sample_value
        of = {"subscription": "s"}
        return found(f"{_METRIC}_count", of) or 0.0, found(f"{_METRIC}_sum", of) or 0.0


@pytest.fixture
def rig() -> Rig:
    return Rig()


def _parked() -> TableStateReport:
    return TableStateReport.model_validate(
        {"subscription": "s", "epoch": 1, "table": "t", "schema": "public", "name": "orders", "state": "parked"}
    )


def _live() -> TableStateReport:
    return _parked().model_copy(update={"state": "live"})


async def test_a_wake_up_lasts_from_the_receipt_of_the_report_to_the_answer(rig: Rig) -> None:
    wait = await rig.begin_wait(50)
    rig.clock.advance(100)
    rig.channel.write_s = 0.25
    await rig.report(_live(), rig.progress(50))
    assert (await wait).status_code == 200
    assert rig.recorded() == (1, 0.25)


async def test_parsing_and_the_writing_of_the_answer_count(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = engines._parse_report

    def slow_parse(raw: list[dict[str, Any]]) -> list[Report]:
        rig.clock.advance(1)
        return parse(raw)

    write = freshness.JSONResponse.render

    def slow_write(response: Any, content: Any) -> bytes:
        rig.clock.advance(0 if content is None else 2)
        return write(response, content)

    monkeypatch.setattr(engines, "_parse_report", slow_parse)
    monkeypatch.setattr(freshness.JSONResponse, "render", slow_write)
    wait = await rig.begin_wait(50)
    await rig.report(rig.progress(50))
    assert (await wait).status_code == 200
    assert rig.recorded() == (1, 3)


async def test_a_wait_that_came_after_the_report_is_not_a_wake_up(rig: Rig) -> None:
    rig.channel.may_write.clear()
    report = asyncio.create_task(rig.report(_live(), rig.progress(50)))
    await rig.channel.before_the_write.wait()
    rig.clock.advance(0.1)
    wait = await rig.begin_wait(50)
    rig.channel.may_write.set()
    await report
    assert (await wait).status_code == 200
    assert rig.recorded() == (0, 0)


async def test_what_is_answered_at_once_or_refused_is_not_a_wake_up(rig: Rig) -> None:
    await rig.report(rig.progress(50))
    body = {"position": str(Lsn(50)), "timeout_ms": 1000}
    assert (await rig.client.post("/subscriptions/s/freshness-waits", json=body)).status_code == 200
    wait = await rig.begin_wait(60)
    await rig.report(_parked())
    assert (await wait).status_code != 200
    assert rig.recorded() == (0, 0)


async def test_a_position_ends_waits_while_the_bundle_before_it_is_written(rig: Rig) -> None:
    first, second = await rig.begin_wait(50), await rig.begin_wait(60)
    rig.channel.may_write.clear()
    report = asyncio.create_task(rig.report(rig.progress(50)))
    assert (await first).status_code == 200
    assert await rig.position(1, 60) == 204
    assert (await second).status_code == 200
    assert rig.recorded()[0] == 2
    assert not report.done()
    rig.channel.may_write.set()
    await report


async def test_a_position_out_of_its_order_is_refused(rig: Rig) -> None:
    wait = await rig.begin_wait(60)
    assert await rig.position(0, 60) == 409  # The server has restarted, or has no bundle yet.
    rig.channel.may_write.clear()
    states = asyncio.create_task(rig.report(_live(), rig.progress(50)))
    await rig.channel.before_the_write.wait()
    assert await rig.position(1, 60) == 409  # The states of the first bundle are not applied yet.
    rig.channel.may_write.set()
    await states
    await rig.report(rig.progress(51))
    assert await rig.position(1, 60) == 409  # It was delayed.
    assert not wait.done()
    assert await rig.position(2, 60) == 204
    assert (await wait).status_code == 200


async def test_three_hundred_milliseconds_are_the_bound_of_a_bucket(rig: Rig) -> None:
    for seconds in (0.3, 0.301):
        rig.meters.record_wake_up("s", seconds)
    found = rig.meters.registry.get_sample_value(f"{_METRIC}_bucket", {"subscription": "s", "le": "0.3"})
    assert found == 1
