"""Runs whose source is MariaDB or a SQLite file, captured by triggers or by queries: their workloads, and the kills of their own.

Every transaction keeps sums constant. Besides moves of money with savepoints and rollbacks there are changes of keys, swaps of unique
values, REPLACE, cascades, updates that are ignored, and transactions that stay open for seconds.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

import pymysql

from server.cli.client import Document
from tests.chaos.failpoint_kills import NothingToKillError
from tests.chaos.kill_run import FOUND_S, KillRun, Part
from tests.chaos.killer import Killer, Kind
from tests.chaos.reader import Readers, Written
from tests.fixtures.mariadb import MariaDbServer, programs
from tests.fixtures.rig import Rig

ACCOUNTS = 100
START_BALANCE = 1_000
PLACES = 200
_STATEMENT = 2_000
_UNDONE = "undone"
_KINDS: tuple[Kind, ...] = ("engine", "log_reader", "spark_worker", "server", "queue_mode", "query")
_TABLES = {
    "checking": "id {integer} PRIMARY KEY, balance {integer} NOT NULL, statement {text} NOT NULL",
    "savings": "branch {integer} NOT NULL, id {integer} NOT NULL, balance {integer} NOT NULL, PRIMARY KEY (branch, id)",
    "entries": "move {integer} NOT NULL, side {integer} NOT NULL, amount {integer} NOT NULL, PRIMARY KEY (move, side)",
    "labels": "name {name} NOT NULL PRIMARY KEY, holder {integer} NOT NULL UNIQUE",
    "vault": "place {integer} PRIMARY KEY, amount {integer} NOT NULL, note {text} NOT NULL",
    "orders": "id {integer} PRIMARY KEY, note {text}",
    "order_lines": "id {integer} NOT NULL, side {integer} NOT NULL, amount {integer} NOT NULL, PRIMARY KEY (id, side),"
    " FOREIGN KEY (id) REFERENCES orders (id) ON DELETE CASCADE",
    "moves": "move {integer} PRIMARY KEY",
}
_SUMS = (
    "SELECT ((SELECT sum(balance) FROM {s}checking) + (SELECT sum(balance) FROM {s}savings))::BIGINT,"
    " coalesce((SELECT sum(amount) FROM {s}entries), 0)::BIGINT,"
    " (SELECT count(*) FROM {s}entries) - 2 * (SELECT count(DISTINCT move) FROM {s}entries),"
    " (SELECT count(*) FROM {s}labels), (SELECT count(DISTINCT holder) FROM {s}labels), (SELECT count(*) FROM {s}checking),"
    " (SELECT count(*) FROM {s}savings),"
    f" (SELECT count(*) FROM {{s}}checking WHERE length(statement) <> {_STATEMENT}),"
    f" (SELECT sum(amount) FROM {{s}}vault)::BIGINT, (SELECT count(*) FROM {{s}}vault WHERE note = '{_UNDONE}'),"
    " (SELECT count(*) FROM {s}vault),"
    " (SELECT count(*) FROM {s}order_lines l WHERE NOT EXISTS (SELECT 1 FROM {s}orders o WHERE o.id = l.id)),"
    " (SELECT count(*) FROM {s}order_lines) - 2 * (SELECT count(*) FROM {s}orders),"
    " coalesce((SELECT sum(amount) FROM {s}order_lines), 0)::BIGINT"
)
_EXPECTED = [2 * ACCOUNTS * START_BALANCE, 0, 0, *[ACCOUNTS] * 4, 0, 100 * PLACES, 0, PLACES, 0, 0, 0]


class SqlBank(ABC):
    """Threads that keep working through deaths of the source, and the source itself. `moves`: acknowledged ones."""

    errors: tuple[type[BaseException], ...]
    """Of a source that is away, or of a lost race."""
    schema: str
    """Of the tables, as a subscription names it."""
    prefix: str
    """Of their names on the target."""
    begin: ClassVar[tuple[str, ...]]
    """How a transaction is begun; one of these, by chance."""
    types: ClassVar[Mapping[str, str]]
    ignoring: ClassVar[str]
    """UPDATE that leaves rows as they are whose new value exists already."""
    locking: ClassVar[str] = ""
    """Makes a SELECT lock the rows that it reads, where a session at READ COMMITTED would write older ones back."""
    rate: ClassVar[float]
    threads: ClassVar[int]

    def __init__(self, seed: int, *, only_read: bool = False) -> None:
        """`only_read`: Penstock gets no right but to read the tables."""
        self.seed = seed
        self.only_read = only_read
        self.moves = 0
        self.lost: Counter[str] = Counter()
        """Transactions that ended with an error of the source, by its type."""
        self.failure: BaseException | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
        self.rest: Callable[[], float] = lambda: 0.0
        self._numbers = itertools.count(1)
        self._turns = itertools.count()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._calm = threading.Event()
        self._short = threading.Event()
        """No long transaction is open."""
        self._short.set()
        self._began = 0.0
        works = [(self._work, n) for n in range(self.threads)] + [(self._stay_open, self.threads)]
        self._threads = [
            threading.Thread(target=self._guarded, args=work, name=f"bank-{work[1]}", daemon=True) for work in works
        ]

    @property
    @abstractmethod
    def body(self) -> Document:
        """The body of its connection."""

    @property
    def log_file(self) -> Path:
        return self.folder / "log"

    @abstractmethod
    def start(self) -> None:
        """Start the source."""

    def destroy(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @abstractmethod
    def connect(self) -> AbstractContextManager[Any]:
        """A session of an application, in autocommit mode, whose `execute` takes one statement."""

    @abstractmethod
    def kills(self, rng: random.Random) -> Mapping[Kind, Callable[[], Document]]:
        """The kills of this source's own."""

    @abstractmethod
    def traces(self) -> list[Any]:
        """The schema, in which a capture leaves its traces; AssertionError if the source is damaged."""

    @property
    def table(self) -> str:
        return f"{self.prefix}moves"

    @property
    def tables(self) -> list[Document]:
        return [{"schema": self.schema, "name": name} for name in _TABLES]

    @property
    def detection(self) -> Mapping[str, Document]:
        """`tables` of a capture by queries."""
        return {}

    @property
    def expected(self) -> Sequence[Any]:
        """What the query `sums` shows at any moment."""
        return _EXPECTED

    def columns(self, table: str) -> str:
        """Columns and constraints, for CREATE TABLE."""
        return _TABLES[table].format(**self.types)

    @property
    def sums(self) -> str:
        return _SUMS.format(s=self.prefix)

    def create(self) -> None:
        with self.connect() as session:
            for name in _TABLES:
                session.execute(f"CREATE TABLE {name} ({self.columns(name)})")
            session.execute("BEGIN")
            for n in range(1, ACCOUNTS + 1):
                statement = f"{n}:".ljust(_STATEMENT, "x")
                session.execute(f"INSERT INTO checking VALUES ({n}, {START_BALANCE}, '{statement}')")
                session.execute(f"INSERT INTO savings VALUES ({n % 7}, {n}, {START_BALANCE})")
                session.execute(f"INSERT INTO labels VALUES ('label {n}', {n})")
            for n in range(1, PLACES + 1):
                session.execute(f"INSERT INTO vault VALUES ({n}, 100, 'kept')")
            session.execute("COMMIT")

    def write(self) -> Written:
        """See Writes."""
        number = -next(self._numbers)
        with self.connect() as session:
            session.execute(f"INSERT INTO moves VALUES ({number})")
        return Written(number, None)

    def work(self) -> None:
        """Begin to write."""
        self._began = monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Without long transactions."""
        self._calm.set()
        try:
            self._short.wait(30)
            yield
        finally:
            self._calm.clear()

    def _guarded(self, work: Callable[[Any, random.Random], None], number: int) -> None:
        rng = random.Random(f"{self.seed}/{number}")
        while not self._stopping.is_set():
            try:
                with self.connect() as session:
                    work(session, rng)
            except self.errors as error:
                with self._lock:
                    self.lost[type(error).__name__] += 1
                self._stopping.wait(0.2)
            except BaseException as error:
                self.failure = error
                return
            finally:
                if work == self._stay_open:
                    self._short.set()

    def _work(self, session: Any, rng: random.Random) -> None:
        while not self._stopping.is_set():
            due = self._began + next(self._turns) / self.rate + self.rest()
            if self._stopping.wait(max(0.0, due - monotonic())):
                return
            kinds = [self._move, self._rename, self._swap, self._replace, self._ignored, self._order, self._whole]
            kind = rng.choices(kinds, [80, 8, 5, 4, 3, 6, 1])[0]
            self._transact(session, rng, kind(rng))
            if kind == self._move:
                with self._lock:
                    self.moves += 1

    def _transact(self, session: Any, rng: random.Random, statements: Sequence[str], end: str | None = None) -> None:
        last = end or ("ROLLBACK" if rng.random() < 0.05 else "COMMIT")
        for statement in (rng.choice(self.begin), *statements, last):
            session.execute(statement)

    def _move(self, rng: random.Random) -> list[str]:
        number, amount = next(self._numbers), rng.randint(1, 50)
        source, target = rng.randint(1, ACCOUNTS), rng.randint(1, ACCOUNTS)
        found = []
        if rng.random() < 0.3:
            found += [
                "SAVEPOINT s",
                f"UPDATE checking SET balance = balance + 999 WHERE id = {source}",
                f"DELETE FROM entries WHERE move > {number - 20}",
                "ROLLBACK TO SAVEPOINT s",
            ]
        found += [
            f"UPDATE checking SET balance = balance - {amount} WHERE id = {source}",
            f"UPDATE savings SET balance = balance + {amount} WHERE branch = {target % 7} AND id = {target}",
            f"INSERT INTO entries VALUES ({number}, 0, {-amount}), ({number}, 1, {amount})",
            f"INSERT INTO moves VALUES ({number})",
        ]
        if number % 20 == 0:
            found.append(f"DELETE FROM entries WHERE move BETWEEN {number - 400} AND {number - 381}")
            found.append(f"DELETE FROM moves WHERE move BETWEEN {number - 400} AND {number - 381}")
        return found

    def _rename(self, rng: random.Random) -> list[str]:
        """A key changes."""
        return [f"UPDATE labels SET name = 'label {rng.random()}' WHERE holder = {rng.randint(1, ACCOUNTS)}"]

    def _swap(self, rng: random.Random) -> list[str]:
        """Two unique values change places, by way of a third."""
        one, other = sorted(rng.sample(range(1, ACCOUNTS + 1), 2))
        return [
            f"UPDATE labels SET holder = -{one} WHERE holder = {one}",
            f"UPDATE labels SET holder = {one} WHERE holder = {other}",
            f"UPDATE labels SET holder = {other} WHERE holder = -{one}",
        ]

    def _replace(self, rng: random.Random) -> list[str]:
        """A row that goes because of its unique value, and one that stays what it was."""
        holder = rng.randint(1, ACCOUNTS)
        return [
            f"REPLACE INTO labels VALUES ('replaced {rng.random()}', {holder})",
            f"REPLACE INTO savings SELECT * FROM savings WHERE id = {holder}{self.locking}",
        ]

    def _ignored(self, rng: random.Random) -> list[str]:
        """Rows that stay as they are, because others have the new value."""
        return [
            f"{self.ignoring} labels SET holder = {rng.randint(1, ACCOUNTS)} WHERE holder = {rng.randint(1, ACCOUNTS)}"
        ]

    def _order(self, rng: random.Random) -> list[str]:
        """An order comes with its lines, and an old one goes with them."""
        number, amount = next(self._numbers), rng.randint(1, 9)
        return [
            f"INSERT INTO orders VALUES ({number}, 'new')",
            f"INSERT INTO order_lines VALUES ({number}, 0, {amount}), ({number}, 1, {-amount})",
            f"UPDATE orders SET note = 'open' WHERE id > {number - 50}",
            f"DELETE FROM orders WHERE id < {number - 300}",
        ]

    def _whole(self, rng: random.Random) -> list[str]:
        """A transaction that changes whole tables and takes most of it back."""
        return [
            "UPDATE vault SET note = 'renewed'",
            "SAVEPOINT s",
            f"UPDATE vault SET note = '{_UNDONE}', amount = amount + 1",
            f"UPDATE checking SET balance = balance + {rng.randint(1, 9)}",
            "ROLLBACK TO SAVEPOINT s",
            f"UPDATE vault SET amount = amount + {rng.randint(1, 9)} * (1 - 2 * (place % 2))",
        ]

    def _stay_open(self, session: Any, rng: random.Random) -> None:
        """Open for seconds, then committed or taken back; about as long a rest before the next."""
        while not self._stopping.is_set():
            self.rest()
            if not self._calm.is_set():
                self._short.clear()
                kept = rng.random() < 0.5
                session.execute(rng.choice(self.begin))
                for _ in range(rng.randint(2, 8)):
                    session.execute(self.moved(kept=kept))
                    if self._calm.is_set() or self._stopping.wait(rng.random()):
                        break
                session.execute("COMMIT" if kept else "ROLLBACK")
                self._short.set()
            self._stopping.wait(rng.uniform(1.0, 6.0))

    @staticmethod
    def moved(*, kept: bool) -> str:
        """A change of all places that keeps the sum, or one that must never be seen."""
        sign = "(1 - 2 * (place % 2))" if kept else "1"
        return f"UPDATE vault SET amount = amount + {sign}, note = '{'kept' if kept else _UNDONE}'"


class _MariaDbSession:
    def __init__(self, connection: Any) -> None:
        self._cursor = connection.cursor()

    def execute(self, statement: str) -> list[Any]:
        self._cursor.execute(statement)
        return list(self._cursor.fetchall())


class MariaDbBank(SqlBank):
    """A server in a folder of its own."""

    errors = (
        pymysql.err.OperationalError,
        pymysql.err.IntegrityError,
        pymysql.err.InternalError,
        pymysql.err.InterfaceError,
        OSError,
    )
    schema = "bank"
    prefix = "bank."
    begin = ("BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    types: ClassVar[Mapping[str, str]] = {"integer": "bigint", "text": "longtext", "name": "varchar(80)"}
    ignoring = "UPDATE IGNORE"
    locking = " FOR UPDATE"
    rate = 60
    threads = 4
    _ISOLATION = ("READ-COMMITTED", "REPEATABLE-READ")

    def __init__(self, seed: int, *, only_read: bool = False) -> None:
        super().__init__(seed, only_read=only_read)
        self._user = "reader" if only_read else "penstock"
        found = programs()
        assert found is not None, "no MariaDB server (apt-get install mariadb-server)"
        self._server = MariaDbServer(*found)
        self._sessions = itertools.count()

    @property
    def body(self) -> Document:
        settings = {"host": self._server.socket, "database": self.schema, "user": self._user}
        return {"kind": "mariadb", "settings": settings, "secrets": {"password": "secret"}}

    @property
    def log_file(self) -> Path:
        return self._server.log_file

    def start(self) -> None:
        self._server.start()
        self._server.execute(f"CREATE DATABASE {self.schema} CHARACTER SET utf8mb4")
        if self.only_read:
            self._server.execute(f"CREATE USER {self._user}@'%' IDENTIFIED BY 'secret'")
        rights = "SELECT" if self.only_read else "SELECT, TRIGGER"
        self._server.execute(f"GRANT {rights} ON {self.schema}.* TO {self._user}@'%'")

    def destroy(self) -> None:
        self._server.destroy()
        super().destroy()

    @contextmanager
    def connect(self) -> Iterator[_MariaDbSession]:
        connection = self._server.connect(self.schema)
        try:
            session = _MariaDbSession(connection)
            session.execute(f"SET tx_isolation = '{self._ISOLATION[next(self._sessions) % 2]}'")
            session.execute("SET innodb_lock_wait_timeout = 5")
            yield session
        finally:
            with suppress(*self.errors):
                connection.close()

    def kills(self, rng: random.Random) -> Mapping[Kind, Callable[[], Document]]:
        return {"source": lambda: self._crash(rng), "sessions": self._cut}

    def _crash(self, rng: random.Random) -> Document:
        self._server.stop()
        away_s = rng.uniform(0.0, 3.0)
        self._stopping.wait(away_s)
        self._server.start(patience_s=FOUND_S)
        return {"away_s": round(away_s, 1)}

    def _cut(self) -> Document:
        """The server ends all sessions of ours, in the middle of whatever they do."""
        found = self._server.execute(f"SELECT id FROM information_schema.processlist WHERE user = '{self._user}'")
        if not found:
            raise NothingToKillError("there is no session")
        for (session,) in found:
            with suppress(pymysql.err.OperationalError):  # It has just ended.
                self._server.execute(f"KILL CONNECTION {session}")
        return {"ended": len(found)}

    def traces(self) -> list[Any]:
        made = [self._server.execute(f"SHOW CREATE TABLE {self.schema}.{name}") for name in _TABLES]
        databases = self._server.execute("SHOW DATABASES") if self.only_read else []
        return [*made, databases, self._server.execute(f"SHOW TRIGGERS FROM {self.schema}")]


_HOLD = """
import sqlite3, sys, time
path, statements, seconds, end = sys.argv[1:]
connection = sqlite3.connect(path, timeout=60, isolation_level=None)
connection.execute("PRAGMA cache_size = 5")
connection.execute("BEGIN IMMEDIATE")
for statement in statements.split(";"):
    connection.execute(statement)
