"""`table-life`: one table is added, reloaded, parked, repaired and removed again and again, while others are followed at a steady rate.

What counts is how long commits to those others take to be readable meanwhile, beside the times in which that table is left alone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import Any, ClassVar

from server.bench.errors import BenchError
from server.bench.facts import load_average
from server.bench.histogram import Times
from server.bench.sides import PenstockSide, until
from server.bench.small_transactions import Tpcb
from server.bench.stage import Stage
from server.bench.steady import Client, load
from server.bench.workload import DATABASE, Connection, Mode, Size

Document = dict[str, Any]

_NAME = "life"
_KEY = "ALTER TABLE life ADD CONSTRAINT life_pkey PRIMARY KEY (id)"
_STEP_S = 120.0
_CHANGE = "UPDATE life SET n = n + 1 WHERE id %% 1000 = %s"
_PARTS = ((False, 0.5), (True, 1.0), (False, 0.5))
"""Whether something is done with the table, and for which part of the time."""


class TableLife(Tpcb):
    """`amount` rows in that table, `rate` transactions a second on the others."""

    name = "table-life"
    description = "waits for commits to other tables while one is added, reloaded, parked, repaired and removed"
    unit = "rows"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.TABLE_LIFE,)
    limits_ms: ClassVar[Mapping[str, float]] = {}
    full = Size(500_000, 5, rounds=1, seconds=60, rate=500)
    quick = Size(20_000, 1, rounds=1, seconds=10, rate=200)


class Life:
    """Does everything that is done with a table, over and over from `start` to `stop`, which waits for the round under way."""

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

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

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
        self._execute("ALTER TABLE life DROP CONSTRAINT life_pkey")
        self._timed("parked", lambda: until(lambda: side.table_state(table) == "parked", _STEP_S, "the table parked"))
        self._execute(_KEY)
        self._timed("repaired", lambda: side.reload_table(table))
        change()
        self._timed("removed", lambda: side.remove_table(table))

    def _change(self) -> None:
        self._stage.source.execute(_CHANGE, [self.done.total() % 1000], database=DATABASE)

    def _execute(self, statement: str) -> None:
        self._stage.source.execute(statement, database=DATABASE)

    def _timed(self, what: str, step: Callable[[], Any]) -> Any:
        began = monotonic()
        result = step()
        self.done[what] += 1
        self.seconds[what] = self.seconds.get(what, 0.0) + monotonic() - began
        return result


def fill(connection: Connection, rows: int) -> None:
    """Make the table. Followed are only the others to begin with."""
    connection.execute("CREATE TABLE life (id bigint, n int NOT NULL, at timestamptz NOT NULL, note text)")
    connection.execute("INSERT INTO life SELECT i, 0, now(), md5(i::text) FROM generate_series(1, %s) i", [rows])
    connection.execute(_KEY.encode())
    connection.execute("VACUUM ANALYZE life")


@contextmanager
def _living(stage: Stage, side: PenstockSide, lives: list[Life]) -> Iterator[None]:
    life = Life(stage, side)
    lives.append(life)
    life.start()
    try:
        yield
    finally:
        life.stop()


def measure(stage: Stage, side: PenstockSide, size: Size, waits_per_s: float, warm_up: float) -> Document:
    """Half of the quiet time, the busy time, the other half; all of it under load."""
    if stage.source.execute("SELECT to_regclass('life') IS NULL", database=DATABASE)[0][0]:
        with stage.connect() as connection:
            fill(connection, size.amount)
    client = Client(stage, side, waits_per_s)
    times = {False: Times(), True: Times()}
    lives: list[Life] = []
    side.await_only((*(table.name for table in stage.workload.followed(size.scale)), "marks"))
    try:
        with load(stage, size.rate):
            client.run(warm_up, keep=False)
            for busy, share in _PARTS:
                client.waits = times[busy]
                with _living(stage, side, lives) if busy else nullcontext():
                    client.run(size.seconds * share, keep=True)
            load_now = load_average()
    finally:
        client.close()
        side.await_only(())
    (life,) = lives
    if life.failed:
        raise BenchError(f"the table's life ended early: {life.failed[0]}")
    quiet, busy_ = times[False], times[True]
    return {
        "waits": {**busy_.summary(), "failed": len(client.failed), "failures": client.failed[:5]},
        "waits_quiet": quiet.summary(),
        "p50_rise": round(busy_.percentile(50) / quiet.percentile(50), 3),
        "p99_rise": round(busy_.percentile(99) / quiet.percentile(99), 3),
        "rounds_of_life": life.done["removed"],
        "mean_s": {what: round(life.seconds[what] / life.done[what], 2) for what in life.done},
        "client_late_most_ms": round(client.latest_s * 1000, 2),
        "load_average": load_now,
    }
