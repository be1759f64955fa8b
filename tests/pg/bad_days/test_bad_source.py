"""The source fails, goes back in time, or is changed by others, while a subscription follows it."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.model.fault import FaultKind
from engine.model.subscription import QueueMode, SchemaPolicy
from engine.model.subscription_state import DesiredState
from tests.fixtures.load import Load
from tests.fixtures.postgres import Database, Session
from tests.pg.bad_days.conftest import BadDay, BadDays
from tests.pg.engine.killed_engines import OrderLoad

pytestmark = pytest.mark.pg

_SLOW, _SLOW_FROM = 5, 10_000
"""Slow transactions at once, and the first of their rows."""

PrivateShop = Callable[..., Database]
BOTH_MODES = pytest.mark.parametrize(
    "mode", [QueueMode.PERSIST, pytest.param(QueueMode.MEMORY, marks=pytest.mark.chaos)]
)


@pytest.mark.parametrize(
    ("mode", "how"),
    [
        (QueueMode.MEMORY, "kill"),
        (QueueMode.PERSIST, "restart"),
        pytest.param(QueueMode.MEMORY, "restart", marks=pytest.mark.chaos),
        pytest.param(QueueMode.PERSIST, "kill", marks=pytest.mark.chaos),
    ],
)
def test_source_restarted_while_replicating(
    private_shop: PrivateShop, bad_day: BadDays, how: str, mode: QueueMode
) -> None:
    shop = private_shop()
    replica = bad_day(shop, queue_mode=mode)
    for round_ in range(2):
        replica.touch(f"before {round_}")
        if how == "restart":
            shop.cluster.restart()
        else:
            shop.cluster.kill9()
            replica.wait_code("starting", "source_unreachable")
            shop.cluster.start()
        replica.assert_nothing_lost(f"after {round_}")
    assert not {"log_gap", "internal"} & set(replica.codes())


def restored(shop: Database, tmp_path: Path, meanwhile: Callable[[], None]) -> None:
    """Copy the data folder away, let things happen, and put it back."""
    backup = tmp_path / "backup"
    shop.cluster.stop()
    shutil.copytree(shop.cluster.data, backup, symlinks=True)
    shop.cluster.start()
    meanwhile()
    shop.cluster.stop()
    owner = shop.cluster.data.stat()
    shutil.rmtree(shop.cluster.data)
    shutil.copytree(backup, shop.cluster.data, symlinks=True)
    for path in [shop.cluster.data, *shop.cluster.data.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    shop.cluster.data.chmod(0o700)
    shop.cluster.start()


def assert_gap_and_reload(replica: BadDay, code: str = "log_gap") -> None:
    """The subscription does not continue by itself; the old rows stay readable; a reload makes it equal again."""
    assert "reloads" in (replica.wait_code("failed", code).remedy or "")
    before = replica.query("select count(*) from orders")
    assert before[0][0] > 0
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("failed")
    assert replica.query("select count(*) from orders") == before
    replica.reload_all()
    replica.wait_live()
    replica.assert_nothing_lost()


@pytest.mark.parametrize("mode", [QueueMode.MEMORY, pytest.param(QueueMode.PERSIST, marks=pytest.mark.chaos)])
def test_source_restored_from_a_backup(
    private_shop: PrivateShop, bad_day: BadDays, tmp_path: Path, mode: QueueMode
) -> None:
    shop = private_shop()
    replica = bad_day(shop, queue_mode=mode)

    def meanwhile() -> None:
        replica.touch("lost by the restore")
        replica.catch_up()

    restored(shop, tmp_path, meanwhile)
    assert_gap_and_reload(replica)


def test_source_restored_while_stopped_and_written_to_since(
    private_shop: PrivateShop, bad_day: BadDays, tmp_path: Path
) -> None:
    """The log has grown past where the copy was, so its end tells nothing: only the slot is behind what it was."""
    shop = private_shop()
    replica = bad_day(shop)

    def meanwhile() -> None:
        shop.execute("CHECKPOINT")
        replica.touch("lost by the restore")
        replica.catch_up()
        assert replica.pipeline.run is not None
        shop.execute("CHECKPOINT")
        replica.touch("lost as well")
        replica.catch_up()
        replica.wait_confirmed(replica.applied())
        replica.desire(DesiredState.STOPPED)
        replica.wait_state("stopped")

    restored(shop, tmp_path, meanwhile)
    for i in range(20):
        shop.execute(f"UPDATE orders SET note = 'another history {i}' || repeat('x', 500)")
    replica.desire(DesiredState.RUNNING)
    assert_gap_and_reload(replica)


@BOTH_MODES
def test_slot_dropped_while_running(shop: Database, bad_day: BadDays, mode: QueueMode) -> None:
    replica = bad_day(shop, queue_mode=mode)
    with shop.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = %s",
            [replica.spec.reader],
        )
        connection.execute("SELECT pg_drop_replication_slot(%s)", [replica.spec.reader])
    shop.execute("UPDATE orders SET note = 'missed'")
    assert_gap_and_reload(replica)


@BOTH_MODES
def test_slot_moved_ahead_by_someone(shop: Database, bad_day: BadDays, mode: QueueMode) -> None:
    replica = bad_day(shop, queue_mode=mode)
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    shop.execute("UPDATE orders SET note = 'skipped'")
    shop.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [replica.spec.reader])
    replica.desire(DesiredState.RUNNING)
    assert_gap_and_reload(replica)


def test_slot_recreated_by_someone(shop: Database, bad_day: BadDays) -> None:
    replica = bad_day(shop)
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    with shop.connect() as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", [replica.spec.reader])
        connection.execute("UPDATE orders SET note = 'skipped'")
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [replica.spec.reader])
    replica.desire(DesiredState.RUNNING)
    assert_gap_and_reload(replica)


def test_slot_behind_is_read_again_and_applied_once(shop: Database, bad_day: BadDays) -> None:
    """The source confirms late, or loses the confirmed position when it crashes: what it sends again is skipped."""
    replica = bad_day(shop, engine={"guard_interval_s": 600.0})
    for i in range(5):
        replica.touch(f"round {i}")
        replica.catch_up()
    confirmed = shop.execute(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", [replica.spec.reader]
    )[0][0]
    assert str(replica.applied()) > confirmed
    replica.again()
    replica.wait_live()
    replica.assert_nothing_lost()


@pytest.mark.parametrize("statement", ["DROP PUBLICATION {}", "ALTER PUBLICATION {} SET (publish = 'insert')"])
def test_publication_changed_while_running(shop: Database, bad_day: BadDays, statement: str) -> None:
    replica = bad_day(shop)
    shop.execute(statement.format(replica.spec.reader))
    shop.execute("UPDATE orders SET note = 'maybe missed'")
    assert "reloads" in (replica.wait_code("failed", "publication_changed").remedy or "")
    # Trying again does not paint over it.
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    replica.desire(DesiredState.RUNNING)
    assert_gap_and_reload(replica, "publication_changed")


@pytest.mark.parametrize(
    "statement",
    ["DROP PUBLICATION {}", "ALTER PUBLICATION {} DROP TABLE lines", "ALTER PUBLICATION {} SET TABLE orders"],
)
def test_publication_changed_while_stopped(shop: Database, bad_day: BadDays, statement: str) -> None:
    replica = bad_day(shop)
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    shop.execute(statement.format(replica.spec.reader))
    replica.touch("maybe missed")
    replica.desire(DesiredState.RUNNING)
    assert_gap_and_reload(replica, "publication_changed")


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE lines",
        "DROP TABLE lines; CREATE TABLE lines (order_id bigint, n int, sku text, PRIMARY KEY (order_id, n))",
        "ALTER TABLE lines DROP CONSTRAINT lines_pkey",
    ],
    ids=["dropped", "made_again", "key_dropped"],
)
@pytest.mark.parametrize("when", ["running", pytest.param("stopped", marks=pytest.mark.chaos)])
def test_what_happens_to_one_table_parks_only_it(shop: Database, bad_day: BadDays, statement: str, when: str) -> None:
    replica = bad_day(shop, schema_changes=SchemaPolicy.ASK)
    if when == "stopped":
        replica.desire(DesiredState.STOPPED)
        replica.wait_state("stopped")
    shop.execute(statement)
    if when == "stopped":
        replica.desire(DesiredState.RUNNING)
        replica.wait_state("running")
    if "PRIMARY" in statement:
        shop.execute("INSERT INTO lines VALUES (7, 7, 'new')")
    if "CONSTRAINT" in statement and when == "running":
        shop.execute("INSERT INTO lines VALUES (7, 7, 'new')")
    parked = replica.wait_table("lines", "parked")
    missing, again = FaultKind.TABLE_MISSING.value, FaultKind.TABLE_STRUCTURE_CHANGED.value
    if "CONSTRAINT" not in statement:
        assert parked.code == (again if "CREATE" in statement else missing)
    assert parked.remedy
    assert parked.reason
    shop.execute("UPDATE orders SET note = 'goes on'")
    replica.catch_up()
    assert replica.query("select distinct note from orders") == [("goes on",)]
    # It stays parked over a restart of the engine.
    replica.again()
    replica.wait_live("orders")
    replica.wait_table("lines", "parked")
    # The remedy: a table of this name, with a key, and a reload.
    shop.execute("DROP TABLE IF EXISTS lines")
    shop.execute("CREATE TABLE lines (order_id bigint, n int, sku text, PRIMARY KEY (order_id, n))")
    shop.execute("INSERT INTO lines SELECT i, 1, 'new' FROM generate_series(1, 50) i")
    replica.reload_table("lines")
    replica.assert_nothing_lost()
    assert not {"publication_changed", "log_gap", "internal"} & set(replica.codes())


def test_walsender_terminated(shop: Database, bad_day: BadDays) -> None:
    replica = bad_day(shop)
    for round_ in range(2):
        replica.touch(f"before {round_}")
        ended = shop.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active_pid > 0",
            [replica.spec.reader],
        )
        assert ended == [(True,)]
        replica.touch(f"behind {round_}")
        replica.wait_code("starting", "source_unreachable")
        replica.assert_nothing_lost(f"after {round_}")


def test_log_reader_stopped_for_a_while(private_shop: PrivateShop, bad_day: BadDays) -> None:
    """For less and for more than the source's wal_sender_timeout: it continues in the same session, or in a new one."""
    shop = private_shop(wal_sender_timeout="'2s'")
    replica = bad_day(shop)
    for timed_out in (False, True):
        assert replica.pipeline.run is not None
        pid = replica.pipeline.run.reader_pid()
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            replica.touch("while stopped")
            if timed_out:
                replica.wait_slot_free()
        finally:
            os.kill(pid, signal.SIGCONT)
        replica.assert_nothing_lost(f"timed out: {timed_out}")


