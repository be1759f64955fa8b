"""Continuous readers of the copy: are the sums right, and are the awaited rows visible?"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol

from server.cli.client import Document, NoServerError, ProblemError
from tests.fixtures.rig import Rig

_WAIT_MS = 20_000


@dataclass(frozen=True, slots=True)
class Written:
    """A row of a number that was committed; `position`: after its commit, None where only "now" can be waited for."""

    number: int
    position: str | None


class Writes(Protocol):
    """Commits rows that the copy must show after a wait. `table`: its name on the target; `errors`: those of a source that is away."""

    @property
    def table(self) -> str: ...

    @property
    def errors(self) -> tuple[type[BaseException], ...]: ...

    def write(self) -> Written:
        """Commit one row of a new number, in the column `move`."""
        ...


class Readers:
    """Two threads. `violations` is empty as long as no impossible state was seen."""

    def __init__(self, rig: Rig, sums: str, expected: list[Any], writes: Writes, own_every_s: float = 0.3) -> None:
        """`sums`: a query of the copy with one row, which is always the one that is `expected`. `own_every_s`: seconds between waits."""
        self.checks = 0
        self.waits = 0
        self.unanswered: Counter[str] = Counter()
        """By code of the answer."""
        self.violations: list[dict[str, Any]] = []
        self.failure: BaseException | None = None
        self._rig = rig
        self._query = sums
        self._expected = expected
        self._writes = writes
        self.sums = threading.Lock()
        """Held while tables deliberately are at different positions: sums are not checked meanwhile."""
        self.own_writes = threading.Lock()
        """Held while a committed write is deliberately missing."""
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_on, args=(self._check_sums, 0.05), daemon=True),
            threading.Thread(target=self._keep_on, args=(self._read_own_write, own_every_s), daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(_WAIT_MS / 1000 + 10)

    def _keep_on(self, look: Any, pause_s: float) -> None:
        while not self._stopping.wait(pause_s):
            try:
                look()
            except NoServerError:
                self.unanswered["no server"] += 1
            except ProblemError as problem:
                self.unanswered[f"{look.__name__} {problem.code}"] += 1
                if problem.status < 500 and problem.status != 409:
                    self.violations.append({"problem": problem.document})
            except self._writes.errors:
                self.unanswered["no source"] += 1
            except BaseException as error:
                self.failure = error
                return

    def _check_sums(self) -> None:
        if not self.sums.acquire(timeout=0.1):
            return
        try:
            self._compare_sums()
        finally:
            self.sums.release()

    def _compare_sums(self) -> None:
        answer = self._rig.api.post(f"{self._rig.path}/queries", {"sql": self._query})
        self.checks += 1
        if answer["rows"] != [self._expected]:
            self.violations.append({"sums": answer["rows"], "expected": self._expected, "position": answer["position"]})

    def _read_own_write(self) -> None:
        if not self.own_writes.acquire(timeout=0.1):
            return
        try:
            self._read_one()
        finally:
            self.own_writes.release()

    def _read_one(self) -> None:
        written = self._writes.write()
        body: Document = {"timeout_ms": _WAIT_MS}
        if written.position is not None:
            body["position"] = written.position
        self._rig.api.post(f"{self._rig.path}/freshness-waits", body, timeout_s=_WAIT_MS / 1000 + 5)
        rows = self._rig.query(f"SELECT count(*) FROM {self._writes.table} WHERE move = {written.number}")
        self.waits += 1
        if rows != [[1]]:
            self.violations.append({"own write": written.number, "rows": rows, "position": written.position})
