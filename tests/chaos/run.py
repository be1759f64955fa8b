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
failpoints, acts nor tables of these clients. Prints a JSON summary; a failure writes the seed and the list of events to a file and exits
with 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any
from unittest.mock import patch

from engine.platform.clock import SystemClock
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
from tests.chaos.killer import KINDS, Killer, Kind
from tests.chaos.memory import Memory
from tests.chaos.older_copies import EngineGate
from tests.chaos.open_transactions import OpenTransactions
from tests.chaos.pouring import PIECE_BYTES
from tests.chaos.reader import Readers
from tests.chaos.remedies import Remedies
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
_COMPARED = 0.3
"""How often everything is compared although it was all copied again."""
_STREAMED = "SELECT coalesce(sum(stream_txns), 0)::bigint FROM pg_stat_replication_slots"
_CUT_EVERY_S = 60.0
_CUT_LATEST_S = 150.0
"""A comparison would have to wait for tables that are copied again; kills continue instead, but not for longer than this."""
_CUT_S = 240.0
_FOUND_S = 60.0
_RESTART_PAUSE_S = 1.0
"""The supervisor's growing pauses are for what dies by itself; what we kill every few seconds would soon rest for most of the run."""


class Run:
    """One run, as the command line asks for it. `summary` at any time."""

    def __init__(self, rig: Rig, failpoints: Path, options: argparse.Namespace) -> None:
        seed: int = options.seed
        self.kills: Counter[str] = Counter()
        self._kinds: tuple[Kind, ...] = KINDS if rig.target is None else (*KINDS, "target")
        self.recoveries: dict[str, list[float]] = {kind: [] for kind in self._kinds}
        self.uncounted: Counter[str] = Counter()
        self.cuts = 0
        self.unequal: list[Any] = []
        self.events: list[dict[str, Any]] = []
        self._pause = threading.Event()
        self._rng = random.Random(seed)
        self._seed = seed
        self._seconds: float = options.seconds
        self._rig = rig
        self._bank = bank.Bank(rig.connect, seed)
        self._transactions = OpenTransactions(rig.connect, seed)
        self._memory = Memory(self._pids, options.memory_mb)
        self._streamed = 0
        self._readers = Readers(rig)
        self._waits = WaitChecks(rig, seed) if rig.capture is None else WaitChecks(rig, seed, 0)
        self._tables = (*bank.TABLES, *self._waits.tables)
        never = NEVER_PASSED | (IN_POSTGRES_ONLY if rig.target is None else IN_DUCKDB_ONLY)
        self._schedule = Schedule(seed, self._rng, never)
        self._failpoints = FailpointKills(
            rig,
            failpoints,
            self._schedule,
            self._rng,
            lambda: self._readers.sums,
            self._waits.tables.__contains__,
            self._waits.partitioned,
        )
        self._killer = Killer(rig, self._rng, self._failpoints)
        self._adversary = Adversary(
            rig,
            EngineGate(rig),
            failpoints,
            random.Random(f"{seed}/adversary"),
            self._waits,
            Remedies(rig, len(self._tables), self._waits.tables),
            lambda: self._killer.wait_for_progress(self._now()),
            self._pause.wait,
            lambda: self._calm(still=True),
            lambda event, told: self._note(event, **told),
            options.only,
        )
        self._options = options
        kinds: list[Kind] = [*self._kinds, "failpoint", "failpoint"]
        if rig.capture is not None:  # Its failpoints, acts and partitions are those of the log.
            kinds = [kind for kind in kinds if kind != "failpoint"]
        self._round: list[Kind] = [] if options.no_kills else kinds
        self._began = monotonic()
        self._last_cut = 0.0

    def go(self) -> None:
        """AssertionError as soon as something is found."""
        with self._rig.connect() as connection:
            bank.create(connection)
            self._waits.create(connection)
        self._bank.start()
        # Triggers are created only while no transaction that has written to the table is open.
        with self._calm(still=self._rig.capture is not None):
            self._transactions.start()
            self._begin()
        try:
            self._kill_for(self._seconds)
        finally:
            self._bank.stop()
            self._transactions.stop()
            self._readers.stop()
            self._waits.stop()
        self._look()
        self._cut()
        self._memory.stop()
        self._look()
        self._leave()

    def _leave(self) -> None:
        """Stop; then nothing of ours is left on a target that is a server but the tables and the record."""
        target = self._rig.target
        if target is None:
            return
        self._rig.api.patch(self._rig.path, {"desired_state": "stopped"})
        self._rig.wait_until(lambda: self._rig.api.get(self._rig.path)["state"] == "stopped", _FOUND_S, "it stopped")
        left: list[Any] = []

        def nothing() -> bool:
            left[:] = target.execute(_LEFT, database=DATABASE)
            return not left

        self._rig.wait_until(nothing, _FOUND_S, f"nothing was left behind; {left}")

    def _begin(self) -> None:
        """Everything is copied under the load, without the long transaction, which copies would wait for."""
        own = [{"schema": "public", "name": name} for name in self._waits.tables]
        self._rig.declare(
            [*bank.subscription_tables(), *own], batch={"small_rows": 40}, queue={"mode": self._queue_mode}
        )
        self._rig.wait_live(len(self._tables))
        self._note("live")
        self._readers.start()
        self._waits.start()
        self._memory.start()
        self._began = monotonic()

    def _pids(self) -> list[int]:
        found = [self._rig.running.supervisor.pid(name) for name in ("server", "engine")]
        return [pid for pid in found if pid is not None]

    @property
    def _queue_mode(self) -> str:
        return "memory" if self._seed % 2 else "persist"

    def summary(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "queue": self._queue_mode,
            "target": "duckdb" if self._rig.target is None else "postgres",
            "modes": dict(self._killer.modes),
            "seconds": round(monotonic() - self._began, 1),
            "kills": {kind: self.kills[kind] for kind in self._kinds},
            "uncounted_kills": dict(self.uncounted),
            "failpoints_hit": {point.value: hits for point, hits in self._schedule.hits.items() if hits},
            "failpoints_not_hit": [point.value for point, hits in self._schedule.hits.items() if not hits],
            "recovery_s": {kind: _spread(seconds) for kind, seconds in self.recoveries.items() if seconds},
            "acts": sum(self._adversary.ended.values()),
            "acts_ended": dict(sorted(self._adversary.ended.items())),
            "cuts": self.cuts,
            "unequal_cuts": len(self.unequal),
            "moves": self._bank.moves,
            "transactions": self._transactions.counts.document(),
            "streamed_transactions": self._streamed,
            "memory": self._memory.summary(),
            "waits": self._waits.counts.document(),
            "sum_checks": self._readers.checks,
            "own_writes_seen": self._readers.waits,
            "unanswered": dict(self._readers.unanswered),
            "violations": len(self._readers.violations) + len(self._waits.violations),
        }

    def _kill_for(self, seconds: float) -> None:
        self._killer.wait_for_progress(self._now())
        kinds: list[Any] = []
        while self._elapsed < seconds:
            if not kinds:
                kinds = [*self._round, *[_ACT] * self._options.acts]
                self._rng.shuffle(kinds)
            kind = kinds.pop()
            if kind == _ACT:
                self._act()
            else:
                self._kill_and_look(kind)
        while "failpoint" in self._round and not self._schedule.complete and self._elapsed < 2 * seconds:
            self._kill_and_look("failpoint")

    def _act(self) -> None:
        """Let the adversary act, and then compare everything, unless everything was copied again."""
        with self._readers.sums, self._readers.own_writes:
            try:
                told = self._adversary.act()
            except NothingToKillError as error:
                self._note("nothing to act upon", why=str(error))
                return
            finally:
                self._look()
            self._note("act ended", **told)
            if not self._adversary.copied_again or self._rng.random() < _COMPARED:
                self._cut()
            self._look()

    def _kill_and_look(self, kind: Kind) -> None:
        self._kill(kind)
        self._look()
        if self._cut_is_due():
            self._cut()

    def _kill(self, kind: Kind) -> None:
        """Kill at a random moment, then wait for a batch that was committed after that: only so the next kill counts."""
        self._pause.wait(self._rng.uniform(0.0, 1.5))
        what = self._killed(kind)
        died, died_at = monotonic(), self._now()
        counts = what is not None and bool(what.get("hit", True))
        (self.kills if counts else self.uncounted)[kind] += 1
        self._note("nothing to kill" if what is None else "killed", kind=kind, **(what or {}))
        self._killer.wait_for_progress(died_at)
        if counts:
            self.recoveries[kind].append(round(monotonic() - died, 1))

    def _killed(self, kind: Kind) -> dict[str, Any] | None:
        deadline = monotonic() + _FOUND_S
        while True:
            try:
                return self._killer.kill(kind)
            except NothingToKillError:
                if monotonic() > deadline:
                    return None
                self._pause.wait(0.1)

    def _cut_is_due(self) -> bool:
        age = self._elapsed - self._last_cut
        return age > _CUT_LATEST_S or (age > _CUT_EVERY_S and self._failpoints.settled(len(self._tables)))

    def _cut(self) -> None:
        with self._calm():
            self._killer.in_batches()
            self._failpoints.settle(len(self._tables))
            self._rig.wait_until(self._compared, _CUT_S, "a verification of all tables")
        with self._rig.connect() as connection:
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

    def _compared(self) -> bool:
        _, answer = self._rig.verify()
        # A verification may fall victim to the kill before it; and what was changed just before may be found only now.
        complete = len(answer["tables"]) == len(self._tables)
        if answer["state"] != "succeeded" or not (complete or answer["equal"] is False):
            self._note("no cut", problem=answer["problem"], compared=len(answer["tables"]))
            return False
        self.cuts += 1
        self._last_cut = self._elapsed
        self._note("cut", position=answer["position"], equal=answer["equal"])
        if not answer["equal"]:
            self.unequal.append(answer)
            self._note("difference", answer=answer)
        assert not self.unequal, "source and copy differ at a cut"
        return True

    def _look(self) -> None:
        parts = (self._bank, self._transactions, self._readers, self._waits, self._memory)
        for failure in (part.failure for part in parts):
            if failure is not None:
                raise AssertionError(f"a thread ended: {failure!r}") from failure
        violations = [*self._readers.violations, *self._waits.violations]
        if violations:
            self._note("violations", found=violations[:20])
        assert not violations, f"seen on the copy: {violations[0]}"
        too_much = self._memory.found()
        assert too_much is None, too_much

    @staticmethod
    def _now() -> datetime:
        return datetime.fromtimestamp(SystemClock().wall_us() / 1e6, UTC)

    @property
    def _elapsed(self) -> float:
        return monotonic() - self._began

    def _note(self, event: str, **more: Any) -> None:
        entry = {"at_s": round(self._elapsed, 2), "event": event, **more}
        self.events.append(entry)
        sys.stderr.write(json.dumps(entry, default=str)[:400] + "\n")


