"""The snapshots that one cycle reads under, one after another."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from engine.sources.query_diff.database import ComparedDatabase

_CLOCK_STEP_S = 1.0
"""Seconds by which the database's clock may be set back between two cycles; a larger step delays changes to the next sweep."""


class CycleSnapshot:
    """One snapshot at a time; it ends with the context.

    `seconds`: after that a new one may take its place; None: the first one serves the whole cycle, and outlasts no fault. `name`: of the
    present one. `taken`: their number so far. `overlap_s`: seconds before the newest stamp from which rows may still appear.
    """

    def __init__(self, database: ComparedDatabase, timeout_s: float, seconds: float | None) -> None:
        self._database = database
        self._timeout_s = timeout_s
        self._seconds = seconds
        self._held = ExitStack()
        self.name = ""
        self.taken = 0
        self.overlap_s = 0.0

    def __enter__(self) -> Self:
        self._open_s, self._began = self._database.open_for_s(), time.monotonic()
        self.renew()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    @property
    def may_renew(self) -> bool:
        return self._seconds is not None

    def renew_if_due(self) -> None:
        """Take a new one if the present one is old. Only between reads that need not agree with each other."""
        if self._seconds is not None and time.monotonic() - self._taken_at >= self._seconds:
            self.renew()

    def renew(self) -> None:
        """Give up the present one, and take a new one."""
        self._held.close()
        self.name = self._held.enter_context(self._database.snapshot(self._timeout_s))
        self.taken += 1
        self._taken_at = time.monotonic()
        # A transaction that is open now was open when the cycle began, or has begun since.
        self.overlap_s = self._open_s + self._taken_at - self._began + _CLOCK_STEP_S
