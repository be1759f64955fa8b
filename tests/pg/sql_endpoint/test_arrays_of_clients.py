"""Arrays as parameters of statements on a DuckDB file, from the drivers that people use, in both formats."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from tests.fixtures.sql_clients import asyncpg_session, sqlalchemy_engine
from tests.pg.sql_endpoint.conftest import Endpoint

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint")]

_UUID = uuid.UUID("ffffffff-0000-0000-0000-ffffffffffff")
_KINDS: list[tuple[str, Any, Any]] = [
    ("int", 7, sa.Integer()),
    ("bigint", 2**40, sa.BigInteger()),
    ("text", 'a,b{}"\\ NULL', sa.Text()),
    ("uuid", _UUID, sa.Uuid()),
    ("date", date(2024, 2, 29), sa.Date()),
    ("timestamptz", datetime(2024, 2, 29, 1, 2, 3, 456789, UTC), sa.DateTime(timezone=True)),
    ("bool", True, sa.Boolean()),
    ("numeric", Decimal("12345.6789"), sa.Numeric()),
]
_BY_KIND = pytest.mark.parametrize(("kind", "value", "sqlalchemy_type"), _KINDS, ids=[kind for kind, _, _ in _KINDS])
_STORED = {"numeric": "decimal(20, 6)"}
"""Types of columns, where the name of a parameter's type means another one in DuckDB."""


def _select(kind: str, value: Any, condition: str) -> str:
    """Rows `a` with the value, `b` with NULL, of which a condition on `x` chooses some."""
    stored = _STORED.get(kind, kind)
    literal = str(value).replace("'", "''")
    rows = f"SELECT 'a' AS name, CAST('{literal}' AS {stored}) AS x UNION ALL SELECT 'b', CAST(NULL AS {stored})"
    return f"SELECT name, x FROM ({rows}) AS t WHERE {condition} ORDER BY name"


@_BY_KIND
@pytest.mark.parametrize("form", ["t", "b"])
def test_psycopg(endpoint: Endpoint, kind: str, value: Any, sqlalchemy_type: Any, form: str) -> None:
    del sqlalchemy_type
    with endpoint.connect() as connection:
        found = connection.execute(_select(kind, value, f"x = ANY (%{form})"), [[value, None]]).fetchall()
        assert found == [("a", value)]
        found = connection.execute(
            _select(kind, value, f"x = ANY (%{form}::{_STORED.get(kind, kind)}[])"), [[]]
        ).fetchall()
        assert found == []
        back = connection.execute(f"SELECT %{form}::{_STORED.get(kind, kind)}[] AS x", [[value, None]]).fetchone()
        assert back == ([value, None],)


@pytest.fixture
async def connection(endpoint: Endpoint) -> AsyncIterator[Any]:
    async with asyncpg_session(endpoint) as opened:
        yield opened


@_BY_KIND
async def test_asyncpg(connection: Any, kind: str, value: Any, sqlalchemy_type: Any) -> None:
    del sqlalchemy_type
    sql = _select(kind, value, f"x = ANY ($1::{kind}[])")
    for given, names in (([None, value], ["a"]), ([], []), ([None], []), (None, [])):
        assert [row["name"] for row in await connection.fetch(sql, given)] == names
    excluded = _select(kind, value, f"x <> ALL ($1::{kind}[]) OR x IS NULL")
    assert [row["name"] for row in await connection.fetch(excluded, [value])] == ["b"]
    assert await connection.fetchval(f"SELECT $1::{_STORED.get(kind, kind)}[] AS x", [value, None]) == [value, None]


@_BY_KIND
def test_sqlalchemy(endpoint: Endpoint, kind: str, value: Any, sqlalchemy_type: Any) -> None:
    engine = sqlalchemy_engine(endpoint)
    given = sa.literal([value, None], postgresql.ARRAY(sqlalchemy_type))
    rows = sa.text(_select(kind, value, "true")).columns(sa.column("name"), sa.column("x", sqlalchemy_type)).subquery()
    with engine.connect() as connection:
        found = connection.execute(sa.select(rows.c.name).where(rows.c.x == sa.any_(given))).scalars().all()
    engine.dispose()
    assert found == ["a"]


def test_a_number_is_compared_with_all_its_digits(endpoint: Endpoint) -> None:
    with endpoint.connect() as connection:
        for number, count in ((Decimal("3.001"), 0), (Decimal("3.000"), 1)):
            for condition in ("total = %s", "total = ANY (%s)", "total = %s::numeric"):
                given = [number] if "ANY" in condition else number
                found = connection.execute(
                    f"SELECT count(*) FROM orders WHERE id = 2 AND {condition}", [given]
                ).fetchone()
                assert found == (count,), (condition, number)


def test_what_is_no_array_of_one_dimension_is_refused(endpoint: Endpoint) -> None:
    with endpoint.connect() as connection:
        for given in ([[1], [2]], "{1"):
            with pytest.raises(psycopg.errors.SyntaxError, match=r"\$1 is not an array literal of one dimension"):
                connection.execute("SELECT 1 = ANY (%t::int[])", [given])
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            connection.execute("SELECT 1 = ANY (%t::int[])", ["{secret}"])
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="one dimension"):
            connection.execute("SELECT 1 = ANY (%b::int[])", [[[1], [2]]])
