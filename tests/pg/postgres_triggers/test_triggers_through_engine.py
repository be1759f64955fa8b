"""A database captured by triggers, through the whole engine: log reader process, queue, batches, copies, verification, target."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from engine.model.subscription import QueueMode
from engine.sources.postgres_triggers.source import TriggerSource
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.fixtures.tellers import Tellers
from tests.fixtures.waiting import wait_until
from tests.pg.postgres_triggers.conftest import Replicate, TriggersReplica

pytestmark = pytest.mark.pg

BANK = """
CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, note text, nick text UNIQUE);
CREATE TABLE moves (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, sender bigint NOT NULL, receiver bigint NOT NULL, amount bigint);
INSERT INTO accounts SELECT i, 1000, NULL, 'nick ' || i FROM generate_series(1, 50) i;
"""
TOTAL = 50_000


@pytest.fixture(params=[pytest.param("pg16", marks=pytest.mark.chaos), "pg18"])
def bank(request: pytest.FixtureRequest, database_on: Callable[[EmbeddedPostgres], Database]) -> Database:
    database = database_on(request.getfixturevalue(request.param))
    database.execute(BANK)
    return database


class PostgresTellers(Tellers):
    def move(self, connection: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> None:
        one, other = sorted(chance.sample(range(1, 51), 2))
        amount = chance.randrange(-50, 50)
        connection.execute("BEGIN")
        connection.execute("UPDATE accounts SET balance = balance - %s WHERE id = %s", [amount, one])
        connection.execute("SAVEPOINT s")
        connection.execute("UPDATE accounts SET balance = balance + 1000000, note = 'undone' WHERE id = %s", [other])
        connection.execute("ROLLBACK TO SAVEPOINT s")
        connection.execute("UPDATE accounts SET balance = balance + %s WHERE id = %s", [amount, other])
        connection.execute("INSERT INTO moves (sender, receiver, amount) VALUES (%s, %s, %s)", [one, other, amount])
        if chance.random() < 0.2:
            connection.execute("DELETE FROM moves WHERE id = (SELECT min(id) FROM moves)")
        if chance.random() < 0.1:  # two rows change a unique value between them
            connection.execute("UPDATE accounts SET nick = NULL WHERE id = %s", [one])
            connection.execute("UPDATE accounts SET nick = 'nick ' || id WHERE id = %s", [one])
        connection.execute("ROLLBACK" if chance.random() < 0.2 else "COMMIT")


@contextmanager
def watched(replica: TriggersReplica) -> Iterator[list[object]]:
    """A reader of the copy sees the constant sum at any moment."""
    seen: list[object] = []
    stopping = threading.Event()

    def look() -> None:
        while not stopping.is_set():
            seen.append(replica.query("SELECT sum(balance) FROM accounts")[0][0])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        thread.join(30)
    assert set(map(int, map(str, seen))) == {TOTAL}


def test_each_boundary_is_a_state_that_the_source_had(bank: Database, replicate: Replicate) -> None:
    replica = replicate(bank, "accounts", "moves")
    with PostgresTellers(bank) as tellers, watched(replica) as seen:
        for _ in range(5):
            tellers.more(40)
            replica.catch_up()
        wait_until(lambda: len(seen) > 5)
    replica.assert_equal()


def reader_pid(replica: TriggersReplica) -> int | None:
    run = replica.pipeline.run
    return None if run is None else run.reader_pid()


def test_nothing_is_lost_or_doubled_over_deaths(bank: Database, replicate: Replicate) -> None:
    replica = replicate(bank, "accounts", "moves", queue_mode=QueueMode.PERSIST)
    with PostgresTellers(bank) as tellers:
        for number in range(3):
            tellers.more(30)
            replica.kill_reader()
            tellers.more(30)
            if number % 2:
                replica.restart()
                replica.wait_live()
    replica.assert_equal()
    assert not replica.events_of("log_gap")


def test_a_large_transaction_comes_in_parts(bank: Database, replicate: Replicate) -> None:
    replica = replicate(bank, "accounts", "moves")
    with bank.connect() as connection, connection.transaction():
        connection.execute(
            "INSERT INTO moves (sender, receiver, amount) SELECT 1, 2, i FROM generate_series(1, 50000) i"
        )
        connection.execute("UPDATE moves SET amount = amount + 1 WHERE id % 2 = 0")
        connection.execute("UPDATE accounts SET note = repeat('large ', 1000)")
    replica.assert_equal()
    bank.execute("TRUNCATE moves")
    bank.execute("INSERT INTO moves (sender, receiver, amount) VALUES (1, 2, 3)")
    replica.assert_equal()


VALUES = """
CREATE TYPE mood AS ENUM ('sad', 'fine');
CREATE TYPE address AS (street text, number int);
CREATE TABLE plain (id int PRIMARY KEY, t text, v varchar(9), c char(4), n numeric, d date, ts timestamp, tz timestamptz, u uuid,
    m mood, b bool);
