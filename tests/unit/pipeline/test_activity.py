"""Stages that wait for a processor are named so, whether they have ended or not."""

from __future__ import annotations

import threading

import pytest

from engine.model.lag import LagCause
from engine.pipeline import activity
from engine.pipeline.activity import processor_wait_ns

BEGAN_MS = 1_000.0


@pytest.mark.parametrize(
    ("cause", "began_ns", "now_ns", "judged"),
    [
        (LagCause.COMPUTING, 7_000_000, 66_000_000, LagCause.CPU_STARVED),
        (LagCause.HOT_TABLE, 0, 50_000_000, LagCause.CPU_STARVED),
        (LagCause.SLOW_COMMIT, 7_000_000, 56_000_000, LagCause.SLOW_COMMIT),
        (LagCause.HUGE_TRANSACTION, 0, 99_000_000, LagCause.HUGE_TRANSACTION),
        (LagCause.COMPUTING, None, 99_000_000, LagCause.COMPUTING),
        (LagCause.COMPUTING, 0, None, LagCause.COMPUTING),
    ],
)
def test_a_stage_is_judged_by_its_wait(
    monkeypatch: pytest.MonkeyPatch, cause: LagCause, began_ns: int | None, now_ns: int | None, judged: LagCause
) -> None:
    monkeypatch.setattr(activity, "processor_wait_ns", lambda thread: now_ns if thread == 5 else None)
    stage = activity._Stage(cause, {"stage": "some"}, BEGAN_MS, 5, began_ns)
    found = stage.judged(BEGAN_MS + 100)
    assert (found.cause, found.evidence["stage"]) == (judged, "some")
    assert ("waiting_share" in found.evidence) == (judged is LagCause.CPU_STARVED)


def test_a_stage_without_a_length_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "processor_wait_ns", lambda _: 1_000_000)
    assert activity._Stage(LagCause.COMPUTING, {}, BEGAN_MS, 5, 0).judged(BEGAN_MS).cause is LagCause.COMPUTING


def test_the_system_says_how_long_a_thread_waited() -> None:
    mine = processor_wait_ns(threading.get_native_id())
    assert mine is not None
    assert mine >= 0
    assert processor_wait_ns(-1) is None
