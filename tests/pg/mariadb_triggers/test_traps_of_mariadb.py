"""One check of the source finds whatever others do past the triggers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.mariadb_triggers.source import MariaDbTriggerSource
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import table
from tests.pg.mariadb_triggers.conftest import connection

pytestmark = pytest.mark.pg

READER = "penstock_traps"
TRAPS = {
    "truncated": "TRUNCATE truncated",
    "rebuilt": "OPTIMIZE TABLE rebuilt",
    "widened": "ALTER TABLE widened ADD COLUMN more int, ALGORITHM = INSTANT",
    "created_again": "DROP TABLE created_again;\nCREATE TABLE created_again (id int PRIMARY KEY, v int)",
    "created_over": "CREATE OR REPLACE TABLE created_over (id int PRIMARY KEY, v int)",
    "dropped": "DROP TABLE dropped",
    "renamed": "RENAME TABLE renamed TO renamed_now",
    "swapped": "RENAME TABLE swapped TO swapped_old, other TO swapped",
    "exchanged": "ALTER TABLE parts EXCHANGE PARTITION p0 WITH TABLE exchanged",
}


@pytest.fixture
def source(mariadb: MariaDbDatabase) -> Iterator[MariaDbTriggerSource]:
    with closing(MariaDbTriggerSource(connection(mariadb))) as opened:
        yield opened


def drop_trigger(database: MariaDbDatabase, name: str, *, put_back: bool) -> None:
    query = "SELECT trigger_name FROM information_schema.triggers WHERE event_manipulation = 'UPDATE' AND "
    trigger = database.execute(f"{query} trigger_schema = '{database.name}' AND event_object_table = '{name}'")[0][0]
    create = database.execute(f"SHOW CREATE TRIGGER {trigger}")[0][2]
    database.execute(f"DROP TRIGGER {trigger}")
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute(create if put_back else "DO 0")


def restore_storage(database: MariaDbDatabase, name: str) -> None:
    """Put the rows of an earlier time in place of the table's, as from a physical backup."""
    folder = database.server.data / database.name
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute(f"FLUSH TABLES {name} FOR EXPORT")
        for suffix in ("ibd", "cfg"):
            shutil.copy(folder / f"{name}.{suffix}", folder / f"saved.{suffix}")
        cursor.execute("UNLOCK TABLES")
        cursor.execute(f"INSERT INTO {name} VALUES (7, 7)")
        cursor.execute(f"ALTER TABLE {name} DISCARD TABLESPACE")
        for suffix in ("ibd", "cfg"):
            shutil.move(folder / f"saved.{suffix}", folder / f"{name}.{suffix}")
        cursor.execute(f"ALTER TABLE {name} IMPORT TABLESPACE")


def test_one_check_finds_each_trap(mariadb: MariaDbDatabase, source: MariaDbTriggerSource) -> None:
    every = [*TRAPS, "untriggered", "put_back", "restored"]
    for name in (*every, "untouched", "other"):
        mariadb.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int);\nINSERT INTO {name} VALUES (1, 1)")
    mariadb.execute(
        "CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100))"
    )
    tables = [table(name, mariadb.name) for name in (*every, "untouched")]
    source.sent_tables.prepare(tables, READER)
    with source.reader.create(READER):
        assert not source.safety.check(tables, READER).partition_faults
    for statements in TRAPS.values():
        mariadb.execute(statements)
    drop_trigger(mariadb, "untriggered", put_back=False)
    drop_trigger(mariadb, "put_back", put_back=True)
    restore_storage(mariadb, "restored")
    reading = source.safety.check(tables, READER)
    assert {*reading.partition_faults, *reading.renamed} == {TableName(mariadb.name, name) for name in every}
    assert not reading.sending_faults
    mariadb.execute("DROP DATABASE penstock")
    assert source.safety.check(tables, READER).sending_faults


def test_a_later_layout_is_refused(mariadb: MariaDbDatabase, source: MariaDbTriggerSource) -> None:
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY)")
    tables = [table("t", mariadb.name)]
    source.sent_tables.prepare(tables, READER)
    mariadb.execute("UPDATE penstock.control SET layout = 99")
    with pytest.raises(EngineFault, match="layout 99") as refused:
        source.sent_tables.prepare(tables, READER)
    assert refused.value.kind is FaultKind.LOG_UNREADABLE
