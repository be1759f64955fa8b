"""Capture alone: a backlog is captured in segments and not applied; `pg_recvlogical` reads and discards the same log.

Both read through slots of their own with pgoutput and the same options. A third slot is decoded inside the source by a
function that sends nothing: its cost is that of decoding, and its count is what must have been captured.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic, perf_counter
from typing import IO, Any

import psutil

from bench.contenders import DRAIN_TIMEOUT_S, NATIVE, PENSTOCK, SLOT, Side, declared, sender_of
from bench.environment import Stage
from bench.errors import BenchError
from bench.processes import Member, family, our_role
from bench.workload import DATABASE, Connection, Table
from engine.model.position import Lsn
from server.demo.embedded import EmbeddedPostgres
from server.processes.children import end, spawn

Document = dict[str, Any]

READER_SLOT = "capture_alone"
DECODING_SLOT = "decoding_alone"
OPTIONS = {"proto_version": "4", "messages": "true"}
"""The options of the log reader, which also streams open transactions."""

_FRAME_BYTES = 30
"""Bytes that the replication protocol adds to each record: type and length of CopyData, and the header of XLogData."""
_LOOK_EVERY_S = 0.01
_START_TIMEOUT_S = 60.0
_TCP = Path("/proc/net/tcp")

_DECODE = """
SELECT count(*), count(*) FILTER (WHERE get_byte(data, 0) IN (ascii('I'), ascii('U'), ascii('D'))), coalesce(sum(length(data)), 0)
FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, VARIADIC %s::text[])
"""


def side(name: str, source: EmbeddedPostgres) -> Side:
    """The side with this name, for a `Stage`."""
    return ReaderSide(source) if name == PENSTOCK else ReceiverSide(source)


class ReaderSide:
    """The engine's log reader process, with a program that counts what it captures in place of an engine."""

    name = PENSTOCK
    slot = f"slot_name = '{READER_SLOT}'"
    sender = sender_of(slot)

    def __init__(self, source: EmbeddedPostgres) -> None:
        self._source = source
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._changed = threading.Condition()
        self._latest: Document = {}
        self._seen_at = 0.0
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="await-reader")

    def start(self, tables: Sequence[Table]) -> None:
        order: Document = {"source": self.connection, "slot": READER_SLOT, "folder": str(self._folder)}
        order["tables"] = [declared(table) for table in tables]
        # The child ends when its input is closed, which happens when this process ends, so no further guard is needed.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.isolated.capture"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(
            target=self._listen, args=[self._process.stdout], name="reader-reports", daemon=True
        )
        self._listener.start()
        self._send(json.dumps(order))
        with self._changed:
            if not self._changed.wait_for(lambda: self._latest, _START_TIMEOUT_S) or "failed" in self._latest:
                raise BenchError(f"the log reader did not start: {self._latest.get('failed')}")

    @property
    def connection(self) -> Document:
        """The settings of a connection to the source."""
        place = {"host": self._source.host, "port": self._source.port, "database": DATABASE}
        return {**place, "user": self._source.user, "sslmode": "disable"}

    def arm(self, number: int, position: str) -> Future[float]:
        return self._pool.submit(self._reached, Lsn.parse(position))

    def visible(self, connection: Connection, number: int) -> None:
        raise NotImplementedError("nothing is applied")

    def lag_ms(self) -> float | None:
        return None

    def members(self) -> list[Member]:
        return family(self._process.pid, our_role) if self._process is not None else []

    def landed(self) -> Document:
        """Totals captured since the start: `records`, of which `controls`, and `bytes`."""
        with self._changed:
            return {name: int(self._latest.get(name, 0)) for name in ("records", "controls", "bytes")}

    def release(self) -> None:
        """Allow the captured segments to be deleted."""
        self._send("release")

    def leave(self) -> Path:
        """End the reader. Captured segments stay until `stop`, in the folder that this returns."""
        self._end()
        return self._folder

    def stop(self) -> None:
        self._end()
        self._pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if self._listener is not None:
                self._listener.join(5)

    def _send(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            raise AssertionError("the side is started")
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _listen(self, reports: IO[str] | None) -> None:
        if reports is None:
            raise AssertionError("its output is a pipe")
        with reports:
            for line in reports:
                came = perf_counter()
                with self._changed:
                    self._latest, self._seen_at = json.loads(line), came
                    self._changed.notify_all()
        with self._changed:
            self._latest = {**self._latest, "failed": self._latest.get("failed", "it has ended")}
            self._changed.notify_all()

    def _reached(self, position: Lsn) -> float:
        def has_reached() -> bool:
            end = self._latest.get("wal_end")
            return "failed" in self._latest or (end is not None and Lsn.parse(end) >= position)

        with self._changed:
            if not self._changed.wait_for(has_reached, DRAIN_TIMEOUT_S):
                raise TimeoutError("the log reader did not reach the end")
            if "failed" in self._latest:
                raise BenchError(f"the log reader failed: {self._latest['failed']}")
            return self._seen_at


class ReceiverSide:
    """PostgreSQL's own `pg_recvlogical`, which writes to /dev/null."""

    name = NATIVE
    slot = f"slot_name = '{SLOT}'"
    sender = sender_of(slot)

    def __init__(self, source: EmbeddedPostgres) -> None:
        self._source = source
        self._said = source.folder / "receiver.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="await-receiver")

    def start(self, tables: Sequence[Table]) -> None:
        source = self._source
        names = ", ".join(f"{table.schema}.{table.name}" for table in tables)
        source.execute(f"CREATE PUBLICATION {SLOT} FOR TABLE {names}", database=DATABASE)
        create_slot(source, SLOT)
        command = [source.program("pg_recvlogical"), "-h", source.host, "-p", str(source.port), "-U", source.user]
        command += ["-d", DATABASE, "--slot", SLOT, "--start", "--no-loop", "-f", "/dev/null"]
        options = {**OPTIONS, "streaming": "on", "publication_names": SLOT}
        command += [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        with self._said.open("ab") as said:
            self._process = spawn(command, output=said.fileno())

    def arm(self, number: int, position: str) -> Future[float]:
        return self._pool.submit(self._received, position)

    def visible(self, connection: Connection, number: int) -> None:
        raise NotImplementedError("nothing is applied")

    def lag_ms(self) -> float | None:
        return None

    def members(self) -> list[Member]:
        return family(self._process.pid, lambda _: "receiver") if self._process is not None else []

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end(process, signal.SIGINT, 10)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _received(self, position: str) -> float:
        """Wait until it has received everything up to `position`; returns the time, by perf_counter.

        It does not report what it received, so the source must have sent it, and the socket buffers of both ends be
        empty.
        """
        deadline, pause = monotonic() + DRAIN_TIMEOUT_S, threading.Event()
        sql = (
            "SELECT r.client_port FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid"
            f" WHERE s.{self.slot} AND r.sent_lsn >= %s::pg_lsn"
        )
        with self._source.connect(DATABASE) as connection:
            while True:
                row = connection.execute(sql.encode(), [position]).fetchone()
                if row is not None and not queued_bytes(_TCP.read_text(), self._source.port, int(row[0])):
                    return perf_counter()
                if self._process is None or self._process.poll() is not None:
                    raise BenchError(
                        f"pg_recvlogical has ended: {self._said.read_text(errors='replace')[-300:].strip()}"
                    )
                if monotonic() > deadline:
                    raise TimeoutError("pg_recvlogical did not reach the end")
                pause.wait(_LOOK_EVERY_S)


def create_slot(source: EmbeddedPostgres, slot: str) -> None:
    """Create a slot for pgoutput that begins at the present position."""
    source.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot], database=DATABASE)


