"""PostgreSQL's program pgbench: how it is called for an embedded server, and what it prints."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePath

from server.demo.embedded import EmbeddedPostgres

_PROGRESS = re.compile(r"progress: (\d+\.\d) s, (\d+\.\d) tps, .* (\d+) failed, .* (\d+) retries$")
_SCRIPT = re.compile(r"SQL script \d+: (.+)$")
_PROCESSED = re.compile(r" - number of transactions actually processed: (\d+) ")
_FAILED = re.compile(r" - (?:number of failed transactions|total number of retries): (\d+)")
_ERROR = "pgbench: error: "


def command(postgres: EmbeddedPostgres, database: str, *arguments: str) -> list[str]:
    """A command line. The password is not in it: it comes with `EmbeddedPostgres.client_environment`."""
    head = [postgres.program("pgbench"), "-h", postgres.host, "-p", str(postgres.port), "-U", postgres.user, "-n"]
    return [*head, *arguments, database]


@dataclass(slots=True)
class Output:
    """What the lines that are added say about a run with several scripts, progress, and more than one try for a transaction."""

    ended: float = 0.0
    """Transactions that have ended, by the rates that are printed as progress: an estimate."""
    failed: int = 0
    """Tries that failed, such as those that lost a deadlock."""
    of_scripts: Counter[str] = field(default_factory=Counter)
    """The number of transactions that have ended by the script's name, its file without suffix. Empty before the run's statistics."""
    error: str | None = None
    """The first error: pgbench's, or that of starting it. Its details, which may have values of rows, are left out."""
    _seconds: float = 0.0
    _script: str | None = None

    def add(self, line: str) -> None:
        """Read the next line."""
        if found := _PROGRESS.match(line):
            seconds = float(found[1])
            self.ended += float(found[2]) * (seconds - self._seconds)
            self.failed += int(found[3]) + int(found[4])
            self._seconds = seconds
        elif found := _SCRIPT.match(line):
            if self._script is None:
                self.failed = 0
            self._script = PurePath(found[1]).stem
        elif self._script is not None and (found := _PROCESSED.match(line)):
            self.of_scripts[self._script] = int(found[1])
        elif self._script is not None and (found := _FAILED.match(line)):
            self.failed += int(found[1])
        elif self.error is None and "error" in line.lower():
            self.error = line.removeprefix(_ERROR).rstrip()
