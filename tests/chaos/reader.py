"""Continuous readers of the copy: are the sums right, and are the awaited rows visible?"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import psycopg

from server.cli.client import NoServerError, ProblemError
from tests.chaos.bank import EXPECTED, INVARIANTS
from tests.fixtures.rig import Rig

_WAIT_MS = 20_000


class Readers:
    """Two threads. `violations` is empty as long as no impossible state was seen."""

    def __init__(self, rig: Rig) -> None:
        self.checks = 0
        self.waits = 0
        self.unanswered: Counter[str] = Counter()
        """By code of the answer."""
        self.violations: list[dict[str, Any]] = []
        self.failure: BaseException | None = None
        self._rig = rig
        self.sums = threading.Lock()
        """Held while tables deliberately are at different positions: sums are not checked meanwhile."""
        self.own_writes = threading.Lock()
        """Held while a committed write is deliberately missing."""
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_on, args=(self._check_sums, 0.05), daemon=True),
            threading.Thread(target=self._keep_on, args=(self._read_own_write, 0.3), daemon=True),
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
            except psycopg.OperationalError:
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
        answer = self._rig.api.post(f"{self._rig.path}/queries", {"sql": INVARIANTS})
        self.checks += 1
        if answer["rows"] != [EXPECTED]:
            self.violations.append({"sums": answer["rows"], "expected": EXPECTED, "position": answer["position"]})

    def _read_own_write(self) -> None:
        if not self.own_writes.acquire(timeout=0.1):
            return
        try:
            self._read_one()
        finally:
            self.own_writes.release()

    def _read_one(self) -> None:
        with self._rig.connect() as connection:
            number = _one(connection, "SELECT -nextval('own_writes')")
            connection.execute("INSERT INTO moves (move) VALUES (%s)", [number])
            position = _one(connection, self._rig.position_sql)
        body = {"position": position, "timeout_ms": _WAIT_MS}
        self._rig.api.post(f"{self._rig.path}/freshness-waits", body, timeout_s=_WAIT_MS / 1000 + 5)
        rows = self._rig.query(f"SELECT count(*) FROM moves WHERE move = {int(number)}")
        self.waits += 1
        if rows != [[1]]:
            self.violations.append({"own write": number, "rows": rows, "position": position})


def _one(connection: psycopg.Connection[Any], sql: str) -> Any:
    row = connection.execute(sql.encode()).fetchone()
    assert row is not None
    return row[0]
