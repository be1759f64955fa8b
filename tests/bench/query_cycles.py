"""What cycles of captures by queries cost: time, CPU of source and engine, pages and bytes read, by method and share of changed rows.

A table of eight columns, about 110 bytes a row, is compared with what was read of it before. Pages are those that the server got from its
cache or the disk, next to the pages of the table (N) and the formula of the method. With `--reladiff PROGRAM` that program compares the
table with an equal one in another database of the same server, in the same run. Run as `python -m tests.bench.query_cycles`.

Exit code 1 where a cycle did not find exactly the changed rows.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import psutil

from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.records import landing, row_digest
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.splits import ReadRules
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import DEFAULT_SESSIONS, TableDetection
from engine.sources.query_diff.folder import Folder, Follow
from engine.sources.query_diff.given import Given
from server.demo.embedded import EmbeddedPostgres, server_folder
from tests.fixtures.waiting import wait_until

NAME = TableName("public", "readings")
COLUMNS = "id, sensor, value, amount, label, note, taken_at, changed_at"
_MAKE = """
CREATE TABLE readings (id bigint PRIMARY KEY, sensor int NOT NULL, value float8, amount numeric(12, 2), label varchar(40), note text,
    taken_at timestamp, changed_at timestamptz NOT NULL, deleted boolean NOT NULL DEFAULT false);
INSERT INTO readings SELECT i, i % 1000, i / 7.0, i % 100000 / 100.0, 'reading ' || i, repeat('n', 30), timestamp '2026-01-01' + i *
    interval '1 second', timestamptz '2026-01-01' + i * interval '1 ms' FROM generate_series(1, {rows}::bigint) AS i;
