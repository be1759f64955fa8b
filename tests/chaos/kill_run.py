"""Rounds of kills under load, with continuous readers of the copy, and comparisons of all rows in between, whatever the source is."""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, Protocol

from engine.platform.clock import SystemClock
from server.cli.client import Document, NoServerError, ProblemError
from tests.chaos.failpoint_kills import NothingToKillError
from tests.chaos.killer import Killer, Kind
from tests.chaos.memory import Memory
from tests.chaos.pace import Pace
from tests.chaos.reader import Readers
from tests.fixtures.rig import Rig

FOUND_S = 60.0
_CUT_EVERY_S = 60.0
_CUT_LATEST_S = 150.0
"""A comparison would have to wait for tables that are copied again; kills continue instead, but not for longer than this."""
_CUT_S = 240.0
_QUICK: frozenset[Kind] = frozenset({"log_reader", "spark_worker", "query", "sessions", "writer"})
"""Kinds from which a run recovers in about a second."""
_QUICK_TIMES = 6
_UNENDED = frozenset({"queued", "running"})


class Part(Protocol):
    """A part of a run with threads of its own. `failure`: what ended one of them."""

    failure: BaseException | None


class KillRun(ABC):
    """One run, as the command line asks for it. `summary` at any time. A subclass sets `killer` before `kill_for`."""

    killer: Killer

    def __init__(self, rig: Rig, options: argparse.Namespace, kinds: Sequence[Kind]) -> None:
        self.kills: Counter[str] = Counter()
        self.recoveries: dict[str, list[float]] = {kind: [] for kind in kinds}
        self.uncounted: Counter[str] = Counter()
        self.cuts = 0
        self.unequal: list[Any] = []
        self.events: list[dict[str, Any]] = []
        self.seed: int = options.seed
        self.rig = rig
        self.kinds = tuple(kinds)
        self.pause = threading.Event()
        self.rng = random.Random(options.seed)
        self.memory = Memory(self._pids, options.memory_mb)
        self.pace = Pace(rig)
        self.began = monotonic()
        self._last_cut = 0.0

    @property
    @abstractmethod
    def tables(self) -> int:
        """Number of tables of the subscription."""

    @property
    @abstractmethod
    def readers(self) -> Readers: ...

    @abstractmethod
    def calm(self) -> AbstractContextManager[None]:
        """Calm the load for a snapshot."""

    @abstractmethod
    def parts(self) -> Iterable[Part]:
        """What has threads of its own."""

    def violations(self) -> list[Any]:
        """What was seen on the copy and cannot be."""
        return self.readers.violations

    def settled(self) -> bool:
        """Whether every table is live and no reload is under way; False too where the server cannot say."""
        try:
            listed = list(self.rig.api.items(f"{self.rig.path}/tables"))
        except (NoServerError, ProblemError):
            return False
        for table in listed:
            assert table["state"] != "parked", f"{table['name']}: {table.get('reason')}"
        return len(listed) == self.tables and all(table["state"] == "live" for table in listed)

    @property
    def queue_mode(self) -> str:
        """With which the run begins."""
        return "memory" if self.seed % 2 else "persist"

    def summary(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "queue": self.queue_mode,
            "seconds": round(monotonic() - self.began, 1),
            "kills": {kind: self.kills[kind] for kind in self.kinds},
            "uncounted_kills": dict(self.uncounted),
            "recovery_s": {kind: _spread(seconds) for kind, seconds in self.recoveries.items() if seconds},
            "cuts": self.cuts,
            "unequal_cuts": len(self.unequal),
            "greatest_lag_s": round(self.pace.latest_s, 1),
            "load_rested_s": round(self.pace.rested_s, 1),
            "memory": self.memory.summary(),
            "sum_checks": self.readers.checks,
            "own_writes_seen": self.readers.waits,
            "unanswered": dict(self.readers.unanswered),
            "violations": len(self.violations()),
        }

    @abstractmethod
    def go(self) -> None:
        """AssertionError as soon as something is found."""

    def round(self) -> list[Kind]:
        """The kills of one round in a random order: each kind once, and the quick ones a few times."""
        found = [kind for kind in self.kinds for _ in range(_QUICK_TIMES if kind in _QUICK else 1)]
        self.rng.shuffle(found)
        return found

    def start_watching(self) -> None:
        """All tables are live: the time of the run begins."""
        self.readers.start()
        self.memory.start()
        self.pace.start()
        self.began = monotonic()

    def kill_and_look(self, kind: Kind | None) -> None:
        """None: nothing is killed for a second."""
        if kind is None:
            self.pause.wait(1.0)
        else:
            self._kill(kind)
        self.look()
        if self._cut_is_due():
            self.cut()

    def _kill(self, kind: Kind) -> None:
        """Kill at a random moment, then wait for a batch that was committed after that: only so the next kill counts."""
        self.pause.wait(self.rng.uniform(0.0, 1.5))
        what = self._killed(kind)
        died, died_at = monotonic(), self.now()
        counts = what is not None and bool(what.get("hit", True))
        (self.kills if counts else self.uncounted)[kind] += 1
        self.note("nothing to kill" if what is None else "killed", kind=kind, **(what or {}))
        self.killer.wait_for_progress(died_at)
        if counts and kind in self.recoveries:
            self.recoveries[kind].append(round(monotonic() - died, 1))

    def _killed(self, kind: Kind) -> dict[str, Any] | None:
        deadline = monotonic() + FOUND_S
        while True:
            try:
                return self.killer.kill(kind)
            except NothingToKillError:
                if monotonic() > deadline:
                    return None
                self.pause.wait(0.1)

    def _cut_is_due(self) -> bool:
        age = self.elapsed - self._last_cut
        return age > _CUT_LATEST_S or (age > _CUT_EVERY_S and self.settled())

    def cut(self) -> None:
        """Compare every row of every table."""
        with self.calm():
            self.killer.in_batches()
            self.rig.wait_until(self.settled, _CUT_S, "every table was live again")
            self.rig.wait_until(self._compared, _CUT_S, "a verification of all tables")

    def _compared(self) -> bool:
        if self._verification_runs():
            return False  # One of ours that was given up; a second one would be refused.
        _, answer = self.rig.verify()
        # A verification may fall victim to the kill before it; and what was changed just before may be found only now.
        complete = len(answer["tables"]) == self.tables
        if answer["state"] != "succeeded" or not (complete or answer["equal"] is False):
            self.note("no cut", state=answer["state"], problem=answer["problem"], compared=len(answer["tables"]))
            return False
        self.cuts += 1
        self._last_cut = self.elapsed
        self.note("cut", position=answer["position"], equal=answer["equal"])
        if not answer["equal"]:
            self.unequal.append(answer)
            self.note("difference", answer=answer)
        assert not self.unequal, "source and copy differ at a cut"
        return True

    def _verification_runs(self) -> bool:
        newest = self.rig.api.get(f"{self.rig.path}/verifications", page_size=20)["items"]
        return any(each["state"] in _UNENDED for each in newest)

    def look(self) -> None:
        """AssertionError if anything was found."""
        for part in self.parts():
            if part.failure is not None:
                raise AssertionError(f"a thread ended: {part.failure!r}") from part.failure
        violations = self.violations()
        if violations:
            self.note("violations", found=violations[:20])
        assert not violations, f"seen on the copy: {violations[0]}"
        too_much = self.memory.found()
        assert too_much is None, too_much

    def _pids(self) -> list[int]:
        found = [self.rig.running.supervisor.pid(name) for name in ("server", "engine")]
        return [pid for pid in found if pid is not None]

    @staticmethod
    def now() -> datetime:
        return datetime.fromtimestamp(SystemClock().wall_us() / 1e6, UTC)

    @property
    def elapsed(self) -> float:
        return monotonic() - self.began

    def note(self, event: str, **more: Any) -> None:
        entry = {"at_s": round(self.elapsed, 2), "event": event, **more}
        self.events.append(entry)
        sys.stderr.write(json.dumps(entry, default=str)[:400] + "\n")

    def save(self, folder: Path, error: BaseException) -> Path:
        """Write the failure down; returns the file."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"seed-{self.seed}.json"
        content: Document = {"error": repr(error), "summary": self.summary(), "events": self.events}
        file.write_text(json.dumps(content, indent=2, default=str) + "\n")
        return file


def report_failure(run: KillRun | None, error: Exception, folder: Path) -> None:
    """Print what ended a program, and save and print what its run saw until then, if it had begun."""
    notes = "; ".join(getattr(error, "__notes__", []))
    sys.stderr.write(f"FAILED: {error!r} {notes}\n")
    if run is not None:
        sys.stderr.write(f"events: {run.save(folder, error)}\n")
        sys.stdout.write(json.dumps({**run.summary(), "found": str(error)}, indent=2) + "\n")


def _spread(seconds: list[float]) -> dict[str, float]:
    return {"median": median(seconds), "max": max(seconds)}
