"""`penstock demo` as a person starts it, and SQL clients on its copy while its load runs.

Each session commits orders of its own on the source. A read after that shows them, and sums that hold in every state that the source
ever had: a batch boundary is one.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from server.cli.client import Api
from server.cli.exit_codes import ExitCode
from server.demo.persistent_cluster import persistent_cluster
from server.demo.schema import ORDERS
from tests.fixtures.sql_clients import (
    Address,
    DbtProject,
    adbc,
    ask_adbc_for,
    java_with_driver,
    jdbc,
    jdbc_rows,
    needs_dbt,
    needs_jdbc,
    needs_psql,
    sqlalchemy_engine,
)

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.xdist_group("spark")]

_ROUNDS = 4
_ENDS_S = 20.0
_NUMBERS = itertools.count(1_000_000_000)
"""Ids of the sessions' orders: beyond those that the load places."""
_COLUMNS = ("own", "wrong_totals", "wrong_lines", "wrong_payments", "events")
_SUMS = f"""
WITH placed AS (SELECT id, total, note FROM {{orders}} WHERE id > {ORDERS}),
    parts AS (SELECT order_id, quantity * price AS price FROM {{lines}} WHERE order_id > {ORDERS}),
    noted AS (SELECT order_id, kind FROM {{events}} WHERE order_id > {ORDERS})
SELECT (SELECT count(*) FROM placed WHERE note = '{{client}}') AS own,
    (SELECT count(*) FROM (
        SELECT id FROM placed LEFT JOIN parts ON order_id = id GROUP BY id, total HAVING total <> coalesce(sum(price), 1)) AS wrong
    ) AS wrong_totals,
    (SELECT count(*) FROM parts LEFT JOIN placed ON id = order_id WHERE id IS NULL) AS wrong_lines,
    (SELECT count(*) FROM {{payments}} WHERE order_id > {ORDERS})
        - (SELECT count(*) FROM noted JOIN placed ON id = order_id WHERE kind = 'paid') AS wrong_payments,
    (SELECT count(*) FROM noted) AS events
"""
"""Of the orders of the load: own ones; those whose total is not the sum of their lines (1 without lines); lines without an order;
payments beyond or below the events of existing orders; and all events, which only become more."""
_TABLES = {"orders": "orders", "lines": "order_lines", "payments": "payments", "events": "order_events"}

Read = Callable[[str, str], list[tuple[Any, ...]]]
"""The rows of a statement with this freshness: `latest`, or a position."""


@dataclass(frozen=True, slots=True)
class Demo:
    """A demonstration that runs, by what it has printed."""

    url: str
    psql: str
    """The line for psql."""
    address: Address
    folder: Path

    def connect(self) -> psycopg.Connection[Any]:
        """A connection to the source."""
        return persistent_cluster(self.folder / "source.json", None, prefix="", settings={}).connect("shop")


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = [sys.executable, "-m", "server.cli.main", "demo", "--seconds", "600", "--rate", "50"]
    lines: list[str] = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                lines.append(line.rstrip())
                if re.match(r"\d+ s: ", line):  # all tables are live
                    break
            made = _printed(lines)
            rest = threading.Thread(target=lines.extend, args=(process.stderr,))
            rest.start()
            yield made
            process.send_signal(signal.SIGINT)
            assert process.wait(_ENDS_S) == ExitCode.INTERRUPTED, lines
            rest.join()
        finally:
            process.kill()
    assert not made.folder.exists()
    assert "".join(lines).count(made.address.password) == 1, "the token is printed once, in the link"


def _printed(lines: list[str]) -> Demo:
    (at,) = [line for line in lines if line.startswith("Penstock is at ")]
    (by_psql,) = [line.removeprefix("SQL clients: ") for line in lines if line.startswith("SQL clients: ")]
    (by_flight,) = [line for line in lines if line.startswith("Flight SQL: ")]
    link = re.fullmatch(r"Penstock is at (http://127\.0\.0\.1:\d+)/#token=(\S+)", at)
    psql = re.fullmatch(
        r'PGPASSWORD=\$\(cat (\S+)\) psql "host=127\.0\.0\.1 port=(\d+) user=(\S+) dbname=(\S+)"', by_psql
    )
    flight = re.search(r"grpc://127\.0\.0\.1:(\d+) .*penstock-subscription: (\S+)\)", by_flight)
    assert link is not None, at
    assert psql is not None, by_psql
    assert flight is not None, by_flight
    token_file, port, user, subscription = psql.groups()
    token = Path(token_file).read_text().strip()
    assert (token, subscription) == (link[2], flight[2])
    return Demo(
        link[1], by_psql, Address(int(port), int(flight[1]), user, token, subscription), Path(token_file).parent
    )


