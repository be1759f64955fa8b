"""Deaths at named places: which comes next, how it is armed in processes that run, and what makes them pass it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import psutil

from engine.platform.failpoints import Failpoint
from server.cli.client import Document, NoServerError, ProblemError
from tests.fixtures.rig import Rig

ENVIRONMENT = "PENSTOCK_FAILPOINTS_FOLDER"
READER = "penstock-reader"
SEEDS_TOGETHER = 3
"""So many seeds in a row begin with different failpoints, all of them together."""
_IN_COPIES = frozenset(
    {
        Failpoint.COPY_RUNNING,
        Failpoint.CHUNK_READ,
        Failpoint.CHUNK_TAKEN,
        Failpoint.HANDOVER_BEFORE,
        Failpoint.HANDOVER_AFTER,
    }
)
"""A copy passes them once for each of its chunks. No table is large enough for more than one chunk here."""
NEVER_PASSED = frozenset(
    {
        Failpoint.READER_BEFORE_MARK,
        Failpoint.READER_AFTER_MARK,
        Failpoint.READER_AFTER_UNMARK,
        Failpoint.QUEUE_SWITCH_TOLD,
        Failpoint.QUEUE_SWITCHED,
        Failpoint.SLOT_DROP_NOTED,
        Failpoint.SLOT_DROPPED,
    }
)
"""The queue's mode is not switched here, and the slot's budget is not exhausted."""
IN_POSTGRES_ONLY = frozenset({Failpoint.PARTS_PREPARED, Failpoint.PARTS_DECIDED})
"""A batch in parts."""
IN_DUCKDB_ONLY = frozenset({Failpoint.EARLY_INSERTED, Failpoint.EARLY_COMMIT})
"""No other target takes rows before their commit."""
_IN_READER_STARTS = frozenset({Failpoint.READER_FREED, Failpoint.READER_BEFORE_OPEN, Failpoint.READER_OPENED})
"""Passed once per log reader, so one has to die first."""
_MOST_PASSINGS = {
    **dict.fromkeys(_IN_READER_STARTS, 1),
    Failpoint.SLOT_CREATED: 1,
    Failpoint.COPY_RUNNING: 2,
    Failpoint.CHUNK_READ: 1,
    Failpoint.CHUNK_TAKEN: 1,
    Failpoint.HANDOVER_BEFORE: 1,
    Failpoint.HANDOVER_AFTER: 1,
    Failpoint.PARTITIONS_READ: 1,
    Failpoint.TASK_RUNNING: 8,
    Failpoint.EARLY_INSERTED: 8,
    Failpoint.EARLY_COMMIT: 2,
}
_MOST_PASSINGS_ELSE = 30
_HIT_S = 60.0
_PARTITION_READ_S = 150.0
"""A partition is read under a snapshot, which waits for open transactions, and not while its table is being copied."""
_RELOADED_S = 240.0
_ENDED_WELL = "succeeded"
_UNENDED = frozenset({"queued", "running"})
_RELOADED_ALONE = ("entries", "labels", "moves")
"""Readers' checks of these tables also hold for old rows, which stay readable while the table is copied again."""


class NothingToKillError(Exception):
    """The process is not there just now, or cannot be brought to where it should die."""


