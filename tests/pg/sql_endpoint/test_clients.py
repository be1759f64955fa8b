"""Clients of PostgreSQL as people use them: psql's commands, SQLAlchemy, asyncpg."""

from __future__ import annotations

import os
import shutil
import subprocess
from decimal import Decimal

import asyncpg
import pytest
import sqlalchemy as sa

from tests.fixtures.channel import ADMIN
from tests.pg.sql_endpoint.conftest import USER, Endpoint

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint")]


@pytest.mark.skipif(shutil.which("psql") is None, reason="no psql on this machine")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (r"\d", ["orders", "lines", "public"]),
        (r"\dt+", ["orders", "lines"]),
        (r"\d orders", ["id", "bigint", "customer", "text", "numeric(10,2)", "timestamp with time zone"]),
        (r"\d lines", ['"lines_pkey" PRIMARY KEY, btree (order_id, n)', "not null"]),
        (r"\d+ lines", ["order_id", "sku"]),
        (r"\dn", ["public"]),
        (r"\l", ["shop"]),
        (r"\du", [USER]),
        (r"\df", []),
        (r"\dv", []),
        (r"\conninfo", ["shop", USER]),
    ],
)
def test_psql_describes(endpoint: Endpoint, command: str, words: list[str]) -> None:
    settings = endpoint.settings()
    environment = os.environ | {"PGPASSWORD": settings["password"]}
    address = f"host={settings['host']} port={settings['port']} user={settings['user']} dbname={settings['dbname']}"
    ended = subprocess.run(
        ["psql", "-X", "-c", command, address], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.stderr.replace("Did not find any relations.\n", "") == ""
    assert [word for word in words if word not in ended.stdout] == []


@pytest.fixture
def engine(endpoint: Endpoint) -> sa.Engine:
    return sa.create_engine(f"postgresql+psycopg://{USER}:{ADMIN}@127.0.0.1:{endpoint.port}/shop")


def test_sqlalchemy_reflects_and_reads(engine: sa.Engine) -> None:
    found = sa.inspect(engine)
    assert set(found.get_table_names()) >= {"orders", "lines"}
    columns = {column["name"]: column["type"] for column in found.get_columns("orders")}
    assert isinstance(columns["id"], sa.BigInteger)
    assert isinstance(columns["total"], sa.Numeric)
    assert found.get_pk_constraint("lines") | {"comment": None, "dialect_options": None} == {
        "constrained_columns": ["order_id", "n"], "name": "lines_pkey", "comment": None, "dialect_options": None,
    }  # fmt: skip
    orders = sa.Table("orders", sa.MetaData(), autoload_with=engine)
    assert [column.name for column in orders.primary_key] == ["id"]
    with engine.connect() as connection:
        connection.execute(sa.text("SET penstock.freshness = latest"))
        chosen = sa.select(orders.c.id, orders.c.total).where(orders.c.id.in_([1, 2])).order_by(orders.c.id)
        assert connection.execute(chosen).all() == [(1, Decimal("1.50")), (2, Decimal("3.00"))]
        total = sa.select(sa.func.count()).where(orders.c.customer == sa.bindparam("customer"), orders.c.id <= 1000)
        assert connection.execute(total, {"customer": "customer 3"}).scalar() == 100
    engine.dispose()


async def test_asyncpg_reads_in_the_binary_format(endpoint: Endpoint) -> None:
    connection = await asyncpg.connect(
        host="127.0.0.1", port=endpoint.port, user=USER, password=ADMIN, database="shop", ssl=False
    )
    try:
        row = await connection.fetchrow("SELECT id, customer, total, note FROM orders WHERE id = $1::bigint", 7)
        assert dict(row) == {"id": 7, "customer": "customer 7", "total": Decimal("10.50"), "note": None}
        assert await connection.fetchval("SELECT [1, NULL, 3]::int[]") == [1, None, 3]
        assert await connection.fetchval("SELECT count(*) FROM lines WHERE sku = $1", "sku 5") == 1
        async with connection.transaction(readonly=True):
            numbers = [
                record["i"] async for record in connection.cursor("SELECT i FROM range(100) AS r(i)", prefetch=7)
            ]
        assert sorted(numbers) == list(range(100))
    finally:
        await connection.close()