def _sums(client: str) -> str:
    return _SUMS.format(client=client, **_TABLES)


def _place(source: psycopg.Connection[Any], client: str) -> str:
    """Commit an order with two lines; returns a position that includes it."""
    number = next(_NUMBERS)
    with source.transaction():
        source.execute("INSERT INTO orders (id, customer_id, total, note) VALUES (%s, 1, 7.50, %s)", [number, client])
        lines = "INSERT INTO order_lines VALUES (%s, 1, 'SKU-00001', 2, 2.50), (%s, 2, 'SKU-00002', 1, 2.50)"
        source.execute(lines, [number, number])
    row = source.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


def _check(demo: Demo, client: str, read: Read) -> None:
    """Commit, and read with either freshness in turn."""
    seen = 0
    with demo.connect() as source:
        for number in range(1, _ROUNDS + 1):
            position = _place(source, client)
            ((own, totals, lines, payments, events),) = read("latest" if number % 2 else position, _sums(client))
            assert (own, totals, lines, payments) == (number, 0, 0, 0)
            assert events >= seen
            seen = events
    assert seen > 0, "the load runs"


@needs_psql
def test_psql_as_it_is_pasted(demo: Demo) -> None:
    def read(freshness: str, sql: str) -> list[tuple[Any, ...]]:
        commands = ["-c", f"SET penstock.freshness = '{freshness}'", "-c", sql]
        pasted = ["sh", "-c", f'{demo.psql} "$@"', "sh", "-X", "-q", "-A", "-t", *commands]
        ended = subprocess.run(pasted, capture_output=True, text=True, check=False)
        assert ended.stderr == ""
        return [tuple(map(int, line.split("|"))) for line in ended.stdout.splitlines()]

    _check(demo, "psql", read)


def test_sqlalchemy(demo: Demo) -> None:
    engine = sqlalchemy_engine(demo.address)
    with engine.connect() as session:

        def read(freshness: str, sql: str) -> list[tuple[Any, ...]]:
            session.execute(sa.text(f"SET penstock.freshness = '{freshness}'"))
            return [tuple(row) for row in session.execute(sa.text(sql)).all()]

        _check(demo, "SQLAlchemy", read)
    engine.dispose()


def test_adbc(demo: Demo) -> None:
    with adbc(demo.address) as connection:

        def read(freshness: str, sql: str) -> list[tuple[Any, ...]]:
            ask_adbc_for(connection, freshness)
            with connection.cursor() as cursor:
                cursor.execute(sql)
                rows: list[tuple[Any, ...]] = cursor.fetchall()
                return rows

        _check(demo, "ADBC", read)


@needs_jdbc
def test_jdbc(demo: Demo, tmp_path: Path) -> None:
    with java_with_driver(tmp_path) as java:
        connection = jdbc(java, demo.address)
        statement = connection.createStatement()

        def read(freshness: str, sql: str) -> list[tuple[Any, ...]]:
            statement.execute(f"SET penstock.freshness = '{freshness}'")
            return jdbc_rows(statement.executeQuery(sql), *_COLUMNS)

        _check(demo, "JDBC", read)
        connection.close()


_DBT_SOURCES = """
sources:
  - name: copy
    schema: public
    tables: [{name: orders}, {name: order_lines}, {name: payments}, {name: order_events}]
models:
  - name: sums
    columns:
      - name: own
        data_tests: [not_null, {accepted_values: {arguments: {values: [1], quote: false}}}]
"""
_DBT_TEST = "SELECT * FROM {{ ref('sums') }} WHERE wrong_totals <> 0 OR wrong_lines <> 0 OR wrong_payments <> 0"


@needs_dbt
@pytest.mark.chaos  # Also in tests/pg/sql_endpoint/test_dbt.py.
def test_dbt(demo: Demo, tmp_path: Path) -> None:
    """A model over the copy, and its tests, with the freshness of a token."""
    with Api(demo.url, demo.address.password) as api:
        body = {"name": "dbt", "role": "viewer", "settings": {"penstock.freshness": "latest"}}
        token = api.post("/tokens", body)["token"]
    with demo.connect() as source:
        _place(source, "dbt")
    model = _SUMS.format(client="dbt", **{key: f"{{{{ source('copy', '{name}') }}}}" for key, name in _TABLES.items()})
    files = {"models/schema.yml": _DBT_SOURCES, "models/sums.sql": model, "tests/sums_hold.sql": _DBT_TEST}
    as_dbt = Address(demo.address.port, 0, "dbt", token, demo.address.subscription)
    built = DbtProject(tmp_path, as_dbt, files).run("build")
    assert "PASS=3 " in built, built