def queued_bytes(table: str, one: int, other: int) -> int:
    """Bytes sent between two local ports that the receiver has not read, from the text of `/proc/net/tcp`."""
    ports, total = {one, other}, 0
    for line in table.splitlines()[1:]:
        words = line.split()
        if {int(address.rpartition(":")[2], 16) for address in words[1:3]} == ports:
            total += sum(int(part, 16) for part in words[4].split(":"))
    return total


class Decoding:
    """Reads the third slot after each round, and compares. Create it when the stage is set up and nothing is written."""

    def __init__(self, stage: Stage) -> None:
        create_slot(stage.source, DECODING_SLOT)
        self._before = self._landed(stage)
        self.wrong: list[str] = []

    def behind(self, stage: Stage, done: Document) -> None:
        """Add to a round the cost of decoding alone, and the volume sent to each side."""
        million = done["row_changes"] / 1e6
        found = decode_inside(stage)
        done["decoding_alone"] = {**found, "cpu_s_per_million_rows": round(found["cpu_s"] / million, 3)}
        sent = found["payload_bytes"] + _FRAME_BYTES * found["records"]
        for one in done["sides"].values():
            one["sent_mb"] = round(sent / 1e6, 2)
        reader = stage.sides.get(PENSTOCK)
        if not isinstance(reader, ReaderSide):
            return
        landed = {name: value - self._before[name] for name, value in self._landed(stage).items()}
        self._before = self._landed(stage)
        rows = landed["records"] - landed["controls"]
        done["sides"][PENSTOCK]["landed"] = {"rows": rows, "segment_mb": round(landed["bytes"] / 1e6, 2)}
        if rows != found["rows"]:
            self.wrong.append(f"{rows} row changes landed of {found['rows']} that the source has")
        reader.release()

    @staticmethod
    def _landed(stage: Stage) -> Document:
        reader = stage.sides.get(PENSTOCK)
        return reader.landed() if isinstance(reader, ReaderSide) else {}


def decode_inside(stage: Stage) -> Document:
    """Decode and count the changes of the third slot, in one session of the source."""
    options = {**OPTIONS, "publication_names": f"{READER_SLOT},{READER_SLOT}_ins"}
    listed = [part for item in options.items() for part in item]
    with stage.connect() as connection:
        connection.execute("SET work_mem = '1GB'")  # the function gathers everything before it counts
        process = psutil.Process(connection.info.backend_pid)
        before, began = process.cpu_times(), perf_counter()
        row = connection.execute(_DECODE.encode(), [DECODING_SLOT, listed]).fetchone()
        took, after = perf_counter() - began, process.cpu_times()
    if row is None:
        raise AssertionError("the statement returns a row")
    used = after.user + after.system - before.user - before.system
    records, rows, payload = (int(value) for value in row)
    return {
        "seconds": round(took, 3),
        "cpu_s": round(used, 3),
        "records": records,
        "rows": rows,
        "payload_bytes": payload,
    }
