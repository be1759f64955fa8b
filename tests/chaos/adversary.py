"""Changes source, slot, publications and target in ways that no user should, and reports the consequences.

Every act is drawn from the seed. It takes place while everything runs, while the subscription is paused, while the engine is down, or
while one of its processes is held between two steps. An act ends `harmless`, which the caller's comparison must confirm, or `announced`:
the subscription failed, or tables parked or were copied again, each with a code; then the remedy has been applied.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.platform.failpoints import Failpoint, held_file
from server.cli.client import Document, NoServerError, ProblemError
from tests.chaos.failpoint_kills import READER, NothingToKillError
from tests.chaos.meddling import (
    FOLLOWED,
    IDENTITY_WAYS,
    PUBLICATION_WAYS,
    SLOT_WAYS,
    of_identity,
    of_publication,
    of_slot,
    perform,
    slot_of,
    take_slot,
)
from tests.chaos.older_copies import (
    EngineGate,
    copy_file,
    copy_folder,
    read_file,
    set_back,
    set_file_back,
    write_past,
)
from tests.chaos.remedies import Remedies
from tests.chaos.wait_checks import Committed, WaitChecks
from tests.fixtures.rig import DATABASE, Rig

READER_STARTS = (Failpoint.READER_FREED, Failpoint.READER_BEFORE_OPEN, Failpoint.READER_OPENED)
_HOLDS = (
    *READER_STARTS,
    *READER_STARTS,
    Failpoint.READER_BEFORE_APPEND,
    Failpoint.READER_AFTER_APPEND,
    Failpoint.READER_AFTER_CONFIRM,
    Failpoint.BATCH_BEFORE_JOB,
    Failpoint.BATCH_AFTER_JOB,
    Failpoint.COMMIT_BEFORE,
    Failpoint.COMMIT_AFTER,
    Failpoint.CONFIRM_BEFORE,
    Failpoint.REPORT_BEFORE,
)
_HELD_S = 30.0
_PAUSED_S = 60.0
_AGED_S = (1.0, 5.0)
"""How long the load continues between taking an older copy and restoring it."""
_AGAIN_S = 1.5
QUERY = "penstock-query"
ACT_KINDS = ("slot", "publication", "identity", "source", "target", "sessions")


@dataclass(frozen=True, slots=True)
class Act:
    """The act, and its variant."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


