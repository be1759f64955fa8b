"""`table-life`: a table is added, reloaded, parked, repaired and removed in a loop, while others have a steady load.

Measured is how long commits to the other tables take to become readable, with the loop running and without it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, ClassVar

from bench.contenders import PATIENTLY_S, PenstockSide, wait_until
from bench.environment import Stage
from bench.errors import BenchError
from bench.facts import load_average
from bench.histogram import Times
from bench.small_transactions import Tpcb
from bench.steady import Client, load
from bench.workload import DATABASE, Connection, Mode, Size

Document = dict[str, Any]

_NAME = "life"
_PARK, _MEND = "ALTER TABLE life REPLICA IDENTITY NOTHING", "ALTER TABLE life REPLICA IDENTITY DEFAULT"
"""Statements that park the table and allow its repair, at no cost to the source; rebuilding a key would be measured too.

For the same reason, changes to the table select rows by its key.
"""
_STEP_S, _REST_S = 120.0, 2.0
_CHANGE, _CHANGED = "UPDATE life SET n = n + 1 WHERE id > %s AND id <= %s", 500
TURN_S = 10.0
"""Seconds of each quiet and each busy period. They alternate, so that drift of the machine's speed affects both alike."""
SETTLE_S = 3.0
"""Pause after a busy period: the target still has work from the table's removal, which counts for neither."""


class TableLife(Tpcb):
    """`amount` rows in the table, `rate` transactions a second on the others."""

    name = "table-life"
    description = "waits for commits to other tables while one is added, reloaded, parked, repaired and removed"
    unit = "rows"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.TABLE_LIFE,)
    limits_ms: ClassVar[Mapping[str, float]] = {}
    full = Size(500_000, 5, rounds=1, seconds=60, rate=500)
    quick = Size(20_000, 1, rounds=1, seconds=10, rate=200)


class Life:
    """Runs the table's loop from `start` to `end`; `stop` also waits for the current round."""

    def __init__(self, stage: Stage, side: PenstockSide) -> None:
        self.done: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self._stage = stage
        self._side = side
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="table-life", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Start no further round."""
        self._stopping.set()

    def stop(self) -> None:
        self.end()
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether a round is still running."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._round()
        except Exception as error:
            self.failed.append(f"{type(error).__name__}: {error}")

    def _round(self) -> None:
        side, change = self._side, self._change
        table = self._timed("added", lambda: side.add_table(_NAME))
        change()
        self._timed("reloaded", lambda: side.reload_table(table))
        change()
        self._execute(_PARK)
        self._timed("parked", lambda: self._parks(table))
        self._execute(_MEND)
        self._timed("repaired", lambda: side.reload_table(table))
        change()
        self._timed("removed", lambda: side.remove_table(table))

    def _parks(self, table: str) -> None:
        wait_until(lambda: self._side.table_state(table) == "parked", _STEP_S, "the table parked", PATIENTLY_S)

    def _change(self) -> None:
        at = self.done.total() * _CHANGED
        self._stage.source.execute(_CHANGE, [at, at + _CHANGED], database=DATABASE)

    def _execute(self, statement: str) -> None:
        self._stage.source.execute(statement, database=DATABASE)

    def _timed(self, what: str, step: Callable[[], Any]) -> Any:
        began = monotonic()
        result = step()
        self.done[what] += 1
        self.seconds[what] = self.seconds.get(what, 0.0) + monotonic() - began
        return result


def fill(connection: Connection, rows: int) -> None:
    """Create the table. At first only the other tables are followed."""
    connection.execute("CREATE TABLE life (id bigint PRIMARY KEY, n int NOT NULL, at timestamptz NOT NULL, note text)")
    connection.execute("INSERT INTO life SELECT i, 0, now(), md5(i::text) FROM generate_series(1, %s) i", [rows])
    connection.execute("VACUUM ANALYZE life")


@contextmanager
def _living(life: Life) -> Iterator[Life]:
    life.start()
    try:
        yield life
    finally:
        life.stop()


def _in_turns(client: Client, life_of: Callable[[], Life], seconds: float) -> tuple[Times, Times, list[Life]]:
    """Wait times for about `seconds` of quiet and of busy periods, alternating; the loop runs in the busy ones."""
    quiet, busy = Times(), Times()
    lives: list[Life] = []
    turns = max(1, round(seconds / TURN_S))
    for _ in range(turns):
        client.waits = quiet
        client.run(seconds / turns, keep=True)
        client.waits = busy
        with _living(life_of()) as life:
            lives.append(life)
            client.run(seconds / turns, keep=True)
            life.end()
            while life.is_running:
                client.run(_REST_S, keep=True)
        client.run(SETTLE_S, keep=False)
    return quiet, busy, lives


def measure(stage: Stage, side: PenstockSide, size: Size, waits_per_s: float, warm_up: float) -> Document:
    """Measure quiet and busy periods, alternating, all under load."""
    if stage.source.execute("SELECT to_regclass('life') IS NULL", database=DATABASE)[0][0]:
        with stage.connect() as connection:
            fill(connection, size.amount)
    client = Client(stage, side, waits_per_s)
    side.await_only((*(table.name for table in stage.workload.followed(size.scale)), "marks"))
    try:
        with load(stage, size.rate):
            client.run(warm_up, keep=False)
            quiet, busy, lives = _in_turns(client, lambda: Life(stage, side), size.seconds)
            load_now = load_average()
    finally:
        client.close()
        side.await_only(())
    failed = [reason for life in lives for reason in life.failed]
    if failed:
        raise BenchError(f"the table's life ended early: {failed[0]}")
    done: Counter[str] = sum((life.done for life in lives), Counter())
    took = {what: sum(life.seconds.get(what, 0.0) for life in lives) for what in done}
    return {
        "waits": {**busy.summary(), "failed": len(client.failed), "failures": client.failed[:5]},
        "waits_quiet": quiet.summary(),
        **{f"p{p}_rise": round(busy.percentile(p) / quiet.percentile(p), 3) for p in (50, 95, 99)},
        "rounds_of_life": done["removed"],
        "mean_s": {what: round(took[what] / done[what], 2) for what in done},
        "client_late_most_ms": round(client.latest_s * 1000, 2),
        "load_average": load_now,
    }
