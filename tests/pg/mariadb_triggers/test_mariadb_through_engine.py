"""MariaDB captured by triggers, through the whole engine: log reader process, queue, batches, copies, verification, target."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymysql.connections import Connection

from engine.model.subscription import QueueMode
from engine.sources.mariadb_triggers.source import MariaDbTriggerSource
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import Replica
from tests.fixtures.tellers import Tellers
from tests.fixtures.waiting import wait_until
from tests.pg.mariadb_triggers.conftest import Replicate

pytestmark = pytest.mark.pg

BANK = """
CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, note text, nick varchar(40) UNIQUE);
CREATE TABLE moves (id bigint AUTO_INCREMENT PRIMARY KEY, sender bigint NOT NULL, receiver bigint NOT NULL, amount bigint);
INSERT INTO accounts SELECT seq, 1000, NULL, CONCAT('nick ', seq) FROM seq_1_to_50
"""
TOTAL = 50_000
LOST_RACES = (1205, 1213)


@pytest.fixture
def bank(mariadb: MariaDbDatabase) -> MariaDbDatabase:
    mariadb.execute(BANK)
    return mariadb


class MariaDbTellers(Tellers):
    pause_s = 0.005

    @contextmanager
    def session(self, number: int) -> Iterator[Connection]:
        with super().session(number) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET tx_isolation = '{'READ-COMMITTED' if number % 2 else 'REPEATABLE-READ'}'")
            yield connection

    def move(self, connection: Connection, chance: random.Random) -> None:
        one, other = sorted(chance.sample(range(1, 51), 2))
        amount = chance.randrange(-50, 50)
        statements = [
            "BEGIN",
            f"UPDATE accounts SET balance = balance - {amount} WHERE id = {one}",
            "SAVEPOINT s",
            f"UPDATE accounts SET balance = balance + 1000000, note = 'undone' WHERE id = {other}",
            "ROLLBACK TO SAVEPOINT s",
            f"UPDATE accounts SET balance = balance + {amount} WHERE id = {other}",
            f"INSERT INTO moves (sender, receiver, amount) VALUES ({one}, {other}, {amount})",
        ]
        if chance.random() < 0.2:
            statements.append("DELETE FROM moves ORDER BY id LIMIT 1")
        if chance.random() < 0.1:
            statements += [
                f"UPDATE accounts SET nick = NULL WHERE id = {one}",
                f"UPDATE accounts SET nick = CONCAT('nick ', id) WHERE id = {one}",
            ]
        statements.append("ROLLBACK" if chance.random() < 0.2 else "COMMIT")
        execute(connection, statements)


def execute(connection: Connection, statements: list[str]) -> None:
    """One transaction; a deadlock takes it back."""
    with connection.cursor() as cursor:
        try:
            for statement in statements:
                cursor.execute(statement)
        except connection.OperationalError as error:
            if error.args[0] not in LOST_RACES:
                raise
            cursor.execute("ROLLBACK")


@contextmanager
def watched(replica: Replica) -> Iterator[list[object]]:
    """A reader of the copy sees the constant sum at any moment."""
    seen: list[object] = []
    stopping = threading.Event()

    def look() -> None:
        while not stopping.is_set():
            seen.append(replica.query(f"SELECT sum(balance) FROM {replica.database.name}.accounts")[0][0])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        thread.join(30)
    assert set(map(int, map(str, seen))) == {TOTAL}


def test_each_boundary_is_a_state_that_the_source_had(bank: MariaDbDatabase, replicate: Replicate) -> None:
    with MariaDbTellers(bank) as tellers:
        replica = replicate(bank, "accounts", "moves")
        with watched(replica) as seen:
            for _ in range(5):
                tellers.more(40)
                replica.catch_up()
            wait_until(lambda: len(seen) > 2)
    replica.assert_equal()


def reader_pid(replica: Replica) -> int | None:
    run = replica.pipeline.run
    return None if run is None else run.reader_pid()


def test_nothing_is_lost_or_doubled_over_deaths(bank: MariaDbDatabase, replicate: Replicate) -> None:
    replica = replicate(bank, "accounts", "moves", queue_mode=QueueMode.PERSIST)
    with MariaDbTellers(bank) as tellers:
        for number in range(2):
            tellers.more(30)
            replica.kill_reader()
            tellers.more(30)
            if number % 2:
                replica.restart()
                replica.wait_live()
    replica.assert_equal()
    assert not replica.events_of("log_gap")


def test_a_large_transaction_comes_in_parts(bank: MariaDbDatabase, replicate: Replicate) -> None:
    replica = replicate(bank, "accounts", "moves")
    with bank.connect() as connection:
        execute(
            connection,
            [
                "BEGIN",
                "INSERT INTO moves (sender, receiver, amount) SELECT 1, 2, seq FROM seq_1_to_25000",
                "UPDATE moves SET amount = amount + 1 WHERE id % 2 = 0",
                "UPDATE accounts SET note = REPEAT('large ', 10000)",
                "COMMIT",
            ],
        )
    replica.assert_equal()
    file = bank.server.data / "loaded"
    bank.execute(f"SELECT id, balance + 1, NULL, nick FROM accounts WHERE id < 20 INTO OUTFILE '{file}'")
    bank.execute(f"LOAD DATA INFILE '{file}' REPLACE INTO TABLE accounts")
    replica.assert_equal()
    assert replica.query(f"SELECT sum(balance) FROM {bank.name}.accounts") == [(TOTAL + 19,)]


@pytest.mark.chaos
def test_a_server_that_was_restored_is_a_gap(
    private_mariadb: Callable[[], MariaDbDatabase], replicate: Replicate
) -> None:
    """However much was written since, and though its identity is the same."""
    bank = private_mariadb()
    bank.execute(BANK)
    replica = replicate(bank, "accounts")
    bank.execute("UPDATE accounts SET balance = balance + 1")
    replica.assert_equal()
    saved = bank.server.data.with_name("saved")
    bank.server.stop()
    shutil.copytree(bank.server.data, saved)
    bank.server.start(60)
    for _ in range(5):
        bank.execute("UPDATE accounts SET balance = balance + 1")
        replica.assert_equal()
    bank.server.stop()
    shutil.rmtree(bank.server.data)
    saved.rename(bank.server.data)
    bank.server.start(60)
    for _ in range(20):
        bank.execute("UPDATE accounts SET balance = balance - 1")
        bank.execute("INSERT INTO penstock.windows SELECT MAX(no) + 1, MAX(at_us) + 1 FROM penstock.windows")
        bank.execute("UPDATE penstock.control SET last_window = last_window + 1")
    assert replica.wait_state("failed").code == "log_gap"


VALUES = """
CREATE TABLE kinds (id int unsigned PRIMARY KEY, t1 tinyint, t1u tinyint unsigned, s smallint, su smallint unsigned, m mediumint,
    mu mediumint unsigned, i int, iu int(6) unsigned zerofill, b bigint, bu bigint unsigned, d decimal(10, 3), dd decimal(65, 30),
    f float, fd float(7, 2), db double, bo boolean, c char(4), v varchar(40) CHARACTER SET latin1, t text, e enum('a', 'b''c'),
    st set('x', 'y'), j json, da date, ti time(2), dt datetime, dt6 datetime(6), ts timestamp NULL, ts3 timestamp(3) NULL, y year,
    bi binary(3), vb varbinary(20), bl blob, bt bit(5), u uuid, i6 inet6, g point, virt bigint AS (i * 2) VIRTUAL,
    stor bigint AS (i * 3) STORED)
