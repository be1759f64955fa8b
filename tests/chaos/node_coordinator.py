"""A coordinator of transactions over several PostgreSQL nodes, which can die at any step and is followed by another one.

It prepares the parts of a transaction, decides, and commits the parts. A decision is durable before the first part is committed: a line of
a file, or, where the coordinator has an ordinary part, a row that is committed with it. What is prepared and belongs to no transaction that
is under way is finished by its decision; where there is none, it is rolled back.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg import sql

GID_PATTERN = "^(?P<gtid>[^@!]+)(?:!(?P<participants>[a-z0-9,]+))?@"
OWN_PREFIX = "chaos.gtid"
"""Prefix of the message that names the coordinator's own part."""
DDL = "CREATE TABLE decisions (gtid text PRIMARY KEY, verdict text NOT NULL)"
_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
_LOCK_MS = 300
"""A transaction that waits longer for a lock is rolled back: locks on several nodes may wait for each other, which no node notices."""
_BUSY = (psycopg.errors.UndefinedObject, psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.LockNotAvailable)

Session = psycopg.Connection[tuple[Any, ...]]
Work = Callable[[Session], None]
"""Statements of a part, within its transaction. Raises UnfitError where the whole is to be rolled back."""


class UnfitError(Exception):
    """The transaction is rolled back, on purpose or because it does not fit the rows that are there."""


class DeadCoordinatorError(Exception):
    """The coordinator has died at this step, or is dead already."""


class Step(StrEnum):
    """Where a coordinator can die."""

    BEGUN = "begun"
    PREPARING = "between two prepares"
    PREPARED = "prepared"
    DECIDED = "decided"
    COMMITTING = "between two commits"
    COMMITTED = "committed"


class NodeSessions(Protocol):
    """Opens sessions on the nodes, in autocommit mode; the number of nodes is its length."""

    def __len__(self) -> int: ...

    def connect(self, node: int) -> Session: ...


@dataclass(frozen=True, slots=True)
class Spread:
    """A transaction over several nodes.

    `own`: the node whose part is an ordinary transaction; None: every part is prepared. `listed`: its gids name the participants.
    `prepares`: it is rolled back after so many prepares; None: it is committed. `tries`: times that it is rolled back and tried again under
    its id before. `after_first`: called after the first commit, with the node.
    """

    parts: Mapping[int, Work]
    own: int | None = None
    listed: bool = False
    prepares: int | None = None
    tries: int = 0
    after_first: Callable[[int], None] | None = None

    @property
    def prepared(self) -> list[int]:
        return [node for node in self.parts if node != self.own]


@dataclass
class Counts:
    """Outcomes of transactions over several nodes, of what was left of them, and deaths by step."""

    outcomes: Counter[str] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)


