"""Clients that commit a known change, wait for it, and read the target: is it visible as soon as the wait is satisfied?

Each client has its own tables, which it alone writes, so that it must read exactly what it committed last. Its changes include those that
only the source's catalog shows: partitions truncated, detached and attached, a table re-created, types changed.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from engine.model.position import Lsn
from server.cli.client import Document, NoServerError, ProblemError
from tests.chaos.known_changes import Change, Known, create, some_change
from tests.fixtures.rig import DATABASE, Rig

CLIENTS = 2
_WAIT_MS = 20_000
_PAUSE_S = (0.0, 0.1, 0.4)
_STOP_S = 60.0
_LIMITS = "SET lock_timeout = '5s'; SET statement_timeout = '20s'"

Rows = list[tuple[str | None, ...]]
Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Content:
    """A table: the names of its columns, and its rows as text in some order of their own."""

    columns: tuple[str, ...]
    rows: Rows

    def difference(self, other: Content) -> str | None:
        """How `other` is different, the content that was expected being this one."""
        if self.columns != other.columns:
            return f"columns {other.columns}, expected {self.columns}"
        missing, extra = Counter(self.rows) - Counter(other.rows), Counter(other.rows) - Counter(self.rows)
        if not missing and not extra:
            return None
        return f"{missing.total()} rows missing, {list(missing)[:3]}, {extra.total()} too many, {list(extra)[:3]}; of {len(self.rows)}"


@dataclass(slots=True)
class Committed:
    """What a client committed up to a position, and what it waits for: "now" where `by_position` is False."""

    change: str
    position: str
    by_position: bool
    tables: dict[str, Content]
    generation: int
    catalog_only: bool
    """Whether it includes a change that only the source's catalog shows."""


@dataclass
class Counts:
    """Outcomes of waits, and the changes they were for."""

    satisfied: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)
    last_late: str | None = None
    """The answer to the last wait that was not satisfied."""
    direct: int = 0
    excused: int = 0
    """By position, where the receipt says that the catalog's state at that position is not known."""

    def document(self) -> Document:
        counted = {name: dict(sorted(getattr(self, name).items())) for name in ("satisfied", "changes", "unanswered")}
        return {**counted, "direct": self.direct, "excused": self.excused, "last_late": self.last_late}


class WaitChecks:
    """Threads, from `start` to `stop`. `violations` is empty as long as no satisfied wait was untrue."""

    def __init__(self, rig: Rig, seed: int, clients: int = CLIENTS) -> None:
        self.counts = Counts()
        self.violations: list[Document] = []
        self.failure: BaseException | None = None
        self._rig = rig
        self._stopping = threading.Event()
        self._calm = threading.Event()
        self._generation = 0
        self._meddled = 0
        self._clients = [
            _Client(self, rig, number, random.Random(f"{seed}/waits/{number}")) for number in range(clients)
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(client,), name=f"waits-{n}", daemon=True)
            for n, client in enumerate(self._clients)
        ]

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables of all clients."""
        return tuple(name for client in self._clients for name in client.known.tables)

    @property
    def partitioned(self) -> tuple[str, ...]:
        return tuple(client.known.ranged for client in self._clients)

    def create(self, connection: Connection) -> None:
        for client in self._clients:
            connection.execute(create(client.known).encode())

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(_STOP_S)

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Nothing of these clients is under way."""
        self._calm.set()
        try:
            with ExitStack() as stack:
                for client in self._clients:
                    stack.enter_context(client.busy)
                yield
        finally:
            self._calm.clear()

    @contextmanager
    def another_history(self) -> Iterator[None]:
        """Source or target become what they were before: what is under way meanwhile says nothing."""
        self._generation += 1
        try:
            yield
        finally:
            self._generation += 1

    @contextmanager
    def meddled(self) -> Iterator[None]:
        """Publications are changed: rows of this time may be missing until that is found, which waits by position need not wait for."""
        self._meddled += 1
        try:
            yield
        finally:
            self._meddled -= 1

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def is_meddled(self) -> bool:
        return self._meddled > 0

    def latest(self) -> list[Committed]:
        """The last commit of those clients that found it visible after a satisfied wait, in this generation."""
        found = [client.latest for client in self._clients]
        return [each for each in found if each is not None and each.generation == self._generation]

    def check_again(self, committed: Committed, read: Callable[[str], Content] | None, timeout_s: float) -> str:
        """Wait once more, by position, for something that was there; `read`: how the target is read, by a query where None.

        Call it while these clients are calm. What the wait came to.
        """
        try:
            body = {
                "position": committed.position,
                "timeout_ms": int(timeout_s * 1000),
                "tables": _named(committed.tables),
            }
            path = f"{self._rig.path}/freshness-waits"
            answer = self._rig.api.post(path, body, timeout_s=timeout_s + 10)
        except NoServerError:
            return "no server"
        except ProblemError as problem:
            return problem.code
        for name, expected in committed.tables.items():
            difference = expected.difference((read or self.queried)(name))
            if difference is not None:
                self.violations.append(
                    {"wait again": committed.position, "table": name, "difference": difference, "answer": answer}
                )
        return "satisfied"

    def queried(self, table: str) -> Content:
        """A table as a query shows it."""
        answer = self._rig.api.post(f"{self._rig.path}/queries", {"sql": f"SELECT * FROM {table}"})
        return content([column["name"] for column in answer["columns"]], answer["rows"])

    def _run(self, client: _Client) -> None:
        while not self._stopping.is_set():
            if self._calm.is_set():
                self._stopping.wait(0.05)
                continue
            try:
                with client.busy:
                    client.turn()
            except (psycopg.Error, NoServerError) as error:
                self.counts.unanswered[type(error).__name__] += 1
                self._stopping.wait(0.2)
            except ProblemError as problem:
                self.counts.unanswered[problem.code] += 1
                self.counts.last_late = str(problem)
                if problem.status < 500 and problem.status not in {408, 409}:
                    self.violations.append({"problem": problem.document})
                with suppress(NoServerError, ProblemError):
                    client.mend()
                self._stopping.wait(0.2)
            except BaseException as error:
                self.failure = error
                return
            self._stopping.wait(client.pause())


