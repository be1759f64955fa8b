"""Kills engine, server, sessions and source while two subscriptions of one connection are captured by queries.

They share the reads of a large table; with `--steps` they do not, and a cycle that loses its connection continues after the last part of
the table that was read. One follows all of the table, the other one some columns and rows of it. Rows are inserted, changed, changed back,
deleted and given other keys. Each minute, and at the end, both copies are compared with the source. Run as
`python -m tests.chaos.shared_cycles --seconds 900`. Exit code 1 on a difference, or if no cycle shared a read (`--steps`: none continued in
a second snapshot); a summary as JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg

from engine.sources.query_diff.table_walk import WALKED
from server.cli.client import Document, NoServerError, ProblemError
from server.cli.verify_command import run_verification
from tests.chaos.failpoint_kills import NothingToKillError
from tests.chaos.kill_run import KillRun, Part, report_failure
from tests.chaos.killer import Killer, Kind
from tests.chaos.reader import Readers, Written
from tests.chaos.wide_rows import TABLES, WideRows, create
from tests.fixtures.rig import Rig

_SECOND = "second"
_KINDS: tuple[Kind, ...] = ("engine", "log_reader", "server", "source", "query", "sessions")
_SETTINGS = {"max_wal_size": "'512MB'", "shared_buffers": "'256MB'", "log_min_messages": "warning"}
_WHERE = "n < 50"
_CAPTURE: Document = {"kind": "query_diff", "every_seconds": 5}
_SNAPSHOT_S = 60
_LIVE_S = 180.0
_CUT_S = 240.0
_WAIT_EVERY_S = 20.0
"""Each wait begins a cycle at once, which shares nothing if the other subscription is not due."""
_PAGE_ROWS = 10_000
_MEMORY_MB = 2_500.0
_RESTART_PAUSE_S = 1.0
"""As of `tests.chaos.run`."""
_ENDED = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'penstock%' AND state IN ('active',
    'idle in transaction')
"""


class Noted:
    """Commits rows that the copy must show after a wait."""

    table = "noted"
    errors = (psycopg.OperationalError,)

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def write(self) -> Written:
        with self._rig.connect() as connection:
            row = connection.execute("INSERT INTO noted DEFAULT VALUES RETURNING move").fetchone()
            assert row is not None
            return Written(int(row[0]), None)


