"""`initial-copy`: how long first copies of whole tables take, while nothing is written.

Each table is copied by Penstock, by PostgreSQL's own table synchronisation into a second cluster, and as a lower bound by one client that
writes the rows as COPY text into a file. Each copy has a side of its own, which has copied a small table before: what starts for the first
copy is not measured.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Protocol

from bench.captures import turn
from bench.contenders import DRAIN_TIMEOUT_S, NATIVE, PENSTOCK, NativeSide, PenstockSide
from bench.environment import SideOf, Stage
from bench.errors import BenchError
from bench.facts import core_ms, load_average
from bench.processes import Member, Sampler, family, family_cpu_s
from bench.small_transactions import Tpcb, WideRows
from bench.workload import DATABASE, Connection, Mode, Size, Table, query_number
from engine.model.verification import VerificationMethod
from server.demo.embedded import EmbeddedPostgres, server_folder
from server.processes.children import end, spawn

Document = dict[str, Any]

COPY_OUT = "COPY to a file"
"""The lower bound: nothing is applied."""
LEAST_TIMES, MOST_MB = 2.0, 2_500
"""Goals for Penstock: the rate in multiples of PostgreSQL's, and the peak of its memory."""
_ACCOUNTS, _WIDE = "pgbench_accounts", "wide"
_ACCOUNTS_ROWS, _WIDE_STEPS = 100_000, 25
"""Of each step of the scale: rows of pgbench_accounts, as pgbench has them, and steps of the scale of `wide-rows`."""


class InitialCopy(Tpcb):
    """The scale is that of pgbench: 100,000 accounts for each step, and a quarter as many wide rows."""

    name = "initial-copy"
    description = (
        "first copies of pgbench_accounts (20 million rows) and of 5 million rows of 62 columns; COPY to a file"
    )
    unit = "rows"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.COPY,)
    full = Size(0, 200)
    quick = Size(0, 1, rounds=1)

    def tables(self) -> tuple[Table, ...]:
        return Table(_ACCOUNTS), Table(_WIDE)

    def create(self, connection: Connection, scale: int) -> None:
        WideRows().create(connection, _WIDE_STEPS * scale)
        super().create(connection, scale)


def rows(scale: int) -> dict[str, int]:
    """The number of rows of each table."""
    return {_ACCOUNTS: _ACCOUNTS_ROWS * scale, _WIDE: WideRows.rows * _WIDE_STEPS * scale}


class Copier(Protocol):
    """What copies tables of the source."""

    name: str

    def prepare(self) -> None:
        """Start, without a copy."""

    def follow(self, tables: Sequence[Table], timeout_s: float) -> None:
        """Copy the tables; returns when all are copied."""

    def members(self) -> list[Member]:
        """The processes of this side, without those of the source."""

    def leave(self) -> None:
        """Remove what `follow` has created on the source."""

    def stop(self) -> None:
        """Stop the side and remove everything that it created but on the source. May be called in any state."""


class CopyOut:
    """psql, which writes a table as COPY text into a file."""

    name = COPY_OUT

    def __init__(self, source: EmbeddedPostgres) -> None:
        self._source = source
        self._folder = server_folder("penstock-bench-copy-")
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Nothing is needed."""

    def follow(self, tables: Sequence[Table], timeout_s: float) -> None:
        for table in tables:
            self._write(table, timeout_s)

    def members(self) -> list[Member]:
        return [] if self._process is None else family(self._process.pid, lambda _command: "client")

    def leave(self) -> None:
        """Nothing is on the source."""

    def stop(self) -> None:
        if self._process is not None:
            end(self._process, signal.SIGINT, 5)
        shutil.rmtree(self._folder, ignore_errors=True)

    def file(self, table: Table) -> Path:
        """The file of a table that `follow` has copied."""
        return self._folder / f"{table.name}.copy"

    def lines(self, table: Table) -> int:
        """The number of rows in a table's file: COPY's text form has a line for each."""
        with self.file(table).open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 24), b""))

    def _write(self, table: Table, timeout_s: float) -> None:
        source = self._source
        command = [source.program("psql"), "-q", "-X", "-d", source.dsn(DATABASE), "-o", str(self.file(table))]
        command += ["-c", f"COPY {table.schema}.{table.name} TO STDOUT"]
        with tempfile.TemporaryFile() as output:
            self._process = spawn(command, environment=source.client_environment(), output=output.fileno())
            if self._process.wait(timeout_s) != 0:
                output.seek(0)
                raise BenchError(f"psql: {output.read().decode(errors='replace').strip()[-300:]}")


def measure(
    stage: Stage,
    side_of: SideOf,
    names: Sequence[str],
    rounds: int,
    say: Callable[[str], None],
    *,
    verify: bool = True,
) -> Document:
    """The figures of each side and table in each round, and whether every copy was equal.

    `stage`: without sides, not entered. `names`: of the sides in addition to the lower bound.
    """
    ways = (*names, COPY_OUT)
    with stage:
        tables = stage.workload.tables()
        whole = {table.name: digest(stage.source, table) for table in tables} if verify else {}
        done, wrong = [], []
        for number in range(rounds):
            found: Document = {name: {} for name in ways}
            facts = {"load_average": load_average(), "core_ms": core_ms()}
            for table in tables:
                for name in turn(number, ways):
                    with started(name, stage, side_of) as copier:
                        found[name][table.name] = measure_copy(stage, copier, table)
                        if verify and not is_equal(copier, table, whole[table.name]):
                            wrong.append(f"round {number + 1}, {table.name}: the copy by {name} differs")
                        copier.leave()
                compare(found, table.name)
                say(f"{stage.workload.name}: round {number + 1} of {rounds}: {describe_copies(found, table.name)}")
            done.append({**facts, "sides": found})
        return {
            "sides": list(ways),
            "clusters": {"source": stage.settings()},
            "rounds": done,
            "checks": {"equal": not wrong, "wrong": wrong} if verify else {},
        }


def compare(found: Document, table: str) -> None:
    """Add to the figures of a table how many times PostgreSQL's rate each other side had, if PostgreSQL was measured."""
    if NATIVE in found:
        for name in found.keys() - {NATIVE}:
            figures = found[name][table]
            figures["times_native"] = round(found[NATIVE][table]["seconds"] / figures["seconds"], 3)


