"""The snapshots that one cycle reads under, one after another."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from engine.model.fault import EngineFault, FaultKind
from engine.platform.clock import SystemClock
from engine.sources.query_diff.cycle_scans import CycleScans
from engine.sources.query_diff.database import ComparedDatabase
from engine.sources.query_diff.moments import Moment

_CLOCK_STEP_S = 1.0
"""Seconds by which the database's clock may be set back between two cycles; a larger step delays changes to the next sweep."""
SHARED_ONLY = ""
"""The name of a snapshot of which nothing can be read but what another cycle read."""


class CycleSnapshot:
    """One snapshot at a time; it ends with the context.

    `seconds`: after that a new one may take its place; None: the first one serves the whole cycle, and outlasts no fault. `name`: of the
    present one. `taken`: their number so far. `overlap_s`: seconds before the newest stamp from which rows may still appear. `at_us`:
    before the first one was taken, by the wall clock; `moment`: after the last one was. `scans`: the first one may be that of another
    cycle.
    """

    def __init__(
        self, database: ComparedDatabase, timeout_s: float, seconds: float | None, scans: CycleScans | None = None
    ) -> None:
        self._database = database
        self._timeout_s = timeout_s
        self._seconds = seconds
        self._held = ExitStack()
        self._scans = scans or CycleScans()
        self.name = ""
        self.taken = 0
        self.at_us = 0
        self.moment = Moment.now()
        self.overlap_s = 0.0

    def __enter__(self) -> Self:
        self._open_s, self._began = self._database.open_for_s(), time.monotonic()
        self.at_us, before = SystemClock().wall_us(), Moment.now()
        offer = self._scans.offer
        if offer is not None:
            self.taken, self._taken_at, self.name = 1, time.monotonic(), self._adopted(offer.snapshot)
            self.overlap_s, self.at_us, self.moment = offer.overlap_s, offer.at_us, offer.taken
            return self
        self.renew()
        self._scans.publish(self.name, before, self.at_us, self.overlap_s)
        return self

    def _adopted(self, name: str) -> str:
        """A name of another cycle's snapshot that lasts as long as this one."""
        adopted = self._database.adopted(name)
        if adopted is None:
            return SHARED_ONLY
        try:
            return self._held.enter_context(adopted)
        except EngineFault as fault:
            if fault.kind is not FaultKind.COPY_LOST:
                raise
            return SHARED_ONLY  # That cycle has ended; its reads may still be there.

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
        if self.taken:
            self._scans.end()
        self._held.close()
        self.name = self._held.enter_context(self._database.snapshot(self._timeout_s))
        self.taken += 1
        self._taken_at, self.moment = time.monotonic(), Moment.now()
        # A transaction that is open now was open when the cycle began, or has begun since.
        self.overlap_s = self._open_s + self._taken_at - self._began + _CLOCK_STEP_S
