"""MariaDB: how old stamps may be that are not visible yet, and from which stamp on rows are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pymysql.cursors import Cursor

from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.sources.mariadb.connect import Connector
from engine.sources.mariadb_queries.compared import Compared
from engine.sources.mariadb_queries.database import MariaDbDatabase as ComparedMariaDb
from engine.sources.query_diff import cycle_snapshot
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.stamps import Stamp
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.stamped_tables import Cycles
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

BY_STAMP = TableDetection(method="timestamp", stamp_column="at", sweep_every=100_000)
KINDS = ["timestamp(6)", "timestamp", "datetime(3)", "datetime", "date"]


def opened(connection: ConnectionSpec, schema: str) -> ComparedMariaDb:
    return ComparedMariaDb(Connector(connection), compared=Compared({f"{schema}.goods": BY_STAMP}))


@pytest.fixture
def stamped(mariadb: MariaDbDatabase, connection: ConnectionSpec) -> Iterator[ComparedMariaDb]:
    """Its account may see the transactions of others."""
    mariadb.server.execute("GRANT PROCESS ON *.* TO reader@'%'")
    mariadb.execute("CREATE TABLE goods (id int PRIMARY KEY, v varchar(20), at timestamp(6) NULL DEFAULT NOW(6))")
    with closing(opened(connection, mariadb.name)) as found:
        yield found


@contextmanager
def session_of(mariadb: MariaDbDatabase) -> Iterator[Cursor]:
    with mariadb.connect() as session, session.cursor() as cursor:
        yield cursor


def age(mariadb: MariaDbDatabase, since: datetime) -> float:
    """Seconds since then, by the server's clock."""
    [(now,)] = mariadb.execute("SELECT UTC_TIMESTAMP(6)")
    return float((now - since).total_seconds())


def now_of(mariadb: MariaDbDatabase) -> datetime:
    [(now,)] = mariadb.execute("SELECT UTC_TIMESTAMP(6)")
    assert isinstance(now, datetime)
    return now


def wait_s(mariadb: MariaDbDatabase, seconds: float) -> None:
    begun = now_of(mariadb)
    wait_until(lambda: age(mariadb, begun) > seconds)


def test_without_the_right_to_see_transactions_each_may_be_old(
    mariadb: MariaDbDatabase, stamped: ComparedMariaDb, connection: ConnectionSpec
) -> None:
    assert 0 <= stamped.open_for_s() < 60
    mariadb.server.execute("REVOKE PROCESS ON *.* FROM reader@'%'")
    assert 900 <= stamped.open_for_s() < 960
    # Where no table has stamps, the server is not asked.
    with closing(ComparedMariaDb(Connector(connection))) as plain:
        assert plain.open_for_s() == 0.0


def test_open_transactions_count_from_their_beginning_unless_they_only_read(
    mariadb: MariaDbDatabase, stamped: ComparedMariaDb
) -> None:
    with session_of(mariadb) as reading, session_of(mariadb) as writing:
        begun = now_of(mariadb)
        reading.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        wait_s(mariadb, 2.5)
        found = stamped.open_for_s()
        assert found < age(mariadb, begun)
        begun = now_of(mariadb)
        writing.execute("BEGIN")
        writing.execute("INSERT INTO goods (id) VALUES (1)")
        wait_s(mariadb, 1.2)
        assert age(mariadb, begun) - 0.1 <= stamped.open_for_s() < age(mariadb, begun) + 2.1
        writing.execute("COMMIT")
        found = stamped.open_for_s()
        assert found < age(mariadb, begun)


def test_a_statement_counts_that_waits_before_its_transaction_begins(
    mariadb: MariaDbDatabase, stamped: ComparedMariaDb
) -> None:
    """The server sets stamps to the time at which it began."""
    with session_of(mariadb) as locking, session_of(mariadb) as waiting:
        locking.execute("LOCK TABLES goods WRITE")
        begun = now_of(mariadb)
        statement = threading.Thread(target=waiting.execute, args=("INSERT INTO goods (id) VALUES (1)",))
        statement.start()
        shown = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO goods%'"
        wait_until(lambda: mariadb.execute(shown) == [(1,)])
        wait_s(mariadb, 3.0)
        listed = mariadb.execute("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE NOT trx_is_read_only")
        found = stamped.open_for_s()
        locking.execute("UNLOCK TABLES")
        statement.join()
    assert listed == [(0,)]
    assert found >= 3.0
    [(at,)] = mariadb.execute("SET time_zone = '+00:00';\nSELECT at FROM goods")
    assert abs((at - begun).total_seconds()) < 2.0


