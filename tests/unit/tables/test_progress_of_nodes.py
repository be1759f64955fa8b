"""Progress of a source of several logs, as it is reported."""

from __future__ import annotations

from typing import Any, cast

from engine.link.messages import Progress
from engine.model.merged_logs import Away, LogStatus
from engine.model.position import Lsn
from engine.model.positions import SeveralLogsForm
from engine.model.source import ReaderStatus
from engine.platform.clock import SystemClock
from engine.tables.reporter import Reporter


class _Named:
    name, epoch = "copy", 1


def reported(reader: ReaderStatus | None, of_logs: dict[str, Lsn]) -> Progress:
    sent: list[Any] = []
    reporter = Reporter(cast("Any", _Named()), sent.append, SystemClock(), SeveralLogsForm())
    reporter.progress(
        run=1,
        applied=Lsn(4711),
        captured=Lsn(4712),
        source=Lsn(4713),
        lag_seconds=1.0,
        reader=reader,
        times=None,
        of_logs=of_logs,
    )
    (only,) = sent
    assert isinstance(only, Progress)
    return only


def test_each_node_is_reported_and_the_bytes_that_are_left_of_all() -> None:
    away = Away(1_000_000, "source_unreachable", "connection refused")
    logs = (LogStatus("n1", Lsn(100), Lsn(90)), LogStatus("n2", Lsn(50), None, late=True, away=away))
    found = reported(ReaderStatus(exists=True, logs=logs), {"n1": Lsn(80), "n2": Lsn(60)})
    assert found.applied_of_logs == {"": Lsn(4711), "n1": Lsn(80), "n2": Lsn(60)}
    assert found.source_of_logs == {"n1": Lsn(100), "n2": Lsn(50)}
    assert found.read_of_logs == {"n1": Lsn(90)}
    assert found.late_logs == ("n2",)
    assert {name: (each.since.timestamp(), each.code, each.reason) for name, each in found.away_logs.items()} == {
        "n2": (1.0, "source_unreachable", "connection refused")
    }
    assert found.lag_bytes == 20


def test_a_source_with_one_log_has_no_nodes() -> None:
    found = reported(ReaderStatus(exists=True), {})
    assert (found.applied_of_logs, found.source_of_logs, found.late_logs) == ({}, {}, ())
    assert found.lag_bytes is None
