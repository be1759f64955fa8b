"""Equal rows of a table without a key, under load, whatever dies or rests meanwhile: none is lost, none comes twice.

Batches are cut into pieces, as large ones are. What is done, and when, is drawn from a seed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from engine.model.subscription import QueueMode
from engine.platform.failpoints import Failpoint, held_file
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.load import Load
from tests.fixtures.postgres import Database, Session
from tests.fixtures.replication import table
from tests.fixtures.waiting import wait_until
from tests.pg.bad_days.conftest import PATIENCE_S, BadDay, BadDays, kill_reader, reloaded
from tests.pg.engine.killed_engines import engine, wait_for

pytestmark = pytest.mark.pg

_BAG = """
CREATE TABLE bag (n int, note text);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO bag SELECT n % 3, 'same' FROM generate_series(1, 200) n;
"""
_HELD = (Failpoint.READER_FREED, Failpoint.READER_BEFORE_OPEN, Failpoint.READER_OPENED)
_MOST_ROWS = 400


class BagLoad(Load):
    """Transactions over few distinct rows: plain ones, truncates, and ones that are streamed, with savepoints rolled back or all of it."""

    def __init__(self, database: Database, seed: int) -> None:
        super().__init__(database.connect, f"{seed}/load")
        self._no_truncates = threading.Event()

    def transact(self, connection: Session) -> None:
        self.rng.choices([self._shuffle, self._clear, self._large], [20, 1, 2])[0](connection)

    def _shuffle(self, connection: Session) -> None:
        with connection.transaction() as whole:
            connection.execute("INSERT INTO bag SELECT n % 3, 'same' FROM generate_series(1, 6) n")
            with connection.transaction() as savepoint:
                connection.execute("UPDATE bag SET n = n + 1")
                raise psycopg.Rollback(savepoint)
            connection.execute("UPDATE bag SET note = %s WHERE n = 1", [f"p{self.rng.randint(1, 3)}"])
            connection.execute("DELETE FROM bag WHERE n = 2 AND random() < 0.5")
            connection.execute("DELETE FROM bag WHERE (SELECT count(*) FROM bag) > %s AND random() < 0.5", [_MOST_ROWS])
            if self.rng.random() < 0.1:
                raise psycopg.Rollback(whole)

    def _clear(self, connection: Session) -> None:
        if self._no_truncates.is_set():
            return
        with connection.transaction():
            connection.execute("TRUNCATE bag")
            connection.execute("INSERT INTO bag VALUES (%s, NULL)", [self.rng.randint(1, 3)])

    def _large(self, connection: Session) -> None:
        """Rows that stay for a transaction or two."""
        with connection.transaction() as whole:
            connection.execute("INSERT INTO bag SELECT n, 'kept' FROM generate_series(100, 900) n")
            with connection.transaction() as savepoint:
                connection.execute("INSERT INTO bag SELECT n, 'undone' FROM generate_series(1, 500) n")
                raise psycopg.Rollback(savepoint)
            connection.execute("DELETE FROM bag WHERE n >= 100 AND random() < %s", [self.rng.choice((0.5, 1.1))])
            if self.rng.random() < 0.3:
                raise psycopg.Rollback(whole)

    @contextmanager
    def without_truncates(self) -> Iterator[None]:
        """A snapshot does not keep the rows of a table that is truncated after it."""
        self._no_truncates.set()
        self.more(2)
        yield
        self._no_truncates.clear()


@contextmanager
def held(replica: BadDay, armed: Path, point: Failpoint) -> Iterator[None]:
    """While the log reader that comes after the one that dies now is held."""
    (armed / point.value).write_text("hold")
    kill_reader(replica)
    wait_until(held_file(armed, point).exists, PATIENCE_S)
    yield
    held_file(armed, point).unlink()


def kill_engine(replica: BadDay, load: BagLoad, armed: Path, rng: random.Random) -> None:
    """Another engine continues under the next epoch, and is killed; one more follows."""
    replica.close()
    with engine(replica, replica.spec.queue_mode, armed) as process:
        wait_for(process, "bag live")
        load.more(rng.randint(1, 30))
    replica.again()


def pause_table(replica: BadDay, load: BagLoad) -> None:
    bag = replica.spec.tables[0]
    replica.respec(replace(replica.spec, tables=(replace(bag, paused=True),)))
    replica.wait_table("bag", "paused")
    load.more(30)
    replica.respec(replace(replica.spec, tables=(bag,)))
    replica.wait_live()


def reload_table(replica: BadDay, request: str) -> None:
    replica.pipeline.reload(request, [replica.table_id("bag")])
    replica.reports.wait(lambda reports: reloaded(reports, request), "the table reloaded")


def act(rng: random.Random, replica: BadDay, load: BagLoad, armed: Path) -> str:
    ways: dict[str, Callable[[], None]] = {
        "reader killed": lambda: kill_reader(replica),
        "engine ended": replica.again,
        "engine killed": lambda: kill_engine(replica, load, armed, rng),
        "table paused": lambda: pause_table(replica, load),
        "table reloaded": lambda: reload_table(replica, f"reload-{load.count}"),
    }
    what = rng.choice([*ways, *_HELD])
    if isinstance(what, Failpoint):
        with held(replica, armed, what):
            load.more(rng.randint(1, 30))
        return f"reader killed, the next one held at {what.value}"
    ways[what]()
    return what


@pytest.mark.parametrize(
    ("seed", "acts"), [(1, 3), *(pytest.param(n, 12, marks=pytest.mark.chaos) for n in range(2, 8))]
)
def test_equal_rows_are_neither_lost_nor_doubled(
    private_cluster: Callable[..., EmbeddedPostgres],
    database_on: Callable[[EmbeddedPostgres], Database],
    bad_day: BadDays,
    armed: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    acts: int,
) -> None:
    monkeypatch.setenv("PENSTOCK_PIECE_BYTES", str(64 * 1024))
    source = database_on(private_cluster(18, logical_decoding_work_mem="'64kB'"))
    source.execute(_BAG)
    rng = random.Random(seed)
    mode = rng.choice((QueueMode.MEMORY, QueueMode.PERSIST))
    replica = bad_day(source, [table("bag")], queue_mode=mode)
    with BagLoad(source, seed) as load:
        for _ in range(acts):
            load.more(rng.randint(5, 60))
            done = act(rng, replica, load, armed)
            replica.wait_live()
            replica.catch_up()
            with load.without_truncates():
                verdicts = replica.verify()
            assert [v.equal for v in verdicts] == [True], (done, verdicts, replica.codes())
    replica.assert_equal()
    assert "net_change_anomaly" not in replica.codes()
