"""Sources that are a DuckDB file or a folder of files, captured by queries: their workloads, and the kills of their own.

A program of its own writes to the DuckDB file, which it has open during transactions only. The tables of a folder are replaced at one
moment by a link; besides there is a table whose parts are replaced, renamed and removed one by one.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import duckdb

from server.cli.client import Document
from tests.chaos.killer import Kind
from tests.chaos.trigger_banks import SqlBank
from tests.fixtures.duckdb_program import DuckDbProgram
from tests.fixtures.file_tables import FileTables, declared

_LOOSE = "loose"
_STEADY, _PARTS, _ROWS = 6, 10, 40
"""Parts that are always there, all of them, and the rows of each."""
_LOOSE_SUMS = (
    f"(SELECT count(DISTINCT part) FROM files.{_LOOSE} WHERE part < {_STEADY}),"
    f" (SELECT count(*) FROM (SELECT part FROM files.{_LOOSE} GROUP BY part"
    f" HAVING count(*) <> {_ROWS} OR sum(amount) <> 0 OR count(DISTINCT generation) <> 1))"
)
_TYPES = {
    "checking": (("id",), {"id": "bigint", "balance": "bigint"}),
    "savings": (("branch", "id"), {"branch": "bigint", "id": "bigint", "balance": "bigint"}),
    "entries": (("move", "side"), {"move": "bigint", "side": "bigint", "amount": "bigint"}),
    "labels": (("name",), {"holder": "bigint"}),
    "vault": (("place",), {"place": "bigint", "amount": "bigint"}),
    "orders": (("id",), {"id": "bigint"}),
    "order_lines": (("id", "side"), {"id": "bigint", "side": "bigint", "amount": "bigint"}),
    "moves": (("move",), {"move": "bigint"}),
    _LOOSE: (("part", "n"), {"part": "bigint", "n": "bigint", "generation": "bigint", "amount": "bigint"}),
}
_HOLD = """
import sys, time
import duckdb
path, statement, seconds = sys.argv[1:]
for _ in range(6000):
    try:
        connection = duckdb.connect(path)
        break
    except duckdb.IOException:
        time.sleep(0.01)
connection.execute("BEGIN TRANSACTION")
connection.execute(statement)
print("within", flush=True)
time.sleep(float(seconds))
connection.execute("COMMIT")
connection.close()
"""


class LostError(Exception):
    """The writing program died, or its transaction lost a race."""


class _Session:
    """What `SqlBank` expects of a session, over one of the fixtures'."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._within = False

    def execute(self, statement: str) -> Any:
        if statement == "BEGIN":
            self._within = True
        elif statement in {"COMMIT", "ROLLBACK"}:
            self._within = False
            self._session.commit() if statement == "COMMIT" else self._session.rollback()
        else:
            rows = self._session.execute(statement)
            if not self._within:
                self._session.commit()
            return rows
        return []


class _DuckDbSql(SqlBank):
    """DuckDB's SQL: no cascades, and no unique values that two rows exchange."""

    begin = ("BEGIN",)
    types: ClassVar[Mapping[str, str]] = {"integer": "BIGINT", "text": "VARCHAR", "name": "VARCHAR"}
    ignoring = "UPDATE"
    threads = 2

    def columns(self, table: str) -> str:
        return super().columns(table).replace(" UNIQUE", "").partition(", FOREIGN KEY")[0]

    def _replace(self, rng: random.Random) -> list[str]:
        holder = rng.randint(1, 100)
        return [
            f"DELETE FROM labels WHERE holder = {holder}",
            f"INSERT INTO labels VALUES ('replaced {rng.random()}', {holder})",
            f"UPDATE savings SET balance = balance WHERE id = {holder}",
        ]

    def _ignored(self, rng: random.Random) -> list[str]:
        return [f"UPDATE labels SET holder = holder WHERE holder = {rng.randint(1, 100)}"]

    def _order(self, rng: random.Random) -> list[str]:
        *changes, gone = super()._order(rng)
        return [*changes, gone.replace("FROM orders", "FROM order_lines"), gone]