"""


def test_every_value_arrives_as_it_is(mariadb: MariaDbDatabase, replicate: Replicate) -> None:
    """Whatever the settings of the writer's session; a copy prints the same."""
    mariadb.execute(VALUES)
    rows = [
        r"""1, -128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 42, -9223372036854775808, 18446744073709551615, -1234567.890,
        12345678901234567890.123456789012345678901234567891, 0.1, 12.34, 1.7976931348623157e308, true, 'ab', 'é\\N',
        'tab\t new\n back\\slash\r',
        'b''c', 'x,y', '{"a": [1, "\\u00e9"]}', '2026-02-03', '-838:59:58.5', '2026-01-02 03:04:05', '2026-01-02 03:04:05.500000',
        '2026-10-25 02:30:00', '2026-07-01 12:00:00.125', 2026, 'ab', X'00ff5c090a', X'', b'101', '6ccd780c-baba-1026-9564-5b8c656024db',
        '::ffff:1.2.3.4', POINT(1, 2)""",
        "2" + ", NULL" * 36,
        r"""3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1.5e-38, 0, 5e-324, false, '', '\\N', '', 'a', '', 'null', '1000-01-01', '0:0:0',
        '9999-12-31 23:59:59', '1000-01-01 00:00:00.000001', '1970-01-01 12:00:01', '2038-01-18 00:00:00', 1901, '', '', 'x', b'0',
        '00000000-0000-0000-0000-000000000000', '::', POINT(0, -0.5)""",
    ]
    columns = "id, t1, t1u, s, su, m, mu, i, iu, b, bu, d, dd, f, fd, db, bo, c, v, t, e, st, j, da, ti, dt, dt6, ts, ts3, y, bi, vb, bl,"
    insert = f"INSERT INTO kinds ({columns} bt, u, i6, g) VALUES"
    with mariadb.connect() as connection:
        execute(connection, ["SET time_zone = '+05:30'", *(f"{insert} ({row})" for row in rows)])
        replica = replicate(mariadb, "kinds")
        copied = replica.query(f"SELECT * FROM {mariadb.name}.kinds ORDER BY id")
        assert copied[0][30] == b"ab\0"
        settings = [
            "SET time_zone = '-03:00'",
            "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'",
            "SET NAMES latin1",
            "SET div_precision_increment = 0",
        ]
        again = "UPDATE kinds SET id = id + 10"
        execute(connection, [*settings, again, "UPDATE kinds SET id = id - 10, t1 = t1"])
        replica.assert_equal()
        assert replica.query(f"SELECT * FROM {mariadb.name}.kinds ORDER BY id") == copied
        execute(connection, ["DELETE FROM kinds WHERE id = 2"])
    replica.assert_equal()


