"""The source is set back to an older snapshot of itself: the same cluster, timeline and slot, and the log grows past the old end."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.connectors import open_target
from engine.model.position import Lsn
from engine.model.subscription import QueueMode
from server.demo.embedded import EmbeddedPostgres
from server.processes.ports import free_port
from tests.fixtures.postgres import Database
from tests.pg.bad_days.conftest import SHOP, BadDay, BadDays
from tests.pg.engine.killed_engines import OrderLoad, engine, wait_for

pytestmark = pytest.mark.pg

APART = "INSERT INTO apart SELECT 1, string_agg(md5(random()::text), '') FROM generate_series(1, 200)"
"""More log than a start writes by itself, of a table that is not replicated."""
MODES = pytest.mark.parametrize("mode", [pytest.param(QueueMode.MEMORY, marks=pytest.mark.chaos), QueueMode.PERSIST])
VERSIONS = pytest.mark.parametrize("version", [pytest.param(16, marks=pytest.mark.chaos), 18])


@pytest.fixture
def shop_of(
    private_cluster: Callable[..., EmbeddedPostgres], database_on: Callable[[EmbeddedPostgres], Database]
) -> Callable[[int], Database]:
    """A shop in a cluster of the test's own."""

    def make(version: int) -> Database:
        database = database_on(private_cluster(version))
        database.execute(SHOP)
        database.execute("CREATE TABLE apart (id bigint, filler text)")
        return database

    return make


class Storage:
    """The disk of a source, of which snapshots are taken and put back."""

    def __init__(self, shop: Database, folder: Path) -> None:
        self._cluster = shop.cluster
        self._snapshot = folder / "snapshot"

    def take(self) -> None:
        """As a storage system does it: nothing is written at the end of that moment."""
        self._cluster.stop("immediate")
        shutil.copytree(self._cluster.data, self._snapshot, symlinks=True)
        self._cluster.start()

    def put_back(self) -> None:
        self._cluster.stop("immediate")
        owner = self._cluster.data.stat()
        shutil.rmtree(self._cluster.data)
        shutil.copytree(self._snapshot, self._cluster.data, symlinks=True)
        for path in [self._cluster.data, *self._cluster.data.rglob("*")]:
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        self._cluster.data.chmod(0o700)
        self._cluster.start()


@pytest.fixture
def storage(tmp_path: Path) -> Callable[[Database], Storage]:
    return lambda shop: Storage(shop, tmp_path)


@contextmanager
def killed_engine(replica: BadDay, mode: QueueMode, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The subscription in an engine process that is killed at the end, so that nothing is noted in order."""
    replica.close()
    armed = folder / "armed"
    armed.mkdir()
    with engine(replica, mode, armed) as process:
        wait_for(process, "lines live")
        yield process
        kill(process)


def reach(process: subprocess.Popen[str], position: Lsn) -> None:
    """Until the target has everything up to the position."""
    assert process.stdin is not None
    process.stdin.write(f"reach {position}\n")
    process.stdin.flush()
    wait_for(process, "reached")


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def recorded(replica: BadDay) -> Lsn:
    """What the target's own record says, of an engine that is gone."""
    target = open_target(replica.spec.target, replica.engine_settings())
    try:
        progress = target.progress(replica.spec.name)
        assert progress is not None
        return progress.end
    finally:
        target.close()


def log_end(shop: Database) -> Lsn:
    return Lsn.parse(shop.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])


def grow_past(shop: Database, position: Lsn, statement: str) -> None:
    """Write until the log has grown past a position."""
    while log_end(shop) <= position:
        shop.execute(statement)


def wait_slot(shop: Database, slot: str, condition: str, *values: str) -> None:
    found = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND {condition}"
    with shop.connect() as connection:
        while connection.execute(found, [slot, *values]).fetchone() is None:
            connection.execute("SELECT pg_sleep(0.05)")


