"""A log reader dies, and another client uses the slot before its replacement does; or it is busy for longer than its source waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.model.subscription import QueueMode
from engine.platform.failpoints import Failpoint, held_file
from tests.fixtures.postgres import Database
from tests.fixtures.waiting import wait_until
from tests.pg.bad_days.conftest import BadDay, BadDays, kill_reader

pytestmark = pytest.mark.pg

_PATIENCE_S = 30.0
ADVANCED = ("SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())",)
READ = (
    "SELECT count(*) FROM pg_logical_slot_get_binary_changes('{slot}', NULL, NULL, 'proto_version', '1',"
    " 'publication_names', '{slot}')",
)
MADE_AGAIN = (
    "SELECT pg_drop_replication_slot('{slot}')",
    "SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')",
)
DROPPED = ("SELECT pg_drop_replication_slot('{slot}')",)


def meddle(shop: Database, replica: BadDay, statements: tuple[str, ...]) -> None:
    for statement in statements:
        shop.execute(statement.format(slot=replica.spec.reader))


@pytest.mark.parametrize(
    ("statements", "point", "mode"),
    [
        pytest.param(
            statements, point, mode, id=f"{name}-{point.value}-{mode.value}", marks=[] if quick else pytest.mark.chaos
        )
        for name, statements, quick_point in (
            ("advanced", ADVANCED, Failpoint.READER_FREED),
            ("read", READ, Failpoint.READER_BEFORE_OPEN),
            ("made_again", MADE_AGAIN, Failpoint.READER_FREED),
            ("dropped", DROPPED, Failpoint.READER_BEFORE_OPEN),
        )
        for point, mode in (
            (Failpoint.READER_FREED, QueueMode.MEMORY),
            (Failpoint.READER_BEFORE_OPEN, QueueMode.PERSIST),
        )
        for quick in [point is quick_point]
    ],
)
def test_a_slot_that_lost_changes_before_a_new_reader_has_it_is_a_gap(
    shop: Database, bad_day: BadDays, armed: Path, statements: tuple[str, ...], point: Failpoint, mode: QueueMode
) -> None:
    replica = bad_day(shop, queue_mode=mode)
    replica.catch_up()
    (armed / point.value).write_text("hold")
    kill_reader(replica)
    wait_until(held_file(armed, point).exists, _PATIENCE_S)
    shop.execute("UPDATE orders SET note = 'missed'")
    meddle(shop, replica, statements)
    held_file(armed, point).unlink()
    replica.wait_code("failed", "log_gap")
    assert replica.query("select count(*) from orders where note = 'missed'") == [(0,)]
    replica.reload_all()
    replica.wait_live()
    replica.assert_nothing_lost()


@pytest.mark.parametrize(
    ("point", "mode"),
    [
        (Failpoint.READER_FREED, QueueMode.PERSIST),
        (Failpoint.READER_BEFORE_OPEN, QueueMode.MEMORY),
        (Failpoint.READER_OPENED, QueueMode.PERSIST),
    ],
)
def test_a_new_reader_finds_no_gap_where_there_is_none(
    shop: Database, bad_day: BadDays, armed: Path, point: Failpoint, mode: QueueMode
) -> None:
    """Also after positions without records of ours, up to which the dead reader confirmed."""
    replica = bad_day(shop, queue_mode=mode)
    shop.execute("CREATE TABLE apart (id bigint)")
    for round_ in range(2):
        replica.touch(f"round {round_}")
        for _ in range(20):
            shop.execute("INSERT INTO apart VALUES (1)")
        replica.wait_confirmed(replica.catch_up())
        (armed / point.value).write_text("hold")
        kill_reader(replica)
        wait_until(held_file(armed, point).exists, _PATIENCE_S)
        replica.touch(f"meanwhile {round_}")
        held_file(armed, point).unlink()
        replica.assert_nothing_lost(f"after {round_}")
    assert "log_gap" not in replica.codes()


def test_a_slot_moved_between_the_start_and_its_first_session_is_a_gap(
    shop: Database, bad_day: BadDays, armed: Path
) -> None:
    replica = bad_day(shop)
    replica.catch_up()
    replica.close()
    point = Failpoint.READER_BEFORE_OPEN
    (armed / point.value).write_text("hold")
    replica.again()
    wait_until(held_file(armed, point).exists, _PATIENCE_S)
    shop.execute("UPDATE orders SET note = 'missed'")
    meddle(shop, replica, ADVANCED)
    held_file(armed, point).unlink()
    replica.wait_code("failed", "log_gap")
    replica.reload_all()
    replica.wait_live()
    replica.assert_nothing_lost()


def test_a_slot_made_to_tell_of_prepared_transactions_is_a_gap(shop: Database, bad_day: BadDays, armed: Path) -> None:
    """Its position stays, but what was prepared before would come without its rows."""
    replica = bad_day(shop)
    replica.catch_up()
    point = Failpoint.READER_BEFORE_OPEN
    (armed / point.value).write_text("hold")
    kill_reader(replica)
    wait_until(held_file(armed, point).exists, _PATIENCE_S)
    with shop.connect(replication="database") as session:
        session.execute(f"ALTER_REPLICATION_SLOT {replica.spec.reader} (TWO_PHASE true)")
    held_file(armed, point).unlink()
    assert "reloads" in (replica.wait_code("failed", "log_gap").remedy or "")


def senders(shop: Database, replica: BadDay) -> list[tuple[int]]:
    """Process ids of the sessions that send the replica its log."""
    like = f"penstock-{replica.spec.name}-%"
    found = (
        "SELECT pid FROM pg_stat_replication WHERE application_name LIKE %s AND application_name NOT LIKE '%%copy%%'"
    )
    return shop.execute(found, [like])


@pytest.mark.parametrize(
    ("point", "bytes_", "mode"),
    [
        (Failpoint.READER_BEFORE_APPEND, 1000, QueueMode.MEMORY),
        (Failpoint.READER_AFTER_APPEND, 1000, QueueMode.PERSIST),
        pytest.param(Failpoint.READER_BEFORE_APPEND, 100_000_000, QueueMode.PERSIST, marks=pytest.mark.chaos),
    ],
)
def test_a_reader_that_is_busy_for_longer_than_the_source_waits_keeps_its_session(
    private_shop: Callable[..., Database], bad_day: BadDays, armed: Path, point: Failpoint, bytes_: int, mode: QueueMode
) -> None:
    """The source's request for a reply follows the rows in the stream, and no process reads it meanwhile."""
    shop = private_shop(wal_sender_timeout="'1s'")
    replica = bad_day(shop, queue_mode=mode)
    replica.catch_up()
    before = senders(shop, replica)
    assert len(before) == 1
    (armed / point.value).write_text("hold")
    shop.execute("ALTER TABLE orders ALTER note SET STORAGE external")
    shop.execute("UPDATE orders SET note = repeat(md5(random()::text), %s / 32) WHERE id = 1", [bytes_])
    wait_until(held_file(armed, point).exists, _PATIENCE_S)
    # The changes that follow it fill the session's buffers.
    shop.execute("UPDATE orders SET note = repeat(md5(random()::text), 1000000 / 32) WHERE id <= 20")
    shop.execute("SELECT pg_sleep(4)")
    held_file(armed, point).unlink()
    replica.catch_up(timeout_s=120.0)
    assert senders(shop, replica) == before
    assert {"source_unreachable", "log_reader_died"}.isdisjoint(replica.codes())
    replica.assert_nothing_lost()
