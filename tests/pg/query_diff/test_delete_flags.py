"""Rows with a delete flag are deleted by the next cycle on schedule; and the statements that are offered make such a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.cycle_files import TableFound
from engine.sources.query_diff.database import ComparedDatabase, Method
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.folder import Folder, Follow
from engine.sources.query_diff.given import Given
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.replication import table

pytestmark = pytest.mark.pg

NAME = TableName("public", "orders")
FLAGGED = TableDetection(
    method="timestamp_delete_flag", stamp_column="changed_at", flag_column="deleted", sweep_every=100_000
)
FLAGGED_ORDERS = {NAME: FLAGGED}
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


class Cycles:
    """Cycles of the one table of which something is chosen."""

    def __init__(
        self,
        compared: ComparedDatabase,
        path: Path,
        method: Method,
        chosen: Mapping[TableName, TableDetection] = FLAGGED_ORDERS,
    ) -> None:
        self._compared = compared
        self.given = Given(0, method, 10.0, path, "shop", {str(name): one for name, one in chosen.items()})
        folder = Folder(path)
        folder.make()
        folder.follow({name: Follow(None, frozenset({"insert", "update", "delete"})) for name in chosen})
        self.run(complete=True)

    def run(self, *, complete: bool = False) -> tuple[int, int, int]:
        """Inserts, updates and deletes that a cycle finds."""
        found = self.found(complete=complete)
        return found.inserted, found.updated, found.deleted

    def found(self, *, complete: bool = False) -> TableFound:
        with run_cycle(self._compared, self.given, complete=complete):
            pass
        (found,) = self.given.folder.files.reports(1)[0].tables
        assert found.since_stamp is not (complete or found.filled)
        return found


MAKE = """
CREATE TABLE orders (id int PRIMARY KEY, note text, changed_at timestamptz NOT NULL DEFAULT clock_timestamp(), deleted {flag});
INSERT INTO orders SELECT i, 'note', now() - interval '1 day' FROM generate_series(1, 50) AS i
"""


@pytest.mark.parametrize("flag", ["boolean", "integer"])
@pytest.mark.parametrize("method", [Method.INCREMENTAL, Method.RANGE_CHECKSUM])
def test_a_flag_deletes_and_one_that_is_taken_back_inserts(
    database: Database, compared: PostgresDatabase, tmp_path: Path, flag: str, method: Method
) -> None:
    database.execute(MAKE.format(flag=flag))
    is_set, is_unset = ("true", "false") if flag == "boolean" else ("2", "0")
    cycles = Cycles(compared, tmp_path / "reader", method)
    database.execute(f"UPDATE orders SET deleted = {is_set}, changed_at = clock_timestamp() WHERE id <= 3")
    database.execute(f"INSERT INTO orders (id, deleted) VALUES (60, {is_set}), (61, {is_unset}), (62, NULL)")
    assert cycles.run() == (2, 0, 3)
    # They are read again while their stamps are recent.
    assert cycles.run() == (0, 0, 0)
    database.execute(f"UPDATE orders SET deleted = {is_unset}, changed_at = clock_timestamp() WHERE id = 1")
    assert cycles.run() == (1, 0, 0)
    # A row that is removed later was deleted before; one that was not is found where all rows are compared.
    database.execute("DELETE FROM orders WHERE id IN (2, 3, 4)")
    assert cycles.run() == (0, 0, 0)
    assert cycles.run(complete=True) == (0, 0, 1)


def test_what_is_read_follows_the_number_of_changes(
    database: Database, compared: PostgresDatabase, tmp_path: Path
) -> None:
    database.execute(MAKE.format(flag="boolean"))
    cycles = Cycles(compared, tmp_path / "reader", Method.ROW_CHECKSUM)
    database.execute("UPDATE orders SET deleted = id = 7, changed_at = clock_timestamp() WHERE id IN (7, 8)")
    cycles.run()
    database.execute("UPDATE orders SET note = 'other', changed_at = clock_timestamp() + '1 minute' WHERE id = 9")
    cycles.run()
    found = cycles.found()
    assert (found.rows_read, found.rows_hashed, found.deleted) == (0, 1, 0)


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
    cycles = Cycles(compared, tmp_path / "reader", Method.ROW_CHECKSUM)
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
    database.execute(MAKE.format(flag="boolean"))
    cycles = Cycles(compared, tmp_path / "reader", Method.ROW_CHECKSUM)
    before = compared.describe([table("orders")])
    assert before[NAME].row_filter is not None
    database.execute("ALTER TABLE orders ALTER deleted TYPE text USING 'no'")
    assert [f.code for f in checked(compared) if f.severity is Severity.ERROR] == ["table_columns_unfit"]
    assert (compared.describe([table("orders")]), compared.tables({NAME: None})) == ({}, {})
    with run_cycle(compared, cycles.given):
        pass
    assert cycles.given.folder.files.reports(1)[0].tables == ()
