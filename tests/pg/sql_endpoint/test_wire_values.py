# ruff: noqa: DTZ001, E501 - values of types without a zone, one line for each type
"""Values of answers in the text and binary formats, compared with what PostgreSQL itself sends."""

from __future__ import annotations

import random
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest
from psycopg import pq

from engine.sql_endpoint.postgres.binary_parameters import text_of
from engine.sql_endpoint.postgres.types import describe
from engine.sql_endpoint.postgres.values import data_rows
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

_RANDOM = random.Random(7)
_DECIMALS = [
    Decimal(_RANDOM.randint(-(10**12), 10**12)).scaleb(-_RANDOM.randint(0, 7)).quantize(Decimal("1e-7"))
    for _ in range(200)
]
_MOMENTS = [
    datetime(1, 1, 1) + timedelta(microseconds=_RANDOM.randrange(9998 * 365 * 86_400 * 10**6)) for _ in range(200)
]
_INFINITE_US, _INFINITE_DAYS = 2**63 - 1, 2**31 - 1

CASES: list[tuple[str, Any, list[Any]]] = [
    ("bool", pa.bool_(), [True, False, None]),
    ("int2", pa.int16(), [0, 1, -1, 32767, -32768, None]),
    ("int4", pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31), None]),
    ("int8", pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63), None]),
    ("int2", pa.int8(), [0, 127, -128, None]),
    ("int8", pa.uint32(), [0, 2**32 - 1, None]),
    ("numeric", pa.uint64(), [0, 2**64 - 1, 10_000, 99_990_000, None]),
    ("float8", pa.float64(), [0.5, -1.25, 3.0, 1e300, float("inf"), float("-inf"), float("nan"), None]),
    ("float4", pa.float32(), [0.5, -1.25, 3.0, None]),
    ("numeric(38,0)", pa.decimal128(38, 0), [Decimal(10**37), Decimal(0), Decimal(-1), Decimal(10_000), None]),
    ("numeric(20,7)", pa.decimal128(20, 7), [Decimal("1e-7"), Decimal("-0.0000001"), Decimal("123.45"), *_DECIMALS, None]),
    ("text", pa.string(), ["", "a", "é\n", 'x"y\\', "1" * 3000, None]),
    ("bytea", pa.binary(), [b"", b"\0\xff", None]),
    ("date", pa.date32(), [date(2000, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), None]),
    ("time", pa.time64("us"), [time(0), time(12, 30, 10, 120_000), time(23, 59, 59, 999_999), None]),
    ("timestamp", pa.timestamp("us"), [datetime(2000, 1, 1), datetime(2020, 2, 29, 1, 2, 3, 40), *_MOMENTS, None]),
    ("timestamptz", pa.timestamp("us", "UTC"), [datetime(1970, 1, 1), datetime(2020, 2, 29, 1, 2, 3, 400_000), None]),
    ("interval", pa.month_day_nano_interval(), [(0, 0, 0), (14, 3, 3_661_000_001_000), (-13, -2, -5_000_000), (1, -1, 1000), (0, 0, 10**9), None]),
    ("uuid", pa.uuid(), [UUID(int=0).bytes, UUID(int=2**128 - 1).bytes, None]),
    ("int4[]", pa.list_(pa.int32()), [[], [1, None, 3], None]),
    ("text[]", pa.list_(pa.string()), [["a", "", "NULL", "null", None, 'q"u', "b\\s", "c,d", "{e}", " f"], None]),
    ("float8[]", pa.list_(pa.float64()), [[0.5, None], None]),
    ("timestamptz[]", pa.list_(pa.timestamp("us", "UTC")), [[datetime(2020, 1, 1)], None]),
    ("numeric[]", pa.list_(pa.decimal128(10, 2)), [[Decimal("1.50"), None], None]),
]  # fmt: skip
BEYOND = [
    ("date", pa.date32(), pa.int32(), [_INFINITE_DAYS, -_INFINITE_DAYS, -719_163, -1_000_000, 2_932_897, 5_000_000]),
    ("timestamp", pa.timestamp("us"), pa.int64(), [_INFINITE_US, -_INFINITE_US, -(10**17), 253_402_300_800_000_000, -62_135_596_800_000_001]),
]  # fmt: skip


