"""An open-loop workload: transactions begin at their scheduled times, whether or not earlier ones have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import IO

from server.demo.embedded import EmbeddedPostgres
from server.demo.pgbench import Output, command
from server.demo.transactions import KINDS
from server.processes.children import end, spawn

_LONGEST_S = 2**31 - 1
"""Duration given to pgbench: the longest that it accepts, as the signal of `stop` needs one."""
_TRIES = 10
"""Tries for a transaction that loses deadlocks, which is only possible against sessions of users. Not measured."""
_SEED = 1
"""Of the choices, so that runs are alike."""
_ROLLED_BACK = sum(kind.share for kind in KINDS if kind.rolls_back) / 100
_CONTINUE_IDS = "SELECT setval('orders_id_seq', greatest(last_value, (SELECT max(id) FROM orders))) FROM orders_id_seq"
"""Sessions of users may have inserted orders with ids that the sequence has not reached."""


class LoadEndedError(RuntimeError):
    """The load ended by itself, or could not be started. The message is pgbench's."""


class Workload:
    """Runs `rate` transactions a second in `clients` sessions of a database, between `start` and `stop`.

    A process of pgbench 17 or newer generates them; it ends with this one, whatever ends that. Its scripts are in the folder
    `load` of the server's folder.
    A transaction that lost a deadlock is tried again. Any other error ends the workload; `failure` has it.

    `transactions` counts those that committed, `rolled_back` the others, lost tries included. Both are estimates
    while it runs, renewed each second: of the number that pgbench prints as its progress, each kind has its share. After `stop`
    they are exact, by pgbench's statistics for each script, except if it failed or was killed at the timeout.
    """

    def __init__(self, postgres: EmbeddedPostgres, database: str, rate: float, *, clients: int = 6) -> None:
        self.rate = rate
        self.failure: LoadEndedError | None = None
        self.transactions = 0
        self.rolled_back = 0
        self._postgres = postgres
        self._database = database
        self._clients = clients
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start pgbench. Whether it can run is seen later, by `failure`.

        Raises:
            psycopg.Error, OSError: the database cannot be read, or the scripts not be written.
        """
        self._postgres.execute(_CONTINUE_IDS, database=self._database)
        arguments = command(self._postgres, self._database, *self._options(), *self._scripts())
        reading, writing = os.pipe()
        printed = os.fdopen(reading, encoding="utf-8", errors="replace")
        try:
            self._process = spawn(arguments, environment=self._postgres.client_environment(), output=writing)
        except OSError:
            printed.close()
            raise
        finally:
            os.close(writing)
        self._reader = threading.Thread(target=self._read, args=(self._process, printed), name="load", daemon=True)
        self._reader.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Start no more transactions, and wait up to the timeout for those in progress."""
        self._stopping = True
        if self._process is not None and self._reader is not None:
            # Its own timer sends this signal at the end of its duration. Others end it without statistics.
            end(self._process, signal.SIGALRM, timeout_s)
            self._reader.join()

    def _options(self) -> list[str]:
        options = ["-M", "prepared", "-c", str(self._clients), "-j", "1", "-R", f"{self.rate:g}", "-T", str(_LONGEST_S)]
        return [*options, "-P", "1", f"--max-tries={_TRIES}", f"--random-seed={_SEED}", "--exit-on-abort"]

    def _scripts(self) -> list[str]:
        """Write them; returns the options that name them."""
        folder = self._postgres.folder / "load"
        folder.mkdir(exist_ok=True)
        options: list[str] = []
        for kind in KINDS:
            file = folder / f"{kind.name}.sql"
            file.write_text(kind.script)
            options += ["-f", f"{file}@{kind.share}"]
        return options

    def _read(self, process: subprocess.Popen[bytes], printed: IO[str]) -> None:
        """Read what pgbench prints until it ends."""
        output = Output()
        with printed:
            for line in printed:
                output.add(line)
                self.rolled_back = round(output.ended * _ROLLED_BACK) + output.failed
                self.transactions = round(output.ended * (1 - _ROLLED_BACK))
        if output.of_scripts:
            self.rolled_back = output.failed + sum(output.of_scripts[kind.name] for kind in KINDS if kind.rolls_back)
            self.transactions = sum(output.of_scripts[kind.name] for kind in KINDS if not kind.rolls_back)
        code = process.wait()
        if code > 0 or not self._stopping:
            self.failure = LoadEndedError(output.error or f"pgbench ended with {code}")
