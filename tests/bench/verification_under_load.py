"""What a verification of a large table costs those who wait for freshness meanwhile, and whether it finds and repairs every planted error.

A table is copied from PostgreSQL into a DuckDB file. Errors of each kind are planted in the copy while it is stopped: rows that are
missing or extra, a value of one column, one bit of a float, NULL in place of empty text, a time in another time zone. pgbench then updates
other rows at a given rate, and a client waits for its own commits, one after the other: first alone, then during a verification by
checksums, then during one that repairs. Run as `python -m tests.bench.verification_under_load --rows 100000000`.

Exit code 1 if a verification finds other rows than those planted, if the repair changes others, or if a difference remains.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import duckdb

from server.cli.client import Document
from server.cli.verify_command import run_verification
from tests.fixtures.rig import DATABASE, SUBSCRIPTION, Rig

EACH = 8
"""Planted errors of each kind: all of them fit into the list of a verification."""
STRIDE = 1000
"""Planted rows have keys that are multiples of this; the load changes other rows."""
_MAKE = """
CREATE TABLE readings (id bigint PRIMARY KEY, value float8 NOT NULL, amount numeric(12, 2) NOT NULL, label text,
    taken_at timestamptz NOT NULL);
CREATE TABLE marks (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())
"""
_FILL = """
INSERT INTO readings SELECT i, i / 7.0, i % 100000 / 100.0, CASE WHEN i % 5 = 0 THEN '' ELSE 'reading ' || i END,
    timestamptz '2026-01-01' + i * interval '1 second' FROM generate_series({first}, {last}) AS i
