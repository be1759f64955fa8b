"""Clients of PostgreSQL as people use them: psql's commands, SQLAlchemy, asyncpg."""

from __future__ import annotations

from decimal import Decimal

import psycopg
import pytest
import sqlalchemy as sa

from tests.fixtures.sql_clients import asyncpg_session, needs_psql, psql, sqlalchemy_engine
from tests.pg.sql_endpoint.conftest import USER, Endpoint

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint")]


@needs_psql
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
    ended = psql(endpoint, "-c", command)
    assert ended.stderr.replace("Did not find any relations.\n", "") == ""
    assert [word for word in words if word not in ended.stdout] == []


@pytest.fixture
def engine(endpoint: Endpoint) -> sa.Engine:
    return sqlalchemy_engine(endpoint)


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
    async with asyncpg_session(endpoint) as connection:
        row = await connection.fetchrow("SELECT id, customer, total, note FROM orders WHERE id = $1::bigint", 7)
        assert dict(row) == {"id": 7, "customer": "customer 7", "total": Decimal("10.50"), "note": None}
        assert await connection.fetchval("SELECT [1, NULL, 3]::int[]") == [1, None, 3]
        assert await connection.fetchval("SELECT count(*) FROM lines WHERE sku = $1", "sku 5") == 1
        async with connection.transaction(readonly=True):
            numbers = [
                record["i"] async for record in connection.cursor("SELECT i FROM range(100) AS r(i)", prefetch=7)
            ]
        assert sorted(numbers) == list(range(100))


async def test_columns_without_a_name_keep_theirs_with_any_parameter(endpoint: Endpoint) -> None:
    async with asyncpg_session(endpoint) as connection:
        for number in (Decimal("1.50"), Decimal("12345.6789"), None):
            row = await connection.fetchrow("SELECT $1::numeric, $2::bigint + 1, $3::text[]", number, 7, ["a"])
            assert list(row.items()) == [("numeric", number), ("?column?", 8), ("text", ["a"])]
        statement = await connection.prepare('SELECT round($1::numeric, 1), id AS "CAST" FROM orders WHERE id = 1')
        for number in (Decimal("2.25"), Decimal("1234.5")):
            (row,) = await statement.fetch(number)
            assert [*row.keys()] == ["round", "CAST"]


async def test_bytea_as_a_parameter(endpoint: Endpoint) -> None:
    sql = "SELECT id, content, {0} AS given FROM files WHERE content = {0} OR content = ANY ({1})"
    async with asyncpg_session(endpoint) as connection:
        with endpoint.connect() as session:
            for number, content in ((1, b"\0\xff"), (2, b"\\x00"), (3, b"")):
                for forms in (("%t", "%t"), ("%b", "%b"), ("%t::bytea", "%b::bytea[]")):
                    found = session.execute(sql.format(*forms), [content, content, [content]]).fetchall()
                    assert found == [(number, content, content)], forms
                records = await connection.fetch(sql.format("$1::bytea", "$2::bytea[]"), content, [content, None])
                assert [tuple(record) for record in records] == [(number, content, content)]
            escaped = session.execute("SELECT id FROM files WHERE content = %s::bytea", [r"\000\377"]).fetchall()
            assert escaped == [(1,)]
            with pytest.raises(psycopg.Error, match=r"the parameter \$1 is not bytea") as wrong:
                session.execute("SELECT id FROM files WHERE content = %s::bytea", [r"\x5ecret"])
            assert "5ecret" not in str(wrong.value)
