"""Bytes in statements that run on the source: only where source and target write them in the same way."""

from __future__ import annotations

import pytest

from engine.control.source_statement import Rows, Translation
from engine.kinds import SqlDialect
from engine.model.subscription import TableSpec
from engine.model.target import QueryRefused

_POSTGRES = SqlDialect("postgres", ("public",))
_SQL = "SELECT 1 AS one WHERE CAST($1 AS BYTEA) = CAST($2 AS BYTEA)"


def _none(_: TableSpec) -> Rows:
    raise AssertionError("the statement reads no table")


def test_bytea_of_postgresql_is_that_of_postgresql() -> None:
    assert Translation(_POSTGRES, _POSTGRES, []).translate(_SQL, _none).sql == _SQL


@pytest.mark.parametrize("kind", ["bytea", "blob"])
def test_bytes_of_duckdb_are_refused(kind: str) -> None:
    duckdb = SqlDialect("duckdb", ("main", "public"))
    with pytest.raises(QueryRefused) as refused:
        Translation(duckdb, _POSTGRES, []).translate(_SQL.replace("BYTEA", kind), _none)
    assert "is not translated" in str(refused.value.detail)
