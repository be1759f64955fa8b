"""Moments that all processes of this machine put in one order, whatever happens to the wall clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Moment:
    """Nanoseconds on the monotonic clock of one run of the machine. `run`: its id."""

    run: str
    ns: int

    @staticmethod
    def now() -> Moment:
        return Moment(_run(), time.monotonic_ns())

    @staticmethod
    def of(text: str) -> Moment:
        """Of `text`. An empty one is that of a moment in an earlier run. Raises ValueError."""
        run, _, ns = text.rpartition(" ")
        return Moment(run, int(ns or 0))

    @property
    def text(self) -> str:
        return f"{self.run} {self.ns}"

    @property
    def is_of_this_run(self) -> bool:
        return self.run == _run()

    def is_before(self, other: Moment) -> bool:
        """Whether this was earlier than a moment of the machine's present run."""
        return self.run != other.run or self.ns < other.ns


@cache
def _run() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