def test_a_prepared_transaction_without_a_session_may_be_of_any_age(
    private_mariadb: Callable[[], MariaDbDatabase],
) -> None:
    mariadb = private_mariadb()
    mariadb.execute("CREATE TABLE goods (id int PRIMARY KEY, at timestamp(6) NULL DEFAULT NOW(6))")
    spec = ConnectionSpec("shop", "mariadb", mariadb.settings, mariadb.secrets)
    with closing(opened(spec, mariadb.name)) as stamped:
        with session_of(mariadb) as session:
            session.execute("XA START 'late'")
            session.execute("INSERT INTO goods (id) VALUES (1)")
            session.execute("XA END 'late'")
            session.execute("XA PREPARE 'late'")
            assert stamped.open_for_s() < 60
        wait_until(lambda: stamped.open_for_s() > 1e9)
        mariadb.server.stop()
        mariadb.server.start()
        assert stamped.open_for_s() > 1e9
        mariadb.execute("XA ROLLBACK 'late'")
        assert stamped.open_for_s() < 60


def test_a_list_that_others_read_all_the_time_is_not_believed(
    mariadb: MariaDbDatabase, stamped: ComparedMariaDb
) -> None:
    """The server renews it only if no session has read it for 0.1 s."""
    over = threading.Event()

    def poll() -> None:
        with session_of(mariadb) as polling:
            while not over.is_set():
                polling.execute("SELECT COUNT(*) FROM information_schema.innodb_trx")

    pollers = [threading.Thread(target=poll) for _ in range(2)]
    for each in pollers:
        each.start()
    try:
        wait_s(mariadb, 0.3)
        assert stamped.open_for_s() >= 900
    finally:
        over.set()
        for each in pollers:
            each.join()
    assert stamped.open_for_s() < 60


def test_a_replica_does_not_know_how_old_transactions_are(
    private_mariadb: Callable[[], MariaDbDatabase],
) -> None:
    mariadb = private_mariadb()
    with closing(opened(ConnectionSpec("shop", "mariadb", mariadb.settings, mariadb.secrets), "x")) as stamped:
        assert stamped.open_for_s() < 60
        mariadb.server.execute("SET GLOBAL gtid_slave_pos = '0-7-100'")
        assert 900 <= stamped.open_for_s() < 960


def _zone(at: datetime) -> str:
    """A time zone of the system whose clocks are set back by an hour at this moment of UTC, from +02:00 to +01:00."""
    local = at + timedelta(hours=2)
    before = at - timedelta(days=60)
    day = f"J{local.timetuple().tm_yday - (local.month > 2 and local.year % 4 == 0)}"
    other = f"J{before.timetuple().tm_yday - (before.month > 2 and before.year % 4 == 0)}"
    return f"WIN-1SUM-2,{other}/0,{day}/{local:%H:%M:%S}"


