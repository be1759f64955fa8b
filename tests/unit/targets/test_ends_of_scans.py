"""Scans are interrupted when their statement ends, except at a read point, whose transactions an interrupt would abort."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from engine.targets.duckdb.database import Database
from engine.targets.duckdb.scan_pace import ScanPace
from engine.targets.duckdb.scans import Snapshot


class Connection:
    """Counts interrupts."""

    def __init__(self) -> None:
        self.interrupts = 0

    def interrupt(self) -> None:
        self.interrupts += 1


class Scan:
    """A scan that runs for as long as it is waited for this often."""

    def __init__(self, waits: int) -> None:
        self._left = waits

    def is_alive(self) -> bool:
        return self._left > 0

    def join(self, _: float) -> None:
        self._left -= 1


class File:
    catalog = "mart"
    pace = ScanPace()


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_scan_that_runs_is_interrupted_unless_its_transaction_is_kept(interrupted: bool) -> None:
    connection: Any = Connection()
    snapshot = Snapshot(cast("Database", File()), [connection], lambda: interrupted)
    snapshot._scans.append(cast("threading.Thread", Scan(3)))
    snapshot.end()
    assert connection.interrupts == (3 if interrupted else 0)
