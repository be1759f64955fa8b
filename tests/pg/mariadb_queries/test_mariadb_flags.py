"""MariaDB: rows with a delete flag are deleted by the next cycle on schedule; what checks say of stamps and flags, and what they offer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from engine.model.identity import TableName
from engine.model.ranges import KeyInterval
from engine.model.source import Finding, Severity, TableSplit
from engine.model.subscription import ConnectionSpec, OriginFilter
from engine.sources.mariadb.connect import Connector
from engine.sources.mariadb_queries.compared import Compared
from engine.sources.mariadb_queries.database import MariaDbDatabase as ComparedMariaDb
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.stamps import Stamp
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import table
from tests.fixtures.stamped_tables import (
    FLAGGED,
    Cycles,
    Shop,
    assert_another_type_of_a_flag_is_refused,
    assert_flags_delete_and_come_back,
)

pytestmark = pytest.mark.pg

MAKE = """
CREATE TABLE orders (id int PRIMARY KEY, note text, changed_at {stamp} NOT NULL DEFAULT NOW(6) ON UPDATE NOW(6), deleted {flag});
INSERT INTO orders (id, note, changed_at) SELECT seq, 'note', NOW(6) - INTERVAL 1 DAY FROM seq_1_to_50
"""


class MariaDbShop(Shop):
    """The database of a test."""

    moment = "SYSDATE(6)"
    retype = "ALTER TABLE orders MODIFY deleted varchar(9)"

    def __init__(self, database: MariaDbDatabase, compared: ComparedMariaDb) -> None:
        self.name = TableName(database.name, "orders")
        self._database = database
        self._compared = compared

    @property
    def compared(self) -> ComparedMariaDb:
        return self._compared

    def make(self, flag: str) -> None:
        self._database.execute(MAKE.format(flag=flag, stamp="timestamp(6)"))

    def execute(self, statement: str) -> object:
        return self._database.execute(statement)


@pytest.fixture
def compared(mariadb: MariaDbDatabase, connection: ConnectionSpec) -> Iterator[ComparedMariaDb]:
    mariadb.server.execute("GRANT PROCESS ON *.* TO reader@'%'")
    chosen = Compared({f"{mariadb.name}.orders": FLAGGED})
    with closing(ComparedMariaDb(Connector(connection), compared=chosen)) as opened:
        yield opened


@pytest.mark.parametrize("flag", ["boolean", "integer"])
@pytest.mark.parametrize("method", [Method.INCREMENTAL, Method.RANGE_CHECKSUM])
def test_a_flag_deletes_and_one_that_is_taken_back_inserts(
    mariadb: MariaDbDatabase, compared: ComparedMariaDb, tmp_path: Path, flag: str, method: Method
) -> None:
    assert_flags_delete_and_come_back(MariaDbShop(mariadb, compared), tmp_path / "reader", flag, method)


def test_a_flag_of_another_type_is_refused_and_no_row_goes(
    mariadb: MariaDbDatabase, compared: ComparedMariaDb, tmp_path: Path
) -> None:
    assert_another_type_of_a_flag_is_refused(MariaDbShop(mariadb, compared), tmp_path / "reader")


def test_every_read_leaves_out_the_rows_whose_flag_is_set(mariadb: MariaDbDatabase, compared: ComparedMariaDb) -> None:
    mariadb.execute(MAKE.format(flag="boolean", stamp="datetime(6)"))
    mariadb.execute("UPDATE orders SET deleted = id % 2")
    spec = table("orders", mariadb.name)
    schema, reads = compared.describe([spec])[spec.source], compared.reads
    with compared.snapshot(10) as snapshot:

        def keys(splits: Any) -> list[int]:
            lines = b"".join(piece for split in splits for piece in reads.read_split(split, snapshot)).splitlines()
            return sorted(int(line.split(b"\t")[0]) for line in lines)

        even = list(range(2, 51, 2))
        assert keys(reads.splits(schema, spec, 1 << 40)) == keys(reads.splits(schema, spec, 700)) == even
        assert keys(reads.key_splits(schema, spec, [("3",), ("4",), ("50",)])) == [4, 50]
        walk = reads.walk_key(schema, None, 700, 100)
        assert walk is not None
        assert keys(each.split for each in walk.splits) == even
        found = reads.ranges(schema).digests([KeyInterval()], 10, snapshot)
        assert sum(each.rows for each in found) == len(even)


def checked(mariadb: MariaDbDatabase, compared: ComparedMariaDb) -> list[Finding]:
    return compared.preflight([table("orders", mariadb.name)], OriginFilter.ANY)


def mended(mariadb: MariaDbDatabase, compared: ComparedMariaDb) -> list[str]:
    """Run what the findings offer; their codes."""
    found = checked(mariadb, compared)
    for statement in (statement for finding in found for statement in finding.sql):
        mariadb.execute(statement)
    return [finding.code for finding in found if finding.severity is not Severity.INFO]


def test_the_offered_statements_make_a_table_whose_deletes_are_found(
    mariadb: MariaDbDatabase, compared: ComparedMariaDb, tmp_path: Path
) -> None:
    mariadb.execute("CREATE TABLE orders (id int, `p``art` varchar(9), n double, PRIMARY KEY (id, `p``art`))")
    mariadb.execute("INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 2), (3, '', 3)")
    assert mended(mariadb, compared) == ["table_columns_unfit", "table_columns_unfit"]
    assert mended(mariadb, compared) == ["stamp_without_index"]
    assert mended(mariadb, compared) == []
    name = TableName(mariadb.name, "orders")
    cycles = Cycles(compared, tmp_path / "reader", Method.ROW_CHECKSUM, name)
    # The application's statements are as before, but for DELETE.
    mariadb.execute("INSERT INTO orders VALUES (4, 'd', 4);\nUPDATE orders SET n = 9 WHERE id = 3")
    with pytest.raises(pymysql.err.OperationalError, match="deleted by setting deleted"):
        mariadb.execute("DELETE FROM orders WHERE id = 1")
    mariadb.execute("UPDATE orders SET deleted = TRUE WHERE id = 1")
    assert cycles.run() == (1, 1, 1)
    known_before = cycles.found().known_before
    mariadb.execute(f"SET time_zone = '+00:00';\nDELETE FROM orders WHERE deleted AND changed_at < '{known_before}'")
    assert mariadb.execute("SELECT COUNT(*) FROM orders") == [(4,)]
    mariadb.execute("DELETE FROM orders WHERE deleted")
    assert mariadb.execute("SELECT COUNT(*) FROM orders") == [(3,)]
    assert cycles.run(complete=True) == (0, 0, 0)


def findings(
    mariadb: MariaDbDatabase, connection: ConnectionSpec, default: str = "incremental", /, **chosen: Any
) -> dict[str, Finding]:
    """Findings on the table `orders`, by code."""
    declared = {f"{mariadb.name}.orders": TableDetection(**chosen)} if chosen else {}
    with closing(ComparedMariaDb(Connector(connection), compared=Compared(declared, default))) as opened:
        found = opened.preflight([table("orders", mariadb.name)], OriginFilter.ANY)
    assert len({finding.code for finding in found}) == len(found)
    return {finding.code: finding for finding in found}


def test_the_cheapest_method_is_proposed(mariadb: MariaDbDatabase, connection: ConnectionSpec) -> None:
    mariadb.execute(MAKE.format(flag="boolean", stamp="timestamp(6)"))
    mariadb.execute("INSERT INTO orders (id, note) SELECT seq, REPEAT('n', 300) FROM seq_100_to_20000")
    mariadb.execute("ANALYZE TABLE orders")
    found = findings(mariadb, connection)
    assert found.keys() == {"method_costs"}
    assert "The least: row_checksum; chosen: incremental" in found["method_costs"].what
    assert "row_checksum" in found["method_costs"].remedy
    assert findings(mariadb, connection, "row_checksum")["method_costs"].remedy == "None needed."
    mariadb.execute("CREATE INDEX recent ON orders (changed_at)")
    assert "changed_at" in findings(mariadb, connection)["stamp_possible"].what
    mariadb.server.execute("GRANT PROCESS ON *.* TO reader@'%'")
    by_flag = findings(mariadb, connection, **FLAGGED.model_dump(exclude_defaults=True))
    assert "The least: timestamp_delete_flag; chosen: timestamp_delete_flag" in by_flag["method_costs"].what
    assert by_flag.keys() == {"method_costs", "deletes_without_flag"}


def test_what_stamps_need_is_said_before(mariadb: MariaDbDatabase, connection: ConnectionSpec) -> None:
    mariadb.execute("CREATE TABLE shops (id int PRIMARY KEY)")
    mariadb.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, at datetime(3), shop int,"
        " FOREIGN KEY (shop) REFERENCES shops (id) ON DELETE SET NULL)"
    )
    chosen = {"method": "timestamp", "stamp_column": "at"}
    found = findings(mariadb, connection, **chosen)
    assert found.keys() == {
        "method_costs",
        "open_transactions_not_seen",
        "stamp_not_automatic",
        "stamp_not_set_by_cascades",
        "stamp_without_index",
        "stamp_without_zone",
    }
    assert found["open_transactions_not_seen"].severity is Severity.WARNING
    for finding in found.values():
        for statement in finding.sql:
            mariadb.execute(statement)
    assert findings(mariadb, connection, **chosen).keys() == found.keys() - {
        "open_transactions_not_seen",
        "stamp_without_index",
    }
    mariadb.execute("INSERT INTO orders (id, at) VALUES (1, '2001-01-01')")
    assert mariadb.execute("SELECT COUNT(*) FROM orders WHERE at > NOW() - INTERVAL 1 MINUTE") == [(1,)]
    mariadb.execute("UPDATE orders SET at = '2001-01-01'")
    assert mariadb.execute("SELECT COUNT(*) FROM orders WHERE at > NOW() - INTERVAL 1 MINUTE") == [(1,)]
    wrong = findings(mariadb, connection, method="timestamp", stamp_column="shop")
    assert (wrong["table_columns_unfit"].severity, wrong["table_columns_unfit"].sql) == (Severity.ERROR, ())


def test_the_offered_index_lets_the_server_read_recent_rows_only(
    mariadb: MariaDbDatabase, compared: ComparedMariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb.execute(MAKE.format(flag="boolean", stamp="timestamp(6)"))
    mariadb.execute(
        "INSERT INTO orders (id, note, changed_at) SELECT seq, 'n', NOW() - INTERVAL 2 DAY FROM seq_100_to_5000"
    )
    for statement in (statement for finding in checked(mariadb, compared) for statement in finding.sql):
        mariadb.execute(statement)
    mariadb.execute("UPDATE orders SET note = 'new' WHERE id BETWEEN 200 AND 209;\nANALYZE TABLE orders")
    read: list[str] = []
    real = compared.cycle_reads.read_split

    def noted(split: TableSplit, snapshot: str) -> Iterator[bytes]:
        read.append(split.sql)
        return real(split, snapshot)

    monkeypatch.setattr(compared.cycle_reads, "read_split", noted)
    name = TableName(mariadb.name, "orders")
    orders = compared.tables({name: None})[name]
    with compared.snapshot(10) as snapshot:
        newest = compared.newest_stamp(orders, snapshot, "changed_at", 1.0)
        assert newest is not None
        since = Stamp("changed_at", newest)
        for lines in (
            compared.rows_since(orders, snapshot, since),
            compared.hashed_rows(orders, snapshot, since=since),
            compared.left_since(orders, snapshot, since),
        ):
            b"".join(lines)
    plans = [mariadb.execute(f"EXPLAIN {sql}")[0] for sql in read[1:]]
    assert "Select tables optimized away" in str(plans[0])
    assert [plan[5] for plan in plans[1:]] == ["penstock_changed_at"] * 3
    assert all(int(plan[8]) <= 20 for plan in plans[1:])
