"""Databases that drivers of ODBC read: values as they are or refused, long ones never cut, and connections that cannot be opened."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.sources.arrow_rows.place import DriverPlace, call_of
from engine.sources.duckdb.database import ReadDatabase
from engine.sources.odbc_queries.declaration import DRIVER
from engine.sources.odbc_queries.terms import ODBC_QUERIES_TERMS
from tests.fixtures.compared_reads import errors, lines_of, whole
from tests.fixtures.odbc import POSTGRES_DRIVER, SQLITE_DRIVER, needs_driver, postgres_options
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.process.sqlite_triggers.conftest import File

SECRET = "s3cr%t;word"
TYPES = "id bigint PRIMARY KEY, n numeric(20, 5), f float8, t text, b bytea, d date, w timestamp, c time"


def database(
    settings: dict[str, Any], secrets: dict[str, str] | None = None, tables: dict[str, Any] | None = None
) -> ReadDatabase:
    capture = CaptureSpec("query_diff", {"every_seconds": 3600, "tables": json.dumps(tables or {})})
    spec = ConnectionSpec("shop", "odbc", settings, secrets or {}, capture)
    return ReadDatabase(DriverPlace(spec, call_of(spec, DRIVER)), ODBC_QUERIES_TERMS)


def lines(found: ReadDatabase, schema: str) -> list[bytes]:
    with closing(found), found.snapshot(1) as snapshot:
        return lines_of(found, whole(found, table("goods", schema)), snapshot)


def fault_of(call: Any) -> EngineFault:
    with pytest.raises(EngineFault) as caught:
        call()
    return caught.value


@pytest.fixture
def postgres(database_on: Any, pg18: Any) -> Database:
    needs_driver(POSTGRES_DRIVER)
    found: Database = database_on(pg18)
    found.execute(f"CREATE TABLE goods ({TYPES})")
    return found


def by_postgres(found: Database, **settings: Any) -> ReadDatabase:
    return database({"driver": POSTGRES_DRIVER, "options": postgres_options(found), **settings})


@pytest.mark.pg
def test_values_are_those_that_postgres_prints(postgres: Database) -> None:
    postgres.execute(
        "INSERT INTO goods VALUES (9223372036854775807, 123456789012345.12345, 0.1, E'a\\t\\\\\\n\\u20ac', '\\x00ff', '0001-01-01',"
        " '9999-12-31 23:59:59.999999', '23:59:59.999999'),"
        " (-9223372036854775808, -0.00001, 1e300, '', '', '1970-01-01', '1970-01-01', '00:00'),"
        " (0, NULL, NULL, NULL, NULL, NULL, NULL, NULL),"
        " (1, 0, 5e-324, NULL, NULL, NULL, NULL, NULL), (2, NULL, 'NaN', 'x', NULL, NULL, NULL, NULL),"
        " (3, 1, '-Infinity', '', NULL, NULL, NULL, NULL)"
    )
    with postgres.connect() as connection, connection.cursor().copy("COPY goods TO STDOUT") as copy:
        wanted = sorted(b"".join(map(bytes, copy)).splitlines())
    assert lines(by_postgres(postgres), "public") == wanted


@pytest.mark.pg
@pytest.mark.parametrize(
    "values",
    [
        "1, 'NaN'",
        "1, 1, 1, 'x', '', 'infinity'",
        "1, 1, 1, 'x', '', '0044-03-15 BC'",
        "1,1,1,'','',NULL,'-infinity'",
        "1,1,1,'','',NULL,'infinity'",
    ],
)
def test_a_value_that_its_type_cannot_hold_is_never_changed(postgres: Database, values: str) -> None:
    postgres.execute(f"INSERT INTO goods VALUES ({values})")
    (line,) = lines(by_postgres(postgres), "public")
    assert b"\xff" in line


@pytest.mark.pg
def test_a_long_value_comes_whole_or_parks_its_table(postgres: Database) -> None:
    postgres.execute("INSERT INTO goods (id, t, b) VALUES (1, repeat('x', 100000), decode(repeat('07', 50000), 'hex'))")
    options = f"{postgres_options(postgres)};MaxLongVarcharSize=1048576"
    (line,) = lines(by_postgres(postgres, options=options), "public")
    fields = line.split(b"\t")
    assert (fields[3], fields[4]) == (b"x" * 100_000, rb"\\x" + b"07" * 50_000)
    for cut in ({}, {"options": options, "longest_value": 40_000}):
        fault = fault_of(lambda cut=cut: lines(by_postgres(postgres, **cut), "public"))
        assert fault.kind is FaultKind.VALUE_OUT_OF_DOMAIN


def test_a_file_of_sqlite_is_read(tmp_path: Path) -> None:
    needs_driver(SQLITE_DRIVER)
    file = File(tmp_path / "shop.db")
    file.execute("CREATE TABLE goods (id BIGINT, name TEXT, price REAL, raw BLOB);")
    file.execute("INSERT INTO goods VALUES (9007199254740993, 'é€', 0.1, x'00ff'), (1, NULL, NULL, NULL);")
    settings = {"driver": SQLITE_DRIVER, "options": f"Database={file.path}"}
    assert errors(database(settings), table("goods", "main")) == ["table_no_identity"]
    found = database(settings, tables={"main.goods": {"key": ["id"]}})
    assert lines(found, "main") == [rb"1	\N	\N	\N", "9007199254740993\té€\t0.1\t\\\\x00ff".encode()]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"driver": "Nothing"}, "Can't open lib"),
        ({"driver": SQLITE_DRIVER, "options": "Database=/nowhere/shop.db"}, "connect failed"),
        ({"driver": POSTGRES_DRIVER, "options": "Server=127.0.0.1;Port=1;Database=x;UID=u"}, "Connection refused"),
    ],
)
def test_a_connection_that_cannot_be_opened_is_found_before(settings: dict[str, Any], what: str) -> None:
    if settings["driver"] != "Nothing":
        needs_driver(settings["driver"])
    pytest.importorskip("arrow_odbc")
    with closing(database(settings, {"password": SECRET, "secret_options": "Token={t0p;s3cret}"})) as found:
        fault = fault_of(found.discover)
    assert fault.kind is FaultKind.SOURCE_UNREACHABLE
    assert what in fault.detail
    assert SECRET not in fault.detail
    assert "t0p;s3cret" not in fault.detail
