"""PostgreSQL's JDBC driver over a copy, as BI tools use it: metadata, parameters, values in text and binary form, fetches in parts."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import py4j
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from engine.spark.java import find_java
from tests.fixtures.channel import ADMIN
from tests.fixtures.postgres import Database
from tests.pg.sql_endpoint.conftest import USER, Endpoint

DRIVER = Path("/usr/share/java/postgresql.jar")
pytestmark = [
    pytest.mark.pg,
    pytest.mark.xdist_group("sql_endpoint"),
    pytest.mark.skipif(not DRIVER.exists(), reason=f"no {DRIVER}; Debian's libpostgresql-jdbc-java has it"),
]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Java with the driver on its class path."""
    home = find_java(tmp_path_factory.mktemp("java"))
    port = launch_gateway(
        classpath=f"{DRIVER}:{_bridge()}", java_path=str(home / "bin" / "java"), die_on_exit=True, redirect_stdout=None
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    yield gateway.jvm
    gateway.shutdown()


def _bridge() -> Path:
    """The Java side of py4j, which pyspark brings."""
    import pyspark

    found = sorted((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    assert found, f"no jar of py4j {py4j.__version__} in pyspark"
    return found[-1]


@pytest.fixture
def connection(java: Any, endpoint: Endpoint) -> Iterator[Any]:
    opened = _connect(java, endpoint, ADMIN)
    yield opened
    opened.close()


def _connect(java: Any, endpoint: Endpoint, password: str, **options: str) -> Any:
    properties = java.java.util.Properties()
    for name, value in {"user": USER, "password": password, "sslmode": "disable", **options}.items():
        properties.setProperty(name, value)
    return java.org.postgresql.Driver().connect(f"jdbc:postgresql://127.0.0.1:{endpoint.port}/shop", properties)


def _rows(found: Any, *columns: str) -> list[tuple[Any, ...]]:
    rows = []
    while found.next():
        rows.append(tuple(found.getObject(column) for column in columns))
    found.close()
    return rows


def test_metadata(connection: Any) -> None:
    described = connection.getMetaData()
    assert described.getDatabaseProductName() == "PostgreSQL"
    tables = _rows(described.getTables(None, "public", "%", None), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE")
    assert {("public", "orders", "TABLE"), ("public", "lines", "TABLE")} <= set(tables)
    columns = _rows(described.getColumns(None, "public", "orders", "%"), "COLUMN_NAME", "TYPE_NAME", "NULLABLE")
    assert [name for name, _, _ in columns] == ["id", "customer", "total", "placed", "note"]
    assert [kind for _, kind, _ in columns] == ["int8", "text", "numeric", "timestamptz", "text"]
    assert ("public",) in _rows(described.getSchemas(), "TABLE_SCHEM")
    assert ("shop",) in _rows(described.getCatalogs(), "TABLE_CAT")
    assert _rows(described.getImportedKeys(None, "public", "lines"), "FKTABLE_NAME") == []
    assert len(_rows(described.getTypeInfo(), "TYPE_NAME")) > 20
    keys = _rows(described.getPrimaryKeys(None, "public", "lines"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME")
    assert sorted(keys, key=lambda row: row[1]) == [("order_id", 1, "lines_pkey"), ("n", 2, "lines_pkey")]
    best = described.getBestRowIdentifier(None, "public", "orders", 0, False)
    assert _rows(best, "COLUMN_NAME") == [("id",)]


def test_arrays_as_parameters(java: Any, connection: Any) -> None:
    def array(*values: Any) -> Any:
        return java.java.util.ArrayList(list(values)).toArray()

    statement = connection.prepareStatement(
        "SELECT id FROM orders WHERE id = ANY (?) AND customer = ANY (?) ORDER BY id"
    )
    for _ in range(7):  # The driver asks for the binary form from the fifth execution on.
        statement.setArray(1, connection.createArrayOf("int8", array(3, None, 5)))
        statement.setArray(2, connection.createArrayOf("text", array("customer 5", 'x,"{}')))
        assert _rows(statement.executeQuery(), "id") == [(5,)]
    statement.close()


def test_a_prepared_statement_in_text_and_then_binary_form(connection: Any) -> None:
    statement = connection.prepareStatement("SELECT id, customer, total, placed, note FROM orders WHERE id = ?")
    seen = set()
    for number in range(1, 12):  # The driver asks for the binary form from the fifth execution on.
        statement.setLong(1, number)
        found = statement.executeQuery()
        assert found.next()
        assert (found.getLong("id"), found.getString("customer")) == (number, f"customer {number % 10}")
        assert found.getBigDecimal("total") == Decimal(number) * Decimal("1.50")
        assert found.getString("note") is None
        seen.add(found.getTimestamp("placed").getTime())
        assert not found.next()
    assert len(seen) == 1, "the rows were inserted by one transaction"
    statement.close()


def test_a_large_answer_is_fetched_in_parts(connection: Any) -> None:
    connection.setAutoCommit(False)
    statement = connection.createStatement()
    statement.setFetchSize(50)
    found = statement.executeQuery("SELECT id FROM orders WHERE id <= 1000 ORDER BY id")
    assert [row for (row,) in _rows(found, "id")] == list(range(1, 1001))
    connection.commit()
    connection.setAutoCommit(True)


def test_a_session_reads_its_own_commit(connection: Any, database: Database) -> None:
    statement = connection.createStatement()
    statement.execute("SET penstock.freshness = 'latest'")
    for number in range(5):
        database.execute("INSERT INTO orders (id, customer, total) VALUES (%s, 'jdbc', 1)", [70_000 + number])
        found = statement.executeQuery("SELECT count(*) AS n FROM orders WHERE customer = 'jdbc'")
        assert _rows(found, "n") == [(number + 1,)]
    database.execute("DELETE FROM orders WHERE customer = 'jdbc'")
    assert _rows(statement.executeQuery("SELECT count(*) AS n FROM orders WHERE customer = 'jdbc'"), "n") == [(0,)]


def test_an_error_has_its_sqlstate_and_the_session_lives_on(connection: Any) -> None:
    statement = connection.createStatement()
    with pytest.raises(Py4JJavaError) as refused:
        statement.executeQuery("SELECT nothing FROM orders")
    assert refused.value.java_exception.getSQLState() == "42703"
    assert _rows(statement.executeQuery("SELECT 1 AS one"), "one") == [(1,)]


def test_a_wrong_token_is_refused(java: Any, endpoint: Endpoint) -> None:
    with pytest.raises(Py4JJavaError) as refused:
        _connect(java, endpoint, "not-the-token")
    assert refused.value.java_exception.getSQLState() == "28P01"
