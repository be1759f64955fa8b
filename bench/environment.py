"""A source with the tables of a workload, and the sides that follow it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from time import perf_counter
from types import TracebackType
from typing import Self

import psutil

from bench.contenders import DRAIN_TIMEOUT_S, NATIVE, PENSTOCK, NativeSide, PenstockSide, Side, wait_until
from bench.errors import BenchError
from bench.processes import SENDER, Member, Sampler
from bench.source_log import position
from bench.workload import DATABASE, Connection, Table, Workload
from engine.model.position import ZERO, Lsn
from server.cli.client import NoServerError, ProblemError
from server.demo.embedded import EmbeddedPostgres, server_folder

CLUSTER_SETTINGS = {
    "shared_buffers": "'512MB'",
    "max_wal_size": "'8GB'",
    "checkpoint_timeout": "'30min'",
    "wal_compression": "off",
    # A paused sender does not process replies. With any timeout, it would check for replies after each message.
    "wal_sender_timeout": "'1d'",
}
SHOWN_SETTINGS = (
    *("shared_buffers", "wal_level", "fsync", "synchronous_commit", "full_page_writes", "wal_compression"),
    *("max_wal_size", "checkpoint_timeout", "logical_decoding_work_mem", "autovacuum"),
)
_MARKS = "CREATE TABLE marks (id bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())"
_IDLE_SENDER = ("WalSenderMain", "WalSenderWaitForWal", "ClientRead")


SideOf = Callable[[str, EmbeddedPostgres], Side]
"""Makes the side with this name for a source."""


class Held:
    """A sending process of the source that is stopped until `release`."""

    def __init__(self, process: psutil.Process) -> None:
        self.process = process
        self._held = True
        process.send_signal(signal.SIGSTOP)

    def release(self) -> float:
        """Continue the process. Returns the time, by perf_counter."""
        began = perf_counter()
        if self._held:
            self._held = False
            with suppress(psutil.NoSuchProcess):
                self.process.send_signal(signal.SIGCONT)
        return began


class Stage:
    """Source and sides of one measurement, for the duration of a `with` block. `say` receives a line for each step."""

    def __init__(
        self,
        workload: Workload,
        scale: int,
        names: Sequence[str],
        say: Callable[[str], None],
        *,
        side_of: SideOf | None = None,
        rest_s: float = 2.0,
    ) -> None:
        self._rest_s = rest_s
        self.workload = workload
        self._scale = scale
        self._say = say
        settings = {**CLUSTER_SETTINGS, **workload.source_settings}
        self.source = EmbeddedPostgres(server_folder("penstock-bench-pg-"), durable=True, settings=settings)
        self.sides: dict[str, Side] = {name: (side_of or sides_into("duckdb"))(name, self.source) for name in names}
        self._held: list[Held] = []
        self._marked = 0
        self._clients = 0
        self._never = threading.Event()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException as error:
            self._end(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    def connect(self) -> Connection:
        """A new connection to the source, in autocommit mode."""
        return self.source.connect(DATABASE)

    @property
    def penstock(self) -> PenstockSide | None:
        side = self.sides.get(PENSTOCK)
        return side if isinstance(side, PenstockSide) else None

    def mark(self) -> tuple[int, str]:
        """Commit one more row in `marks`, which all sides follow. Returns its number and the position after its commit."""
        self._marked += 1
        self.source.execute("INSERT INTO marks (id) VALUES (%s)", [self._marked], database=DATABASE)
        return self._marked, position(self.source)

    def first_mark(self) -> int:
        """The start of a range of a million unused row numbers for a separate client; a different range at each call."""
        self._clients += 1
        return self._clients * 1_000_000

    def wait_until_idle(self) -> None:
        """Return when all sides have everything, and after a rest."""
        number, end = self.mark()
        for side in self.sides.values():
            wait_seen(side.arm(number, end))
        self.rest()

    def rest(self) -> None:
        """Leave a side time to clean up after its work."""
        self._never.wait(self._rest_s)

    @contextmanager
    def held(self) -> Iterator[dict[str, Held]]:
        """Pause the sending processes of all sides; those not released in the block are released at its end."""
        held = {name: self._hold(side) for name, side in self.sides.items()}
        try:
            yield held
        finally:
            for one in held.values():
                one.release()
            self._held.clear()

    def sampler(self, side: Side) -> Sampler:
        """A sampler of a side's processes, and of the source's process that sends to it."""
        sender = psutil.Process(self.sender(side))

        def members() -> list[Member]:
            return [(SENDER, sender), *side.members()]

        return Sampler(members)

    def sender(self, side: Side) -> int:
        """The process id of the source's sender to this side."""
        rows: list[tuple[int]] = []

        def find_sender() -> bool:
            rows[:] = [(int(row[0]),) for row in self.source.execute(side.sender, database=DATABASE)]
            return len(rows) == 1

        wait_until(find_sender, 60, f"one process sent the log to {side.name}")
        return rows[0][0]

    def sent(self, side: Side) -> Lsn:
        """The position up to which the source has sent its log to this side."""
        sql = (
            "SELECT r.sent_lsn::text FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid"
            f" WHERE NOT s.temporary AND s.{side.slot}"
        )
        rows = self.source.execute(sql)
        return Lsn.parse(str(rows[0][0])) if rows and rows[0][0] is not None else ZERO

    def spilled_bytes(self, side: Side) -> int:
        """Bytes that the source has spilled to disk for this side's slot, from transactions that did not fit its memory."""
        rows = self.source.execute(
            f"SELECT coalesce(sum(spill_bytes), 0) FROM pg_stat_replication_slots WHERE {side.slot}"
        )
        return int(rows[0][0])

    def streamed_transactions(self, side: Side) -> int:
        """The number of transactions that the source has streamed to this side before their end.

        PostgreSQL updates it when it streams more of a transaction, or one ends.
        """
        rows = self.source.execute(
            f"SELECT coalesce(sum(stream_txns), 0) FROM pg_stat_replication_slots WHERE {side.slot}"
        )
        return int(rows[0][0])

    def row_changes(self) -> int:
        """Rows changed in the workload's tables so far; PostgreSQL's statistics lag by up to a second."""
        sql = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables WHERE relname <> 'marks' AND schemaname <> 'penstock'"
        return int(self.source.execute(sql, database=DATABASE)[0][0] or 0)

    def settings(self) -> dict[str, str]:
        """The source's version and the settings that affect the measurement."""
        with self.source.connect(DATABASE) as connection:
            names = ("server_version", *SHOWN_SETTINGS)
            rows = {name: connection.execute(f"SHOW {name}".encode()).fetchone() for name in names}
        return {name: str(row[0]) for name, row in rows.items() if row is not None}

    def _start(self) -> None:
        self._say(f"{self.workload.name}: filling the source")
        self.source.start()
        self.source.execute(f"CREATE DATABASE {DATABASE}")
        with self.connect() as connection:
            self.workload.create(connection, self._scale)
            connection.execute(_MARKS)
        tables = (*self.workload.followed(self._scale), Table("marks"))
        for name in sorted(self.sides, key=lambda name: name != NATIVE):
            self._say(f"{self.workload.name}: starting {name}")
            self.sides[name].start(tables)
        self.wait_until_idle()

    def _hold(self, side: Side) -> Held:
        """Stop a sender while it waits for log: at another moment it could hold a lock that the load needs."""
        pid = self.sender(side)
        sql = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
        wait_until(
            lambda: self.source.execute(sql, [pid])[0][0] in _IDLE_SENDER, 60, f"the sender of {side.name} was idle"
        )
        held = Held(psutil.Process(pid))
        self._held.append(held)
        return held

    def _end(self, error: BaseException | None) -> None:
        if error is not None and self.penstock is not None and isinstance(error, Exception):
            error.add_note(f"the engine's last lines:\n{self.penstock.log_tail()}")
        for held in self._held:
            held.release()
        for side in self.sides.values():
            side.stop()
        self.source.destroy()


def sides_into(target: str, apply: str = "auto") -> SideOf:
    """A factory of sides. Penstock's side has a target of this kind; a PostgreSQL target has the native side's settings.

    `apply`: the apply mode of our subscription.
    """

    def side(name: str, source: EmbeddedPostgres) -> Side:
        if name == NATIVE:
            return NativeSide(source, CLUSTER_SETTINGS)
        if target == "duckdb":
            return PenstockSide(source, apply=apply)
        cluster = EmbeddedPostgres(server_folder("penstock-bench-pg-"), durable=True, settings=CLUSTER_SETTINGS)
        return PenstockSide(source, cluster, apply=apply)

    return side


def wait_seen(future: Future[float]) -> float:
    """The time at which an armed row was seen, by perf_counter. BenchError if it was not."""
    try:
        return future.result(DRAIN_TIMEOUT_S + 60)
    except (TimeoutError, FutureTimeoutError, ProblemError, NoServerError) as error:
        raise BenchError(f"the end was not reached: {error}") from error
