"""The health of a subscription, over every state with an engine and without, with each mix of tables, lag and fault."""

from __future__ import annotations

import itertools

import pytest

from engine.model.subscription_state import DesiredState, SubscriptionState
from engine.model.table_state import TableStateKind
from server.assessment.health import (
    SILENT_AFTER_S,
    AspectName,
    Fault,
    HealthInputs,
    HealthStatus,
    HealthWord,
    assess_health,
)

_S, _T = SubscriptionState, TableStateKind
_LIVE = {_T.LIVE: 2}
_MIXES: tuple[dict[TableStateKind, int], ...] = (
    {},
    _LIVE,
    *({_T.LIVE: 1, state: 1} for state in _T if state not in {_T.LIVE, _T.REMOVED}),
    *({state: 3} for state in _T if state not in {_T.LIVE, _T.REMOVED}),
)


@pytest.mark.parametrize("state", list(_S))
def test_green_is_only_what_runs_with_an_engine_and_has_all_tables_live(state: SubscriptionState) -> None:
    """Every mix of tables, with and without an engine, reason, lag and silence."""
    choices = itertools.product(_MIXES, (True, False), (None, "why"), (None, 0.2, 90.0), (1.0, SILENT_AFTER_S + 1))
    greens = 0
    for tables, engine, reason, lag, reported in choices:
        seen = HealthInputs(
            state=state, engine=engine, reason=reason, tables=tables, lag_seconds=lag, reported_s=reported
        )
        found = assess_health(seen)
        well = state is _S.RUNNING and engine and reason is None and reported < SILENT_AFTER_S and tables == _LIVE
        assert (found.status is HealthStatus.RUNNING) == (well and lag != 90.0), seen
        assert found.reason, seen
        if found.status in {HealthStatus.ATTENTION, HealthStatus.UNKNOWN}:
            assert found.remedy or reason, seen
        greens += found.status is HealthStatus.RUNNING
        assert not found.following or (engine and state is _S.RUNNING and reason is None), seen
        assert [aspect.name for aspect in found.aspects] == list(AspectName)
    assert greens == (2 if state is _S.RUNNING else 0)