CREATE TABLE exact (id int PRIMARY KEY, j json, jb jsonb, a int[], tt text[], f float8, r float4, i interval, by bytea, ra tstzrange,
    ad address, money money, g int GENERATED ALWAYS AS (id * 2) STORED);
"""


def test_every_value_arrives_as_it_is(bank: Database, replicate: Replicate) -> None:
    """Also what JSON does not hold, and whatever the writer's session prints."""
    bank.execute(VALUES)
    replica = replicate(bank, "plain", table("exact", map_as={"a": "text", "tt": "text"}))
    with bank.connect() as connection:
        for setting in (
            "extra_float_digits = -10",
            "datestyle = 'SQL, DMY'",
            "intervalstyle = 'iso_8601'",
            "timezone = 'Asia/Kolkata'",
            "bytea_output = 'escape'",
        ):
            connection.execute(f"SET {setting}".encode())
        connection.execute(
            r"""INSERT INTO plain VALUES
            (1, E'tab\t new\n back\\slash "quoted" \b', 'é', 'ab', 'NaN', 'infinity', '4713-01-01 BC', '2026-03-04 05:06:07.5',
             gen_random_uuid(), 'sad', true),
            (2, NULL, '', NULL, 12345678901234567890.123456789, '2026-02-03', 'infinity', '-infinity', NULL, 'fine', false),
            (3, '\N', 'null', '{}', -0.10, NULL, NULL, NULL, NULL, NULL, NULL)"""
        )
        connection.execute(
            r"""INSERT INTO exact VALUES
            (1, 'null', 'null', '[0:2]={1,2,NULL}', ARRAY['a,"b', NULL, ''], 0.1::float8 + 0.2, 'NaN', '1 mon 2 days 3.000001 s',
             '\x00ff5c', '[2026-01-01,)',
             ROW('x, "y"', 1), 12.34),
            (2, '{"b":  1, "a": [1e2]}', '{"b": 1.50}', '{}', '{{a,b},{c,d}}', '-0', 1.17549435e-38, '-1 year', '', 'empty', NULL, -5)"""
        )
        connection.execute("UPDATE plain SET t = t || 'x', n = n + 1")
        connection.execute("UPDATE exact SET f = f / 3, a = a || 7 WHERE id = 1")
        connection.execute("UPDATE exact SET id = 20 WHERE id = 2")
    replica.assert_equal()
    bank.execute("DELETE FROM exact WHERE id = 1; DELETE FROM plain WHERE id = 3")
    replica.assert_equal()


def test_columns_that_come_and_go_are_followed(bank: Database, replicate: Replicate) -> None:
    replica = replicate(bank, "accounts", "moves")
    bank.execute(
        "BEGIN; UPDATE accounts SET note = 'before'; ALTER TABLE accounts ADD COLUMN level int DEFAULT 7;"
        " UPDATE accounts SET level = id WHERE id < 10; COMMIT"
    )
    replica.assert_equal()
    bank.execute(
        "BEGIN; UPDATE accounts SET level = 1; ALTER TABLE accounts DROP COLUMN note; UPDATE accounts SET balance = balance + 0; COMMIT"
    )
    replica.assert_equal()
    bank.execute("UPDATE accounts SET nick = 'n' || id; ALTER TABLE accounts RENAME COLUMN nick TO name")
    bank.execute("UPDATE accounts SET name = name || '!'")
    replica.satisfied()
    replica.assert_equal()
    bank.execute(
        "BEGIN; UPDATE accounts SET level = 5; ALTER TABLE accounts ALTER COLUMN level TYPE text USING 'level ' || level; COMMIT"
    )
    bank.execute("UPDATE accounts SET level = 'high' WHERE id = 3")
    replica.satisfied()
    replica.assert_equal()


EXCHANGED = (
    "UPDATE accounts SET note = 'note ' || id, nick = 'of ' || id WHERE id < 9; ALTER TABLE accounts RENAME note TO other;"
    " ALTER TABLE accounts RENAME nick TO note; ALTER TABLE accounts RENAME other TO nick"
)


def test_changes_before_names_were_exchanged_are_neither_lost_nor_misread(bank: Database, replicate: Replicate) -> None:
    """Whether the reader knew the table before, or begins after it, with changes that were applied already."""
    replica = replicate(bank, "accounts", "moves")
    for away in (False, True):
        bank.execute("UPDATE accounts SET balance = balance + 0 WHERE id = 1")
        replica.assert_equal()
        if away:
            replica.desire_paused()
        bank.execute(f"BEGIN; {EXCHANGED}; COMMIT")
        if away:
            replica.desire_running()
        replica.satisfied()
        replica.assert_equal()


