"""Why the log is not read up to its end: by what the source's sender does, and by what is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.model.lag import LagCause, LagSpan
from engine.model.position import Lsn
from engine.model.sender import Sender, SenderState
from engine.model.source import GuardReading, ReaderStatus, SourceTerms
from engine.pipeline.activity import SENDER_LOOKS, RunActivity
from engine.tables.context import RunContext
from engine.tables.registry import TableRegistry
from tests.fixtures.manual_clock import ManualEngineClock

WORKING = Sender(SenderState.WORKING, 7, "IO WALRead")
BLOCKED = Sender(SenderState.BLOCKED, 7, "Client WalSenderWriteData")
IDLE = Sender(SenderState.IDLE, 7, "Activity WalSenderMain")


class Bench:
    """A run of which only the source, the intake and the clock are there, and these do as the test says."""

    def __init__(self) -> None:
        self.clock = ManualEngineClock()
        self.senders: list[Sender | None] = [IDLE] * SENDER_LOOKS
        self.looks = 0
        self.end = Lsn(100)
        self.waiting_since_us = self.held_since_ms = self.demanded_since_ms = None
        self.demanded = self.captured = Lsn(100)
        self.held = False
        source = SimpleNamespace(
            safety=SimpleNamespace(check_reader=lambda _: GuardReading(self.status("r"))),
            reader=SimpleNamespace(status=self.status),
            log=SimpleNamespace(current=lambda: self.end),
            terms=SourceTerms(),
        )
        spec = SimpleNamespace(reader="r", queue_budget_bytes=1 << 20)
        parts = SimpleNamespace(source=source, spec=spec, clock=self.clock, book=TableRegistry())
        self.activity = RunActivity(cast("RunContext", parts), cast("Any", self), self, self)

    def status(self, _: str) -> ReaderStatus:
        self.looks += 1
        return ReaderStatus(exists=True, sender=self.senders[(self.looks - 1) % SENDER_LOOKS])

    def unfinished(self) -> None:
        """There are no tasks."""

    def measured(self) -> list[LagSpan]:
        return self.activity.measured()[1]

    def grow(self, end: int) -> None:
        """The log grows, and is not read for a second after a check of the source."""
        self.end = Lsn(end)
        self.activity.saw(self.end)
        self.clock.ms += 1000


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nothing_is_looked_at_again_while_all_is_read(bench: Bench) -> None:
    assert bench.measured() == []
    assert bench.looks == 1


@pytest.mark.parametrize(
    ("senders", "cause"),
    [
        ([WORKING] * 3, LagCause.SLOW_SENDER),
        ([None] * 3, LagCause.SLOW_SENDER),
        ([BLOCKED] * 3, LagCause.SLOW_READER),
        ([BLOCKED, WORKING, BLOCKED], LagCause.SLOW_READER),
        ([WORKING, IDLE, WORKING], LagCause.SLOW_SENDER),
    ],
)
def test_what_the_sender_does_most_is_the_cause(bench: Bench, senders: list[Sender | None], cause: LagCause) -> None:
    bench.senders = senders
    bench.grow(200)
    (found,) = bench.measured()
    assert (found.cause, found.from_ms, found.to_ms) == (cause, 1000, 0)
    assert found.evidence["read_to"] == "100"
    assert found.evidence["source_end"] == "200"
    if senders[0] is not None:
        assert (found.evidence["pid"], found.evidence["sender_waits_for"]) == (7, senders[0].waits_for)
    assert bench.looks == SENDER_LOOKS


def test_what_is_read_while_it_is_measured_is_no_cause(bench: Bench) -> None:
    bench.senders = [WORKING] * 3
    bench.grow(200)
    bench.captured = Lsn(200)
    assert bench.measured() == []


def test_a_log_that_grew_just_now_is_no_cause(bench: Bench) -> None:
    bench.senders = [WORKING] * 3
    bench.end = Lsn(200)
    assert bench.measured() == []


def test_a_reader_that_the_budget_stops_is_not_named_as_slow(bench: Bench) -> None:
    bench.senders = [BLOCKED] * 3
    bench.grow(200)
    bench.held_since_ms = cast("Any", 0.0)
    assert [one.cause for one in bench.measured()] == [LagCause.QUEUE_AT_BUDGET]


@pytest.mark.parametrize(("demanded", "waiting_ms"), [(150, 700), (200, 700), (900, 700), (100, None)])
def test_an_idle_sender_is_the_cause_only_while_a_position_is_waited_for(
    bench: Bench, demanded: int, waiting_ms: float | None
) -> None:
    bench.grow(200)
    bench.demanded, bench.demanded_since_ms = Lsn(demanded), cast("Any", 300.0)
    found = bench.measured()
    wanted = [] if waiting_ms is None else [(LagCause.AWAITING_KEEPALIVE, waiting_ms)]
    assert [(one.cause, one.from_ms) for one in found] == wanted


def test_a_wait_for_a_position_that_the_source_will_have_is_no_lag(bench: Bench) -> None:
    bench.clock.ms = 5000
    bench.demanded, bench.demanded_since_ms = Lsn(900), cast("Any", 0.0)
    assert bench.measured() == []
