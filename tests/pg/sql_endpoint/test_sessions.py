"""Sessions of psycopg and psql with the SQL endpoint."""

from __future__ import annotations

import json
import threading
from typing import Any

import psycopg
import pytest
from psycopg import pq

from tests.fixtures.postgres import Database
from tests.fixtures.sql_clients import needs_psql, psql
from tests.pg.sql_endpoint.conftest import Endpoint

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint")]


def _shown(connection: psycopg.Connection[Any], name: str) -> str:
    found = connection.execute(f"SHOW {name}".encode()).fetchone()
    assert found is not None
    return str(found[0])


def test_a_session_sees_what_was_committed_before_its_statement(endpoint: Endpoint, database: Database) -> None:
    with endpoint.connect() as reader, database.connect() as writer:
        reader.execute("SET penstock.freshness = 'latest'")
        for i in range(20):
            writer.execute("INSERT INTO orders VALUES (%s, 'ann', 1)", [5000 + i])
            found = reader.execute(f"SELECT count(*) FROM orders WHERE id = {5000 + i}").fetchone()
            assert found == (1,)
        receipt = json.loads(_shown(reader, "penstock.receipt"))
        assert [table["name"] for table in receipt["tables"]] == ["orders"]
        assert _shown(reader, "penstock.position") >= receipt["position"]


def test_a_position_can_be_asked_for(endpoint: Endpoint, database: Database) -> None:
    with endpoint.connect() as reader, database.connect() as writer:
        writer.execute("UPDATE lines SET sku = 'by position' WHERE order_id = 1")
        position = writer.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert position is not None
        reader.execute(f"SET penstock.freshness = '{position[0]}'".encode())
        assert reader.execute("SELECT sku FROM lines WHERE order_id = 1").fetchone() == ("by position",)


def test_a_missed_deadline_has_a_state_of_its_own_and_says_how_far_it_is(endpoint: Endpoint) -> None:
    with endpoint.connect() as reader:
        with pytest.raises(psycopg.Error) as missed:
            reader.execute("/*+ penstock.freshness = FFFF/0, penstock.timeout_ms = 50 */ SELECT 1 FROM orders")
        assert missed.value.diag.sqlstate == "PF001"
        assert "applied=" in (missed.value.diag.message_detail or "")
        assert reader.execute("SELECT count(*) FROM lines").fetchone() == (100,)


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("INSERT INTO orders VALUES (1)", "25006"),
        ("CREATE TABLE x (a int)", "25006"),
        ("COPY orders TO '/tmp/x'", "25006"),
        ("ATTACH '/etc/passwd' AS x", "25006"),
        ("SELECT * FROM read_csv('/etc/passwd')", "25006"),
        ("SELECT getenv('HOME')", "25006"),
        ("SELEC 1", "42601"),
        ("SELECT * FROM nowhere", "42P01"),
        ("SELECT nothing FROM orders", "42703"),
        ("SET penstock.freshnes = 'latest'", "42704"),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE", "0A000"),
        ("FETCH 1 FROM nothing", "34000"),
        ("SET penstock.freshness = 'yesterday'; SELECT 1 FROM orders", "22023"),
    ],
)  # fmt: skip
def test_refusals(endpoint: Endpoint, sql: str, state: str) -> None:
    with endpoint.connect() as reader:
        with pytest.raises(psycopg.Error) as refused:
            reader.execute(sql.encode())
        assert refused.value.diag.sqlstate == state
        reader.execute("RESET ALL")
        assert reader.execute("SELECT 1").fetchone() == (1,)


def test_transactions_and_their_settings(endpoint: Endpoint) -> None:
    with endpoint.connect(autocommit=False) as reader:
        reader.execute("SET penstock.freshness = latest")
        reader.rollback()
        assert _shown(reader, "penstock.freshness") == "any"
        with pytest.raises(psycopg.Error):
            reader.execute("SELECT * FROM nowhere")
        assert reader.info.transaction_status is pq.TransactionStatus.INERROR
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            reader.execute("SELECT 1")
        reader.rollback()
        assert reader.execute("SELECT 1").fetchone() == (1,)
        assert reader.info.transaction_status is pq.TransactionStatus.INTRANS