def assert_not_the_same_log(replica: BadDay) -> None:
    """Nothing of the other history is applied or confirmed, no position counts, and a reload makes it right."""
    before = replica.query("SELECT count(*), max(note) FROM orders") if replica.target.exists() else None
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    slot = replica.database.execute(confirmed, [replica.spec.reader])
    replica.wait_code("failed", "log_gap")
    assert replica.applied() == Lsn(0)
    assert replica.database.execute(confirmed, [replica.spec.reader]) == slot
    assert before is None or replica.query("SELECT count(*), max(note) FROM orders") == before
    replica.reload_all()
    replica.wait_live()
    replica.assert_nothing_lost()


ShopOf = Callable[[int], Database]
DiskOf = Callable[[Database], Storage]


def all_confirmed(shop: Database, replica: BadDay) -> Lsn:
    """Until the slot is confirmed up to the end of what was committed, which is returned.

    An idle log writer takes ten seconds to write what is behind it.
    """
    shop.execute("SELECT pg_current_xact_id()")
    end = shop.execute("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    wait_slot(shop, replica.spec.reader, "confirmed_flush_lsn >= %s::pg_lsn", end)
    return Lsn.parse(end)


def started_again(replica: BadDay) -> None:
    """Start a new engine after one that was killed."""
    replica.again(replica.spec)


@VERSIONS
@MODES
@pytest.mark.parametrize("queue", ["queue kept", pytest.param("queue lost", marks=pytest.mark.chaos)])
def test_rows_that_the_source_never_had_are_noticed(
    shop_of: ShopOf, bad_day: BadDays, storage: DiskOf, tmp_path: Path, version: int, mode: QueueMode, queue: str
) -> None:
    shop = shop_of(version)
    replica = bad_day(shop, queue_mode=mode)
    disk = storage(shop)
    with killed_engine(replica, mode, tmp_path) as process:
        all_confirmed(shop, replica)
        disk.take()
        wait_slot(shop, replica.spec.reader, "active")
        shop.execute("INSERT INTO orders VALUES (9001, 1, 'never there')")
        shop.execute("UPDATE orders SET note = 'never so' WHERE id = 1")
        reach(process, log_end(shop))
        all_confirmed(shop, replica)
    end = recorded(replica)
    disk.put_back()
    grow_past(shop, end, "UPDATE orders SET note = 'another history ' || repeat('x', 100) WHERE id = 2")
    if queue == "queue lost":
        shutil.rmtree(replica.queue)
    started_again(replica)
    assert_not_the_same_log(replica)


@MODES
def test_a_fork_behind_the_last_transaction_is_noticed_by_what_came_instead(
    shop_of: ShopOf, bad_day: BadDays, storage: DiskOf, tmp_path: Path, mode: QueueMode
) -> None:
    """What was read since holds nothing of ours: no transaction is missing, but some came to the source at positions that were read."""
    shop = shop_of(18)
    replica = bad_day(shop, queue_mode=mode)
    disk = storage(shop)
    with killed_engine(replica, mode, tmp_path):
        replica.touch("before")
        all_confirmed(shop, replica)
        disk.take()
        wait_slot(shop, replica.spec.reader, "active")
        for _ in range(20):
            shop.execute(APART)
        end = all_confirmed(shop, replica)  # the target's record may precede the end of a durable queue
    disk.put_back()
    shop.execute("UPDATE orders SET note = 'another history' WHERE id = 2")
    assert log_end(shop) < end
    grow_past(shop, end, APART)
    started_again(replica)
    assert_not_the_same_log(replica)


@VERSIONS
@MODES
def test_a_snapshot_of_all_that_was_read_goes_on(
    shop_of: ShopOf, bad_day: BadDays, storage: DiskOf, tmp_path: Path, version: int, mode: QueueMode
) -> None:
    """The source lost nothing that was read, and its history differs from there on."""
    shop = shop_of(version)
    replica = bad_day(shop, queue_mode=mode)
    disk = storage(shop)
    with killed_engine(replica, mode, tmp_path):
        replica.touch("before")
        all_confirmed(shop, replica)
    disk.take()
    replica.touch("lost, and never read")
    disk.put_back()
    replica.touch("instead")
    started_again(replica)
    replica.wait_live()
    replica.assert_nothing_lost()
    assert not {"log_gap", "log_not_verified"} & set(replica.codes())


@MODES
def test_a_source_set_back_while_the_engine_runs_is_noticed(
    shop_of: ShopOf, bad_day: BadDays, storage: DiskOf, mode: QueueMode
) -> None:
    shop = shop_of(18)
    replica = bad_day(shop, queue_mode=mode)
    disk = storage(shop)
    all_confirmed(shop, replica)
    disk.take()
    replica.catch_up()
    replica.touch("never so")
    end = replica.catch_up()
    set_back(shop, disk, end)
    replica.wait_code("failed", "log_gap")
    assert replica.query("SELECT count(*) FROM orders WHERE note = 'never so'") == [(100,)]
    replica.reload_all()
    replica.wait_live()
    replica.assert_nothing_lost()


def set_back(shop: Database, disk: Storage, end: Lsn) -> None:
    """Put the snapshot back, and write past `end` before anyone else can look: clients are let in on another port until then."""
    cluster = shop.cluster
    port, cluster.port = cluster.port, free_port()
    disk.put_back()
    grow_past(shop, end, "UPDATE orders SET note = 'another history ' || repeat('x', 100) WHERE id = 2")
    cluster.stop("immediate")
    cluster.port = port
    cluster.start()


@pytest.mark.parametrize(
    ("mode", "seed", "rounds"),
    [
        (QueueMode.PERSIST, 1, 2),
        *(
            pytest.param(mode, seed, 4, marks=pytest.mark.chaos)
            for mode in (QueueMode.MEMORY, QueueMode.PERSIST)
            for seed in (1, 2, 3)
        ),
    ],
)
def test_crashes_of_the_source_and_of_the_engine_are_never_taken_for_another_log(
    shop_of: ShopOf, bad_day: BadDays, tmp_path: Path, mode: QueueMode, seed: int, rounds: int
) -> None:
    """The slot goes back to what the source has on disk, whole transactions come once more, some of them streamed this time."""
    rng = random.Random(seed)
    shop = shop_of(rng.choice((16, 18)))
    replica = bad_day(shop, queue_mode=mode)
    replica.close()
    armed = tmp_path / "armed"
    armed.mkdir()
    for _ in range(rounds):
        with engine(replica, mode, armed) as process:
            wait_for(process, "lines live")
            for _ in range(rng.randint(1, 3)):
                with OrderLoad(shop.connect, rng.randrange(1000)):
                    large(shop, rng)
                shop.cluster.kill9() if rng.random() < 0.5 else shop.cluster.stop("immediate")
                shop.cluster.start()
            if rng.random() < 0.7:
                wait_slot(shop, replica.spec.reader, "active")
                with OrderLoad(shop.connect, rng.randrange(1000)):
                    large(shop, rng)
                    kill(process)
            kill(process)
        shop.cluster.restart("immediate")
    started_again(replica)
    replica.wait_live()
    replica.assert_nothing_lost()
    assert not {"log_gap", "internal"} & set(replica.codes())


def large(shop: Database, rng: random.Random) -> None:
    """A transaction that is streamed, with what is rolled back in it."""
    with shop.connect() as connection, connection.transaction():
        connection.execute(
            "INSERT INTO apart SELECT i, repeat('x', 1000) FROM generate_series(1, %s) i", [rng.choice((1, 20_000))]
        )
        with connection.transaction(force_rollback=rng.random() < 0.5):
            connection.execute("UPDATE orders SET note = repeat('y', 5000) WHERE id > 100")
        connection.execute("UPDATE lines SET sku = 'large' WHERE order_id <= %s", [rng.choice((0, 50))])