def describe_copies(found: Document, table: str) -> str:
    """One line of text for the copies of one table in one round."""
    times = [
        f"{name} {figures[table]['rows_per_s']:,.0f} rows/s in {figures[table]['seconds']:.1f} s"
        for name, figures in found.items()
    ]
    ours = found[PENSTOCK][table]
    ratio = f", {ours['times_native']:.2f} times PostgreSQL's rate" if "times_native" in ours else ""
    return f"{table}: {', '.join(times)}{ratio}, {ours['peak_pss_mb_total']:,.0f} MB"


def digest(postgres: EmbeddedPostgres, table: Table) -> tuple[Any, ...]:
    """The number of a table's rows, and a sum of hashes of their texts."""
    sql = f"SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {table.schema}.{table.name} AS t"
    return postgres.execute(sql, database=DATABASE)[0]


@contextmanager
def started(name: str, stage: Stage, side_of: SideOf) -> Iterator[Copier]:
    """A new side that has copied a small table. It is stopped at the end of the block."""
    copier = _copier(name, stage, side_of)
    try:
        copier.prepare()
        copier.follow([Table("marks")], DRAIN_TIMEOUT_S)
        copier.leave()
        stage.rest()
        yield copier
    except Exception as error:
        if isinstance(copier, PenstockSide):
            error.add_note(f"the engine's last lines:\n{copier.log_tail()}")
        raise
    finally:
        copier.stop()


def _copier(name: str, stage: Stage, side_of: SideOf) -> Copier:
    if name == COPY_OUT:
        return CopyOut(stage.source)
    side = side_of(name, stage.source)
    if not isinstance(side, PenstockSide | NativeSide):
        raise AssertionError("a side that copies")
    return side


def measure_copy(stage: Stage, copier: Copier, table: Table) -> Document:
    with stage.connect() as connection:
        count = query_number(connection, f"SELECT count(*) FROM {table.name}")
        connection.execute("CHECKPOINT")
    os.sync()
    sampler = Sampler(copier.members)
    before = family_cpu_s(stage.source.pid)
    sampler.start()
    began = perf_counter()
    try:
        copier.follow([table], DRAIN_TIMEOUT_S)
        seconds = perf_counter() - began
    finally:
        usage = sampler.stop()
    return {
        "rows": count,
        "seconds": round(seconds, 3),
        "rows_per_s": round(count / seconds, 1),
        # All processes of the source: many sessions are too short to be sampled, and other processes read for them.
        "source_cpu_s": round(family_cpu_s(stage.source.pid) - before, 3),
        **usage.document(),
    }


def is_equal(copier: Copier, table: Table, whole: tuple[Any, ...]) -> bool:
    """Whether the copy is equal to the source. Of the lower bound, only the rows are counted."""
    if isinstance(copier, PenstockSide):
        return copier.verify(VerificationMethod.CHECKSUM)
    if isinstance(copier, NativeSide):
        return digest(copier.cluster, table) == whole
    return isinstance(copier, CopyOut) and copier.lines(table) == whole[0]