def test_commands_take_effect_when_they_are_executed_not_when_they_are_described(endpoint: Endpoint) -> None:
    with endpoint.connect() as reader:
        for _ in range(3):
            reader.execute("BEGIN", prepare=True)
            reader.execute("SET penstock.timeout_ms = 7", prepare=True)
            assert reader.info.transaction_status is pq.TransactionStatus.INTRANS
            reader.execute("ROLLBACK", prepare=True)
            assert reader.info.transaction_status is pq.TransactionStatus.IDLE
            assert _shown(reader, "penstock.timeout_ms") == "30000"


def test_several_statements_at_once_end_at_the_first_error(endpoint: Endpoint) -> None:
    with endpoint.connect() as reader:
        cursor = reader.execute("SELECT 1; ; SET penstock.timeout_ms = 1000; SELECT 2, 3")
        assert cursor.fetchone() == (1,)
        assert cursor.nextset()
        assert cursor.statusmessage == "SET"
        assert cursor.nextset()
        assert cursor.fetchone() == (2, 3)
        with pytest.raises(psycopg.errors.UndefinedTable):
            reader.execute("SET penstock.timeout_ms = 2000; SELECT * FROM nowhere; SET penstock.timeout_ms = 3000")
        assert _shown(reader, "penstock.timeout_ms") == "2000"
        empty = reader.execute("  ; ").pgresult
        assert empty is not None
        assert empty.status == pq.ExecStatus.EMPTY_QUERY


def test_a_cursor_reads_in_parts(endpoint: Endpoint) -> None:
    with endpoint.connect(autocommit=False) as reader, reader.cursor(name="parts") as cursor:
        cursor.itersize = 30
        cursor.execute("SELECT i FROM range(100) AS r(i) ORDER BY i")
        assert [row[0] for row in cursor] == list(range(100))


def test_binary_and_text_rows_are_equal(endpoint: Endpoint) -> None:
    sql = "SELECT id, customer, total, placed, note FROM orders WHERE id <= 50 ORDER BY id"
    with endpoint.connect() as reader:
        text = reader.execute(sql).fetchall()
        binary = reader.execute(sql, binary=True).fetchall()
    assert len(text) == 50
    assert text == binary


def test_a_running_statement_is_cancelled(endpoint: Endpoint) -> None:
    endless = "SELECT count(*) FROM range(1000000000) a(i), range(1000) b(j) WHERE (i * j) % 7 = 3"
    with endpoint.connect() as reader:
        failed: list[psycopg.Error] = []

        def run() -> None:
            try:
                reader.execute(endless)
            except psycopg.Error as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():  # a cancel request that comes before the statement has no effect
            reader.cancel_safe(timeout=10)
            thread.join(0.2)
        assert [error.sqlstate for error in failed] == ["57014"]
        assert reader.execute("SELECT 1").fetchone() == (1,)


def test_a_statement_ends_at_its_timeout(endpoint: Endpoint) -> None:
    with endpoint.connect(options="-c statement_timeout=500") as reader:
        with pytest.raises(psycopg.errors.QueryCanceled):
            reader.execute("SELECT count(*) FROM range(1000000000) a(i), range(1000) b(j) WHERE (i * j) % 7 = 3")
        reader.execute("SET statement_timeout = 0")
        assert reader.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("changed", [{"password": "wrong"}, {"user": "no-such-token"}, {"user": "preset-engine"}])
def test_wrong_logins(endpoint: Endpoint, changed: dict[str, str]) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        endpoint.connect(**changed)


def test_an_unknown_subscription(endpoint: Endpoint) -> None:
    with endpoint.connect(dbname="nowhere") as reader, pytest.raises(psycopg.errors.InvalidCatalogName):
        reader.execute("SELECT 1")


def test_tokens_of_the_api_log_in_until_they_are_revoked(endpoint: Endpoint) -> None:
    with endpoint.service.server.client() as api:
        made = api.post("/tokens", json={"name": "dashboard", "role": "viewer"}).json()
        with endpoint.connect(user="dashboard", password=made["token"]) as reader:
            assert reader.execute("SELECT count(*) FROM lines").fetchone() == (100,)
        assert api.delete(f"/tokens/{made['id']}").status_code == 204
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        endpoint.connect(user="dashboard", password=made["token"])


@needs_psql
def test_psql(endpoint: Endpoint) -> None:
    commands = [
        "SET penstock.freshness = latest",
        "SELECT count(*) AS lines FROM lines",
        r"\set FETCH_COUNT 10",
        "SELECT n FROM lines",
        "SHOW penstock.freshness",
    ]
    arguments = [part for command in commands for part in ("-c", command)]
    ended = psql(endpoint, "-A", "-t", *arguments)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["SET", "100", *["1"] * 100, "latest"]