def test_a_value_outside_its_columns_domain_is_named(mariadb: MariaDbDatabase, replicate: Replicate) -> None:
    mariadb.execute("CREATE TABLE dates (id int PRIMARY KEY, d date)")
    replica = replicate(mariadb, "dates")
    mariadb.execute("SET sql_mode = '';\nINSERT INTO dates VALUES (1, '0000-00-00')")
    assert replica.wait_table("dates", "parked").code == "value_out_of_domain"


CHANGES = [
    ("ALTER TABLE accounts ADD COLUMN level int DEFAULT 7;\nUPDATE accounts SET level = id WHERE id < 10"),
    ("ALTER TABLE accounts ADD COLUMN a int DEFAULT 1 FIRST, ALGORITHM = COPY;\nUPDATE accounts SET a = id"),
    ("ALTER TABLE accounts DROP COLUMN note"),
    ("ALTER TABLE accounts MODIFY balance varchar(30);\nUPDATE accounts SET balance = CONCAT(balance, '!')"),
    ("TRUNCATE accounts;\nINSERT INTO accounts (id, balance) VALUES (7, 8)"),
    ("DROP TABLE accounts;\nCREATE TABLE accounts (id bigint PRIMARY KEY, w int);\nINSERT INTO accounts VALUES (1, 2)"),
]


def test_what_fires_no_trigger_is_found_and_the_table_copied_again(bank: MariaDbDatabase, replicate: Replicate) -> None:
    replica = replicate(bank, "accounts", "moves")
    for change in CHANGES:
        bank.execute(change)
        replica.satisfied()
        replica.assert_equal()
        wait_until(lambda: triggers(bank, "accounts") == 3)
        with bank.connect() as connection:
            execute(
                connection,
                ["BEGIN", "UPDATE accounts SET id = id + 100000 WHERE id % 3 = 1", "DELETE FROM moves", "COMMIT"],
            )
        replica.satisfied()
        replica.assert_equal()


