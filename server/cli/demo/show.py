"""The demonstration itself: load, live view, cuts, and the final report."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from server.cli.client import Api, Document, NoServerError, ProblemError
from server.cli.demo.measure import Probe
from server.cli.demo.stage import DATABASE, SUBSCRIPTION, DemoError, Stage
from server.cli.verify_command import run_verification, verified_equal
from server.demo.schema import TABLES
from server.demo.workload import Workload

CUTS_DURING_LOAD = 3
_CUT_TIMEOUT_S = 120.0
_CUT_EVERY_S = 30.0
_AGAIN_S = 0.5
_RUNNING = "verification_running"
_LOAD_ENDS_WELL_S = 10.0
_LOAD_ENDS_S = 1.0


@dataclass(slots=True)
class Cuts:
    """Comparisons of every row of every table, each at one position."""

    answers: list[Document] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    """A line for each cut that was not equal."""

    @property
    def unequal(self) -> int:
        return len(self.found)

    def add(self, answer: Document) -> None:
        """Add a comparison. It is not equal if it did not end, or left a table out."""
        self.answers.append(answer)
        tables = answer.get("tables") or []
        if not verified_equal(answer):
            self.found.append(_what_differs(answer))
        elif len(tables) != len(TABLES):
            self.found.append(f"at {answer.get('position')}: {len(tables)} of {len(TABLES)} tables were compared")

    @property
    def last(self) -> Document:
        return self.answers[-1] if self.answers else {}

    def rows(self, side: str) -> int:
        """Rows of all tables at the last cut; `side` is `source` or `target`."""
        return sum(int(table.get(f"{side}_rows") or 0) for table in self.last.get("tables") or [])


class Show:
    """One run. `tick` is called four times a second while the load runs, with this object."""

    def __init__(self, stage: Stage, rate: float, seconds: float | None, tick: Callable[[Show], None]) -> None:
        self.stage = stage
        self.seconds = seconds
        self.load = Workload(stage.postgres, DATABASE, rate)
        self.probe = Probe(stage.api, SUBSCRIPTION, stage.connect)
        self.cuts = Cuts()
        self.failure: str | None = None
        self.began = monotonic()
        self._tick = tick
        self._stopping = threading.Event()

    @property
    def elapsed_s(self) -> float:
        return monotonic() - self.began

    def interrupt(self) -> None:
        """End the run immediately, without its last cut."""
        self._stopping.set()
        self.probe.interrupt()
        self.stage.interrupt()

    def run(self) -> None:
        """Load, wait until all tables are live, measure, compare. Raises DemoError."""
        self.load.start()
        try:
            self.stage.wait_live()
            self.began = monotonic()
            self.probe.start()
            self._under_load()
        finally:
            self.load.stop(_LOAD_ENDS_S if self._stopping.is_set() else _LOAD_ENDS_WELL_S)
        if self._stopping.is_set():
            return
        self.probe.stop()
        self._cut()
        self._check()

    def document(self) -> dict[str, Any]:
        """The report of the run. `equal` only if every row of every table was equal at every cut."""
        samples = self.probe.samples
        return {
            "source": {"transactions": self.load.transactions, "rows": self.cuts.rows("source")},
            "target": {"rows": self.cuts.rows("target")},
            "equal": bool(self.cuts.answers) and self.cuts.unequal == 0,
            "cuts": len(self.cuts.answers),
            "lag_ms": samples.lag(),
            "waits": samples.waits(),
        }

    def trouble(self) -> str | None:
        """The failure of a run that came to its end; None if there is none."""
        samples = self.probe.samples
        if self.failure:
            return self.failure
        if self.cuts.unequal:
            lines = "\n".join(self.cuts.found)
            return f"{self.cuts.unequal} of {len(self.cuts.answers)} cuts differ\n{lines}"
        if samples.timed_out:
            return f"{samples.timed_out} freshness waits timed out"
        if samples.missing:
            return f"{samples.missing} rows were missing after the wait for them was answered"
        if samples.refused:
            return f"{samples.refused} requests failed"
        return None

    def _under_load(self) -> None:
        cutter = threading.Thread(target=self._cut_during_load, name="cuts", daemon=True)
        cutter.start()
        most = None if self.seconds is None else self.seconds + CUTS_DURING_LOAD * _CUT_TIMEOUT_S
        while not self._stopping.wait(0.25):
            self._check()
            self._tick(self)
            if self.seconds is None or self.elapsed_s < self.seconds:
                continue
            if not cutter.is_alive():
                return
            if most is not None and self.elapsed_s > most:
                raise DemoError("the comparisons during the load did not end")

    def _cut_during_load(self) -> None:
        """Three cuts spread over the run; if it has no fixed length, one every half minute."""
        number = 0
        while self.seconds is None or number < CUTS_DURING_LOAD:
            number += 1
            due = number * (_CUT_EVERY_S if self.seconds is None else self.seconds / (CUTS_DURING_LOAD + 1))
            if self._stopping.wait(max(0.0, due - self.elapsed_s)):
                return
            try:
                self._cut()
            except (ProblemError, NoServerError) as error:
                if not self._stopping.is_set():
                    self.failure = f"a comparison failed: {error}"
                return

    def _cut(self) -> None:
        while not self._stopping.is_set():
            try:
                answer = run_verification(self._api, SUBSCRIPTION, {}, _CUT_TIMEOUT_S)
            except ProblemError as error:
                # A user tries a verification; this one follows it.
                if error.code != _RUNNING:
                    raise
                self._stopping.wait(_AGAIN_S)
                continue
            if not self._stopping.is_set():
                self.cuts.add(answer)
            return

    def _check(self) -> None:
        if self.load.failure is not None:
            raise DemoError(f"the workload failed: {self.load.failure}")
        if self.failure is not None:
            raise DemoError(self.failure)

    @property
    def _api(self) -> Api:
        return self.stage.api


def _what_differs(answer: Document) -> str:
    """Names and counts of the tables that differ, or why the comparison did not end; no values."""
    if answer["state"] != "succeeded":
        problem = answer.get("problem") or {}
        return f"the comparison {answer['state']}: {problem.get('detail') or 'it took too long'}"
    tables = [
        f"{table.get('name')} ({table.get('source_rows')} and {table.get('target_rows')} rows,"
        f" {len(table.get('differing') or [])} differing keys)"
        for table in answer["tables"]
        if not table["equal"]
    ]
    return f"at {answer.get('position')}: {', '.join(tables) or 'nothing was compared'}"
