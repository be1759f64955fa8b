"""MariaDB that is only queried: snapshots without locks that outlast a read, changed structures, rights, and what is left on the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.source import Severity, TableSplit
from engine.model.subscription import ConnectionSpec, OriginFilter, TableSpec
from engine.sources.mariadb.connect import Connector
from engine.sources.mariadb_queries.database import MariaDbDatabase as Queried
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import table
from tests.fixtures.waiting import wait_until
from tests.pg.mariadb_queries.conftest import Replicate

pytestmark = pytest.mark.pg

GOODS = "CREATE TABLE goods (id int PRIMARY KEY, name varchar(20), price decimal(8, 2))"
FILL = "INSERT INTO goods VALUES (1, 'a', 1.5), (2, NULL, 2)"
ROWS = b"1\ta\t1.50\n2\t\\N\t2.00\n"


@pytest.fixture
def queried(connection: ConnectionSpec) -> Iterator[Queried]:
    connector = Connector(connection)
    yield Queried(connector)
    connector.close()


@pytest.fixture
def split(mariadb: MariaDbDatabase, queried: Queried) -> TableSplit:
    """The table `goods`, with two rows, as one part."""
    mariadb.execute(f"{GOODS};\n{FILL};\nCREATE TABLE older LIKE goods")
    goods = table("goods", mariadb.name)
    (split,) = queried.reads.splits(queried.describe([goods])[goods.source], goods, 1 << 40)
    return split


def read(queried: Queried, split: TableSplit, snapshot: str) -> bytes:
    return b"".join(queried.reads.read_split(split, snapshot))


def in_the_next_second(mariadb: MariaDbDatabase) -> None:
    """Definitions of tables have whole seconds."""
    now = "SELECT UNIX_TIMESTAMP(SYSDATE())"
    begin = mariadb.execute(now)
    wait_until(lambda: mariadb.execute(now) > begin)


def test_a_read_of_a_cycle_is_ended_at_its_limit_and_the_snapshot_is_kept(
    mariadb: MariaDbDatabase, connection: ConnectionSpec, split: TableSplit
) -> None:
    connector = Connector(connection)
    limited, shown = Queried(connector, 0.2), replace(split, sql="SELECT @@max_statement_time")
    with limited.snapshot(1) as snapshot:
        mariadb.execute("DELETE FROM goods")
        with pytest.raises(EngineFault) as ended:
            b"".join(limited.cycle_reads.read_split(replace(split, sql="SELECT SLEEP(30)"), snapshot))
        assert ended.value.kind is FaultKind.SOURCE_TIMEOUT
        assert b"".join(limited.cycle_reads.read_split(split, snapshot)) == ROWS
        assert b"".join(limited.cycle_reads.read_split(shown, snapshot)) == b"0.200000\n"
        # Copies and comparisons have none.
        assert b"".join(limited.reads.read_split(shown, snapshot)) == b"0.000000\n"
    connector.close()


def test_a_read_leaves_the_snapshot_and_no_lock(mariadb: MariaDbDatabase, queried: Queried, split: TableSplit) -> None:
    with queried.snapshot(1) as snapshot:
        mariadb.execute("INSERT INTO goods VALUES (3, 'later', 0)")
        for _ in range(2):
            assert read(queried, split, snapshot) == ROWS
        mariadb.execute("SET lock_wait_timeout = 1;\nALTER TABLE goods COMMENT = 'others do not wait'")
    with pytest.raises(EngineFault) as over:
        read(queried, split, snapshot)
    assert over.value.kind is FaultKind.COPY_LOST


@pytest.mark.parametrize(
    "change",
    [
        f"TRUNCATE TABLE goods;\n{FILL}",
        f"DROP TABLE goods;\n{GOODS};\n{FILL}",
        "ALTER TABLE goods DROP COLUMN name, ALGORITHM = INSTANT;\nALTER TABLE goods ADD COLUMN name varchar(20) DEFAULT 'z' AFTER id",
        "RENAME TABLE goods TO aside, older TO goods",
    ],
    ids=["truncated", "created again", "column again", "another under its name"],
)
def test_what_was_changed_after_the_snapshot_is_refused(
    mariadb: MariaDbDatabase, queried: Queried, split: TableSplit, change: str
) -> None:
    with queried.snapshot(1) as snapshot:
        in_the_next_second(mariadb)
        mariadb.execute(change)
        with pytest.raises(EngineFault) as refused:
            read(queried, split, snapshot)
        assert refused.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED
    with queried.snapshot(1) as snapshot:
        read(queried, split, snapshot)


def test_a_copy_follows_rows_and_structures_and_nothing_is_created(
    mariadb: MariaDbDatabase, replicate: Replicate
) -> None:
    mariadb.execute(
        f"CREATE TABLE labels (name varchar(20) PRIMARY KEY, v text) COLLATE utf8mb4_general_ci;\n{GOODS};\n{FILL}"
    )
    mariadb.execute("INSERT INTO labels VALUES ('a', NULL), ('b', ''), ('c', '\\\\N'), ('d', 'x\\ty\\nz\\\\')")
    databases = mariadb.execute("SHOW DATABASES")
    replica = replicate("goods", "labels")
    replica.assert_equal()
    mariadb.execute(
        "UPDATE labels SET name = 'A' WHERE name = 'a';\nUPDATE labels SET v = NULL WHERE name = 'b';\n"
        "UPDATE labels SET v = '' WHERE name = 'c';\nREPLACE INTO goods VALUES (1, 'b', 3);\nDELETE FROM goods WHERE id = 2"
    )
    replica.assert_equal()
    assert replica.query(f"SELECT name, v FROM {mariadb.name}.labels ORDER BY name") == [
        ("A", None),
        ("b", None),
        ("c", ""),
        ("d", "x\ty\nz\\"),
    ]
    mariadb.execute("ALTER TABLE goods ADD COLUMN stock int DEFAULT 5;\nINSERT INTO goods VALUES (8, 'd', 1, 0)")
    replica.assert_equal()
    assert replica.query(f"SELECT id, stock FROM {mariadb.name}.goods ORDER BY id") == [(1, 5), (8, 0)]
    mariadb.execute("TRUNCATE TABLE goods")
    replica.assert_equal()
    assert replica.query(f"SELECT count(*) FROM {mariadb.name}.goods") == [(0,)]
    assert mariadb.execute("SHOW DATABASES") == databases
    assert mariadb.execute("SHOW TRIGGERS") == []


def errors(queried: Queried, *specs: TableSpec) -> list[str]:
    found = queried.preflight(specs, OriginFilter.ANY)
    assert all(finding.what and finding.remedy for finding in found)
    return [finding.code for finding in found if finding.severity is Severity.ERROR]


def test_what_cannot_be_compared_is_found_before(mariadb: MariaDbDatabase, queried: Queried) -> None:
    mariadb.execute(
        f"{GOODS};\nCREATE TABLE loose (a int);\nCREATE TABLE plain (a int PRIMARY KEY) ENGINE = MyISAM;\n"
        "CREATE TABLE parts (a int PRIMARY KEY) PARTITION BY HASH (a);\nCREATE TABLE many (a int, b varchar(9) NOT NULL UNIQUE)"
    )
    names = ("goods", "loose", "plain", "parts", "many", "missing")
    goods, loose, plain, parts, many, missing = (table(name, mariadb.name) for name in names)
    assert errors(queried, goods, many) == []
    assert errors(queried, loose, plain, parts, missing) == [
        "table_no_identity",
        "table_not_logged",
        "table_not_logged",
        "table_missing",
    ]
    assert errors(queried, table("loose", mariadb.name, insert_only=True)) == ["table_no_identity"]
    assert errors(queried, table("goods", mariadb.name, where="id > 1")) == ["table_columns_unfit"]
    there = [TableName(mariadb.name, name) for name in names]
    assert queried.tables(dict.fromkeys(there)).keys() == {goods.source, many.source}


def test_the_right_to_read_is_the_only_one_that_is_demanded(mariadb: MariaDbDatabase, queried: Queried) -> None:
    mariadb.execute(GOODS)
    goods = table("goods", mariadb.name)
    assert errors(queried, goods) == []
    mariadb.server.execute(f"REVOKE SELECT ON {mariadb.name}.* FROM reader@'%'")
    mariadb.server.execute(f"GRANT INSERT ON {mariadb.name}.goods TO reader@'%'")
    (finding,) = queried.preflight([goods], OriginFilter.ANY)
    assert finding.code == "source_privilege"
    mariadb.server.execute(";\n".join(finding.sql))
    assert errors(queried, goods) == []