def triggers(database: MariaDbDatabase, name: str) -> Any:
    query = f"SELECT count(*) FROM information_schema.triggers WHERE trigger_schema = '{database.name}' AND event_object_table = '{name}'"
    return database.execute(query)[0][0]


TRAPS = ["put back", "dropped"]


@pytest.mark.parametrize("trap", TRAPS)
def test_a_table_whose_triggers_others_changed_is_parked_until_it_is_reloaded(
    bank: MariaDbDatabase, replicate: Replicate, trap: str
) -> None:
    replica = replicate(bank, "accounts", "moves")
    query = f"SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = '{bank.name}' AND event_object_table = 'accounts'"
    name = bank.execute(f"{query} AND event_manipulation = 'UPDATE'")[0][0]
    create = bank.execute(f"SHOW CREATE TRIGGER {name}")[0][2]
    bank.execute(f"DROP TRIGGER {name}")
    bank.execute("UPDATE accounts SET balance = 0 WHERE id = 3")
    if trap == "put back":
        with bank.connect() as session:
            execute(session, [create])
    parked = replica.wait_table("accounts", "parked")
    assert parked.code == "change_triggers_changed"
    assert "reload" in (parked.remedy or "").lower()
    replica.pipeline.reload("again", [replica.table_id("accounts")])
    replica.wait_live()
    bank.execute("UPDATE accounts SET balance = balance + 1;\nDELETE FROM accounts WHERE id = 50")
    replica.assert_equal()