def test_values_that_cannot_be_read_any_more_are_copied_again(bank: Database, replicate: Replicate) -> None:
    """A column that JSON does not hold comes to a table recorded as JSON; a label gets another name after rows with it were written."""
    bank.execute("CREATE TYPE mood AS ENUM ('sad', 'fine'); CREATE TABLE moods (id int PRIMARY KEY, m mood)")
    replica = replicate(bank, "accounts", "moods")
    bank.execute("ALTER TABLE accounts ADD COLUMN tags jsonb")
    bank.execute("UPDATE accounts SET tags = 'null'")
    replica.satisfied()
    replica.assert_equal()
    bank.execute("UPDATE accounts SET tags = '[null]'; UPDATE accounts SET tags = 'null' WHERE id < 9")
    replica.assert_equal()
    bank.execute(
        "BEGIN; INSERT INTO moods VALUES (1, 'sad'), (2, 'fine'); ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'; COMMIT"
    )
    replica.satisfied()
    replica.assert_equal()


def test_a_shadow_log_that_others_drop_fails_the_subscription_until_it_is_reloaded(
    bank: Database, replicate: Replicate
) -> None:
    replica = replicate(bank, "accounts")
    bank.execute("DROP SCHEMA penstock CASCADE")
    failed = replica.wait_state("failed")
    assert failed.code in {"log_gap", "publication_changed"}
    assert "reload" in (failed.remedy or "")
    bank.execute("UPDATE accounts SET balance = balance + 1")
    replica.pipeline.reload("all", None)
    replica.wait_reload("all")
    replica.satisfied()
    bank.execute("UPDATE accounts SET balance = balance + 1")
    replica.assert_equal()


TRAPS = [
    'ALTER TABLE accounts DISABLE TRIGGER "!penstock_update"; UPDATE accounts SET balance = balance + 1;'
    ' ALTER TABLE accounts ENABLE ALWAYS TRIGGER "!penstock_update"',
    "ALTER TABLE accounts DISABLE TRIGGER ALL; ALTER TABLE accounts ENABLE TRIGGER ALL",
    'DROP TRIGGER "!penstock_delete" ON accounts',
]


@pytest.mark.parametrize("trap", TRAPS, ids=["disabled for a while", "no longer always", "dropped"])
def test_a_table_whose_triggers_others_changed_is_parked_until_it_is_reloaded(
    bank: Database, replicate: Replicate, trap: str
) -> None:
    replica = replicate(bank, "accounts", "moves")
    with bank.connect() as connection, connection.transaction():
        connection.execute(trap.encode())
    parked = replica.wait_table("accounts", "parked")
    assert parked.code == "change_triggers_changed"
    assert "reload" in (parked.remedy or "").lower()
    bank.execute("INSERT INTO moves (sender, receiver, amount) VALUES (1, 2, 3)")
    replica.pipeline.reload("again", [replica.table_id("accounts")])
    replica.wait_live()
    bank.execute("UPDATE accounts SET balance = balance + 1; DELETE FROM accounts WHERE id = 50")
    replica.assert_equal()


def test_no_wait_for_now_is_satisfied_past_changes_that_triggers_missed(bank: Database, replicate: Replicate) -> None:
    """The next regular check is far: reading "now" finds the change of the triggers."""
    replica = replicate(bank, "accounts", "moves", guard_interval_s=300.0)
    replica.satisfied()
    with bank.connect() as connection, connection.transaction():
        connection.execute(TRAPS[0].encode())
    with pytest.raises(AssertionError, match="for waits"):
        replica.satisfied(3.0)
    assert replica.wait_table("accounts", "parked").code == "change_triggers_changed"


def test_writes_as_a_replica_are_recorded(bank: Database, replicate: Replicate) -> None:
    replica = replicate(bank, "accounts")
    with bank.connect() as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE accounts SET balance = 0 WHERE id < 5")
    replica.assert_equal()


def test_removal_leaves_the_tables_as_they_were(bank: Database, replicate: Replicate) -> None:
    before = bank.execute("SELECT count(*) FROM pg_trigger")
    replica = replicate(bank, "accounts", "moves")
    source = TriggerSource(replica.spec.source)
    try:
        replica.pipeline.close()
        assert source.reader.remove(replica.spec.reader) == []
    finally:
        source.close()
    assert bank.execute("SELECT count(*) FROM pg_trigger") == before
    assert bank.execute("SELECT count(*) FROM penstock.readers") == [(0,)]
