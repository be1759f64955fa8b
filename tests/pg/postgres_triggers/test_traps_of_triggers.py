"""One check of the source finds whatever others do past the triggers; what fires them is recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres_triggers.source import TriggerSource
from server.demo.embedded import EmbeddedPostgres
from tests.chaos.older_copies import copy_folder, set_back
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.pg.postgres_triggers.conftest import Replicate

pytestmark = pytest.mark.pg

READER = "penstock_traps"
TRAPS = {
    "disabled": 'ALTER TABLE disabled DISABLE TRIGGER "!penstock_insert"',
    "disabled_for_a_while": "ALTER TABLE disabled_for_a_while DISABLE TRIGGER USER; ALTER TABLE disabled_for_a_while ENABLE TRIGGER USER",
    "always_for_a_while": 'ALTER TABLE always_for_a_while DISABLE TRIGGER "!penstock_update"; UPDATE always_for_a_while SET v = 2;'
    ' ALTER TABLE always_for_a_while ENABLE ALWAYS TRIGGER "!penstock_update"',
    "for_replicas": 'ALTER TABLE for_replicas ENABLE REPLICA TRIGGER "!penstock_delete"',
    "untriggered": 'DROP TRIGGER "!penstock_truncate" ON untriggered',
    "renamed_trigger": 'ALTER TRIGGER "!penstock_insert" ON renamed_trigger RENAME TO other',
    "created_again": "DROP TABLE created_again; CREATE TABLE created_again (id int PRIMARY KEY, v int)",
    "dropped": "DROP TABLE dropped",
    "renamed": "ALTER TABLE renamed RENAME TO renamed_now",
    "swapped": "ALTER TABLE swapped RENAME TO swapped_old; ALTER TABLE other RENAME TO swapped",
}


def test_one_check_finds_each_trap(database: Database) -> None:
    for name in (*TRAPS, "untouched", "other"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int); INSERT INTO {name} VALUES (1, 1)")
    tables = [table(name) for name in (*TRAPS, "untouched")]
    with closing(TriggerSource(ConnectionSpec("shop", "postgres", database.settings))) as source:
        source.sent_tables.prepare(tables, READER)
        with source.reader.create(READER):
            assert not source.safety.check(tables, READER).partition_faults
        for trap in TRAPS.values():
            with database.connect() as session, session.transaction():
                session.execute(trap.encode())
        reading = source.safety.check(tables, READER)
        assert {*reading.partition_faults, *reading.renamed} == {TableName("public", name) for name in TRAPS}
        assert not reading.sending_faults
        database.execute("DROP SCHEMA penstock CASCADE")
        assert source.safety.check(tables, READER).sending_faults


def test_what_fires_the_triggers_is_recorded_and_what_does_not_is_copied_again(
    database: Database, replicate: Replicate
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v bigint); INSERT INTO t SELECT i, i FROM generate_series(1, 50) i"
    )
    replica = replicate(database, "t")
    with database.connect() as session:
        session.execute("SET session_replication_role = replica")
        session.execute("TRUNCATE t")
        with session.cursor().copy("COPY t FROM STDIN") as lines:
            for number in range(1_000):
                lines.write_row((number, number))
    replica.assert_equal()
    # A rewrite to the same type changes rows, and fires nothing.
    database.execute("ALTER TABLE t ALTER COLUMN v TYPE bigint USING v + 1")
    replica.satisfied()
    replica.assert_equal()
    assert replica.query("SELECT min(v) FROM t") == [(1,)]


@pytest.mark.chaos
def test_a_server_that_was_restored_is_a_gap(
    tmp_path: Path,
    private_cluster: Callable[..., EmbeddedPostgres],
    database_on: Callable[[EmbeddedPostgres], Database],
    replicate: Replicate,
) -> None:
    """However much was written since, and though its identity is the same."""
    cluster = private_cluster(18)
    database = database_on(cluster)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)")
    replica = replicate(database, "t")
    database.execute("UPDATE t SET v = 2")
    replica.assert_equal()
    copy_folder(cluster, tmp_path / "saved")
    for number in range(5):
        database.execute(f"UPDATE t SET v = {number}")
        replica.assert_equal()
    set_back(cluster, tmp_path / "saved")
    for number in range(20):
        database.execute(f"UPDATE t SET v = {number + 100}")
        database.execute("SELECT penstock.close_window()")
    assert replica.wait_state("failed").code == "log_gap"
