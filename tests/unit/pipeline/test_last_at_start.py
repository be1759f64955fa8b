"""What a session begins with, from the target's record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.model.last_commit import LastCommit
from engine.model.merged_logs import MergedLogs, NodeLog
from engine.model.position import Lsn
from engine.model.subscription import OriginFilter
from engine.pipeline.session_start import last_at_start

_ANY, _NONE = OriginFilter.ANY, OriginFilter.NONE
_LOGS = MergedLogs((NodeLog(Lsn(9), Lsn(5), Lsn(7), 3), NodeLog.unknown(Lsn(4))), {"g": (1,)})
_FORGOTTEN = MergedLogs((NodeLog.unknown(Lsn(9)), NodeLog.unknown(Lsn(4))), {"g": (1,)})


def begun_with(last: LastCommit | None, origin: OriginFilter) -> tuple[LastCommit, list[str]]:
    """What the session begins with, and the events."""
    events: list[str] = []
    reporter = SimpleNamespace(event=lambda _level, code, _subject, _detail: events.append(code))
    parts = SimpleNamespace(
        start=SimpleNamespace(progress=SimpleNamespace(last=last, end=Lsn(100))),
        spec=SimpleNamespace(origin=origin, reader="r"),
        source=SimpleNamespace(terms=SimpleNamespace(text=str)),
        reporter=reporter,
    )
    return last_at_start(cast("Any", parts)), events


@pytest.mark.parametrize("logs", [None, _LOGS])
def test_with_the_same_filter_it_is_what_the_target_has(logs: MergedLogs | None) -> None:
    for last in (LastCommit(Lsn(80), Lsn(90), 5, _NONE, logs=logs), LastCommit.unknown(Lsn(100), _NONE, logs)):
        assert begun_with(last, _NONE) == (last, [])


def test_with_another_filter_what_is_included_of_the_logs_is_kept() -> None:
    expected = LastCommit.unknown(Lsn(100), _ANY, _FORGOTTEN)
    assert begun_with(LastCommit(Lsn(80), Lsn(90), 5, _ANY, logs=_LOGS), _NONE) == (expected, ["log_not_verified"])
    assert begun_with(LastCommit.unknown(Lsn(100), _ANY, _LOGS), _NONE) == (expected, [])
    assert begun_with(LastCommit(Lsn(80), Lsn(90), 5), _NONE)[0] == LastCommit.unknown(Lsn(100), _ANY)


def test_without_a_record_nothing_is_known() -> None:
    assert begun_with(None, _NONE) == (LastCommit.unknown(Lsn(100), _NONE), ["log_not_verified"])