def test_no_wait_for_now_is_satisfied_past_changes_that_triggers_missed(
    bank: MariaDbDatabase, replicate: Replicate
) -> None:
    """The next regular check is far: reading "now" finds the change of the triggers."""
    replica = replicate(bank, "accounts", "moves", guard_interval_s=300.0)
    replica.satisfied()
    query = f"SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = '{bank.name}' AND event_object_table = 'accounts'"
    bank.execute(f"DROP TRIGGER {bank.execute(query)[0][0]}")
    with pytest.raises(AssertionError, match="for waits"):
        replica.satisfied(1.0)
    assert replica.wait_table("accounts", "parked").code == "change_triggers_changed"


ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, code varchar(10) UNIQUE);
CREATE TABLE `lines` (`order` int, no int, code varchar(10), v int, twice int AS (`order` * 2) VIRTUAL, PRIMARY KEY (`order`, no),
    FOREIGN KEY (`order`) REFERENCES orders (id) ON DELETE CASCADE ON UPDATE CASCADE,
    FOREIGN KEY (code) REFERENCES orders (code) ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TABLE notes (id int PRIMARY KEY, `order` int, no int,
    FOREIGN KEY (`order`, no) REFERENCES `lines` (`order`, no) ON DELETE SET NULL ON UPDATE CASCADE);
INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c');
INSERT INTO `lines` (`order`, no, code, v) VALUES (1, 1, 'a', 5), (1, 2, 'b', 6), (2, 1, 'a', 7), (3, 1, NULL, 8);
INSERT INTO notes VALUES (1, 1, 1), (2, 1, 2), (3, 2, 1), (4, NULL, NULL)
"""


def test_what_cascades_do_is_recorded_on_the_tables_that_they_begin_at(
    mariadb: MariaDbDatabase, replicate: Replicate
) -> None:
    """The orders are not followed. A table or a column that goes does not stop writes to them."""
    mariadb.execute(ORDERS)
    replica = replicate(mariadb, "lines", "notes", guard_interval_s=0.2)
    mariadb.execute(
        "UPDATE orders SET id = id + 10, code = UPPER(code) WHERE id < 3;\nDELETE FROM orders WHERE id = 11"
    )
    mariadb.execute("SET foreign_key_checks = 0;\nDELETE FROM orders WHERE id = 3")
    replica.assert_equal()
    assert "reloading" not in replica.states_of("lines") + replica.states_of("notes")
    mariadb.execute("ALTER TABLE `lines` DROP COLUMN v;\nUPDATE orders SET id = 13 WHERE id = 12")
    replica.satisfied()
    replica.assert_equal()
    mariadb.execute("DROP TABLE notes;\nUPDATE orders SET id = 14 WHERE id = 13;\nDELETE FROM orders")
    # A check may read the tables before the drop, and the triggers after it.
    assert replica.wait_table("notes", "parked").code in {"table_missing", "change_triggers_changed"}
    wait_until(lambda: triggers(mariadb, "orders") == 4)


def test_a_cascade_that_is_declared_later_makes_its_table_be_copied_again(
    bank: MariaDbDatabase, replicate: Replicate
) -> None:
    replica = replicate(bank, "accounts", "moves", guard_interval_s=0.2)
    bank.execute("INSERT INTO moves (sender, receiver) VALUES (1, 2), (3, 4), (5, 6)")
    bank.execute("ALTER TABLE moves ADD FOREIGN KEY (sender) REFERENCES accounts (id) ON DELETE CASCADE")
    bank.execute("DELETE FROM accounts WHERE id = 1")
    wait_until(lambda: triggers(bank, "accounts") == 5)
    replica.assert_equal()
    bank.execute("DELETE FROM accounts WHERE id = 3")
    replica.assert_equal()
    bank.execute("ALTER TABLE moves DROP FOREIGN KEY moves_ibfk_1;\nDELETE FROM accounts WHERE id = 5")
    wait_until(lambda: triggers(bank, "accounts") == 3)
    replica.assert_equal()


def test_a_shadow_log_that_others_drop_fails_the_subscription_until_it_is_reloaded(
    bank: MariaDbDatabase, replicate: Replicate
) -> None:
    replica = replicate(bank, "accounts")
    bank.execute("DROP DATABASE penstock")
    failed = replica.wait_state("failed")
    assert failed.code in {"log_gap", "publication_changed"}
    assert "reload" in (failed.remedy or "")
    replica.pipeline.reload("all", None)
    replica.wait_reload("all")
    replica.satisfied()
    bank.execute("UPDATE accounts SET balance = balance + 1")
    replica.assert_equal()


def test_removal_leaves_the_tables_as_they_were(bank: MariaDbDatabase, replicate: Replicate) -> None:
    def catalog() -> list[object]:
        """Of the whole server, but the database of the shadow log. Sequences are tables."""
        made = [bank.execute(f"SHOW CREATE TABLE {name}") for name in ("accounts", "moves")]
        others = "schema NOT IN ('penstock', 'sys') ORDER BY 1, 2"
        listed = [
            f"SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_{others}",
            f"SELECT trigger_schema, trigger_name, action_statement FROM information_schema.triggers WHERE trigger_{others}",
            f"SELECT routine_schema, routine_name FROM information_schema.routines WHERE routine_{others}",
            f"SELECT event_schema, event_name FROM information_schema.events WHERE event_{others}",
            "SELECT schema_name, default_collation_name FROM information_schema.schemata WHERE schema_name <> 'penstock' ORDER BY 1",
            "SHOW GRANTS FOR penstock@'%'",
        ]
        return [*made, *(bank.execute(query) for query in listed)]

    bank.execute("ALTER TABLE moves ADD FOREIGN KEY (sender) REFERENCES accounts (id) ON DELETE CASCADE")
    before = catalog()
    replica = replicate(bank, "accounts", "moves")
    assert catalog() != before
    source = MariaDbTriggerSource(replica.spec.source)
    try:
        replica.pipeline.close()
        assert source.reader.remove(replica.spec.reader) == []
    finally:
        source.close()
    assert catalog() == before
    assert bank.execute("SELECT (SELECT count(*) FROM penstock.readers), (SELECT count(*) FROM penstock.changes)") == [
        (0, 0)
    ]
    assert not bank.execute("SHOW TABLES FROM penstock LIKE 'touched%'")