def _sent(database: Database, kind: str, texts: list[str | None], form: int) -> list[bytes | None]:
    """What PostgreSQL sends for these values."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        found = []
        for text in texts:
            result = connection.pgconn.exec_params(
                f"SELECT $1::{kind}".encode(), [None if text is None else text.encode()], result_format=form
            )
            assert result.status == pq.ExecStatus.TUPLES_OK, result.error_message
            found.append(result.get_value(0, 0))
    return found


def _written(table: Any, form: int) -> list[bytes | None]:
    """The values of the first column, as a client reads them from the messages."""
    data = data_rows(table, describe(table.schema), [form])
    found: list[bytes | None] = []
    at = 0
    while at < len(data):
        assert data[at : at + 1] == b"D"
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        length = int.from_bytes(data[at + 7 : at + 11], "big", signed=True)
        assert data[at + 5 : at + 7] == b"\0\1"
        assert size == 10 + max(0, length)
        found.append(None if length < 0 else data[at + 11 : at + 11 + length])
        at += size + 1
    return found


@pytest.mark.parametrize(("kind", "arrow", "values"), CASES, ids=[f"{kind}-{arrow}" for kind, arrow, _ in CASES])
def test_values_are_those_of_postgresql(database: Database, kind: str, arrow: Any, values: list[Any]) -> None:
    array = (
        pa.ExtensionArray.from_storage(arrow, pa.array(values, pa.binary(16)))
        if kind == "uuid"
        else pa.array(values, arrow)
    )
    binary = _compare(database, kind, array)
    if not kind.endswith("[]") and kind != "interval":  # parameters of these types are read as text only
        oid = describe(pa.schema([pa.field("v", array.type)]))[0].oid
        assert _sent(database, kind, [text_of(oid, value, binary=True) for value in binary], 1) == binary


@pytest.mark.parametrize(("kind", "arrow", "storage", "values"), BEYOND, ids=[case[0] for case in BEYOND])
def test_moments_beyond_the_calendar_of_python(
    database: Database, kind: str, arrow: Any, storage: Any, values: list[int]
) -> None:
    _compare(database, kind, pa.array(values, storage).cast(arrow))


def _compare(database: Database, kind: str, array: Any) -> list[bytes | None]:
    """Compare both formats; returns the binary one."""
    table = pa.table({"v": array})
    texts = _written(table, 0)
    plain = [None if text is None else text.decode() for text in texts]
    oid = describe(table.schema)[0].oid
    with psycopg.connect(database.dsn) as connection:
        assert connection.execute(f"SELECT '{kind.split('(', maxsplit=1)[0]}'::regtype::oid").fetchone() == (oid,)
    floats = "float" in kind
    # Exponents have two digits there; the numbers are the same.
    assert floats or texts == _sent(database, kind, plain, 0)
    binary = _sent(database, kind, plain, 1)
    assert _written(table, 1) == binary
    return binary


def test_structs_and_nested_lists_are_json() -> None:
    table = pa.table({"s": pa.array([{"a": 1, "b": [None, "x"]}, None]), "n": pa.array([[[1], [2, 3]], None])})
    assert [column.oid for column in describe(table.schema)] == [114, 114]
    assert b'{"a": 1, "b": [null, "x"]}' in data_rows(table, describe(table.schema), [0, 0])
    assert b"[[1], [2, 3]]" in data_rows(table, describe(table.schema), [0, 1])


def test_rows_without_columns_and_no_rows() -> None:
    empty = pa.table({"a": pa.array([], pa.int32())})
    assert data_rows(empty, describe(empty.schema), [0]) == b""
    assert data_rows(pa.table({"a": [1, 2]}).select([]), [], []) == b"D\0\0\0\6\0\0" * 2
