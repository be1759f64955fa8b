"""Accounts on several PostgreSQL nodes, between which amounts and rows move, and questions that find a transaction of which a part shows.

Clusters of one database each, or databases of one cluster. Sums over all nodes are constant, and every transaction over several nodes
writes an entry on each of them: together they cancel each other, and say how many they are.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from time import monotonic, time
from typing import Any

import psycopg

from server.cli.client import Document
from server.demo.embedded import EmbeddedPostgres, server_folder
from tests.chaos import node_coordinator, node_parcels
from tests.chaos.node_coordinator import Coordinator, DeadCoordinatorError, Session, Spread, UnfitError, Work
from tests.chaos.node_parcels import Carriers
from tests.chaos.reader import Written
from tests.chaos.skewed_clocks import installation

NODES = 3
SHARED_ON = (0, 2)
"""The nodes that have the table `shared`."""
ACCOUNTS, TRAVELLERS = 60, 20
"""Of each node, at the beginning."""
_START, _NOTE = 1_000, 3_200
_ROWS = 400
"""Rows that a large transaction inserts on each of its nodes."""
_KEPT = 300
"""Finished transactions whose entries are kept."""
_UNDONE = "undone"
_PATIENCE = "SET statement_timeout = '20s'; SET lock_timeout = '300ms'"
_RATE, _THREADS = 40.0, 4
"""Transactions per second of all threads together: half of the time of two processors, with the copy. Not measured."""
_SWEEP_S = 0.7
_WRITES = "moves"
TABLES = ("accounts", "travellers", "parcels", "shared", "entries", "follows", "moves", "bulk")

_DDL = f"""
CREATE TABLE accounts (id int PRIMARY KEY, amount bigint NOT NULL, note text NOT NULL);
ALTER TABLE accounts ALTER COLUMN note SET STORAGE EXTERNAL;
CREATE TABLE travellers (id int PRIMARY KEY, amount bigint NOT NULL, hops int NOT NULL, note text NOT NULL);
CREATE TABLE entries (move bigint, node smallint, amount bigint NOT NULL, parts smallint NOT NULL, PRIMARY KEY (move, node));
CREATE TABLE follows (move bigint PRIMARY KEY);
CREATE TABLE moves (move bigint PRIMARY KEY);
CREATE TABLE bulk (move bigint, n int, amount bigint NOT NULL, rows int NOT NULL, PRIMARY KEY (move, n));
{node_coordinator.DDL};
{node_parcels.DDL};
INSERT INTO accounts SELECT {{node}} * 1000 + n, {_START}, repeat('x', {_NOTE}) FROM generate_series(1, {ACCOUNTS}) AS n;
INSERT INTO travellers SELECT {{node}} * 1000 + n, {_START}, 0, repeat('x', {_NOTE}) FROM generate_series(1, {TRAVELLERS}) AS n;
"""
_SHARED_DDL = f"""
CREATE TABLE shared (id int PRIMARY KEY, amount bigint NOT NULL);
INSERT INTO shared SELECT {{node}} * 1000 + n, {_START} FROM generate_series(1, {ACCOUNTS}) AS n;
"""
SUMS = (
    "SELECT ((SELECT sum(amount) FROM accounts) + (SELECT sum(amount) FROM travellers)"
    " + (SELECT sum(amount) FROM shared))::BIGINT,"
    " (SELECT count(*) FROM accounts), (SELECT count(DISTINCT id) FROM accounts), (SELECT count(*) FROM travellers),"
    " (SELECT count(DISTINCT id) FROM travellers), (SELECT count(*) FROM shared), (SELECT count(DISTINCT id) FROM shared),"
    f" (SELECT count(*) FROM accounts WHERE length(note) <> {_NOTE}),"
    f" (SELECT count(*) FROM travellers WHERE length(note) <> {_NOTE}),"
    " (SELECT count(*) FROM (SELECT move FROM entries GROUP BY move"
    " HAVING sum(amount) <> 0 OR count(*) <> max(parts) OR count(DISTINCT node) <> max(parts))),"
    " (SELECT count(*) FROM (SELECT move FROM bulk GROUP BY move HAVING sum(amount) <> 0 OR count(*) <> max(rows))),"
    " (SELECT count(*) FROM follows f WHERE NOT EXISTS (SELECT 1 FROM entries e WHERE e.move = f.move)),"
    f" {', '.join(node_parcels.SUMS)}"
)
EXPECTED = [
    (2 * ACCOUNTS + TRAVELLERS) * NODES * _START - ACCOUNTS * (NODES - len(SHARED_ON)) * _START,
    *[ACCOUNTS * NODES] * 2,
    *[TRAVELLERS * NODES] * 2,
    *[ACCOUNTS * len(SHARED_ON)] * 2,
    *[0] * (5 + len(node_parcels.SUMS)),
]


class Places:
    """The nodes' databases. `clusters`: those that hold them, one for all or one for each. `skew_s`: seconds by which the clock of
    the first cluster is after that of the machine, and that of the second one ahead of it."""

    def __init__(self, layout: str, settings: dict[str, str], skew_s: int = 0) -> None:
        count = NODES if layout == "clusters" else 1
        self.installations = [installation(skew) for skew in (-skew_s, skew_s)] if skew_s else []
        programs = [*self.installations, *[None] * count][:count]
        self.clusters = [
            EmbeddedPostgres(server_folder(), durable=True, settings=settings, installation=each) for each in programs
        ]
        self.names = [f"work{node}" for node in range(NODES)]
        self.former: list[EmbeddedPostgres] = []
        """Clusters whose place another one has."""

    def __len__(self) -> int:
        return NODES

    def cluster(self, node: int) -> EmbeddedPostgres:
        return self.clusters[node % len(self.clusters)]

    def connect(self, node: int) -> Session:
        return self.cluster(node).connect(self.names[node], connect_timeout=5)

    def connection(self, node: int) -> Document:
        """The body of the node's connection."""
        cluster = self.cluster(node)
        settings = {"host": cluster.host, "port": cluster.port, "database": self.names[node], "user": cluster.user}
        return {"kind": "postgres", "settings": {**settings, "sslmode": "disable"}}

    def skews(self) -> list[float]:
        """How far the clock of each cluster is ahead of the machine's, in seconds."""
        clocks = [cluster.execute("SELECT extract(epoch FROM clock_timestamp())::float8") for cluster in self.clusters]
        return [round(float(clock) - time(), 1) for ((clock,),) in clocks]

    def create(self) -> None:
        """Start all, and create databases and tables."""
        for cluster in self.clusters:
            cluster.start()
        for node in range(NODES):
            self.cluster(node).execute(f"CREATE DATABASE {self.names[node]}")
            with self.connect(node) as session:
                session.execute(_DDL.format(node=node, nodes=NODES).encode())
                if node in SHARED_ON:
                    session.execute(_SHARED_DDL.format(node=node).encode())


