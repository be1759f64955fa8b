"""What cycles of a capture by queries cost the other work of a PostgreSQL source, with `give_way` and without it.

`pgbench` (simple updates, four clients, as fast as they can) runs alone, and while cycles read another table one after another without a
pause: as fast as they can, and with rests that give way. The first cycle runs without load, so that the usual speed is known. Run as
`python -m tests.bench.giving_way`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.records import landing, row_digest
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.splits import ReadRules
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.folder import OPERATIONS, Folder, Follow
from engine.sources.query_diff.given import Given, Manners
from engine.sources.query_diff.rests import Read, Rests
from engine.sources.query_diff.table_reading import Conduct
from server.demo.embedded import EmbeddedPostgres, server_folder

NAME = TableName("public", "readings")
_MAKE = """
CREATE TABLE readings (id bigint PRIMARY KEY, sensor int, value float8, note text);
INSERT INTO readings SELECT i, i % 1000, i / 7.0, repeat('n', 60) FROM generate_series(1, {rows}::bigint) AS i
"""
_SETTINGS = {"shared_buffers": "'1GB'", "max_wal_size": "'8GB'"}
_SCALE, _CLIENTS = 20, 4
_FIGURES = re.compile(r"latency average = ([\d.]+) ms.*?tps = ([\d.]+)", re.DOTALL)


class _EndedError(Exception):
    """The load has ended."""


class Cycles:
    """Runs cycles one after another in a thread, in the block."""

    def __init__(self, database: PostgresDatabase, given: Given, rests: Rests | None) -> None:
        self.count = 0
        self._database = database
        self._given = given
        self._rests = rests
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Cycles:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            while True:
                with run_cycle(self._database, self._given, Conduct(self._check, self._rest)):
                    pass
                self.count += 1
        except _EndedError:
            return

    def _check(self) -> None:
        if self._ending.is_set():
            raise _EndedError

    def _rest(self, read: Read) -> None:
        if self._rests is not None and self._ending.wait(self._rests.after(read)):
            raise _EndedError


def load(cluster: EmbeddedPostgres, seconds: int) -> tuple[float, float]:
    """Run pgbench; the mean latency in milliseconds, and transactions in a second."""
    command = [cluster.program("pgbench"), "-h", cluster.host, "-p", str(cluster.port), "-U", "postgres", "-n", "-N"]
    command += ["-c", str(_CLIENTS), "-T", str(seconds), "postgres"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = _FIGURES.search(output)
    if found is None:
        raise ValueError(output)
    return float(found[1]), float(found[2])


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=5_000_000)
    arguments.add_argument("--seconds", type=int, default=40, help="of each measurement")
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument(
        "--method", default="range_checksum", choices=("incremental", "row_checksum", "range_checksum")
    )
    given = arguments.parse_args()
    landing.warm()
    row_digest.warm()
    cluster = EmbeddedPostgres(server_folder(), settings=_SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        try:
            cluster.start()
            for statement in _MAKE.format(rows=given.rows).split(";\n"):
                cluster.execute(statement)
            fill = [
                cluster.program("pgbench"),
                "-h",
                cluster.host,
                "-p",
                str(cluster.port),
                "-U",
                "postgres",
                "-i",
                "-q",
            ]
            subprocess.run([*fill, "-s", str(_SCALE), "postgres"], check=True, capture_output=True)
            cluster.execute("VACUUM (FREEZE, ANALYZE)")
            measure(cluster, Path(folder), given)
        finally:
            cluster.destroy()
    return 0


def measure(cluster: EmbeddedPostgres, folder: Path, given: argparse.Namespace) -> None:
    settings = {"host": cluster.host, "port": cluster.port, "user": "postgres", "database": "postgres"}
    connector = Connector(ConnectionSpec("shop", "postgres", settings))
    declared = Given(0, Method(given.method), 3_600.0, folder / "cycles", "shop", manners=Manners(give_way=True))
    declared.folder.make()
    Folder(folder / "cycles").follow({NAME: Follow(None, frozenset(OPERATIONS))})
    rests = Rests(declared.manners)
    with closing(PostgresDatabase(connector, Compared(), ReadRules(sessions=1))) as database:
        with run_cycle(database, declared):
            pass
        began = time.monotonic()
        with run_cycle(database, declared, Conduct(rest=lambda read: _note(rests, read))):
            pass
        sys.stdout.write(
            f"{given.rows:,} rows, {given.method}, a cycle without load {time.monotonic() - began:.1f} s,"
            f" {os.cpu_count()} cores, pgbench -N with {_CLIENTS} clients\n\n"
            "| | mean latency ms | transactions / s | of those alone | cycles |\n| --- | --- | --- | --- | --- |\n"
        )
        for _ in range(given.rounds):
            _, alone = _line("alone", load(cluster, given.seconds), None, 0)
            for what, kept in (("cycles", None), ("cycles that give way", rests)):
                with Cycles(database, declared, kept) as cycles:
                    figures = load(cluster, given.seconds)
                _line(what, figures, alone, cycles.count)


def _note(rests: Rests, read: Read) -> None:
    rests.after(read)


def _line(what: str, figures: tuple[float, float], alone: float | None, cycles: int) -> tuple[float, float]:
    latency, rate = figures
    share = "" if alone is None else f"{rate / alone:.2f}"
    sys.stdout.write(f"| {what} | {latency:.2f} | {rate:,.0f} | {share} | {cycles} |\n")
    sys.stdout.flush()
    return figures


if __name__ == "__main__":
    sys.exit(main())
