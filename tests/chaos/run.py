"""Kills every part repeatedly, under load, and checks whether the copy shows any effect.

A round kills each kind once, in a random order, including a target that is a server, and once changes the queue's mode; failpoints have
three turns in it. A kill counts only if a batch has been committed since the previous one. An adversary has turns too: it changes
publications and replica identities, takes the slot, and restores older copies of source and target, between any two steps. Each act must
be announced, or have no effect; announced faults are corrected by the remedy that was named. The load consists of many small
transactions, concurrent with large, aborted, interleaved, prepared and long ones, and ones that only insert. The memory of all our
processes is summed each second, and must neither exceed a limit nor grow. Readers check the copy's sums continuously, and clients read
what they committed after each satisfied wait; during the run and at its end every row of every table is compared with the source. Even
seeds begin with the queue in `persist` mode, odd ones in `memory`. Any three consecutive seeds together begin with all failpoints; a seed
whose own ones were not all hit in its time continues with failpoints, at most as long again. With `--capture triggers` there are neither
failpoints, acts nor tables of these clients. With `--capture query_diff` and a method by stamps fewer sums are checked, since deletes are
found late (`tests/chaos/stamped.py`). Prints a JSON summary; a failure writes the seed and the list of events to a file and exits
with 1. `--source mariadb` and `--source sqlite` have rounds and workloads of their own (`tests/chaos/trigger_banks.py`), by triggers or
with `--capture query_diff`; `--source duckdb`, `--source parquet` and `--source csv` have others (`tests/chaos/file_banks.py`).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import DEFAULT_METHOD
from server.cli.client import Document
from tests.chaos import bank
from tests.chaos.adversary import ACT_KINDS, Adversary
from tests.chaos.failpoint_kills import (
    ENVIRONMENT,
    IN_DUCKDB_ONLY,
    IN_POSTGRES_ONLY,
    NEVER_PASSED,
    FailpointKills,
    NothingToKillError,
    Schedule,
)
from tests.chaos.file_banks import FILE_BANKS
from tests.chaos.kill_run import FOUND_S, KillRun, Part, report_failure
from tests.chaos.killer import KINDS, Killer, Kind
from tests.chaos.older_copies import EngineGate
from tests.chaos.open_transactions import USUAL, OpenTransactions
from tests.chaos.pouring import PIECE_BYTES
from tests.chaos.reader import Readers
from tests.chaos.remedies import Remedies
from tests.chaos.stamped import METHODS, OWN_WRITES_EVERY_S, Stamped, detection
from tests.chaos.trigger_banks import BANKS, SqlBank, TriggerRun
from tests.chaos.wait_checks import WaitChecks
from tests.fixtures.rig import DATABASE, Rig

_SETTINGS = {
    "logical_decoding_work_mem": "'64kB'",
    "max_prepared_transactions": "50",
    # A slot's snapshot has room for as many aborted and open (sub)transactions as there may be connections; else the source refuses it.
    "max_connections": "1000",
    # What is set back is copied first.
    "max_wal_size": "'128MB'",
    "min_wal_size": "'32MB'",
    "log_min_messages": "warning",
}
_LEFT = """
SELECT 'table', relname::text FROM pg_class WHERE relname LIKE '%penstock\\_%'
UNION ALL SELECT 'prepared', gid FROM pg_prepared_xacts
UNION ALL SELECT 'session', application_name FROM pg_stat_activity WHERE application_name LIKE 'penstock%'
UNION ALL SELECT 'lock', objid::text FROM pg_locks WHERE locktype = 'advisory'
"""
_MEMORY_MB = 2_500.0
ACTS = 4
_ACT = "act"
_CAPTURES: dict[str, Document] = {
    "triggers": {"kind": "triggers"},
    "query_diff": {"kind": "query_diff", "every_seconds": 2},
}
_COMPARED = 0.3
"""How often everything is compared although it was all copied again."""
_STREAMED = "SELECT coalesce(sum(stream_txns), 0)::bigint FROM pg_stat_replication_slots"
_RESTART_PAUSE_S = 1.0
"""The supervisor's growing pauses are for what dies by itself; what we kill every few seconds would soon rest for most of the run."""