class NodeBank:
    """The source of a rig, and the threads that write to it, through deaths of nodes and coordinators."""

    table = _WRITES
    errors = (psycopg.Error, DeadCoordinatorError)

    def __init__(self, layout: str, seed: int, settings: dict[str, str], skew_s: int = 0) -> None:
        self.places = Places(layout, settings, skew_s)
        self.coordinator = Coordinator(self.places, self.places.clusters[0].folder / "decisions")
        self.counts: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        """Transactions that ended with an error of a node, by its type."""
        self.failure: BaseException | None = None
        self.carriers = Carriers(self.places, seed)
        self._rest: Callable[[], float] = lambda: 0.0
        self._seed = seed
        self._own = random.Random(f"{seed}/own writes")
        self._numbers = itertools.count(1)
        self._turns = itertools.count()
        self._finished: deque[int] = deque()
        """Numbers of transactions that are committed on all nodes."""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._began = 0.0
        works: list[Callable[[random.Random], None]] = [self._work] * _THREADS
        self._threads = [
            threading.Thread(target=self._guarded, args=(work, n), name=f"bank-{n}", daemon=True)
            for n, work in enumerate([*works, self._sweep])
        ]

    @property
    def log_file(self) -> Path:
        return self.places.clusters[0].log_file

    @property
    def body(self) -> Document:
        return {
            "kind": "partitioned",
            "settings": {"nodes": [{"name": f"n{node}", "connection": f"n{node}"} for node in range(NODES)]},
        }

    def adapt(self, rest: Callable[[], float], quick: float) -> None:
        """`rest`: returns when the load may continue, with the seconds of all rests. `quick`: see Carriers."""
        self._rest = self.carriers.rest = rest
        self.carriers.quick = quick

    def start(self) -> None:
        self.places.create()

    def destroy(self) -> None:
        for cluster in [*self.places.clusters, *self.places.former]:
            cluster.destroy()
        for each in self.places.installations:
            rmtree(each, ignore_errors=True)

    def work(self) -> None:
        """Begin to write."""
        self._began = monotonic()
        for thread in self._threads:
            thread.start()
        self.carriers.start()

    def pause(self, seconds: float) -> None:
        """Wait, while it writes."""
        self._stopping.wait(seconds)

    def stop(self) -> None:
        """Write no more, and finish everything."""
        self._stopping.set()
        self.carriers.stop()
        for thread in self._threads:
            thread.join(60)
        self.finish()

    def finish(self) -> None:
        """Until nothing is prepared on any node."""
        deadline = monotonic() + 60
        while (left := self.coordinator.finish()) and monotonic() < deadline:
            threading.Event().wait(_SWEEP_S)
        assert not left, f"{left} parts are prepared still"

    def write(self) -> Written:
        """See Writes."""
        number, rng = -next(self._numbers), self._own
        found: list[str | None] = []

        def insert(session: Session) -> None:
            session.execute("INSERT INTO moves VALUES (%s)", [number])

        with self._sessions() as sessions:
            if rng.random() < 0.4:
                node = rng.randrange(NODES)
                insert(sessions[node])
                self.counts["own writes on one node"] += 1
                return Written(number, self._position(sessions, node, rng))
            nodes = rng.sample(range(NODES), rng.randint(2, NODES))
            parts: dict[int, Work] = {node: partial(self._entry, number, node, nodes) for node in nodes}
            holder = rng.choice(nodes)

            def insert_and_enter(session: Session) -> None:
                insert(session)
                self._entry(number, holder, nodes, session)

            parts[holder] = insert_and_enter
            early = rng.random() < 0.5
            spread = Spread(
                parts,
                own=rng.choice(nodes) if rng.random() < 0.3 else None,
                listed=rng.random() < 0.3,
                after_first=(lambda node: found.append(self._position(sessions, node, rng))) if early else None,
            )
            if not self.coordinator.run(sessions, spread, rng):
                raise DeadCoordinatorError
            self._is_finished(number)
            self.counts["own writes on several nodes"] += 1
            return Written(number, found[0] if found else self._position(sessions, rng.choice(nodes), rng))

    @staticmethod
    def _position(sessions: dict[int, Session], node: int, rng: random.Random) -> str | None:
        """A position after everything that was committed on this node: None for "now"."""
        chance = rng.random()
        if chance < 0.3:
            return None
        named = [node] if chance < 0.6 else range(NODES)
        ends = {
            one: sessions[one].execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()[0][0] for one in named
        }
        return ",".join(f"n{one}={end}" for one, end in ends.items())

    @contextmanager
    def _sessions(self) -> Iterator[dict[int, Session]]:
        """A session on each node."""
        with ExitStack() as stack:
            found = {}
            for node in range(NODES):
                found[node] = self.places.connect(node)
                stack.callback(found[node].close)
                found[node].execute(_PATIENCE.encode())
            yield found

    def _guarded(self, work: Callable[[random.Random], None], number: int) -> None:
        rng = random.Random(f"{self._seed}/{number}")
        while not self._stopping.is_set():
            try:
                work(rng)
            except (psycopg.Error, DeadCoordinatorError) as error:
                with self._lock:
                    self.lost[type(error).__name__] += 1
                self._stopping.wait(0.2)
            except BaseException as error:
                self.failure = error
                return

    def _sweep(self, rng: random.Random) -> None:
        del rng
        while not self._stopping.wait(_SWEEP_S):
            self.coordinator.finish()

    def _work(self, rng: random.Random) -> None:
        """With sessions on those nodes that are there."""
        with ExitStack() as stack:
            sessions: dict[int, Session] = {}
            for node in range(NODES):
                with suppress(psycopg.OperationalError):
                    sessions[node] = self.places.connect(node)
                    stack.callback(sessions[node].close)
                    sessions[node].execute(_PATIENCE.encode())
            until = monotonic() + (20 if len(sessions) == NODES else 1)
            while sessions and monotonic() < until:
                due = self._began + next(self._turns) / _RATE + self._rest()
                if self._stopping.wait(max(0.0, due - monotonic())):
                    return
                self._transact(sessions, rng)

    def _transact(self, sessions: dict[int, Session], rng: random.Random) -> None:
        kinds = [self._local, self._local_large, self._transfer, self._travel, self._large, self._clear]
        kind = rng.choices(kinds, [40, 3, 35, 18, 1.5, 2])[0]
        if kind in (self._local, self._local_large):
            node = rng.choice(list(sessions))
            with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.Rollback):
                kind(sessions, rng, node)
                self.counts[kind.__name__.strip("_")] += 1
        elif len(sessions) == NODES and kind(sessions, rng):
            self.counts[kind.__name__.strip("_")] += 1

    def _local(self, sessions: dict[int, Session], rng: random.Random, node: int) -> None:
        amount = rng.randint(1, 50)
        with sessions[node].transaction() as whole:
            if rng.random() < 0.2:
                with suppress(psycopg.Rollback), sessions[node].transaction() as savepoint:
                    _spoil(sessions[node])
                    raise psycopg.Rollback(savepoint)
            _change(sessions[node], rng, node, -amount)
            _change(sessions[node], rng, node, amount)
            if rng.random() < 0.05:
                raise psycopg.Rollback(whole)

    def _local_large(self, sessions: dict[int, Session], rng: random.Random, node: int) -> None:
        """All accounts of a node, committed or rolled back."""
        with sessions[node].transaction() as whole:
            if rng.random() < 0.4:
                _spoil(sessions[node], "")
                raise psycopg.Rollback(whole)
            sessions[node].execute("UPDATE accounts SET amount = amount + 1 - 2 * (id % 2)")

    def _transfer(self, sessions: dict[int, Session], rng: random.Random) -> bool:
        number, nodes = next(self._numbers), rng.sample(range(NODES), rng.choice([1, 2, 2, 2, 3]))
        parts = {node: partial(self._entry, number, node, nodes) for node in nodes}
        return self._run(sessions, rng, number, parts)

    def _entry(self, number: int, node: int, nodes: list[int], session: Session) -> None:
        """A part of a transfer between these nodes: it moves an amount, and writes it down."""
        amount = (len(nodes) - 1) * 7 if node == nodes[0] else -7
        rng = random.Random(f"{number}/{node}")
        _change(session, rng, node, amount)
        session.execute("INSERT INTO entries VALUES (%s, %s, %s, %s)", [number, node, amount, len(nodes)])

    def _travel(self, sessions: dict[int, Session], rng: random.Random) -> bool:
        """Rows move from one node to another; with some luck others move in the opposite direction."""
        one, other = rng.sample(range(NODES), 2)
        legs = {one: rng.randint(1, 3), other: rng.choice([0, 0, 1])}
        taken: dict[int, list[Any]] = {}
        for node, count in legs.items():
            sql = "SELECT id FROM travellers ORDER BY random() LIMIT %s"
            taken[node] = [row[0] for row in sessions[node].execute(sql, [count]).fetchall()]
        packed: dict[int, list[tuple[Any, ...]]] = {}
        number = next(self._numbers)

        def leave(node: int, session: Session) -> None:
            """All rows leave their nodes before the first one arrives."""
            sql = "DELETE FROM travellers WHERE id = ANY(%s) RETURNING id, amount, hops + 1, note"
            packed[node] = session.execute(sql, [taken[node]]).fetchall()

        def arrive(node: int, source: int, session: Session) -> None:
            for row in packed[source]:
                try:
                    session.execute("INSERT INTO travellers VALUES (%s, %s, %s, %s)", row)
                except psycopg.errors.UniqueViolation:
                    raise UnfitError from None  # Its earlier journey from here is not finished.
            self._entry(number, node, [one, other], session)

        def first(session: Session) -> None:
            leave(one, session)

        def second(session: Session) -> None:
            leave(other, session)
            arrive(other, one, session)
            # The first node's part continues after the rows for it are known.
            arrive(one, other, sessions[one])

        return self._run(sessions, rng, number, {one: first, other: second})

    def _large(self, sessions: dict[int, Session], rng: random.Random) -> bool:
        number, nodes = next(self._numbers), rng.sample(range(NODES), 2)
        sql = f"INSERT INTO bulk SELECT %s, %s * {_ROWS} + n, %s, {2 * _ROWS} FROM generate_series(0, {_ROWS - 1}) AS n"

        def insert(node: int, amount: int, session: Session) -> None:
            session.execute(sql, [number, node, amount])
            self._entry(number, node, nodes, session)

        return self._run(
            sessions, rng, number, {nodes[0]: partial(insert, nodes[0], 1), nodes[1]: partial(insert, nodes[1], -1)}
        )

    def _clear(self, sessions: dict[int, Session], rng: random.Random) -> bool:
        """Delete what old transactions have written, on all nodes at one moment."""
        with self._lock:
            old = [self._finished.popleft() for _ in range(max(0, len(self._finished) - _KEPT))]
        if not old:
            return False

        def delete(session: Session) -> None:
            for table in ("entries", "follows", "bulk"):
                session.execute(f"DELETE FROM {table} WHERE move = ANY(%s)".encode(), [old])

        return self.coordinator.run(sessions, Spread(dict.fromkeys(range(NODES), delete)), rng)

    def _run(self, sessions: dict[int, Session], rng: random.Random, number: int, parts: dict[int, Work]) -> bool:
        chance = rng.random()
        nodes = list(parts)

        def follow(node: int) -> None:
            """What follows a part on its node comes after the whole."""
            if number % 3 == 0:
                sessions[node].execute("INSERT INTO follows VALUES (%s)", [number])

        listed = rng.random() < 0.3
        spread = Spread(
            parts,
            own=rng.choice(nodes) if rng.random() < 0.3 else None,
            listed=listed,
            prepares=rng.randint(0, len(nodes)) if chance < 0.12 else None,
            # With a list a part counts as soon as it is read, even if it is rolled back and prepared again under the same id.
            tries=0 if listed else rng.choice([0] * 9 + [1]),
            after_first=follow,
        )
        committed = self.coordinator.run(sessions, spread, rng)
        if committed:
            self._is_finished(number)
        return committed

    def _is_finished(self, number: int) -> None:
        with self._lock:
            self._finished.append(number)


def _change(session: Session, rng: random.Random, node: int, amount: int) -> None:
    """Of an account, or of a shared one where there are some."""
    table = "shared" if node in SHARED_ON and rng.random() < 0.4 else "accounts"
    account = node * 1000 + rng.randint(1, ACCOUNTS)
    session.execute(f"UPDATE {table} SET amount = amount + %s WHERE id = %s".encode(), [amount, account])


def _spoil(session: Session, where: str = "WHERE id % 10 = 3") -> None:
    """A change that must never be seen."""
    session.execute(f"UPDATE accounts SET amount = amount + 999, note = '{_UNDONE}' {where}".encode())
