"""PostgreSQL's JDBC driver over a copy, as BI tools use it: metadata, parameters, values in text and binary form, fetches in parts."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.fixtures.pg_catalog import prepared_queries
from tests.fixtures.postgres import Database
from tests.fixtures.sql_clients import java_with_driver, jdbc, jdbc_rows, needs_jdbc
from tests.pg.sql_endpoint.conftest import Endpoint

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint"), needs_jdbc]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with java_with_driver(tmp_path_factory.mktemp("java")) as machine:
        yield machine


@pytest.fixture
def connection(java: Any, endpoint: Endpoint) -> Iterator[Any]:
    opened = jdbc(java, endpoint)
    yield opened
    opened.close()


def test_metadata(connection: Any) -> None:
    described = connection.getMetaData()
    assert described.getDatabaseProductName() == "PostgreSQL"
    tables = jdbc_rows(described.getTables(None, "public", "%", None), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE")
    assert {("public", "orders", "TABLE"), ("public", "lines", "TABLE")} <= set(tables)
    columns = jdbc_rows(described.getColumns(None, "public", "orders", "%"), "COLUMN_NAME", "TYPE_NAME", "NULLABLE")
    assert [name for name, _, _ in columns] == ["id", "customer", "total", "placed", "note"]
    assert [kind for _, kind, _ in columns] == ["int8", "text", "numeric", "timestamptz", "text"]
    assert ("public",) in jdbc_rows(described.getSchemas(), "TABLE_SCHEM")
    assert ("shop",) in jdbc_rows(described.getCatalogs(), "TABLE_CAT")
    assert jdbc_rows(described.getImportedKeys(None, "public", "lines"), "FKTABLE_NAME") == []
    assert len(jdbc_rows(described.getTypeInfo(), "TYPE_NAME")) > 20
    keys = jdbc_rows(described.getPrimaryKeys(None, "public", "lines"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME")
    assert sorted(keys, key=lambda row: row[1]) == [("order_id", 1, "lines_pkey"), ("n", 2, "lines_pkey")]
    best = described.getBestRowIdentifier(None, "public", "orders", 0, False)
    assert jdbc_rows(best, "COLUMN_NAME") == [("id",)]


def test_arrays_as_parameters(java: Any, connection: Any) -> None:
    def array(*values: Any) -> Any:
        return java.java.util.ArrayList(list(values)).toArray()

    statement = connection.prepareStatement(
        "SELECT id FROM orders WHERE id = ANY (?) AND customer = ANY (?) ORDER BY id"
    )
    for _ in range(7):  # The driver asks for the binary form from the fifth execution on.
        statement.setArray(1, connection.createArrayOf("int8", array(3, None, 5)))
        statement.setArray(2, connection.createArrayOf("text", array("customer 5", 'x,"{}')))
        assert jdbc_rows(statement.executeQuery(), "id") == [(5,)]
    statement.close()


def test_what_dbeaver_prepares_is_answered(java: Any, endpoint: Endpoint) -> None:
    connection = jdbc(java, endpoint, prepareThreshold="-1")  # values in the binary form, if the driver reads it

    connection.setClientInfo("ApplicationName", "DBeaver - Main <shop>")
    assert jdbc_rows(connection.createStatement().executeQuery("SHOW search_path"), "search_path") == [
        ('"$user", public',)
    ]

    @functools.cache
    def value_of(expression: str) -> Any:
        rows = connection.createStatement().executeQuery(f"SELECT {expression} AS value")
        return jdbc_rows(rows, "value")[0][0]

    found: dict[str, list[list[Any]]] = {}
    for query in prepared_queries():
        statement = connection.prepareStatement(re.sub(r"\$\d", "?", query.sql))
        binds = {"text": statement.setString, "bigint": statement.setLong, "integer": statement.setInt}
        expressions = query.expressions("public", "public.lines")
        for i, ((kind, _), expression) in enumerate(zip(query.values, expressions, strict=True)):
            binds[kind](i + 1, value_of(expression))
        rows = statement.executeQuery()
        width = rows.getMetaData().getColumnCount()
        found[query.name] = []
        while rows.next():
            found[query.name].append([rows.getString(i + 1) for i in range(width)])
        statement.close()
    connection.close()
    assert {row[2] for row in found["dbeaver: tables"]} >= {"orders", "lines", "files"}
    assert [row[2] for row in found["dbeaver: constraints of a table"]] == ["lines_pkey"]
    assert len(found["dbeaver: columns of a table"]) == 3
    assert found["dbeaver: column of an index"] == [["n"]]
    for name in ("database", "schema by name", "indexes of a table", "roles", "type by number"):
        assert len(found[f"dbeaver: {name}"]) == 1, name


def test_bytea_as_a_parameter(connection: Any) -> None:
    statement = connection.prepareStatement("SELECT id, content, ? AS given FROM files WHERE content = ?")
    for number, content in [
        (1, b"\0\xff"),
        (2, b"\\x00"),
        (3, b""),
    ] * 3:  # in the binary form from the fifth execution on
        statement.setBytes(1, content)
        statement.setBytes(2, content)
        assert jdbc_rows(statement.executeQuery(), "id", "content", "given") == [(number, content, content)]
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
    assert [row for (row,) in jdbc_rows(found, "id")] == list(range(1, 1001))
    connection.commit()
    connection.setAutoCommit(True)


def test_a_session_reads_its_own_commit(connection: Any, database: Database) -> None:
    statement = connection.createStatement()
    statement.execute("SET penstock.freshness = 'latest'")
    for number in range(5):
        database.execute("INSERT INTO orders (id, customer, total) VALUES (%s, 'jdbc', 1)", [70_000 + number])
        found = statement.executeQuery("SELECT count(*) AS n FROM orders WHERE customer = 'jdbc'")
        assert jdbc_rows(found, "n") == [(number + 1,)]
    database.execute("DELETE FROM orders WHERE customer = 'jdbc'")
    assert jdbc_rows(statement.executeQuery("SELECT count(*) AS n FROM orders WHERE customer = 'jdbc'"), "n") == [(0,)]


def test_an_error_has_its_sqlstate_and_the_session_lives_on(connection: Any) -> None:
    statement = connection.createStatement()
    with pytest.raises(Py4JJavaError) as refused:
        statement.executeQuery("SELECT nothing FROM orders")
    assert refused.value.java_exception.getSQLState() == "42703"
    assert jdbc_rows(statement.executeQuery("SELECT 1 AS one"), "one") == [(1,)]


def test_a_wrong_token_is_refused(java: Any, endpoint: Endpoint) -> None:
    with pytest.raises(Py4JJavaError) as refused:
        jdbc(java, endpoint, password="not-the-token")
    assert refused.value.java_exception.getSQLState() == "28P01"