class DuckDbBank(_DuckDbSql):
    """A DuckDB file."""

    errors = (LostError,)
    schema = "main"
    prefix = ""
    rate = 15

    def __init__(self, seed: int, *, only_read: bool = True) -> None:
        super().__init__(seed, only_read=only_read)
        self._program = DuckDbProgram(self._path)

    @property
    def _path(self) -> Path:
        return self.folder / "bank.duckdb"

    @property
    def body(self) -> Document:
        return {"kind": "duckdb", "settings": {"path": str(self._path), "snapshot_folder": str(self.folder)}}

    def start(self) -> None:
        with self.connect() as session:
            session.execute("SELECT 1")

    def destroy(self) -> None:
        self._program.kill()
        super().destroy()

    @contextmanager
    def connect(self) -> Iterator[_Session]:
        try:
            with self._program.session() as session:
                yield _Session(session)
        except (AssertionError, OSError, ValueError) as error:
            raise LostError(str(error)) from error

    def kills(self, rng: random.Random) -> Mapping[Kind, Callable[[], Document]]:
        return {"writer": self._kill_writer, "write_lock": lambda: self._hold(rng)}

    def _kill_writer(self) -> Document:
        """In the middle of whatever it does, a checkpoint perhaps."""
        before, self._program = self._program, DuckDbProgram(self._path)
        before.kill()
        with suppress(OSError):
            before.close()
        return {}

    def _hold(self, rng: random.Random) -> Document:
        """Another program has the file open for seconds, and commits or is killed."""
        seconds, kept = round(rng.uniform(2.0, 8.0), 1), rng.random() < 0.6
        given = [str(self._path), self.moved(kept=kept), str(seconds if kept else 60)]
        with subprocess.Popen([sys.executable, "-c", _HOLD, *given], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "within", "the writer did not come to write"
            if kept:
                assert process.wait(60) == 0, "the writer failed"
            else:
                self._stopping.wait(seconds)
                process.kill()
        return {"held_s": seconds, "kept": kept}

    def traces(self) -> list[Any]:
        with self.connect() as session:
            found: list[Any] = session.execute("SELECT table_name, sql FROM duckdb_tables() ORDER BY ALL")
        return found


class FilesBank(_DuckDbSql):
    """A folder of Parquet files; `CsvBank`: of CSV files."""

    errors = (duckdb.Error,)
    schema = "files"
    prefix = "files."
    rate = 0.5  # Each transaction puts all files in place, whose columns the engine reads then.
    threads = 1
    form: ClassVar[str] = "parquet"

    def __init__(self, seed: int, *, only_read: bool = True) -> None:
        super().__init__(seed, only_read=only_read)
        self._loose = self.folder / "parts"
        self._loose.mkdir()
        self._memory = duckdb.connect(":memory:")
        self._generation = 0
        self._places: dict[int, Path] = {}
        """Where each part is."""
        for part in range(_STEADY):
            self._put(part)
        self._tables = FileTables(self.folder, self.form, links={_LOOSE: self._loose})
        self._shuffles = threading.Thread(target=self._shuffle, args=(random.Random(f"{seed}/parts"),), daemon=True)

    @property
    def body(self) -> Document:
        return {"kind": "files", "settings": {"path": str(self._tables.path), "format": self.form}}

    @property
    def tables(self) -> list[Document]:
        return [*super().tables, {"schema": self.schema, "name": _LOOSE}]

    @property
    def detection(self) -> Mapping[str, Document]:
        return declared(_TYPES if self.form == "csv" else {name: (key, {}) for name, (key, _) in _TYPES.items()})

    @property
    def sums(self) -> str:
        return f"{super().sums}, {_LOOSE_SUMS}"

    @property
    def expected(self) -> Sequence[Any]:
        return [*super().expected, _STEADY, 0]

    def start(self) -> None:
        """There is no server."""

    def work(self) -> None:
        super().work()
        self._shuffles.start()

    def stop(self) -> None:
        super().stop()
        self._shuffles.join(30)

    def destroy(self) -> None:
        self._stopping.set()
        with suppress(duckdb.Error):  # A thread is at work after a failure.
            self._tables.close()
            self._memory.close()
        super().destroy()

    @contextmanager
    def connect(self) -> Iterator[_Session]:
        with self._tables.session() as session:
            yield _Session(session)

    def kills(self, rng: random.Random) -> Mapping[Kind, Callable[[], Document]]:
        return {"source": lambda: self._away(rng)}

    def _away(self, rng: random.Random) -> Document:
        """The folder cannot be found for seconds."""
        away_s = round(rng.uniform(0.0, 3.0), 1)
        with self._tables.away():
            self._stopping.wait(away_s)
        return {"away_s": away_s}

    def traces(self) -> list[Any]:
        return sorted(path.name for path in self._tables.path.iterdir())

    def _shuffle(self, rng: random.Random) -> None:
        try:
            while not self._stopping.wait(rng.uniform(0.0, 1.0)):
                self.rest()
                self._change_a_part(rng)
        except BaseException as error:
            self.failure = error

    def _change_a_part(self, rng: random.Random) -> None:
        part = rng.randrange(_PARTS)
        there = self._places.get(part)
        if there is not None and part >= _STEADY and rng.random() < 0.4:
            there.unlink()
            del self._places[part]
        elif there is not None and rng.random() < 0.3:
            self._places[part] = there.rename(self._name(part))
        else:
            self._put(part, like=rng.random() < 0.3)

    def _put(self, part: int, *, like: bool = False) -> None:
        """Put other rows in place. `like`: with the time of the file before, as programs that copy files do it."""
        self._generation += 1
        path = self._places.get(part) or self._name(part)
        fresh = path.with_name(f".{path.name}")
        amounts = f"CASE WHEN n % 2 = 0 THEN {self._generation} ELSE -{self._generation} END"
        rows = f"SELECT {part} AS part, n, {self._generation} AS generation, {amounts} AS amount FROM range({_ROWS}) AS t(n)"
        self._memory.execute(f"COPY ({rows}) TO '{fresh}' (FORMAT {self.form})").fetchall()
        if like and path.exists():
            before = path.stat()
            os.utime(fresh, ns=(before.st_atime_ns, before.st_mtime_ns))
        self._places[part] = fresh.replace(path)

    def _name(self, part: int) -> Path:
        self._generation += 1
        return self._loose / f"part-{part}-{self._generation}.{self.form}"


class CsvBank(FilesBank):
    """A folder of CSV files."""

    form = "csv"


FILE_BANKS: Mapping[str, type[SqlBank]] = {"duckdb": DuckDbBank, "parquet": FilesBank, "csv": CsvBank}
"""By name of the source; captured by queries only."""
