"""Large open transactions that only insert: their rows are in the target before the commit, and are not visible until then."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.model.identity import Epoch
from engine.pipeline.run import ReplicationRun
from engine.pipeline.speculative_insert import SpeculativeCounts
from engine.platform.failpoints import Failpoint
from tests.fixtures.postgres import Database, Session
from tests.fixtures.replication import Replica
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

_MANY = "INSERT INTO orders SELECT i, 1, repeat('n', 50) FROM generate_series({0} + 1, {0} + 15000) i"


def run_of(replica: Replica) -> ReplicationRun:
    run = replica.pipeline.run
    assert run is not None
    return run


def counts(replica: Replica) -> SpeculativeCounts:
    return run_of(replica).early.counts


def begin(session: Session, replica: Replica, first: int = 100_000) -> None:
    """Open a transaction, and wait until some of its rows are in the target."""
    before = counts(replica).inserted
    session.execute("BEGIN")
    session.execute(_MANY.format(first).encode())
    wait_until(lambda: counts(replica).inserted >= before + 2)


def orders(replica: Replica, where: str = "true") -> int:
    return int(replica.query(f"SELECT count(*) FROM orders WHERE {where}")[0][0])


def test_rows_are_in_the_target_before_the_commit_and_visible_with_it(
    shop: Database, replica: Replica, session: Session
) -> None:
    begin(session, replica)
    session.execute("INSERT INTO log SELECT i, repeat('l', 50) FROM generate_series(1, 10000) i")
    for n in range(5):
        shop.execute(f"UPDATE orders SET note = 'other', id = id + 50000 WHERE id = {n + 1}")
        shop.execute(f"INSERT INTO log VALUES ({n}, 'beside')")
        replica.catch_up()
    assert orders(replica) == 20_000
    assert orders(replica, "note = 'other'") == 5
    assert replica.query("SELECT count(*) FROM log") == [(5,)]
    session.execute("INSERT INTO orders VALUES (-1, 0, 'last'); COMMIT")
    shop.execute("DELETE FROM orders WHERE id = 100001")
    replica.assert_equal()
    assert orders(replica) == 35_000
    assert (counts(replica).committed, counts(replica).given_up) == (1, 0)
    assert replica.look("SELECT count(*) FROM penstock.progress") == [(1,)]
    wait_until(lambda: not replica.staged_files())


def test_one_after_the_other_and_two_at_once(shop: Database, replica: Replica, session: Session) -> None:
    begin(session, replica, 100_000)
    with shop.connect() as beside:
        beside.execute("BEGIN")
        beside.execute(_MANY.format(200_000).encode())
        beside.execute("COMMIT")
    replica.catch_up()
    assert orders(replica) == 35_000
    session.execute("COMMIT")
    replica.catch_up()
    assert orders(replica) == 50_000
    begin(session, replica, 300_000)
    session.execute("COMMIT")
    replica.assert_equal()
    assert (counts(replica).committed, counts(replica).given_up) == (2, 0)


def roll_back(session: Session, replica: Replica) -> None:
    session.execute("ROLLBACK")


def undo_a_savepoint(session: Session, replica: Replica) -> None:
    """What is undone has come into the target already; the rows before it make some 23 pieces."""
    session.execute("SAVEPOINT s")
    session.execute(_MANY.format(200_000).encode())
    wait_until(lambda: counts(replica).inserted >= 30)
    session.execute("ROLLBACK TO s; INSERT INTO orders VALUES (-1, 0, 'kept'); COMMIT")


def update(session: Session, replica: Replica) -> None:
    session.execute("UPDATE orders SET note = repeat('u', 50)")
    session.execute("COMMIT")


def truncate(session: Session, replica: Replica) -> None:
    session.execute("TRUNCATE orders; INSERT INTO orders VALUES (-1, 0, 'kept'); COMMIT")


def add_a_column(session: Session, replica: Replica) -> None:
    session.execute("ALTER TABLE orders ADD COLUMN extra int DEFAULT 5")
    session.execute("INSERT INTO orders VALUES (-1, 0, 'kept', 7); COMMIT")


@pytest.mark.parametrize("what", [roll_back, undo_a_savepoint, update, truncate, add_a_column])
def test_what_cannot_be_committed_so_is_given_up(
    shop: Database, replica: Replica, session: Session, what: Callable[[Session, Replica], None]
) -> None:
    begin(session, replica)
    what(session, replica)
    shop.execute("INSERT INTO log VALUES (1, 'behind')")
    replica.assert_equal()
    wait_until(lambda: counts(replica).given_up == 1 or what is not roll_back)
    assert counts(replica).committed == 0
    begin(session, replica, 300_000)
    session.execute("COMMIT")
    replica.assert_equal()
    assert counts(replica).committed == 1


def test_a_table_that_is_copied_anew_meanwhile(shop: Database, replica: Replica, session: Session) -> None:
    begin(session, replica)
    replica.pipeline.reload("r1", [replica.table_id("orders")])
    replica.wait_table("orders", "reloading")
    session.execute("COMMIT")
    replica.wait_live()
    replica.assert_equal()
    assert counts(replica).committed == 0
    begin(session, replica, 300_000)
    session.execute("COMMIT")
    replica.assert_equal()
    assert counts(replica).committed == 1


def test_a_paused_table_gets_its_rows_when_it_goes_on(replica: Replica, session: Session) -> None:
    begin(session, replica)
    run_of(replica).pause(replica.table_id("orders"))
    replica.wait_table("orders", "paused")
    session.execute("COMMIT")
    replica.catch_up()
    assert orders(replica) == 20_000
    run_of(replica).resume(replica.table_id("orders"))
    replica.wait_table("orders", "live")
    replica.assert_equal()
    assert counts(replica).committed == 0


def test_a_restart_in_the_middle_begins_again(shop: Database, replica: Replica, session: Session) -> None:
    begin(session, replica)
    before = run_of(replica)
    replica.restart()
    replica.wait_live()
    assert before.early.counts.committed == 0
    # The confirmed position may follow all of the transaction: the source streams it again only with the next change.
    shop.execute("INSERT INTO log VALUES (1, 'goes on')")
    wait_until(lambda: replica.pipeline.run is not None and counts(replica).inserted >= 2)
    assert orders(replica) == 20_000
    session.execute("COMMIT")
    replica.assert_equal()
    assert (orders(replica), counts(replica).committed) == (35_000, 1)


def test_a_target_that_takes_no_rows_early_gets_them_with_the_batch(
    replica: Replica, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica.pipeline.target, "begin_speculative_insert", lambda _: None)
    session.execute("BEGIN")
    session.execute(_MANY.format(100_000).encode())
    wait_until(lambda: run_of(replica).ahead.counts.staged >= 2)
    session.execute("COMMIT")
    replica.assert_equal()
    assert counts(replica) == SpeculativeCounts()


def killed_at(replica: Replica, point: Failpoint, work: Callable[[], None], last: Callable[[], None]) -> None:
    """Let another engine process replicate `work`, and then `last` until it dies at the failpoint."""
    replica.spec = replace(replica.spec, epoch=Epoch(replica.spec.epoch + 1))
    given = replica.folder / "subscription.pickle"
    given.write_bytes(pickle.dumps((replica.spec, replica.folder)))
    armed = replica.folder / "armed"
    armed.mkdir(exist_ok=True)
    environment = {"PENSTOCK_FAILPOINTS_FOLDER": str(armed), "PENSTOCK_PIECE_BYTES": str(256 * 1024)}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.pg.engine.engine_to_kill", str(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            assert process.stdout is not None
            live = {"orders live", "log live"}
            while live:
                line = process.stdout.readline()
                assert line, "the engine ended by itself"
                live.discard(line.strip())
            work()
            (armed / "draft").write_text("kill")
            (armed / "draft").rename(armed / point.value)
            last()
            process.wait(60)
        finally:
            process.kill()
            said = process.communicate()[0][-2000:]
            assert not (armed / point.value).exists(), f"it did not get there; the engine said {said}"


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.EARLY_COMMIT,
        *(pytest.param(point, marks=pytest.mark.chaos) for point in (Failpoint.EARLY_INSERTED, Failpoint.COMMIT_AFTER)),
    ],
)
def test_killed_at_any_point_nothing_is_lost_and_nothing_comes_twice(
    replica: Replica, session: Session, point: Failpoint
) -> None:
    replica.close()

    def write_some() -> None:
        session.execute("BEGIN")
        session.execute(_MANY.format(100_000).encode())
        wait_until(lambda: len(replica.staged_files()) >= 2, 40.0)

    def write_rest() -> None:
        if point is Failpoint.EARLY_INSERTED:
            session.execute(_MANY.format(200_000).encode())
        else:
            session.execute("COMMIT")

    killed_at(replica, point, write_some, write_rest)
    session.execute("COMMIT")
    replica.restart()
    replica.wait_live()
    replica.assert_equal()
    assert orders(replica) == (50_000 if point is Failpoint.EARLY_INSERTED else 35_000)


class Crowd:
    """Threads whose transactions insert much into the same tables and end in every way, concurrently with small ones."""

    def __init__(self, shop: Database, seed: int) -> None:
        self._shop = shop
        self._stop = threading.Event()
        self._numbers = itertools.count(1)
        self.failure: BaseException | None = None
        works = [self._large, self._large, self._small]
        self._threads = [
            threading.Thread(target=self._guarded, args=(work, random.Random(f"{seed}/{n}")), daemon=True)
            for n, work in enumerate(works)
        ]

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _guarded(self, work: Callable[[Session, random.Random], None], rng: random.Random) -> None:
        try:
            with self._shop.connect() as session:
                while not self._stop.is_set():
                    work(session, rng)
        except BaseException as error:
            self.failure = error
            raise

    def _large(self, session: Session, rng: random.Random) -> None:
        session.execute("BEGIN")
        for _ in range(rng.randint(1, 4)):
            savepoint = rng.random() < 0.15
            if savepoint:
                session.execute("SAVEPOINT s")
            session.execute(_MANY.format(next(self._numbers) * 100_000 + 1_000_000).encode())
            if savepoint:
                session.execute("ROLLBACK TO s")
            if rng.random() < 0.1:
                session.execute("UPDATE orders SET total = total + 1 WHERE id <= 20")
            self._stop.wait(rng.random() * 0.5)
        session.execute("COMMIT" if rng.random() < 0.7 else "ROLLBACK")
        self._stop.wait(rng.random())

    def _small(self, session: Session, rng: random.Random) -> None:
        session.execute(f"UPDATE orders SET note = md5(random()::text) WHERE id = {rng.randint(21, 2000)}".encode())
        session.execute(f"INSERT INTO log VALUES ({rng.randint(1, 9)}, 'small')".encode())
        session.execute(f"DELETE FROM orders WHERE id % 100 = {rng.randint(0, 99)} AND id > 1000000".encode())
        self._stop.wait(rng.random() * 0.3)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [1, 2])
def test_a_crowd_of_them_with_restarts_and_reloads_leaves_both_sides_equal(
    shop: Database, replica: Replica, seed: int
) -> None:
    rng = random.Random(seed)
    committed = 0
    pause = threading.Event()
    with Crowd(shop, seed) as crowd:
        for step in range(12):
            pause.wait(rng.uniform(1.0, 4.0))
            assert crowd.failure is None
            if step % 4 == 3:
                committed += counts(replica).committed
                replica.restart()
                wait_until(lambda: replica.pipeline.run is not None, 30.0)
            elif step % 4 == 1:
                replica.pipeline.reload(f"r{step}", [replica.table_id("orders")])
    replica.wait_live(timeout_s=120)
    replica.catch_up(120)
    replica.assert_equal()
    committed += counts(replica).committed
    assert committed > 0
