"""Rows with a delete flag are deleted by the next cycle on schedule; and the statements that are offered make such a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.model.identity import TableName
from engine.model.source import Finding, Severity
from engine.model.subscription import ConnectionSpec, OriginFilter
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.postgres_queries.stamp_script import PURGE_SETTING
from engine.sources.query_diff.database import Method
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.replication import table
from tests.fixtures.stamped_tables import (
    FLAGGED,
    Cycles,
    Shop,
    assert_another_type_of_a_flag_is_refused,
    assert_flags_delete_and_come_back,
)

pytestmark = pytest.mark.pg

NAME = TableName("public", "orders")
CHOSEN = {str(NAME): FLAGGED}


@pytest.fixture(scope="module")
def standing(pg18: Any) -> Iterator[Database]:
    with standing_database(pg18, "delete_flags") as made:
        assert isinstance(made, Database)
        yield made


@pytest.fixture
def database(standing: Database) -> Database:
    standing.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return standing


def test_a_prepared_transaction_is_as_old_as_its_beginning_may_be(
    database: Database, compared: PostgresDatabase
) -> None:
    assert compared.open_for_s() < 900
    database.execute("CREATE TABLE other (id int)")
    with database.connect() as session:
        session.execute("BEGIN")
        session.execute("INSERT INTO other VALUES (1)")
        session.execute("PREPARE TRANSACTION 'late'")
        try:
            found = compared.open_for_s()
            assert 900 < found < 960
            assert compared.open_for_s() > found
        finally:
            session.execute("ROLLBACK PREPARED 'late'")


@pytest.fixture
def compared(database: Database) -> Iterator[PostgresDatabase]:
    connector = Connector(ConnectionSpec("shop", "postgres", database.settings))
    with closing(PostgresDatabase(connector, Compared(CHOSEN))) as opened:
        yield opened


class PostgresShop(Shop):
    """The database of a test."""

    name = NAME
    moment = "clock_timestamp()"
    retype = "ALTER TABLE orders ALTER deleted TYPE text USING 'no'"

    def __init__(self, database: Database, compared: PostgresDatabase) -> None:
        self._database = database
        self._compared = compared

    @property
    def compared(self) -> PostgresDatabase:
        return self._compared

    def make(self, flag: str) -> None:
        self._database.execute(MAKE.format(flag=flag))

    def execute(self, statement: str) -> object:
        return self._database.execute(statement)


MAKE = """
CREATE TABLE orders (id int PRIMARY KEY, note text, changed_at timestamptz NOT NULL DEFAULT clock_timestamp(), deleted {flag});
INSERT INTO orders SELECT i, 'note', now() - interval '1 day' FROM generate_series(1, 50) AS i
"""


@pytest.mark.parametrize("flag", ["boolean", "integer"])
@pytest.mark.parametrize("method", [Method.INCREMENTAL, Method.RANGE_CHECKSUM])
def test_a_flag_deletes_and_one_that_is_taken_back_inserts(
    database: Database, compared: PostgresDatabase, tmp_path: Path, flag: str, method: Method
) -> None:
    assert_flags_delete_and_come_back(PostgresShop(database, compared), tmp_path / "reader", flag, method)


def test_what_is_read_follows_the_number_of_changes(
    database: Database, compared: PostgresDatabase, tmp_path: Path
) -> None:
    database.execute(MAKE.format(flag="boolean"))
    cycles = Cycles(compared, tmp_path / "reader", Method.ROW_CHECKSUM, NAME)
    database.execute(
        "UPDATE orders SET deleted = id = 7, changed_at = clock_timestamp() - interval '1 minute' WHERE id IN (7, 8)"
    )
    cycles.run()
    database.execute("UPDATE orders SET note = 'other', changed_at = clock_timestamp() WHERE id = 9")
    cycles.run()
    found = cycles.found()
    assert (found.rows_read, found.rows_hashed, found.deleted) == (0, 1, 0)


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_a_stamp_of_the_future_hides_no_later_change(
    database: Database, compared: PostgresDatabase, tmp_path: Path, kind: str
) -> None:
    database.execute(MAKE.format(flag="boolean"))
    database.execute(f"ALTER TABLE orders ALTER changed_at TYPE {kind}")
    cycles = Cycles(compared, tmp_path / "reader", Method.INCREMENTAL, NAME)
    database.execute("UPDATE orders SET changed_at = now() + interval '3 days' WHERE id = 7")
    database.execute("UPDATE orders SET changed_at = 'infinity' WHERE id = 8")
    cycles.run()
    database.execute("UPDATE orders SET note = 'later', changed_at = clock_timestamp() WHERE id = 9")
    assert cycles.run() == (0, 1, 0)


def test_transactions_of_a_database_that_this_one_subscribes_to_are_not_known(
    database: Database, compared: PostgresDatabase
) -> None:
    database.execute("CREATE SUBSCRIPTION elsewhere CONNECTION 'host=localhost' PUBLICATION p WITH (connect = false)")
    try:
        assert compared.open_for_s() < 900
        database.execute("ALTER SUBSCRIPTION elsewhere SET (slot_name = NONE)")
        database.execute("UPDATE pg_subscription SET subenabled = true WHERE subname = 'elsewhere'")
        assert compared.open_for_s() >= 900
    finally:
        database.execute("UPDATE pg_subscription SET subenabled = false WHERE subname = 'elsewhere'")
        database.execute("DROP SUBSCRIPTION elsewhere")


def checked(compared: PostgresDatabase) -> list[Finding]:
    return compared.preflight([table("orders")], OriginFilter.ANY)


def mended(compared: PostgresDatabase, database: Database) -> list[str]:
    """Run what the findings offer; their codes."""
    found = checked(compared)
    for statement in (statement for finding in found for statement in finding.sql):
        database.execute(statement)
    return [finding.code for finding in found if finding.severity is not Severity.INFO]


def test_the_offered_statements_make_a_table_whose_deletes_are_found(
    database: Database, compared: PostgresDatabase, tmp_path: Path
) -> None:
    database.execute('CREATE TABLE orders (id int, "p""art" text, n float8, PRIMARY KEY (id, "p""art"))')
    database.execute("INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 2), (3, '', 3)")
    assert mended(compared, database) == ["table_columns_unfit", "table_columns_unfit"]
    assert mended(compared, database) == ["stamp_without_index"]
    assert mended(compared, database) == []
    cycles = Cycles(compared, tmp_path / "reader", Method.ROW_CHECKSUM, NAME)
    database.execute("DELETE FROM orders WHERE id = 1; INSERT INTO orders VALUES (4, 'd', 4)")
    database.execute("UPDATE orders SET n = 9 WHERE id = 3; DELETE FROM orders WHERE id = 1")
    assert cycles.run() == (1, 1, 1)
    assert database.execute("SELECT id FROM orders WHERE deleted") == [(1,)]
    with database.connect() as connection:
        connection.execute(f"SET {PURGE_SETTING} = on".encode())
        connection.execute("DELETE FROM orders WHERE deleted")
    assert database.execute("SELECT count(*) FROM orders") == [(3,)]
    assert cycles.run(complete=True) == (0, 0, 0)


def test_a_flag_of_another_type_is_refused_and_no_row_goes(
    database: Database, compared: PostgresDatabase, tmp_path: Path
) -> None:
    assert_another_type_of_a_flag_is_refused(PostgresShop(database, compared), tmp_path / "reader")