class Schedule:
    """Failpoints in an order that the seed decides; those never hit come first."""

    def __init__(self, seed: int, rng: random.Random, never_passed: frozenset[Failpoint]) -> None:
        points = [point for point in Failpoint if point not in never_passed]
        share = -(-len(points) // SEEDS_TOGETHER)
        first = seed * share % len(points)
        turned = points[first:] + points[:first]
        own, others = turned[:share], turned[share:]
        rng.shuffle(own)
        rng.shuffle(others)
        self._own = own
        self._waiting = own + others
        self.hits = dict.fromkeys(self._waiting, 0)

    def next(self) -> Failpoint:
        """The one that has been hit least; of those, the one that has waited longest."""
        return min(self._waiting, key=lambda point: self.hits[point])

    @property
    def complete(self) -> bool:
        """Whether each of those with which this seed begins has been hit."""
        return all(self.hits[point] for point in self._own)

    def done(self, point: Failpoint, *, hit: bool) -> None:
        """It had its turn: one that was missed comes again after the others that were never hit."""
        self.hits[point] += hit
        self._waiting.remove(point)
        self._waiting.append(point)


class FailpointKills:
    """Kills by failpoints. `unwatched` is held while tables are copied of which readers ask together.

    `remade`: whether a table of this name may park, because it is dropped and made again; it is then copied as its remedy says.
    """

    def __init__(
        self,
        rig: Rig,
        folder: Path,
        schedule: Schedule,
        rng: random.Random,
        unwatched: Callable[[], AbstractContextManager[object]],
        remade: Callable[[str], bool] = lambda _: False,
        partitioned: Collection[str] = (),
    ) -> None:
        self._rig = rig
        self._folder = folder
        self._schedule = schedule
        self._rng = rng
        self._unwatched = unwatched
        self._remade = remade
        self._partitioned = partitioned

    def kill(self) -> Document:
        """Arm the next failpoint, bring some process to it, and tell whether it died there."""
        point = self._schedule.next()
        passing = self._rng.randint(1, _MOST_PASSINGS.get(point, _MOST_PASSINGS_ELSE))
        whole = point is Failpoint.SLOT_CREATED
        if point in IN_POSTGRES_ONLY:
            self._write_in_parts()
        with self._unwatched() if whole else nullcontext():
            self._arm(point, passing)
            try:
                reload = self._ask_for_reload(point)
                if point in _IN_READER_STARTS:
                    self._kill_reader()
                within = _PARTITION_READ_S if point is Failpoint.PARTITIONS_READ else _HIT_S
                hit = self._comes_true(lambda: not self._file(point).exists(), within)
            finally:
                self._file(point).unlink(missing_ok=True)
            if whole and reload is not None:
                self._reloaded(reload)
        self._schedule.done(point, hit=hit)
        return {"failpoint": point.value, "passing": passing, "hit": hit}

    def _write_in_parts(self) -> None:
        """See that batches are written in parts from the engine's next start on, which is now."""
        apply = {"mode": "batch", "lanes": 2, "group_size": None, "visibility": "relaxed"}
        try:
            self._rig.api.patch(self._rig.path, {"apply": apply})
        except NoServerError as error:
            raise NothingToKillError("the server is away") from error
        except ProblemError as problem:
            if problem.status < 500:
                raise
            raise NothingToKillError(problem.code) from problem
        pid = self._rig.running.supervisor.pid("engine")
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _kill_reader(self) -> None:
        engine = self._rig.running.supervisor.pid("engine")
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(engine).children(recursive=True) if engine is not None else []
            for process in family:
                if process.name() == READER:
                    process.kill()
                    return
        raise NothingToKillError("there is no log reader just now")

    def settle(self, tables: int) -> None:
        """Wait until no reload is under way and every table is live."""
        self._rig.wait_until(lambda: self.settled(tables), _RELOADED_S, "every table was live again")

    def settled(self, tables: int) -> bool:
        """Whether no reload is under way and every table is live; False too where the server cannot say."""
        try:
            listed = list(self._rig.api.items(f"{self._rig.path}/tables"))
            running = self._reload_runs()
        except NoServerError:
            return False
        except ProblemError as problem:
            if problem.status < 500:
                raise
            return False
        for table in listed:
            if table["state"] == "parked":
                assert self._remade(table["name"]), f"{table['name']}: {table.get('reason')}"
                with suppress(NoServerError, ProblemError):
                    self._rig.api.post(f"{self._rig.path}/tables/{table['id']}/reloads")
        return len(listed) == tables and all(table["state"] == "live" for table in listed) and not running

    def _file(self, point: Failpoint) -> Path:
        return self._folder / point.value

    def _arm(self, point: Failpoint, passing: int) -> None:
        draft = self._folder / f"{point.value}.draft"
        draft.write_text(f"kill@{passing}")
        os.replace(draft, self._file(point))  # noqa: PTH105 - whole or not at all, for those who look meanwhile

    def _ask_for_reload(self, point: Failpoint) -> str | None:
        """The path of the reload that passes this failpoint; None where it is passed without."""
        try:
            if point is Failpoint.SLOT_CREATED:
                path, body = self._rig.path, None
            elif point is Failpoint.PARTITIONS_READ:
                path, body = self._partition()
            elif point in _IN_COPIES:
                path, body = self._table_path(_RELOADED_ALONE), None
            else:
                return None
            return f"{path}/reloads/{self._rig.api.post(f'{path}/reloads', body)['id']}"
        except NoServerError as error:
            raise NothingToKillError("the server is away") from error
        except ProblemError as problem:
            if problem.code not in {"reload_running", "table_not_reloadable"} and problem.status < 500:
                raise
            raise NothingToKillError(problem.code) from problem

    def _table_path(self, names: Collection[str]) -> str:
        """One of these tables that can be copied again."""
        tables = {table["name"]: table for table in self._rig.api.items(f"{self._rig.path}/tables")}
        live = [name for name in names if tables[name]["state"] == "live"]
        if not live:
            raise NothingToKillError("no table to reload")
        return f"{self._rig.path}/tables/{tables[self._rng.choice(live)]['id']}"

    def _partition(self) -> tuple[str, Document]:
        """A table, and the request that reloads one of its partitions."""
        path = self._table_path(self._partitioned)
        found = self._rig.api.get(f"{path}/partitions")["partitions"]
        names = [partition["name"] for partition in found if partition["reloadable"]]
        if not names:
            raise NothingToKillError("no partition to load")
        return path, {"partitions": [self._rng.choice(names)]}

    def _reloaded(self, reload: str) -> None:
        """Wait until a whole reload has ended well, whatever was killed in it, and all its tables are live."""
        last: Document = {}

        def ended() -> bool:
            last.update(self._rig.api.get(reload))
            return last["state"] not in _UNENDED

        self._rig.wait_until(ended, _RELOADED_S, "the reload ended")
        assert last["state"] == _ENDED_WELL, f"a reload after a kill: {last}"

    def _reload_runs(self) -> bool:
        newest = self._rig.api.get(f"{self._rig.path}/reloads", page_size=20)["items"]
        return any(reload["state"] in _UNENDED for reload in newest)

    def _comes_true(self, done: Callable[[], bool], within_s: float) -> bool:
        with suppress(AssertionError):
            self._rig.wait_until(done, within_s, "the failpoint was passed")
            return True
        return False