class Run(KillRun):
    """A run whose source is PostgreSQL."""

    def __init__(self, rig: Rig, failpoints: Path, options: argparse.Namespace) -> None:
        by_others = rig.capture is not None
        # The failpoints, acts and partitions are those of the log.
        usual = [kind for kind in KINDS if not (by_others and kind == "failpoint")]
        kinds: list[Kind] = [*usual, *(["query"] if by_others else []), *([] if rig.target is None else ["target"])]
        super().__init__(rig, options, kinds)
        seed: int = options.seed
        self._seconds: float = options.seconds
        rest = self.pace.rest if by_others else None
        self._bank = bank.Bank(rig.connect, seed, rest=rest)
        self._stamped = Stamped(rig, options.method) if by_others and options.method in METHODS else None
        habits = self._stamped.habits if self._stamped is not None else USUAL
        self._transactions = OpenTransactions(rig.connect, seed, rest=rest, habits=habits)
        self._streamed = 0
        self._readers = self._readers_of(rig)
        self._waits = WaitChecks(rig, seed, 0) if by_others else WaitChecks(rig, seed)
        self._by_key = rig.capture is not None and rig.capture["kind"] == "query_diff"
        self._names = (*(t for t in bank.TABLES if not (self._by_key and t == "scratch")), *self._waits.tables)
        never = NEVER_PASSED | (IN_POSTGRES_ONLY if rig.target is None else IN_DUCKDB_ONLY)
        self._schedule = Schedule(seed, self.rng, never)
        self._failpoints = FailpointKills(
            rig,
            failpoints,
            self._schedule,
            self.rng,
            lambda: self._readers.sums,
            self._waits.tables.__contains__,
            self._waits.partitioned,
        )
        self.killer = Killer(rig, self.rng, self._failpoints)
        self._adversary = Adversary(
            rig,
            EngineGate(rig),
            failpoints,
            random.Random(f"{seed}/adversary"),
            self._waits,
            Remedies(rig, len(self._names), self._waits.tables),
            lambda: self.killer.wait_for_progress(self.now()),
            self.pause.wait,
            lambda: self._calm(still=True),
            lambda event, told: self.note(event, **told),
            options.only,
        )
        self._options = options
        self._kills = not options.no_kills

    @property
    def tables(self) -> int:
        return len(self._names)

    @property
    def readers(self) -> Readers:
        return self._readers

    def parts(self) -> tuple[Part, ...]:
        stamped = () if self._stamped is None else (self._stamped,)
        return (self._bank, self._transactions, self._readers, self._waits, self.memory, self.pace, *stamped)

    def violations(self) -> list[Any]:
        return [*self._readers.violations, *self._waits.violations]

    def settled(self) -> bool:
        return self._failpoints.settled(self.tables)

    def calm(self) -> AbstractContextManager[None]:
        return self._calm()

    def go(self) -> None:
        """AssertionError as soon as something is found."""
        with self.rig.connect() as connection:
            bank.create(connection)
            if self._by_key:
                connection.execute("ALTER TABLE moves ADD PRIMARY KEY (move)")
            if self._stamped is not None:
                self._stamped.create(connection)
            self._waits.create(connection)
        self._bank.start()
        # Triggers are created only while no transaction that has written to the table is open.
        with self._calm(still=self.rig.capture is not None):
            self._transactions.start()
            self._begin()
        try:
            self._kill_for(self._seconds)
        finally:
            self.pace.stop()
            self._bank.stop()
            self._transactions.stop()
            self._readers.stop()
            self._waits.stop()
            if self._stamped is not None:
                self._stamped.stop()
        self.look()
        self.cut()
        self.memory.stop()
        self.look()
        assert self._stamped is None or self._stamped.by_stamp, "no cycle read rows by their stamps"
        self._leave()

    def _leave(self) -> None:
        """Stop; then nothing of ours is left on a target that is a server but the tables and the record."""
        target = self.rig.target
        if target is None:
            return
        self.rig.api.patch(self.rig.path, {"desired_state": "stopped"})
        self.rig.wait_until(lambda: self.rig.api.get(self.rig.path)["state"] == "stopped", FOUND_S, "it stopped")
        left: list[Any] = []

        def nothing() -> bool:
            left[:] = target.execute(_LEFT, database=DATABASE)
            return not left

        self.rig.wait_until(nothing, FOUND_S, f"nothing was left behind; {left}")

    def _begin(self) -> None:
        """Everything is copied under the load, without the long transaction, which copies would wait for."""
        own = [{"schema": "public", "name": name} for name in self._waits.tables]
        tables = [each for each in bank.subscription_tables() if each["name"] in self._names]
        self.rig.declare([*tables, *own], batch={"small_rows": 40}, queue={"mode": self.queue_mode})
        self.rig.wait_live(self.tables)
        self.note("live")
        self.start_watching()
        self._waits.start()
        if self._stamped is not None:
            self._stamped.start()

    def summary(self) -> dict[str, Any]:
        return {
            "target": "duckdb" if self.rig.target is None else "postgres",
            **super().summary(),
            "modes": dict(self.killer.modes),
            "failpoints_hit": {point.value: hits for point, hits in self._schedule.hits.items() if hits},
            "failpoints_not_hit": [point.value for point, hits in self._schedule.hits.items() if not hits],
            "acts": sum(self._adversary.ended.values()),
            "acts_ended": dict(sorted(self._adversary.ended.items())),
            "moves": self._bank.moves,
            "transactions": self._transactions.counts.document(),
            "streamed_transactions": self._streamed,
            "waits": self._waits.counts.document(),
            **self._of_stamps(),
        }

    def _readers_of(self, rig: Rig) -> Readers:
        writes = bank.OwnWrites(rig)
        if self._stamped is None:
            return Readers(rig, bank.INVARIANTS, bank.EXPECTED, writes)
        return Readers(rig, self._stamped.sums, self._stamped.expected, writes, OWN_WRITES_EVERY_S)

    def _of_stamps(self) -> dict[str, Any]:
        if self._stamped is None:
            return {}
        return {"cycles_by_stamps": len(self._stamped.by_stamp), "purged_rows": self._stamped.purged}

    def round(self) -> list[Kind]:
        if not self._kills:
            return []
        return super().round() if self.rig.capture else [*self.kinds, "failpoint", "failpoint"]

    def _kill_for(self, seconds: float) -> None:
        self.killer.wait_for_progress(self.now())
        kinds: list[Any] = []
        while self.elapsed < seconds:
            if not kinds:
                kinds = [*self.round(), *[_ACT] * self._options.acts] or [None]
                self.rng.shuffle(kinds)
            kind = kinds.pop()
            if kind == _ACT:
                self._act()
            else:
                self.kill_and_look(kind)
        by_log = self._kills and self.rig.capture is None
        while by_log and not self._schedule.complete and self.elapsed < 2 * seconds:
            self.kill_and_look("failpoint")

    def _act(self) -> None:
        """Let the adversary act, and then compare everything, unless everything was copied again."""
        with self._readers.sums, self._readers.own_writes:
            try:
                told = self._adversary.act()
            except NothingToKillError as error:
                self.note("nothing to act upon", why=str(error))
                return
            finally:
                self.look()
            self.note("act ended", **told)
            if not self._adversary.copied_again or self.rng.random() < _COMPARED:
                self.cut()
            self.look()

    def cut(self) -> None:
        super().cut()
        with self.rig.connect() as connection:
            row = connection.execute(_STREAMED).fetchone()
        self._streamed = max(self._streamed, int(row[0]) if row else 0)

    @contextmanager
    def _calm(self, *, still: bool = False) -> Iterator[None]:
        """Calm the load for a snapshot or a wait for all tables; `still`: also for a new slot, which would wait for open transactions."""
        self._bank.no_truncates.set()
        try:
            with self._waits.calm(), self._transactions.still() if still else self._transactions.calm():
                yield
        finally:
            self._bank.no_truncates.clear()