def _spread(seconds: list[float]) -> dict[str, float]:
    return {"median": median(seconds), "max": max(seconds)}


def _save(folder: Path, run: Run, error: BaseException) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"seed-{run.summary()['seed']}.json"
    content = {"error": repr(error), "summary": run.summary(), "events": run.events}
    file.write_text(json.dumps(content, indent=2, default=str) + "\n")
    return file


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120, help="how long to kill (120)")
    parser.add_argument("--seed", type=int, default=1, help="chooses kills, moments and transactions (1)")
    parser.add_argument("--target", choices=["duckdb", "postgres"], default="duckdb", help="what is filled (duckdb)")
    parser.add_argument(
        "--capture", choices=["postgres_log", "triggers"], default="postgres_log", help="(postgres_log)"
    )
    parser.add_argument("--acts", type=int, default=ACTS, help=f"acts of the adversary per round of kills ({ACTS})")
    parser.add_argument("--only", nargs="+", choices=ACT_KINDS, default=ACT_KINDS, help="kinds of its acts (all)")
    parser.add_argument("--no-kills", action="store_true", help="nothing but the adversary")
    parser.add_argument("--memory-mb", type=float, default=_MEMORY_MB, help="most of all our processes together (2500)")
    parser.add_argument("--failures", type=Path, default=Path("var/chaos"), help="where a failure is written down")
    options = parser.parse_args()
    by_triggers = options.capture == "triggers"
    if by_triggers:
        options.acts = 0
    run: Run | None = None
    try:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-failpoints-") as folder,
            patch("server.processes.supervisor._PAUSE_MOST_S", _RESTART_PAUSE_S),
            Rig(
                durable=False,
                settings=_SETTINGS,
                target_kind=options.target,
                capture={"kind": "triggers"} if by_triggers else None,
                extra={ENVIRONMENT: folder, "PENSTOCK_PIECE_BYTES": str(PIECE_BYTES), "PENSTOCK_PARTS_FROM_ROWS": "1"},
            ) as rig,
        ):
            run = Run(rig, Path(folder), options)
            run.go()
    except Exception as error:
        notes = "; ".join(getattr(error, "__notes__", []))
        sys.stderr.write(f"FAILED: {error!r} {notes}\n")
        if run is not None:
            sys.stderr.write(f"events: {_save(options.failures, run, error)}\n")
            sys.stdout.write(json.dumps({**run.summary(), "found": str(error)}, indent=2) + "\n")
        return 1
    sys.stdout.write(json.dumps(run.summary(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