class SlowLoad(Load):
    """Transactions of some seconds on a row of its own."""

    def __init__(self, database: Database, number: int) -> None:
        super().__init__(database.connect, number)
        self.number = number

    def transact(self, connection: Session) -> None:
        with connection.transaction():
            connection.execute("UPDATE lines SET sku = sku || '.' WHERE order_id = %s", [_SLOW_FROM + self.number])
            connection.execute("SELECT pg_sleep(%s)", [self.rng.uniform(2.0, 4.0)])


@pytest.mark.chaos
def test_a_verification_is_made_beside_transactions_that_are_open_all_the_time(
    shop: Database, bad_day: BadDays
) -> None:
    """A snapshot waits for each of these transactions, while waits for positions after the load are satisfied."""
    shop.execute(f"INSERT INTO lines SELECT {_SLOW_FROM} + n, 1, 'slow' FROM generate_series(0, {_SLOW - 1}) n")
    replica = bad_day(shop)
    verified = threading.Event()

    def wait_all_the_time() -> None:
        while not verified.is_set():
            replica.catch_up()

    with ExitStack() as beside:
        slow = [beside.enter_context(SlowLoad(shop, number)) for number in range(_SLOW)]
        beside.enter_context(OrderLoad(shop.connect, 1))
        waits = beside.enter_context(ThreadPoolExecutor(1)).submit(wait_all_the_time)
        beside.callback(verified.set)
        for one in slow:
            one.more(1)
        verdicts = replica.verify()
    waits.result()
    assert [verdict.equal for verdict in verdicts] == [True, True]
    replica.assert_equal()