def _other(options: argparse.Namespace) -> SqlBank | None:
    """The source, if it is none of PostgreSQL."""
    if options.source in FILE_BANKS:
        options.capture, options.method = "query_diff", DEFAULT_METHOD
        return FILE_BANKS[options.source](options.seed)
    by_queries = options.capture == "query_diff"
    return BANKS[options.source](options.seed, only_read=by_queries) if options.source in BANKS else None


def _capture(options: argparse.Namespace, other: SqlBank | None) -> Document | None:
    if options.capture == "query_diff":
        if other is not None:
            return {**_CAPTURES["query_diff"], "method": options.method, "tables": dict(other.detection)}
        if options.method in METHODS:
            hashed = Method.ROW_CHECKSUM if options.seed % 2 else Method.INCREMENTAL
            return {
                **_CAPTURES["query_diff"],
                "method": hashed,
                "every_seconds": 1,
                "tables": detection(options.method),
            }
        return {**_CAPTURES["query_diff"], "method": options.method}
    return _CAPTURES.get(options.capture) or (_CAPTURES["triggers"] if other is not None else None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120, help="how long to kill (120)")
    parser.add_argument("--seed", type=int, default=1, help="chooses kills, moments and transactions (1)")
    parser.add_argument("--target", choices=["duckdb", "postgres"], default="duckdb", help="what is filled (duckdb)")
    parser.add_argument(
        "--source", choices=["postgres", *BANKS, *FILE_BANKS], default="postgres", help="what is replicated (postgres)"
    )
    parser.add_argument(
        "--capture", choices=["postgres_log", "triggers", "query_diff"], default="postgres_log", help="(postgres_log)"
    )
    parser.add_argument("--method", choices=[*Method, *METHODS], default=DEFAULT_METHOD, help="of query_diff")
    parser.add_argument("--acts", type=int, default=ACTS, help=f"acts of the adversary per round of kills ({ACTS})")
    parser.add_argument("--only", nargs="+", choices=ACT_KINDS, default=ACT_KINDS, help="kinds of its acts (all)")
    parser.add_argument("--no-kills", action="store_true", help="nothing but the adversary, or nothing at all")
    parser.add_argument("--memory-mb", type=float, default=_MEMORY_MB, help="most of all our processes together (2500)")
    parser.add_argument("--failures", type=Path, default=Path("var/chaos"), help="where a failure is written down")
    options = parser.parse_args()
    # The failpoints and acts are those of the log.
    if options.capture != "postgres_log" or options.source != "postgres":
        options.acts = 0
    run: KillRun | None = None
    try:
        other = _other(options)
        with (
            tempfile.TemporaryDirectory(prefix="penstock-failpoints-") as folder,
            patch("server.processes.supervisor._PAUSE_MOST_S", _RESTART_PAUSE_S),
            Rig(
                durable=False,
                settings=_SETTINGS,
                target_kind=options.target,
                capture=_capture(options, other),
                source=other,
                extra={ENVIRONMENT: folder, "PENSTOCK_PIECE_BYTES": str(PIECE_BYTES), "PENSTOCK_PARTS_FROM_ROWS": "1"},
            ) as rig,
        ):
            run = Run(rig, Path(folder), options) if other is None else TriggerRun(rig, options, other)
            run.go()
    except Exception as error:
        report_failure(run, error, options.failures)
        return 1
    sys.stdout.write(json.dumps(run.summary(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