CREATE INDEX ON readings (changed_at) INCLUDE (id, deleted);
CREATE SCHEMA penstock
"""
_PAGES = "SELECT relpages FROM pg_class WHERE relname = 'readings'"
_READ = "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
_OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
_SETTINGS = {
    "shared_buffers": "'1GB'",
    "max_wal_size": "'8GB'",
    "fsync": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "maintenance_work_mem": "'512MB'",
}
_FORMULAS = {
    "incremental": "2.001 N",
    "row_checksum": "1.001 N",
    "range_checksum": "about N",
    "outer_join": "2 N",
    "timestamp": "1.11 N; with an index the changed part",
    "timestamp_delete_flag": "0.025 N for 1 %, with an index",
}
"""Of the source document, for a run over a table of N pages."""


_FLAGGED = "timestamp_delete_flag"
_STAMPS = {
    "timestamp": TableDetection(method="timestamp", stamp_column="changed_at", sweep_every=100_000),
    _FLAGGED: TableDetection(method=_FLAGGED, stamp_column="changed_at", flag_column="deleted", sweep_every=100_000),
}


class Run:
    """One server, and cycles of it."""

    def __init__(self, cluster: EmbeddedPostgres, folder: Path, rows: int, sessions: int) -> None:
        self._cluster = cluster
        self._sessions = sessions
        self._folder = folder
        self._rows = rows
        self.wrong = 0
        self._batch = 0
        for statement in _MAKE.format(rows=rows).split(";\n"):
            cluster.execute(statement)
        cluster.execute("VACUUM (FREEZE, ANALYZE) readings")
        ((self.pages,),) = cluster.execute(_PAGES)
        self._postmaster = psutil.Process(cluster.pid)
        self._others = len(self._postmaster.children())
        """Processes of the server without sessions, and that of the statement which counts them."""

    def method(self, name: str, shares: list[float]) -> None:
        """A first cycle, and one for each share of changed rows."""
        stamps = {str(NAME): _STAMPS[name]} if name in _STAMPS else {}
        base = Method.ROW_CHECKSUM if name in _STAMPS else Method(name)
        given = Given(0, base, 3_600.0, self._folder / name, "shop", stamps)
        Folder(self._folder / name).make()
        Folder(self._folder / name).follow({NAME: Follow(None, frozenset({"insert", "update", "delete"}))})
        self._cycle(given, name, "first", 0)
        for share in shares:
            self._cycle(given, name, f"{share:.2%}", self._change(share, deletes=name == _FLAGGED))

    def _change(self, share: float, *, deletes: bool) -> int:
        """Change so many rows, scattered; below one in ten thousand: 100. `deletes`: mark those that are not marked yet."""
        if not share:
            return 0
        step = max(1, round(1 / share))
        self._batch += 1
        which = f"id % {step} = 0{' AND NOT deleted' if deletes else ''}"
        changed = self._cluster.execute(
            f"WITH u AS (UPDATE readings SET note = 'changed {self._batch}', changed_at = clock_timestamp(), deleted = {deletes}"
            f" WHERE {which} RETURNING 1) SELECT count(*) FROM u"
        )
        self._cluster.execute("VACUUM (ANALYZE) readings")
        ((self.pages,),) = self._cluster.execute(_PAGES)
        return int(changed[0][0])

    def _cycle(self, given: Given, name: str, what: str, expected: int) -> None:
        own, source = time.process_time(), self._source_s()
        read = self._read()
        began = time.monotonic()
        settings = {"host": self._cluster.host, "port": self._cluster.port, "user": "postgres", "database": "postgres"}
        spec = ConnectionSpec("shop", "postgres", settings)
        with (
            closing(
                PostgresDatabase(Connector(spec), Compared(given.tables), ReadRules(sessions=self._sessions))
            ) as database,
            run_cycle(database, given, complete=name not in _STAMPS),
        ):
            seconds = time.monotonic() - began
        own = time.process_time() - own
        pages = self._read() - read  # Sessions have ended then, so that their time is counted.
        source = self._source_s() - source
        (found,) = given.folder.files.reports(1)[0].tables
        counts = (0, 0, expected) if name == _FLAGGED else (0, expected, 0)
        right = found.filled or (found.inserted, found.updated, found.deleted) == counts
        self.wrong += not right
        unchanged = found.ranges and not found.ranges_different
        row = [
            name,
            what,
            f"{seconds:.2f}",
            f"{source:.2f}",
            f"{own:.2f}",
            f"{pages / self.pages:.3f}",
            _FORMULAS[name],
            f"{found.bytes_read / 2**20:.2f}",
            f"{found.bytes_read / found.ranges:.0f}" if unchanged else "",
            f"{found.ranges_different}/{found.ranges}",
            f"{found.updated + found.deleted:,}",
            "yes" if right else "NO",
        ]
        sys.stdout.write(f"| {' | '.join(row)} |\n")
        sys.stdout.flush()

    def _read(self) -> int:
        """Pages that sessions which ended have read."""
        wait_until(lambda: self._cluster.execute(_OTHERS) == [(0,)], what="the sessions of the cycle ended")
        return int(self._cluster.execute(_READ)[0][0])

    def _source_s(self) -> float:
        """CPU seconds of the server, with its ended sessions."""
        postmaster = self._postmaster
        wait_until(lambda: len(postmaster.children()) <= self._others, what="ended sessions are counted by the server")
        times = postmaster.cpu_times()
        found = times.user + times.system + times.children_user + times.children_system
        for child in postmaster.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # Those that ended are counted above.
                found += sum(child.cpu_times()[:2])
        return float(found)

    def reladiff(self, program: str) -> None:
        """Compare with an equal table of another database by reladiff."""
        self._cluster.execute("CREATE DATABASE other TEMPLATE postgres")
        uri = f"postgresql://postgres@{self._cluster.host}:{self._cluster.port}/{{}}"
        columns = [part for column in COLUMNS.split(", ")[1:] for part in ("-c", column)]
        source, began = self._source_s(), time.monotonic()
        command = [
            program,
            uri.format("postgres"),
            "readings",
            uri.format("other"),
            "readings",
            "-k",
            "id",
            *columns,
            "--json",
            "-j",
            "2",
        ]
        with psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            output = process.communicate()[0]
        seconds = time.monotonic() - began
        source = self._source_s() - source
        sys.stdout.write(
            f"reladiff: {seconds:.2f} s, CPU of the server for both databases {source:.2f} s, {len(output)} bytes of output, exit code"
            f" {process.returncode}\n"
        )


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=10_000_000)
    arguments.add_argument("--methods", nargs="+", default=list(_FORMULAS), choices=list(_FORMULAS))
    arguments.add_argument("--shares", nargs="+", type=float, default=[0, 0.0001, 0.01, 0.5])
    arguments.add_argument("--sessions", type=int, default=DEFAULT_SESSIONS)
    arguments.add_argument("--reladiff", help="the program reladiff, to compare with")
    given = arguments.parse_args()
    landing.warm()
    row_digest.warm()
    with tempfile.TemporaryDirectory() as folder:
        cluster = EmbeddedPostgres(server_folder(), settings=_SETTINGS)
        cluster.start()
        try:
            run = Run(cluster, Path(folder), given.rows, given.sessions)
            if given.reladiff:
                run.reladiff(given.reladiff)
            sys.stdout.write(f"{given.rows:,} rows in {run.pages:,} pages, {given.sessions} sessions\n\n")
            heads = [
                *(
                    "method",
                    "changed",
                    "s",
                    "source CPU s",
                    "own CPU s",
                    "pages / N",
                    "formula",
                    "MiB",
                    "bytes a range",
                ),
                *("ranges that differ", "changes", "right"),
            ]
            sys.stdout.write(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}\n")
            for name in given.methods:
                run.method(name, given.shares)
        finally:
            cluster.destroy()
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