class Adversary:
    """`act` performs the next act and returns it with its outcome. One at a time.

    `progress` returns after a batch committed after its call. In `calm` no long transaction is open, and no client of `waits` changes
    anything. `note` records the act. Meanwhile sums and own writes must not be checked; waits may be, by `waits`.
    """

    def __init__(
        self,
        rig: Rig,
        gate: EngineGate,
        folder: Path,
        rng: random.Random,
        waits: WaitChecks,
        remedies: Remedies,
        progress: Callable[[], None],
        pause: Callable[[float], object],
        calm: Callable[[], AbstractContextManager[object]],
        note: Callable[[str, Document], None],
        kinds: Collection[str] = ACT_KINDS,
    ) -> None:
        self.ended: Counter[str] = Counter()
        """By kind of act and how it ended."""
        self._rig = rig
        self._gate = gate
        self._folder = folder
        self._rng = rng
        self._waits = waits
        self._remedies = remedies
        self._progress = progress
        self._pause = pause
        self._calm = calm
        self._note = note
        self._kinds = kinds
        self._deck: list[Act] = []
        self._copies = Path(tempfile.mkdtemp(prefix="older-", dir=rig.home))

    def act(self) -> Document:
        """NothingToKillError where there is nothing to be done to just now."""
        if not self._deck:
            every = _all_acts(server=self._rig.target is not None)
            self._deck = [act for act in every if act.kind in self._kinds]
            self._rng.shuffle(self._deck)
        act = self._deck.pop()
        with self._waits.meddled():
            self._note("act", {"act": str(act)})
            told = self._do(act)
            self._note("acted", told)
            announced = self._settle()
        ended = f"announced: {', '.join(sorted(set(announced)))}" if announced else "harmless"
        if not told.get("done", True):
            ended = f"refused, {ended}"
        self.ended[f"{act}: {ended}"] += 1
        return {"act": str(act), "ended": ended, "announced": announced}

    @property
    def copied_again(self) -> bool:
        """Whether the last act ended with a copy of all tables."""
        return self._remedies.whole

    def _settle(self) -> list[str]:
        """Apply what was announced until everything follows again, with no other obstacle."""
        with self._calm():
            return self._remedies.settle()

    def _do(self, act: Act) -> Document:
        if act.kind in {"slot", "publication", "identity"}:
            return self._meddle(act)
        if act.kind == "source":
            return self._source_back(act.what)
        if act.kind == "target":
            return self._target_back(act.what)
        return self._end_sessions(act.what)

    # Slot, publications, identities.

    def _meddle(self, act: Act) -> Document:
        # Open transactions always hold locks on `vault`, so its identity cannot be changed.
        names = FOLLOWED.keys() - ({"vault"} if act.kind == "identity" else set())
        table = FOLLOWED[self._rng.choice(sorted(names))]
        moment = self._rng.choice(("held", "held", "paused", "away", "running"))
        if act.kind != "slot" and self._rng.random() < 0.5:
            moment = "running"
        with self._rig.connect() as connection:
            found = slot_of(connection)
            if found is None:
                raise NothingToKillError("there is no slot")
            if act.kind == "slot":
                meddling = of_slot(found[0], act.what)
            elif act.kind == "publication":
                meddling = of_publication(connection, self._rng, found[0], table, act.what)
            else:
                meddling = of_identity(connection, self._rng, table, act.what)
        with self._moment(moment) as when:
            if act.kind == "slot":
                done = take_slot(self._rig.connect, meddling, table.rows)
            else:
                done = perform(self._rig.connect, meddling, table.rows, self._pause)
        return {"how": meddling.name, "table": table.name, "moment": when, "done": done}

    @contextmanager
    def _moment(self, moment: str) -> Iterator[str]:
        if moment == "paused":
            with self._paused():
                yield moment
        elif moment == "away":
            with self._gate.away():
                yield moment
        elif moment == "held":
            point = self._rng.choice(_HOLDS)
            with self._held(point) as held:
                yield f"held at {point.value}" if held else f"{point.value} was not passed"
        else:
            yield moment

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self._desire("paused")
        yield
        self._desire("running", wait=False)

    def _desire(self, state: str, *, wait: bool = True) -> None:
        def come() -> bool:
            with suppress(NoServerError, ProblemError):
                self._rig.api.patch(self._rig.path, {"desired_state": state})
                return not wait or self._rig.api.get(self._rig.path)["state"] in {state, "failed"}
            return False

        self._rig.wait_until(come, _PAUSED_S, f"the subscription is to be {state}")

    @contextmanager
    def _held(self, point: Failpoint) -> Iterator[bool]:
        """Whether a process is held there."""
        armed, held = self._folder / point.value, held_file(self._folder, point)
        draft = self._folder / f"{point.value}.draft"
        draft.write_text("hold")
        os.replace(draft, armed)  # noqa: PTH105 - whole or not at all, for those who look meanwhile
        try:
            if point in READER_STARTS:
                _kill_some(self._family(READER), self._rng)
            with suppress(AssertionError):
                self._rig.wait_until(held.exists, _HELD_S, f"a process held at {point.value}")
            yield held.exists()
        finally:
            armed.unlink(missing_ok=True)
            held.unlink(missing_ok=True)

    def _family(self, name: str) -> Sequence[psutil.Process]:
        pid = self._rig.running.supervisor.pid("engine")
        if pid is None:
            return []
        with suppress(psutil.NoSuchProcess):
            return [each for each in psutil.Process(pid).children(recursive=True) if each.name() == name]
        return []

    # Older copies.

    def _source_back(self, what: str) -> Document:
        """`what`: how the source is restored; then it is written to beyond its old end."""
        place, source = self._copies / "source", self._rig.postgres
        copy_folder(source, place)
        self._age()
        with ExitStack() as stack:
            if what == "while paused":
                stack.enter_context(self._paused())
            elif what == "while away":
                stack.enter_context(self._gate.away())
            old_end = str(source.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])
            with self._waits.another_history():
                set_back(source, place)
            new_end = write_past(self._rig.connect, old_end)
        return {"moment": what, "old_end": old_end, "new_end": new_end}

    def _target_back(self, what: str) -> Document:
        """While clients are calm; what was there before has to be waited for until it is there again."""
        file, target = self._rig.home / "copy.duckdb", self._rig.target
        place = self._copies / "target"
        if target is not None:
            copy_folder(target, place)
        else:
            with self._gate.away():
                copy_file(file, place)
        self._age()
        checked: list[str] = []
        with self._waits.calm():
            latest = self._waits.latest()
            with self._gate.away() if what == "while away" else ExitStack():
                with self._waits.another_history():
                    if target is not None:
                        set_back(target, place)
                    else:
                        self._check_file(file, latest)
                        set_file_back(file, place)
                if target is None:
                    checked += [
                        self._waits.check_again(each, lambda table: read_file(file, table), _AGAIN_S) for each in latest
                    ]
            checked += [self._waits.check_again(each, None, _AGAIN_S) for each in latest]
        return {"moment": what, "waits": checked}

    def _check_file(self, file: Path, latest: Sequence[Committed]) -> None:
        """What a satisfied wait had shown is durable: it is in the file that a killed engine left."""
        for committed in latest:
            for table, expected in committed.tables.items():
                difference = expected.difference(read_file(file, table))
                if difference is not None:
                    self._waits.violations.append(
                        {"lost by a kill": table, "difference": difference, "was": committed.change}
                    )

    def _age(self) -> None:
        """Let some time pass in which batches are committed and waits satisfied."""
        self._settle()
        self._progress()
        self._pause(self._rng.uniform(*_AGED_S))

    # Sessions.

    def _end_sessions(self, what: str) -> Document:
        ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'penstock%'"
        if what == "of the source":
            return {"sessions": self._rig.postgres.execute(ended, database=DATABASE)[0][0]}
        if self._rig.target is not None:
            return {"sessions": self._rig.target.execute(ended, database=DATABASE)[0][0]}
        return {"sessions": _kill_some(self._family(QUERY), self._rng)}


def _all_acts(*, server: bool) -> list[Act]:
    """`server`: the target is one, so that it can be set back under a running engine."""
    found = [("slot", what) for what in (*SLOT_WAYS, *SLOT_WAYS)]
    found += [("publication", what) for what in PUBLICATION_WAYS]
    found += [("identity", what) for what in IDENTITY_WAYS]
    found += [("source", what) for what in ("while running", "while away", "while away", "while paused")]
    found += [("target", what) for what in ("while away", *(["while running"] if server else []))]
    found += [("sessions", what) for what in ("of the source", "of the target")]
    return [Act(*each) for each in found]


def _kill_some(processes: Sequence[psutil.Process], rng: random.Random) -> int:
    """One of them, if there is any; how many were killed."""
    if not processes:
        return 0
    with suppress(psutil.NoSuchProcess):
        rng.choice(processes).kill()
        return 1
    return 0
