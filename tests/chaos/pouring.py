"""A transaction that only inserts, for seconds, again and again: its rows reach the target before its commit, and nobody may see them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import psycopg

PIECE_BYTES = 2 * 1024 * 1024
"""Small enough that each of these transactions is several pieces."""
DDL = "CREATE TABLE poured (generation integer, place integer, note text NOT NULL, PRIMARY KEY (generation, place));"
_STEPS = 8
_STEP_ROWS = 1_000
_STEP_S = 0.25
_REST_S = 2.0
_KEPT = 2
"""Generations that stay; older ones are deleted."""
_ABORTED = 0.3
_TRANSACT_AGAIN_S = 0.2
_STOP_S = 30.0
_UNDONE = "undone"
INVARIANTS = (
    f"(SELECT count(*) FROM (SELECT generation FROM poured GROUP BY generation HAVING count(*) <> {_STEPS * _STEP_ROWS})),"
    f" (SELECT count(*) FROM poured WHERE note = '{_UNDONE}')"
)
EXPECTED = [0, 0]

Connection = psycopg.Connection[Any]


class Pouring:
    """One thread, which keeps working through restarts of the source. `failure` is what ended it."""

    def __init__(self, connect: Callable[[], Connection], seed: int) -> None:
        self.committed = 0
        self.aborted = 0
        self.failure: BaseException | None = None
        self._connect = connect
        self._rng = random.Random(f"{seed}/poured")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pouring", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nothing stays open on the source."""
        self._stopping.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._connect() as connection:
                    connection.execute("SET statement_timeout = '20s'")
                    while not self._stopping.wait(self._rng.uniform(0, _REST_S)):
                        self._pour(connection)
            except psycopg.OperationalError:
                self._stopping.wait(_TRANSACT_AGAIN_S)
            except BaseException as error:
                self.failure = error
                return

    def _pour(self, connection: Connection) -> None:
        """Insert a generation, whole, and take it back or let the oldest one go."""
        row = connection.execute("SELECT coalesce(max(generation), 0) + 1 FROM poured").fetchone()
        assert row is not None
        aborts = self._rng.random() < _ABORTED
        note = f"'{_UNDONE}'" if aborts else "md5(n::text) || repeat('x', 500)"
        connection.execute("BEGIN")
        for step in range(_STEPS):
            first = step * _STEP_ROWS + 1
            numbers = f"generate_series({first}, {first + _STEP_ROWS - 1}) AS n"
            connection.execute(f"INSERT INTO poured SELECT {row[0]}, n, {note} FROM {numbers}".encode())
            self._stopping.wait(_STEP_S)
        connection.execute("ROLLBACK" if aborts else "COMMIT")
        self.aborted += aborts
        self.committed += not aborts
        connection.execute("DELETE FROM poured WHERE generation <= %s", [row[0] - _KEPT])
