"""How fast rows come by Arrow Flight SQL, compared with JSON by REST and with DuckDB in the client's process.

A table of so many rows is replicated to a DuckDB file. Rounds take turns with the ways to read all of it, each measured from the request
to the last row as Arrow (JSON: as Python's lists). DuckDB in process reads a copy of the file. CPU is that of this process and all
processes of Penstock, which other load on the machine affects less than the time. Run as `python -m tests.bench.flight`.

Exit code 1 where a way did not return all rows.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import adbc_driver_flightsql.dbapi
import duckdb
import psutil
from pyarrow import flight

from server.processes.ports import free_port
from tests.fixtures.rig import SUBSCRIPTION, Rig

TABLE = "public.readings"
_SQL = f"SELECT * FROM {TABLE}"
_MAKE = """
CREATE TABLE readings (id bigint PRIMARY KEY, sensor bigint, value float8, label varchar, taken_at timestamp);
INSERT INTO readings SELECT i, i % 1000, i / 7.0, 'reading ' || i, timestamp '2026-01-01' + i * interval '1 second'
FROM generate_series(1, {rows}) i
"""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=7)
    given = arguments.parse_args()
    port = free_port()
    # As the endpoint and the query processes run, so that other load takes as much from each way.
    os.nice(10)
    with Rig(durable=False, extra={"PENSTOCK_FLIGHT_PORT": str(port)}) as rig:
        for statement in _MAKE.format(rows=given.rows).split(";"):
            rig.connect().execute(statement)
        rig.declare([{"schema": "public", "name": "readings"}])
        rig.wait_live(1)
        return _measured(rig, port, _copied(rig), given.rows, given.rounds)


def _copied(rig: Rig) -> Path:
    """A copy of the target's file while nothing changes, without a write-ahead log."""
    found = rig.home / "measured.duckdb"
    for ending in ("", ".wal"):
        written = rig.home / f"copy.duckdb{ending}"
        if written.exists():
            shutil.copy(written, f"{found}{ending}")
    with duckdb.connect(str(found)) as connection:
        connection.execute("CHECKPOINT")
    return found


def _measured(rig: Rig, port: int, copy: Path, rows: int, rounds: int) -> int:
    ways: dict[str, Callable[[], int]] = {
        "DuckDB in process": _in_process(copy),
        "pyarrow.flight": _by_flight(rig, port),
        "ADBC Flight SQL": _by_adbc(rig, port),
        "REST JSON": lambda: len(
            rig.api.post(f"{rig.path}/queries", {"sql": _SQL, "max_rows": rows, "timeout_ms": 300_000})["rows"]
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, read in ways.items():
            if name == "REST JSON" and number >= 2:
                continue
            began, used = time.perf_counter(), _cpu_seconds()
            found = read()
            seconds[name].append(time.perf_counter() - began)
            cpu[name].append(_cpu_seconds() - used)
            if found != rows:
                print(f"{name}: {found} rows of {rows}")
                return 1
    for measure, found_in in (("time", seconds), ("CPU", cpu)):
        # The first round starts the processes.
        medians = {name: statistics.median(each[1:] or each) for name, each in found_in.items()}
        for name, median in medians.items():
            own, rest = median / medians["DuckDB in process"], medians["REST JSON"] / median
            spread = f"{min(found_in[name]):.3f} to {max(found_in[name]):.3f} s"
            print(
                f"{measure}, {name}: {median:.3f} s ({spread}); DuckDB in process x {own:.2f}, REST JSON / {rest:.1f}"
            )
    return 0


def _cpu_seconds() -> float:
    """Of this process and its descendants that are alive."""
    own = psutil.Process()
    found = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system
    return found


def _in_process(copy: Path) -> Callable[[], int]:
    connection = duckdb.connect(str(copy), read_only=True)
    return lambda: connection.sql(_SQL).to_arrow_table().num_rows


def _by_flight(rig: Rig, port: int) -> Callable[[], int]:
    client = flight.FlightClient(f"grpc://127.0.0.1:{port}")
    headers = [("authorization", f"Bearer {rig.running.admin_token}"), ("penstock-subscription", SUBSCRIPTION)]
    options = flight.FlightCallOptions(headers=[(name.encode(), value.encode()) for name, value in headers])

    def read() -> int:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(_SQL), options)
        return int(client.do_get(info.endpoints[0].ticket, options).read_all().num_rows)

    return read


def _by_adbc(rig: Rig, port: int) -> Callable[[], int]:
    options = {
        "adbc.flight.sql.authorization_header": f"Bearer {rig.running.admin_token}",
        "adbc.flight.sql.rpc.call_header.penstock-subscription": SUBSCRIPTION,
    }
    connection = adbc_driver_flightsql.dbapi.connect(f"grpc://127.0.0.1:{port}", db_kwargs=options, autocommit=True)

    def read() -> int:
        with connection.cursor() as cursor:
            cursor.execute(_SQL)
            return int(cursor.fetch_arrow_table().num_rows)

    return read


if __name__ == "__main__":
    sys.exit(main())