class _Client:
    """One turn: change, commit, wait, read, compare."""

    def __init__(self, checks: WaitChecks, rig: Rig, number: int, rng: random.Random) -> None:
        self.known = Known(number)
        self.busy = threading.Lock()
        self.latest: Committed | None = None
        self._checks = checks
        self._rig = rig
        self._rng = rng
        self._generation = 0
        self._untold = False
        """A change that only the catalog shows was committed since a wait last included the catalog."""

    def pause(self) -> float:
        return self._rng.choice(_PAUSE_S)

    def turn(self) -> None:
        generation, meddled = self._checks.generation, self._checks.is_meddled
        self._untold |= generation != self._generation
        self._generation = generation
        with self._rig.connect() as connection:
            connection.execute(_LIMITS)
            change = some_change(self._rng, self.known, connection)
            committed = self._commit(connection, change, generation)
        receipt, waited = self._wait(committed)
        if receipt is None:
            return
        names = {table["name"] for table in receipt["tables"]}
        if not names.issuperset(committed.tables):
            self._checks.counts.unanswered["left_out"] += 1
            return
        known = receipt.get("structure") is not None and Lsn.parse(receipt["structure"]) >= Lsn.parse(
            committed.position
        )
        meddled = meddled or self._checks.is_meddled
        excused = committed.by_position and not known and (meddled or committed.catalog_only)
        found = self._compare(committed)
        if self._checks.generation != generation:
            return
        if excused:
            self._checks.counts.excused += 1
            return
        if found:
            entry = {"change": committed.change, "statements": change.statements, "waited for": waited, "found": found}
            self._checks.violations.append({**entry, "position": committed.position, "receipt": receipt})
            return
        self._checks.counts.satisfied[waited] += 1
        self._checks.counts.changes[committed.change] += 1
        self._untold &= committed.by_position and not known
        self.latest = committed

    def mend(self) -> None:
        """A table of ours that parked is copied again, as its remedy says."""
        for table in self._rig.api.items(f"{self._rig.path}/tables"):
            if table["name"] in self.known.tables and table["state"] == "parked":
                self._rig.api.post(f"{self._rig.path}/tables/{table['id']}/reloads")

    def _commit(self, connection: Connection, change: Change, generation: int) -> Committed:
        self.latest = None  # The target may show this one, or a part of it, without a satisfied wait.
        self._untold = self._untold or not change.logged
        for statement in change.statements:
            connection.execute(statement.encode())
        tables = {name: held(connection, name) for name in self.known.tables}
        position = self._rig.position_of(connection)
        by_position = self._rng.random() < 0.4 and position is not None
        return Committed(change.kind, position or "now", by_position, tables, generation, self._untold)

    def _wait(self, committed: Committed) -> tuple[Document | None, str]:
        """The receipt of a wait on its own, or of a query that waits."""
        mode = {"position": committed.position} if committed.by_position else {}
        what = "position" if committed.by_position else "now"
        if self._rng.random() < 0.25:
            freshness = {"mode": "position" if committed.by_position else "latest", "timeout_ms": _WAIT_MS, **mode}
            body = {"sql": f"SELECT count(*) FROM {self.known.plain}", "freshness": freshness}
            answer = self._rig.api.post(f"{self._rig.path}/queries", body, timeout_s=_WAIT_MS / 1000 + 40)
            return answer.get("receipt"), f"{what} in a query"
        named = {"tables": _named(committed.tables)} if self._rng.random() < 0.5 else {}
        body = {"timeout_ms": _WAIT_MS, **mode, **named}
        answer = self._rig.api.post(f"{self._rig.path}/freshness-waits", body, timeout_s=_WAIT_MS / 1000 + 10)
        return answer["receipt"], what

    def _compare(self, committed: Committed) -> list[str]:
        """What is different on the target, by a query, and by a connection to it where it is a server."""
        found = []
        for name, expected in committed.tables.items():
            try:
                difference = expected.difference(self._checks.queried(name))
            except ProblemError as problem:
                if problem.status >= 500 or problem.status == 409:
                    raise
                difference = f"the query is refused: {problem.document}"
            found += [f"{name}: {difference}"] if difference is not None else []
        if self._rig.target is None:
            return found
        with self._rig.target.connect(DATABASE) as connection:
            self._checks.counts.direct += 1
            for name, expected in committed.tables.items():
                try:
                    difference = expected.difference(held(connection, name))
                except psycopg.errors.UndefinedTable:
                    difference = "it is not there"
                found += [f"{name} directly: {difference}"] if difference is not None else []
        return found


def held(connection: Connection, table: str) -> Content:
    """A table of a PostgreSQL database. psycopg.errors.UndefinedTable where it is not there."""
    # Not prepared: a prepared statement fails once its table has other columns.
    cursor = connection.execute(f"SELECT * FROM public.{table}".encode(), prepare=False)
    return content([column.name for column in cursor.description or ()], cursor.fetchall())


def content(columns: list[str], rows: Any) -> Content:
    return Content(tuple(columns), [tuple(None if value is None else str(value) for value in row) for row in rows])


def _named(tables: dict[str, Content]) -> list[Document]:
    return [{"schema": "public", "name": name} for name in tables]
