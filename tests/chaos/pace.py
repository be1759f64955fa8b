"""Holds the load back while the copy is late, so that a slow machine measures the same truth as a fast one."""

from __future__ import annotations

import threading
from time import monotonic

from server.cli.client import NoServerError, ProblemError
from tests.fixtures.rig import Rig

LATE_S = 20.0
"""The load rests while the copy is later than this, until it is half as late."""
LONGEST_S = 180.0
"""A copy that is still late after this rest fails the run."""
_EVERY_S = 0.5


class Pace:
    """Reads the lag, from `start` to `stop`. `failure`: the copy stayed late for too long, though nothing more was written."""

    def __init__(self, rig: Rig) -> None:
        self.rested_s = 0.0
        """Seconds of rest up to now."""
        self.latest_s = 0.0
        """The greatest lag that was seen."""
        self.failure: BaseException | None = None
        self._rig = rig
        self._stopping = threading.Event()
        self._free = threading.Event()
        self._free.set()
        self._thread = threading.Thread(target=self._watch, name="pace", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The load is held back no longer."""
        self._stopping.set()
        self._thread.join()
        self._free.set()

    def rest(self) -> float:
        """Return when the load may continue: the seconds of rest up to then."""
        self._free.wait()
        return self.rested_s

    def _watch(self) -> None:
        since = 0.0
        while not self._stopping.wait(_EVERY_S):
            lag = self._lag_s()
            self.latest_s = max(self.latest_s, lag or 0.0)
            if self._free.is_set():
                if lag is not None and lag > LATE_S:
                    since = monotonic()
                    self._free.clear()
            elif lag is not None and lag < LATE_S / 2:
                self.rested_s += monotonic() - since
                self._free.set()
            elif monotonic() - since > LONGEST_S:
                self.failure = AssertionError(f"the copy is {lag} s late after {LONGEST_S:.0f} s without a load")
                return

    def _lag_s(self) -> float | None:
        """None where it is not known just now."""
        try:
            lag = self._rig.api.get(self._rig.path)["lag"]["seconds"]
        except (NoServerError, ProblemError):
            return None
        return None if lag is None else float(lag)