@pytest.mark.parametrize("minutes", [-1, 40])
def test_where_clocks_are_set_back_no_transaction_looks_younger(
    private_mariadb: Callable[[], MariaDbDatabase], monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    """The clocks of the server's system were, or will be, set back so many minutes from now."""
    at = (datetime.now(UTC) + timedelta(minutes=minutes)).replace(tzinfo=None)
    monkeypatch.setenv("TZ", _zone(at))
    mariadb = private_mariadb()
    [(hour,)] = mariadb.execute("SELECT HOUR(TIMEDIFF(NOW(), UTC_TIMESTAMP()))")
    assert hour == (1 if minutes < 0 else 2)
    mariadb.execute("CREATE TABLE goods (id int PRIMARY KEY, at datetime(6) NULL DEFAULT NOW(6))")
    mariadb.execute("INSERT INTO goods VALUES (1, NOW(6))")
    spec = ConnectionSpec("shop", "mariadb", mariadb.settings, mariadb.secrets)
    with closing(opened(spec, mariadb.name)) as stamped, session_of(mariadb) as session:
        session.execute("BEGIN")
        session.execute("INSERT INTO goods (id) VALUES (2)")
        wait_s(mariadb, 1.2)
        # An hour more where the local time of its beginning is that of two moments.
        least = 1.2 if minutes > 0 else 3600
        assert least <= stamped.open_for_s() < least + 600
        name = TableName(mariadb.name, "goods")
        with stamped.snapshot(10) as snapshot:
            found = stamped.newest_stamp(stamped.tables({name: None})[name], snapshot, "at", 1.0)
        [(newest,)] = mariadb.execute("SELECT at FROM goods")
        assert found is not None
        assert timedelta(seconds=3600) < newest - datetime.fromisoformat(found) < timedelta(seconds=3603)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_read_from_the_newest_stamp_on_whatever_its_digits_are(
    mariadb: MariaDbDatabase, stamped: ComparedMariaDb, kind: str
) -> None:
    mariadb.execute(f"ALTER TABLE goods MODIFY at {kind} NULL")
    mariadb.execute(
        "SET time_zone = '+00:00';\nINSERT INTO goods (id, at) VALUES (1, NOW(6) - INTERVAL 3 DAY), (2, NULL), (3, NOW(6))"
    )
    name = TableName(mariadb.name, "goods")
    table = stamped.tables({name: None})[name]
    assert "at" in table.stamps
    with stamped.snapshot(10) as snapshot:
        found = stamped.newest_stamp(table, snapshot, "at", 0.25)
        assert found is not None
        since = Stamp("at", found)
        lines = b"".join(stamped.rows_since(table, snapshot, since)).splitlines()
        assert [line.split(b"\t")[0] for line in lines] == [b"2", b"3"]
        hashed = b"".join(stamped.hashed_rows(table, snapshot, since=since)).splitlines()
        assert [line.split(b"\t")[1] for line in hashed] == [b"2", b"3"]
    # A statement at that time would have set a stamp that is cut to the digits of the column.
    mariadb.execute(f"SET time_zone = '+00:00';\nINSERT INTO goods (id, at) VALUES (4, '{found}')")
    with stamped.snapshot(10) as snapshot:
        lines = b"".join(stamped.rows_since(table, snapshot, since)).splitlines()
    assert [line.split(b"\t")[0] for line in lines] == [b"2", b"3", b"4"]


def cycles_of(mariadb: MariaDbDatabase, stamped: ComparedMariaDb, path: Path) -> Cycles:
    name = TableName(mariadb.name, "goods")
    return Cycles(stamped, path, Method.ROW_CHECKSUM, name, BY_STAMP)


def test_a_commit_is_found_whose_stamp_is_older_than_the_cycle_before(
    mariadb: MariaDbDatabase, stamped: ComparedMariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle_snapshot, "_CLOCK_STEP_S", 0.0)
    mariadb.execute("INSERT INTO goods (id) VALUES (1)")
    cycles = cycles_of(mariadb, stamped, tmp_path / "reader")
    with session_of(mariadb) as late:
        late.execute("BEGIN")
        late.execute("INSERT INTO goods (id) VALUES (2)")
        late.execute("UPDATE goods SET v = 'late', at = NOW(6) WHERE id = 1")
        wait_s(mariadb, 3.0)
        mariadb.execute("INSERT INTO goods (id) VALUES (3)")
        assert cycles.run() == (1, 0, 0)
        late.execute("COMMIT")
    assert cycles.run() == (1, 1, 0)
    assert cycles.run() == (0, 0, 0)


def test_stamps_of_other_times_hide_no_changes(
    mariadb: MariaDbDatabase, stamped: ComparedMariaDb, tmp_path: Path
) -> None:
    """Those of a session that sets its own time to the future, of sessions in other time zones, and rows without one."""
    mariadb.execute("INSERT INTO goods (id) VALUES (1), (2)")
    cycles = cycles_of(mariadb, stamped, tmp_path / "reader")
    mariadb.execute("SET timestamp = UNIX_TIMESTAMP() + 86400;\nINSERT INTO goods (id) VALUES (3)")
    assert cycles.run() == (1, 0, 0)
    for number, zone in enumerate(["+02:00", "-05:00", "+13:00"], 4):
        mariadb.execute(f"SET time_zone = '{zone}';\nINSERT INTO goods (id) VALUES ({number})")
        assert cycles.run() == (1, 0, 0)
    mariadb.execute("UPDATE goods SET v = 'without', at = NULL WHERE id = 1")
    assert cycles.run() == (0, 1, 0)
    mariadb.execute("SET sql_mode = '';\nUPDATE goods SET v = 'zero', at = '0000-00-00' WHERE id = 2")
    found = b"".join(rows_since(mariadb, stamped, "2020-01-01"))
    assert b"2\tzero\t" in found


def rows_since(mariadb: MariaDbDatabase, stamped: ComparedMariaDb, value: str) -> Iterator[bytes]:
    name = TableName(mariadb.name, "goods")
    with stamped.snapshot(10) as snapshot:
        yield from stamped.rows_since(stamped.tables({name: None})[name], snapshot, Stamp("at", value))


def test_an_empty_table_has_no_newest_stamp(mariadb: MariaDbDatabase, stamped: ComparedMariaDb) -> None:
    name = TableName(mariadb.name, "goods")
    with stamped.snapshot(10) as snapshot:
        table = stamped.tables({name: None})[name]
        assert stamped.newest_stamp(table, snapshot, "at", 1.0) is None
    mariadb.execute("INSERT INTO goods VALUES (1, NULL, NULL)")
    with stamped.snapshot(10) as snapshot:
        assert stamped.newest_stamp(table, snapshot, "at", 1.0) is None
        mariadb.execute("INSERT INTO goods (id) VALUES (2)")
        assert stamped.newest_stamp(table, snapshot, "at", 1.0) is None
    with stamped.snapshot(10) as snapshot:
        assert stamped.newest_stamp(table, snapshot, "at", 1.0) is not None
        # As old as any: all rows are compared.
        assert stamped.newest_stamp(table, snapshot, "at", 1e11) is None