class SharedRun(KillRun):
    """One run. The copy of a cycle with several snapshots need not agree with itself, so that no sums are checked."""

    def __init__(self, rig: Rig, options: argparse.Namespace) -> None:
        super().__init__(rig, options, _KINDS)
        self._seconds: float = options.seconds
        self._steps: bool = options.steps
        self._rows = WideRows(rig.connect, options.seed, rest=self.pace.rest)
        self._readers = Readers(rig, "SELECT 1", [1], Noted(rig), own_every_s=_WAIT_EVERY_S)
        self.killer = Killer(rig, self.rng, others={"sessions": self._sessions})
        self._cycles: dict[tuple[str, int], tuple[int, int]] = {}
        """Rows that others read, and the most snapshots of a table, by subscription and number of the cycle."""

    @property
    def tables(self) -> int:
        return len(TABLES)

    @property
    def readers(self) -> Readers:
        return self._readers

    def parts(self) -> Iterable[Part]:
        return (self._rows, self._readers, self.memory, self.pace)

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Cuts of cycles need no calm."""
        yield

    def go(self) -> None:
        """AssertionError as soon as something is found."""
        with self.rig.connect() as connection:
            create(connection)
        self.rig.declare([{"schema": "public", "name": name} for name in TABLES])
        self._declare_second()
        self.rig.wait_live(self.tables)
        self.rig.wait_until(self.settled, _LIVE_S, "the second subscription was live")
        self.note("live")
        self._rows.start()
        self.start_watching()
        try:
            self._kill_for(self._seconds)
        finally:
            self.pace.stop()
            self._rows.stop()
            self._readers.stop()
        self.look()
        self.cut()
        self._compare_with_source()
        self.memory.stop()
        self.look()
        if self._steps:
            assert any(several > 1 for _, several in self._cycles.values()), "no cycle continued in a second snapshot"
        else:
            assert any(shared for shared, _ in self._cycles.values()), (
                "no cycle used the reads of the other subscription"
            )

    def settled(self) -> bool:
        """As of both subscriptions."""
        return super().settled() and self._second_is_live()

    def cut(self) -> None:
        """Compare both copies."""
        super().cut()
        self.rig.wait_until(self._second_compared, _CUT_S, "a verification of the second subscription")

    def summary(self) -> dict[str, Any]:
        cycles = self._cycles.values()
        return {
            **super().summary(),
            "changes": self._rows.changes,
            "cycles_seen": len(cycles),
            "cycles_that_shared": sum(shared > 0 for shared, _ in cycles),
            "cycles_of_several_snapshots": sum(several > 1 for _, several in cycles),
        }

    def look(self) -> None:
        super().look()
        for name in (self.rig.path, f"/subscriptions/{_SECOND}"):
            try:
                found = self.rig.api.get(f"{name}/cycles", page_size=50)["items"]
            except (NoServerError, ProblemError):
                return
            for cycle in found:
                several = max((table["snapshots"] for table in cycle["tables"]), default=0)
                self._cycles[name, cycle["number"]] = cycle["rows_shared"], several

    def _declare_second(self) -> None:
        path = str(self.rig.home / "second.duckdb")
        self.rig.api.put("/connections/second", {"kind": "duckdb", "settings": {"path": path}})
        table = {"schema": "public", "name": "wide", "include_columns": ["id", "n"], "where": _WHERE}
        body = {"source": "source", "target": "second", "desired_state": "running", "tables": [table]}
        self.rig.api.put(f"/subscriptions/{_SECOND}", {**body, "capture": self.rig.capture})

    def _second_is_live(self) -> bool:
        try:
            listed = list(self.rig.api.items(f"/subscriptions/{_SECOND}/tables"))
        except (NoServerError, ProblemError):
            return False
        return [table["state"] for table in listed] == ["live"]

    def _second_compared(self) -> bool:
        try:
            answer = run_verification(self.rig.api, _SECOND, {}, _CUT_S)
        except (NoServerError, ProblemError):
            return False
        if answer["state"] != "succeeded" or answer["equal"] is None:
            self.note("no cut of the second", state=answer["state"], problem=answer["problem"])
            return False
        if not answer["equal"]:
            self.unequal.append(answer)
            self.note("difference", answer=answer)
        assert answer["equal"], "source and second copy differ at a cut"
        return True

    def _compare_with_source(self) -> None:
        """Nothing writes any more: what a wait for now promises is what is there."""
        for name, sql in (
            (self.rig.path, "SELECT id, n, note FROM wide"),
            (self.rig.path, "SELECT id, n, word FROM narrow"),
            (f"/subscriptions/{_SECOND}", f"SELECT id, n FROM wide WHERE {_WHERE}"),
        ):
            self.rig.api.post(f"{name}/freshness-waits", {"timeout_ms": 120_000})
            with self.rig.connect() as connection:
                rows = connection.execute(f"{sql} ORDER BY id".encode()).fetchall()
            copied: list[list[Any]] = []
            for first in range(0, len(rows) + _PAGE_ROWS, _PAGE_ROWS):
                page = f"{sql} ORDER BY id LIMIT {_PAGE_ROWS} OFFSET {first}"
                copied += self.rig.api.post(f"{name}/queries", {"sql": page})["rows"]
            assert copied == [list(row) for row in rows], f"{name}: the answers of {sql} differ"

    def _kill_for(self, seconds: float) -> None:
        self.killer.wait_for_progress(self.now())
        kinds: list[Kind] = []
        while self.elapsed < seconds:
            kinds = kinds or self.round()
            self.kill_and_look(kinds.pop())

    def _sessions(self) -> Document:
        """The source ends our sessions that are at work."""
        ((ended,),) = self.rig.postgres.execute(_ENDED)
        if not ended:
            raise NothingToKillError("no session is at work")
        return {"ended": ended}


def main() -> int:
    parser = argparse.ArgumentParser(prog="shared_cycles", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120, help="how long to kill (120)")
    parser.add_argument("--seed", type=int, default=1, help="chooses kills, moments and changes (1)")
    parser.add_argument("--method", choices=sorted(WALKED), default="incremental", help="of both (incremental)")
    parser.add_argument("--steps", action="store_true", help="large tables are read in steps, which are not shared")
    parser.add_argument("--memory-mb", type=float, default=_MEMORY_MB, help="most of all our processes together (2500)")
    parser.add_argument("--failures", type=Path, default=Path("var/chaos"), help="where a failure is written down")
    options = parser.parse_args()
    steps = {"snapshot_seconds": _SNAPSHOT_S} if options.steps else {}
    capture = {**_CAPTURE, "method": options.method, **steps}
    run: SharedRun | None = None
    try:
        with (
            patch("server.processes.supervisor._PAUSE_MOST_S", _RESTART_PAUSE_S),
            Rig(durable=False, settings=_SETTINGS, capture=capture) as rig,
        ):
            run = SharedRun(rig, options)
            run.go()
    except Exception as error:
        report_failure(run, error, options.failures)
        return 1
    sys.stdout.write(json.dumps(run.summary(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