print("within", flush=True)
time.sleep(float(seconds))
connection.execute(end)
"""


class SqliteBank(SqlBank):
    """A file with a write-ahead log, for odd seeds with a rollback journal."""

    errors = (sqlite3.OperationalError,)
    schema = "main"
    prefix = ""
    begin = ("BEGIN IMMEDIATE",)
    types: ClassVar[Mapping[str, str]] = {
        "integer": "INTEGER",
        "text": "TEXT",
        "name": "TEXT",
    }
    ignoring = "UPDATE OR IGNORE"
    rate = 60
    threads = 2

    @property
    def _path(self) -> Path:
        return self.folder / "bank.db"

    @property
    def body(self) -> Document:
        return {"kind": "sqlite", "settings": {"path": str(self._path), "snapshot_folder": str(self.folder)}}

    def start(self) -> None:
        with self.connect() as session:
            session.execute(f"PRAGMA journal_mode = {'DELETE' if self.seed % 2 else 'WAL'}")

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as session:
            session.execute("PRAGMA foreign_keys = ON")
            session.execute("PRAGMA synchronous = OFF")  # Programs die here, not the machine.
            yield session

    def kills(self, rng: random.Random) -> Mapping[Kind, Callable[[], Document]]:
        return {"writer": lambda: self._kill_writer(rng), "write_lock": lambda: self._hold(rng)}

    @contextmanager
    def _within(self, seconds: float, *, kept: bool) -> Iterator[subprocess.Popen[str]]:
        """A process with an open transaction, so large that the file or its log holds a part of it already."""
        changes = [self.moved(kept=kept), "UPDATE checking SET statement = statement || 'y'"]
        changes += [] if not kept else [f"UPDATE checking SET statement = substr(statement, 1, {_STATEMENT})"]
        given = [str(self._path), ";".join(changes), str(seconds), "COMMIT" if kept else "ROLLBACK"]
        process = subprocess.Popen([sys.executable, "-c", _HOLD, *given], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "within", "the writer did not come to write"
            yield process
        finally:
            process.kill()
            process.wait()

    def _kill_writer(self, rng: random.Random) -> Document:
        """Killed within its transaction."""
        with self._within(60, kept=False) as process:
            self._stopping.wait(rng.uniform(0.0, 2.0))
            process.kill()
        return {"pid": process.pid}

    def _hold(self, rng: random.Random) -> Document:
        """Another program holds the write lock for seconds, and commits."""
        seconds = round(rng.uniform(2.0, 8.0), 1)
        with self._within(seconds, kept=True) as process:
            assert process.wait(60) == 0, "the writer failed"
        return {"held_s": seconds}

    def traces(self) -> list[Any]:
        with self.connect() as session:
            assert session.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return session.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()


BANKS: Mapping[str, type[SqlBank]] = {"mariadb": MariaDbBank, "sqlite": SqliteBank}
"""By kind of source."""


class TriggerRun(KillRun):
    """A run whose source is a `SqlBank`."""

    def __init__(self, rig: Rig, options: argparse.Namespace, bank: SqlBank) -> None:
        own = bank.kills(random.Random(f"{options.seed}/own"))
        super().__init__(rig, options, [*_KINDS, *own])
        self._bank = bank
        self._bank.rest = self.pace.rest
        self._seconds: float = options.seconds
        self._kills = not options.no_kills
        self._readers = Readers(rig, bank.sums, list(bank.expected), bank)
        self.killer = Killer(rig, self.rng, others=own)

    @property
    def tables(self) -> int:
        return len(self._bank.tables)

    @property
    def readers(self) -> Readers:
        return self._readers

    def parts(self) -> tuple[Part, ...]:
        return (self._bank, self._readers, self.memory, self.pace)

    def calm(self) -> AbstractContextManager[None]:
        return self._bank.calm()

    def go(self) -> None:
        self._bank.create()
        before = self._bank.traces()
        self._bank.work()
        with self._bank.calm():
            self.rig.declare(self._bank.tables, batch={"small_rows": 40}, queue={"mode": self.queue_mode})
            self.rig.wait_live(self.tables)
        self.note("live")
        self.start_watching()
        try:
            self._kill_for(self._seconds)
        finally:
            self.pace.stop()
            self._bank.stop()
            self._readers.stop()
        self.look()
        self.cut()
        self.memory.stop()
        self.look()
        self._leave(before)

    def _kill_for(self, seconds: float) -> None:
        self.killer.wait_for_progress(self.now())
        kinds: list[Kind | None] = []
        while self.elapsed < seconds:
            if not kinds:
                kinds = [*self.round()] if self._kills else [None]
            self.kill_and_look(kinds.pop())

    def _leave(self, before: list[Any]) -> None:
        """The subscription goes, and the source is as it was before it."""
        self.rig.api.delete(self.rig.path)
        self.rig.wait_until(lambda: self._bank.traces() == before, FOUND_S, "the source was as before")

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), "moves": self._bank.moves, "lost_transactions": dict(self._bank.lost)}
