"""PostgreSQL prints the values that DuckDB's files have as they are printed for it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.sources.duckdb.types import kind_of
from tests.fixtures.postgres import Database
from tests.unit.duckdb_source.test_values_read_by_duckdb import MEMORY, lines

pytestmark = pytest.mark.pg
_MICROS = st.integers(-(10**15), 10**15)


@st.composite
def _values(draw: st.DrawFn) -> list[tuple[str, Any]]:
    months, days, micros = draw(st.integers(-5000, 5000)), draw(st.integers(-9999, 9999)), draw(_MICROS | st.just(0))
    (interval,) = MEMORY.execute(
        "SELECT CAST(to_months(?) + to_days(?) + to_microseconds(?) AS VARCHAR)", [months, days, micros]
    ).fetchall()[0]
    at = draw(st.datetimes(datetime.fromisoformat("0001-01-01"), datetime.fromisoformat("9999-01-01")))
    return [
        ("INTERVAL", interval),
        ("TIMESTAMP", at),
        ("DATE", at.date()),
        ("TIMESTAMP WITH TIME ZONE", f"{at}+00"),
        ("TIME", (datetime.fromisoformat("2000-01-01") + timedelta(microseconds=abs(micros) % 86_400_000_000)).time()),
        ("DOUBLE", draw(st.floats())),
        ("FLOAT", draw(st.floats(width=32))),
        ("DECIMAL(38,20)", f"{draw(st.decimals(-(10**17), 10**17, places=20)):f}"),
    ]


def test_texts_are_those_of_postgresql(database: Database) -> None:
    names = {
        "INTERVAL": "interval",
        "TIMESTAMP": "timestamp",
        "DATE": "date",
        "TIMESTAMP WITH TIME ZONE": "timestamptz",
    }
    names |= {"TIME": "time", "DOUBLE": "float8", "FLOAT": "float4", "DECIMAL(38,20)": "numeric(38,20)"}
    with database.connect() as connection:
        for setting in ("DateStyle = ISO", "IntervalStyle = postgres", "TimeZone = UTC", "extra_float_digits = 3"):
            connection.execute(f"SET {setting}")

        @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
        @given(_values())
        def assert_printed_alike(values: list[tuple[str, Any]]) -> None:
            for declared, value in values:
                kind = kind_of(declared)
                assert kind is not None
                text = lines([kind], [value]).decode().removesuffix("\n")
                again = connection.execute(f"SELECT (%s::text::{names[declared]})::text", [text]).fetchall()
                if declared in {"DOUBLE", "FLOAT"}:  # Of two shortest texts of a number each prints another one.
                    assert float(again[0][0]) == float(text) or again == [(text,)]
                else:
                    assert again == [(text,)], declared

        assert_printed_alike()