"""
_FILL_ROWS = 5_000_000
"""Rows of one transaction that fills the table, so that log can be removed in between."""
_PLANTS = {
    "missing": "DELETE FROM readings WHERE {rows}",
    "extra": "INSERT INTO readings SELECT -id, value, amount, label, taken_at FROM readings WHERE {rows}",
    "one column": "UPDATE readings SET amount = amount + 0.01 WHERE {rows}",
    "one bit": "UPDATE readings SET value = nextafter(value, 'Infinity'::double) WHERE {rows}",
    "NULL for empty": "UPDATE readings SET label = NULL WHERE {rows}",
    "time zone": "UPDATE readings SET taken_at = taken_at + INTERVAL 1 HOUR WHERE {rows}",
}
_SCRIPT = """\\set id random(0, {most}) * {stride} + 7
UPDATE readings SET amount = amount + 1, taken_at = now() WHERE id = :id;
"""
_SETTINGS = {"max_wal_size": "'8GB'", "shared_buffers": "'2GB'"}
_COPY_S = 5400.0


def planted(kind: int, rows: int) -> list[int]:
    """Keys of the planted errors of a kind, spread over the table."""
    step = rows // STRIDE // EACH
    return [(number * step + kind + 1) * STRIDE for number in range(EACH)]


@dataclass
class Waiter:
    """Commits a row and waits until it is visible, one after the other, in a thread of its own; `waited_ms` has the time of each wait."""

    rig: Rig
    waited_ms: list[float] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)

    @contextmanager
    def at_work(self) -> Iterator[list[float]]:
        """The times of the waits that began in this block."""
        stop = threading.Event()
        self.waited_ms = []
        thread = threading.Thread(target=self._work, args=(stop,), daemon=True)
        thread.start()
        try:
            yield self.waited_ms
        finally:
            stop.set()
            thread.join(120)
        if self.failed:
            raise self.failed[0]

    def _work(self, stop: threading.Event) -> None:
        try:
            with self.rig.running.api(timeout_s=120) as api, self.rig.connect() as connection:
                while not stop.wait(0.02):
                    connection.execute("INSERT INTO marks DEFAULT VALUES")
                    position = self.rig.position_of(connection)
                    began = time.perf_counter()
                    api.post(f"{self.rig.path}/freshness-waits", {"position": position, "timeout_ms": 60_000})
                    self.waited_ms.append((time.perf_counter() - began) * 1000)
        except BaseException as error:
            self.failed.append(error)


@contextmanager
def updates(rig: Rig, rows: int, rate: int) -> Iterator[None]:
    """pgbench at a rate of transactions a second."""
    script = rig.home / "updates.sql"
    script.write_text(_SCRIPT.format(most=rows // STRIDE - 1, stride=STRIDE))
    cluster = rig.postgres
    command = [cluster.program("pgbench"), "-h", cluster.host, "-p", str(cluster.port), "-U", cluster.user]
    command += ["-n", "-M", "prepared", "-c", "4", "-R", str(rate), "-T", "86400", "-f", str(script), DATABASE]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
            assert process.poll() is None, "pgbench ended"
        finally:
            process.terminate()


def plant(rig: Rig, rows: int) -> set[int]:
    """Plant errors of each kind in the copy, while nothing has it open; the keys of the rows that differ."""
    _desire(rig, "stopped")
    wrong = set()
    with duckdb.connect(str(rig.home / "copy.duckdb")) as copy:
        copy.execute("USE public").fetchall()
        for kind, (name, statement) in enumerate(_PLANTS.items()):
            keys = planted(kind, rows)
            copy.execute(statement.format(rows=f"id IN ({', '.join(map(str, keys))})")).fetchall()
            wrong |= {-key if name == "extra" else key for key in keys}
    _desire(rig, "running")
    return wrong


def _desire(rig: Rig, state: str) -> None:
    rig.api.patch(rig.path, {"desired_state": state})
    rig.wait_until(lambda: rig.api.get(rig.path)["state"] == state, 300, f"the subscription was {state}")


def verify(rig: Rig, budget: float, **more: str) -> tuple[Document, float]:
    """The result for the large table, and the seconds that it took."""
    tables = [{"schema": "public", "name": "readings"}]
    body: Document = {"tables": tables, "method": "checksum", "budget": budget, **more}
    began = time.monotonic()
    answer = run_verification(rig.api, SUBSCRIPTION, body, _COPY_S)
    assert answer["state"] == "succeeded", answer
    (table,) = answer["tables"]
    return table, time.monotonic() - began


def fill(rig: Rig, rows: int) -> None:
    for statement in _MAKE.split(";"):
        rig.postgres.execute(statement, database=DATABASE)
    for first in range(1, rows + 1, _FILL_ROWS):
        rig.postgres.execute(_FILL.format(first=first, last=min(rows, first + _FILL_ROWS - 1)), database=DATABASE)
    rig.postgres.execute("VACUUM ANALYZE readings", database=DATABASE)


def measure(options: argparse.Namespace) -> bool:
    """Print one line for each phase; whether everything was right."""
    waiter_s = options.seconds
    with Rig(durable=False, settings=_SETTINGS) as rig:
        began = time.monotonic()
        fill(rig, options.rows)
        _print(f"{options.rows:,} rows made in {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        rig.declare([{"schema": "public", "name": name} for name in ("readings", "marks")])
        rig.wait_live(2, _COPY_S)
        _print(f"copied in {time.monotonic() - began:.0f} s")
        wrong = plant(rig, options.rows)
        waiter = Waiter(rig)
        with updates(rig, options.rows, options.rate):
            with waiter.at_work() as alone:
                threading.Event().wait(waiter_s)
            _print_waits("alone", alone, alone, waiter_s)
            with waiter.at_work() as during:
                found, spent_s = verify(rig, options.budget)
            _print_waits("checksum", during, alone, spent_s, found)
            listed = {int(one["key"][0]) for one in found["differing"]}
            right = listed == wrong and not found["equal"]
            _print(f"found {len(listed & wrong)} of {len(wrong)} planted rows, and {len(listed - wrong)} others")
            with waiter.at_work() as during:
                repaired, spent_s = verify(rig, options.budget, repair="apply")
            _print_waits("repair", during, alone, spent_s, repaired)
            counts = repaired["repaired"]
            right = right and counts == {"inserted": EACH, "updated": len(wrong) - 2 * EACH, "deleted": EACH}
            _print(f"repaired: {counts}")
            with waiter.at_work() as during:
                last, spent_s = verify(rig, options.budget)
            _print_waits("after it", during, alone, spent_s, last)
        return right and bool(last["equal"])


def _print_waits(
    phase: str, waited: list[float], alone: list[float], spent_s: float, table: Document | None = None
) -> None:
    median, base = statistics.median(waited), statistics.median(alone)
    p99 = sorted(waited)[int(len(waited) * 0.99)]
    how = (
        ""
        if table is None
        else f"; {table['ranges_different']} of {table['ranges']} ranges differ, equal: {table['equal']}"
    )
    _print(
        f"{phase:>9}: {spent_s:6.1f} s, {len(waited)} waits, median {median:.0f} ms ({median / base:.2f} of alone), p99 {p99:.0f} ms{how}"
    )


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="verification_under_load", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table (10000000)")
    parser.add_argument("--rate", type=int, default=500, help="transactions a second (500)")
    parser.add_argument("--budget", type=float, default=1.0, help="largest share of the time of a verification (1)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long waits are measured alone (60)")
    right = measure(parser.parse_args())
    _print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