class Coordinator:
    """Used by several threads."""

    def __init__(self, nodes: NodeSessions, file: Path) -> None:
        """`file`: of the decisions."""
        self.counts = Counts()
        self._nodes = nodes
        self._file = file
        self._file.touch()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._active: set[str] = set()
        self._armed: Step | None = None
        self._died = threading.Event()
        self._alive = True

    def run(self, sessions: Mapping[int, Session], spread: Spread, rng: random.Random) -> bool:
        """Whether it was committed, on all nodes. Raises psycopg.Error and DeadCoordinatorError: nothing is known."""
        own = "" if spread.own is None else f"o{spread.own}."
        gtid = f"{own}{next(self._numbers)}"
        with self._under_way(gtid):
            for _ in range(spread.tries):
                self._attempt(sessions, spread, gtid, rng, rng.randint(1, max(1, len(spread.prepared))))
            committed = self._attempt(sessions, spread, gtid, rng, spread.prepares)
        self.counts.outcomes["committed" if committed else "rolled back"] += 1
        return committed

    def kill(self, step: Step, wait_s: float) -> bool:
        """Let it die as soon as a thread is at this step. False if none was there in time."""
        self._died.clear()
        self._armed = step
        died = self._died.wait(wait_s)
        with self._lock:
            self._armed = None
            died = died or not self._alive
        if died:
            self.counts.deaths[step] += 1
        return died

    def follow(self) -> None:
        """Another coordinator takes over."""
        with self._lock:
            self._active.clear()
            self._alive = True

    def finish(self) -> int:
        """Finish what is left on the nodes that are there. How many parts are left."""
        return sum(self._finish_on(node) for node in range(len(self._nodes)))

    @contextmanager
    def _under_way(self, gtid: str) -> Iterator[None]:
        with self._lock:
            if not self._alive:
                raise DeadCoordinatorError
            self._active.add(gtid)
        try:
            yield
        finally:
            with self._lock:
                self._active.discard(gtid)

    def _pass(self, step: Step, gtid: str) -> None:
        with self._lock:
            if self._armed is step:
                self._armed = None
                self._alive = False
                self._died.set()
            self._require(gtid)

    def _require(self, gtid: str) -> None:
        """A transaction of a coordinator that has died is none of its successor, which may have finished it."""
        if not self._alive or gtid not in self._active:
            raise DeadCoordinatorError

    def _attempt(
        self, sessions: Mapping[int, Session], spread: Spread, gtid: str, rng: random.Random, most: int | None
    ) -> bool:
        gids = {node: _gid(gtid, node, spread) for node in spread.prepared}
        done: list[int] = []
        try:
            for node, work in spread.parts.items():
                sessions[node].execute("BEGIN")
                sessions[node].execute(f"SET LOCAL lock_timeout = {_LOCK_MS}".encode())
                work(sessions[node])
            self._pass(Step.BEGUN, gtid)
            for node in rng.sample(list(gids), len(gids)):
                if most is not None and len(done) >= most:
                    break
                sessions[node].execute(_spoken("PREPARE TRANSACTION", gids[node]))
                done.append(node)
                self._pass(Step.PREPARING, gtid)
            if most is not None:
                raise UnfitError
            self._pass(Step.PREPARED, gtid)
        except (UnfitError, psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            for node in spread.parts:
                if node in done:
                    sessions[node].execute(_spoken("ROLLBACK PREPARED", gids[node]))
                else:
                    sessions[node].execute("ROLLBACK")
            return False
        self._commit(sessions, spread, gtid, rng.sample(sorted(gids.items()), len(gids)))
        return True

    def _commit(
        self, sessions: Mapping[int, Session], spread: Spread, gtid: str, gids: Sequence[tuple[int, str]]
    ) -> None:
        first = spread.after_first
        if spread.own is None:
            self._decide(gtid)
        else:
            _commit_own(sessions[spread.own], gtid, self._named(spread))
            if first is not None:
                first(spread.own)
                first = None
        self._pass(Step.DECIDED, gtid)
        for node, gid in gids:
            sessions[node].execute(_spoken("COMMIT PREPARED", gid))
            if first is not None:
                first(node)
                first = None
            self._pass(Step.COMMITTING, gtid)
        self._pass(Step.COMMITTED, gtid)

    @staticmethod
    def _named(spread: Spread) -> str:
        return "\n" + ",".join(f"n{node}" for node in sorted(spread.parts)) if spread.listed else ""

    def _decide(self, gtid: str) -> None:
        with self._lock:
            self._require(gtid)
            with self._file.open("a") as file:
                file.write(f"{gtid}\n")
                file.flush()
                os.fsync(file.fileno())

    def _finish_on(self, node: int) -> int:
        left = 0
        with suppress(psycopg.OperationalError), self._nodes.connect(node) as session:
            for (gid,) in session.execute(_PREPARED).fetchall():
                gtid = str(gid).partition("@")[0].partition("!")[0]
                with self._lock:
                    leave = not self._alive or gtid in self._active
                if leave:
                    continue
                left += 1
                # Its session may not have ended yet, or it has been finished in between.
                with suppress(*_BUSY):
                    verdict = "COMMIT" if self._is_decided(gtid) else "ROLLBACK"
                    session.execute(_spoken(f"{verdict} PREPARED", gid))
                    self.counts.finished[verdict.lower()] += 1
                    left -= 1
            return left
        return 1

    def _is_decided(self, gtid: str) -> bool:
        own, point, _ = gtid.partition(".")
        if not point:
            with self._lock:
                return gtid in self._file.read_text().splitlines()
        with self._nodes.connect(int(own[1:])) as session:
            session.execute(f"SET lock_timeout = {_LOCK_MS}".encode())
            # A commit that is under way is waited for; after this row it fails.
            session.execute("INSERT INTO decisions VALUES (%s, 'rollback') ON CONFLICT DO NOTHING", [gtid])
            ((verdict,),) = session.execute("SELECT verdict FROM decisions WHERE gtid = %s", [gtid]).fetchall()
            return bool(verdict == "commit")


def _commit_own(session: Session, gtid: str, participants: str) -> None:
    session.execute("INSERT INTO decisions VALUES (%s, 'commit')", [gtid])
    session.execute("SELECT pg_logical_emit_message(true, %s, %s)", [OWN_PREFIX, gtid + participants])
    session.execute("COMMIT")


def _gid(gtid: str, node: int, spread: Spread) -> str:
    listed = "!" + ",".join(f"n{one}" for one in sorted(spread.parts)) if spread.listed else ""
    return f"{gtid}{listed}@{node}"


def _spoken(what: str, gid: str) -> sql.Composed:
    return sql.SQL("{} {}").format(sql.SQL(what), sql.Literal(gid))  # type: ignore[arg-type]
