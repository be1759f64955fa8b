"""Workloads whose transactions are a script that pgbench runs."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import ClassVar

from bench.errors import BenchError
from bench.workload import DATABASE, Made, Mode, Workload
from server.demo import pgbench
from server.demo.embedded import EmbeddedPostgres
from server.processes.children import end, spawn

_TIMEOUT_S = 3600.0


def command(postgres: EmbeddedPostgres, *arguments: str) -> list[str]:
    """A pgbench command line for the suite's database."""
    return pgbench.command(postgres, DATABASE, *arguments)


def run(arguments: list[str]) -> None:
    """Run pgbench to its end.

    Commits do not wait for the disk: this fills a backlog sooner and does not change the log, so both sides read the
    same.

    Raises:
        BenchError: pgbench aborted a client, so less than ordered was written.
    """
    with tempfile.TemporaryFile() as output:
        process = spawn(
            arguments, environment={**os.environ, "PGOPTIONS": "-c synchronous_commit=off"}, output=output.fileno()
        )
        try:
            code = process.wait(_TIMEOUT_S)
        finally:
            end(process, signal.SIGINT, 5)
        if code != 0:
            output.seek(0)
            raise BenchError(f"pgbench ended with {code}: {output.read().decode(errors='replace')[-500:]}")


class PgbenchWorkload(Workload):
    """`script` is a pgbench script; "" selects the built-in TPC-B-like one. `changes`: row changes per transaction."""

    modes: ClassVar[tuple[Mode, ...]] = (Mode.BACKLOG, Mode.SUSTAINED, Mode.LIVE)
    script: ClassVar[str]
    changes: ClassVar[int]
    clients: ClassVar[int] = 8
    protocol: ClassVar[str] = "prepared"

    def generate(self, postgres: EmbeddedPostgres, amount: int) -> Made:
        each = max(1, amount // self.clients)
        with tempfile.TemporaryDirectory() as folder:
            run(command(postgres, *self._shape(Path(folder)), "-t", str(each)))
        return Made(each * self.clients, each * self.clients * self.changes)

    def load_command(self, postgres: EmbeddedPostgres, rate: float) -> list[str]:
        folder = postgres.folder / "load"
        folder.mkdir(exist_ok=True)
        return command(postgres, *self._shape(folder), "-R", f"{rate:g}", "-T", "86400")

    def row_changes_per_transaction(self) -> float:
        return self.changes

    def _shape(self, folder: Path) -> list[str]:
        shape = ["-M", self.protocol, "-c", str(self.clients), "-j", "1"]
        if not self.script:
            return [*shape, "-b", "tpcb-like"]
        file = folder / "transaction.sql"
        file.write_text(self.script)
        return [*shape, "-f", str(file)]
