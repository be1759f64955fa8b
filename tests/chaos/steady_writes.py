"""Transactions at a steady rate from pgbench, which is started again whenever the source has cut its sessions.

Each moves an amount from a row of one table to a row of another, so that the sum over both stays 0; one in twenty is rolled back.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from typing import Self

from server.cli.client import Document
from server.processes.children import end, spawn
from tests.fixtures.rig import DATABASE, Rig

ROWS = 1000
TABLES = ("debits", "credits")
DDL = "".join(
    f"CREATE TABLE {table} (id int PRIMARY KEY, amount bigint NOT NULL); INSERT INTO {table} SELECT i, 0 FROM generate_series(1, {ROWS}) i;"
    for table in TABLES
)
_CLIENTS = 4
_SCRIPT = f"""
\\set one random(1, {ROWS})
\\set other random(1, {ROWS})
\\set amount random(-50, 50)
\\set chance random(1, 20)
BEGIN;
UPDATE debits SET amount = amount - :amount WHERE id = :one;
UPDATE credits SET amount = amount + :amount WHERE id = :other;
\\if :chance = 1
ROLLBACK;
\\else
COMMIT;
\\endif
"""
_WRITTEN = "SELECT pg_current_xact_id()::text::bigint"
_AGAIN_S = 0.2


class SteadyWrites:
    """Writes for the duration of the block. `transactions`: how many the source has begun since, of all its clients."""

    def __init__(self, rig: Rig, rate: float) -> None:
        self.starts = 0
        self._rig = rig
        self._rate = rate
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady-writes", daemon=True)
        self._first = 0

    def __enter__(self) -> Self:
        self._first = self._xid()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)

    def transactions(self) -> int:
        return self._xid() - self._first

    def document(self, seconds: float) -> Document:
        written = self.transactions()
        return {
            "transactions": written,
            "transactions_per_s": round(written / seconds, 1),
            "starts_of_pgbench": self.starts,
        }

    def _xid(self) -> int:
        return int(self._rig.postgres.execute(_WRITTEN, database=DATABASE)[0][0])

    def _run(self) -> None:
        postgres = self._rig.postgres
        script = postgres.folder / "steady.sql"
        script.write_text(_SCRIPT)
        head = [postgres.program("pgbench"), "-h", postgres.host, "-p", str(postgres.port), "-U", postgres.user]
        shape = ["-n", "-M", "prepared", "-c", str(_CLIENTS), "-j", "1", "-R", f"{self._rate:g}", "-T", "86400"]
        while not self._stopping.is_set():
            process = spawn([*head, *shape, "-f", str(script), DATABASE], output=subprocess.DEVNULL)
            self.starts += 1
            while process.poll() is None and not self._stopping.wait(_AGAIN_S):
                pass
            end(process, signal.SIGINT, 5)
            self._stopping.wait(_AGAIN_S)