@pytest.mark.parametrize(
    ("seen", "status", "word", "says"),
    [
        (
            HealthInputs(_S.RUNNING, tables=_LIVE, lag_seconds=0.2),
            "running",
            "running",
            "All 2 tables are live, 200 ms behind",
        ),
        (
            HealthInputs(_S.RUNNING, tables={_T.LIVE: 2, _T.PARKED: 1}),
            "attention",
            "parked_tables",
            "1 table is parked",
        ),
        (HealthInputs(_S.RUNNING, tables={_T.PARKED: 2}), "attention", "parked_tables", "2 tables are parked"),
        (
            HealthInputs(_S.RUNNING, tables={_T.PARKED: 1, _T.RELOADING: 2}, copying="40 %"),
            "attention",
            "parked_tables",
            "not followed. 2 of 3 tables are being copied: 40 %.",
        ),
        (HealthInputs(_S.PAUSED, DesiredState.RUNNING, tables=_LIVE), "moving", "starting", "asked to be running"),
        (HealthInputs(_S.STARTING, tables={_T.PARKED: 2}), "attention", "parked_tables", "2 tables are parked"),
        (
            HealthInputs(_S.RUNNING, tables={_T.COPYING: 1}, lag_seconds=None),
            "moving",
            "copying",
            "1 of 1 table is being copied",
        ),
        (HealthInputs(_S.RUNNING, tables={_T.LIVE: 2, _T.RELOADING: 1}), "moving", "copying", "1 of 3 tables"),
        (
            HealthInputs(_S.RUNNING, tables={_T.LIVE: 2, _T.CATCHING_UP: 1}),
            "moving",
            "catching_up",
            "1 of 3 tables catches up",
        ),
        (
            HealthInputs(_S.RUNNING, tables={_T.LIVE: 2, _T.PAUSED: 1}),
            "resting",
            "partly_paused",
            "1 of 3 tables is paused",
        ),
        (HealthInputs(_S.RUNNING), "resting", "no_tables", "no tables"),
        (HealthInputs(_S.RUNNING, tables=_LIVE, engine=False), "unknown", "no_engine", "No engine is connected"),
        (HealthInputs(_S.CREATED, engine=False), "unknown", "no_engine", "No engine is connected"),
        (HealthInputs(_S.CREATED), "moving", "waiting", "waits for the engine"),
        (
            HealthInputs(_S.RUNNING, tables={_T.LIVE: 1, _T.PARKED: 1}, engine=False),
            "attention",
            "parked_tables",
            "No engine is connected",
        ),
        (HealthInputs(_S.STARTING, reason="no route", tables=_LIVE), "attention", "retrying", "no route"),
        (HealthInputs(_S.FAILED, reason="slot lost", tables=_LIVE), "failed", "failed", "slot lost"),
        (HealthInputs(_S.FAILED, reason="slot lost", engine=False), "failed", "failed", "slot lost"),
        (HealthInputs(_S.RUNNING, tables=_LIVE, reported_s=31.0), "attention", "silent", "has not reported for 31.0 s"),
        (
            HealthInputs(_S.RUNNING, tables=_LIVE, lag_seconds=61.0),
            "attention",
            "late",
            "61.0 s behind the source; the goal is",
        ),
        (HealthInputs(_S.RUNNING, tables=_LIVE, different=1), "attention", "different", "1 table different"),
        (
            HealthInputs(_S.PAUSED, desired=DesiredState.PAUSED, tables=_LIVE, retained_bytes=9, budget_bytes=10),
            "attention",
            "at_risk",
            "90 % of its budget",
        ),
        (HealthInputs(_S.PAUSED, desired=DesiredState.PAUSED, tables=_LIVE), "resting", "paused", "paused by request"),
        (HealthInputs(_S.STOPPED, DesiredState.STOPPED, engine=False), "resting", "stopped", "nothing watches over"),
        (
            HealthInputs(_S.STOPPED, DesiredState.RUNNING, engine=False),
            "unknown",
            "no_engine",
            "No engine is connected",
        ),
        (HealthInputs(_S.RUNNING, DesiredState.PAUSED, tables=_LIVE), "moving", "pausing", "asked to be paused"),
        (HealthInputs(_S.STOPPING, deleting=True), "moving", "deleting", "being deleted"),
        (HealthInputs(_S.STOPPING, deleting=True, engine=False), "unknown", "no_engine", "being deleted"),
    ],
)
def test_the_word_and_the_reason(seen: HealthInputs, status: str, word: str, says: str) -> None:
    found = assess_health(seen)
    assert (found.status, found.word) == (HealthStatus(status), HealthWord(word))
    assert says in found.reason


def test_a_table_that_is_copied_is_not_called_nought_behind() -> None:
    found = assess_health(HealthInputs(_S.RUNNING, tables={_T.COPYING: 1}, lag_seconds=None))
    freshness = next(aspect for aspect in found.aspects if aspect.name is AspectName.FRESHNESS)
    assert (freshness.status, "behind" in found.reason + freshness.reason) == (HealthStatus.UNKNOWN, False)


def test_a_fault_that_is_over_is_named_and_changes_nothing() -> None:
    over = assess_health(
        HealthInputs(_S.RUNNING, tables=_LIVE, lag_seconds=0.1, fault=Fault(60.0, "slot lost", over=True))
    )
    assert (over.status, over.word) == (HealthStatus.RUNNING, HealthWord.RUNNING)
    assert over.aspects[-1].reason == "60.0 s ago, and over: slot lost"
    open_ = assess_health(HealthInputs(_S.STARTING, reason="no route", fault=Fault(2.0, "no route", over=False)))
    assert (open_.aspects[-1].status, open_.aspects[-1].reason) == (HealthStatus.ATTENTION, "2.0 s ago: no route")


def test_a_node_that_cannot_be_read_needs_attention_while_the_others_are() -> None:
    seen = HealthInputs(state=_S.RUNNING, tables=_LIVE, nodes_away="n2 (connection refused)", reported_s=1.0)
    found = assess_health(seen)
    assert (found.status, found.word, found.following) == (HealthStatus.ATTENTION, HealthWord.NODE_AWAY, True)
    assert "n2 (connection refused)" in found.reason
    assert found.remedy
    for state in (_S.STARTING, _S.PAUSED, _S.FAILED):
        other = assess_health(HealthInputs(state=state, tables=_LIVE, nodes_away="n2 (connection refused)"))
        assert other.word is not HealthWord.NODE_AWAY
