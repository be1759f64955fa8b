"""Random changes of structure and rows, while tables are reloaded, paused, removed and added again: every copy stays equal.

Each run has tables of its own; source, subscription and engine are the same for all of them. At cuts in between and at the end every
table is compared with the source; in between waits for "now" are satisfied, and the tables that they cover are compared at once. Some
transactions are sent while they are open, as the source's own statistics have to say, and what they did to structures is rolled back to
savepoints. Some runs have the source tell its DDL, some do not. Prints a JSON summary; a failure leaves its seed, run and statements in a
file, prints them, and exits with 1. `--first K --runs 1` plays one run again: the statements are the same as long as the source answers
the same.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import monotonic
from types import FrameType
from typing import Any

import structlog

from tests.chaos.ddl_run import Counts, Run, RunFailed
from tests.chaos.ddl_standing import Standing, standing


class Series:
    """Runs one after another. `summary` at any time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._stack = ExitStack()
        self._standing: Standing | None = None
        self._counts: list[Counts] = []
        self._seconds: list[float] = []
        self.failures: list[dict[str, Any]] = []

    def go(self) -> None:
        """All runs, up to the first failure; or beyond it, with a new subscription."""
        first, runs = self._options.first, self._options.runs
        try:
            for number in range(first, first + runs):
                try:
                    self._play(number)
                except RunFailed as failed:
                    self._failed(number, failed)
                    if not self._options.keep_going:
                        break
        finally:
            self._stack.close()

    def summary(self) -> dict[str, Any]:
        totals = Counts()
        for counts in self._counts:
            totals.add(counts)
        return {
            "seed": self._options.seed,
            "target": self._options.target,
            "source": self._options.version,
            "mode": self._options.mode,
            "ddl_capture": self._options.ddl_capture,
            "runs": len(self._counts),
            "failed": [failure["run"] for failure in self.failures],
            "seconds": {"median": round(median(self._seconds or [0]), 1), "max": max(self._seconds, default=0)},
            **totals.document(),
        }

    def _play(self, number: int) -> None:
        if self._standing is None:
            options = self._options
            capture = {"random": None, "on": True, "off": False}[options.ddl_capture]
            self._standing = self._stack.enter_context(standing(options.target, options.version, options.mode, capture))
        run, began = Run(self._standing, self._options.seed, number), monotonic()
        try:
            run.go()
        finally:
            self._counts.append(run.counts)
            self._seconds.append(round(monotonic() - began, 1))
            sys.stderr.write(f"run {number}: {self._seconds[-1]} s, {run.counts.transactions} transactions\n")

    def _failed(self, number: int, failed: RunFailed) -> None:
        failure = {"seed": self._options.seed, "run": number, "found": str(failed), "history": failed.history}
        self.failures.append(failure)
        folder: Path = self._options.failures
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"schema-changes-{self._options.target}-{self._options.seed}-{number}.txt"
        text = "\n".join([f"seed {self._options.seed}, run {number}: {failed}", *failed.history]) + "\n"
        file.write_text(text)
        sys.stderr.write(f"FAILED: {text}written to {file}\n")
        self._standing = None
        try:
            self._stack.close()
        except Exception as error:
            sys.stderr.write(f"and then: {error!r}\n")
        self._stack = ExitStack()


def _leave(number: int, _: FrameType | None) -> None:
    """Clean up, however the program ends."""
    sys.exit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(prog="schema_changes", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=60, help="how many runs (60)")
    parser.add_argument("--seed", type=int, default=1, help="chooses everything (1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first run (0)")
    parser.add_argument("--target", choices=["duckdb", "postgres"], default="duckdb", help="what is filled (duckdb)")
    parser.add_argument("--version", type=int, choices=[16, 18], default=18, help="of the source (18)")
    parser.add_argument(
        "--mode", default="auto", choices=["auto", "batch", "grouped", "transactional"], help="apply.mode (auto)"
    )
    parser.add_argument(
        "--ddl-capture",
        default="random",
        choices=["random", "on", "off"],
        help="whether the source tells its DDL (random)",
    )
    parser.add_argument("--keep-going", action="store_true", help="go on behind a run that failed")
    parser.add_argument("--failures", type=Path, default=Path("var/chaos"), help="where a failure is written down")
    options = parser.parse_args()
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=sys.stderr))
    signal.signal(signal.SIGTERM, _leave)
    series = Series(options)
    broken: str | None = None
    try:
        series.go()
    except Exception as error:
        broken = repr(error)
        sys.stderr.write(f"FAILED: {broken}\n")
    found = [failure["found"] for failure in series.failures] + ([broken] if broken else [])
    sys.stdout.write(json.dumps({**series.summary(), **({"found": found} if found else {})}, indent=2) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
