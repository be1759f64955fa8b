"""Texts and hashes of rows: those of DuckDB are PostgreSQL's, and no two values have one text."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.model.identity import RelationId, TableName
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.values import value_type
from engine.net.copy_text import decode_copy_text
from engine.net.rows_of_texts import decoded_rows
from engine.records.row_digest import RangeSums, ranges_of
from engine.targets.duckdb.row_text import row_text
from engine.targets.duckdb.types import duckdb_type, staged_as
from tests.fixtures.postgres import Database, standing_database

pytestmark = pytest.mark.pg

Session = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def session(pg18: Any) -> Iterator[Session]:
    """With the settings of the engine's sessions."""
    with standing_database(pg18, "row_digests") as database:
        assert isinstance(database, Database)
        with database.connect(options="-c extra_float_digits=3 -c timezone=UTC -c datestyle=ISO") as opened:
            yield opened


@pytest.fixture(scope="module")
def duck() -> Iterator[Any]:
    with duckdb.connect() as opened:
        opened.execute("SET TimeZone = 'UTC'")
        yield opened


def test_hashes_are_those_of_the_server_for_every_length(session: Session) -> None:
    pick = random.Random(7)
    texts = []
    for length in range(65):
        for wide in ("", "é€😀"[: length // 4]):
            plain = length - len(wide.encode())
            texts.append("".join(chr(pick.randrange(1, 128)) for _ in range(plain)) + wide)
    sums = RangeSums(len(texts))
    sums.add(pa.array(texts), np.arange(len(texts)))
    assert {len(text.encode()) for text in texts} == set(range(65))
    for seed, found in ((0, sums.low), (1, sums.high)):
        hashed = (
            'SELECT hashtextextended(x COLLATE "C", %s) FROM unnest(%s::text[]) WITH ORDINALITY AS u(x, i) ORDER BY i'
        )
        assert [row[0] for row in session.execute(hashed, [seed, texts])] == found.tolist()
    assert sums.rows.tolist() == [1] * len(texts)


def test_sums_of_equal_rows_cancel_out_and_their_number_does_not() -> None:
    sums = RangeSums(2)
    sums.add(pa.array(["a", "a", "b"]), np.array([0, 0, 1]))
    assert (sums.rows.tolist(), sums.low[0], sums.high[0]) == ([2, 1], 0, 0)
    assert sums.low[1] != 0


@given(st.lists(st.binary(max_size=4)), st.lists(st.binary(max_size=4), unique=True))
def test_a_key_is_in_the_range_whose_bound_is_the_first_not_below_it(keys: list[bytes], bounds: list[bytes]) -> None:
    bounds.sort()
    found = ranges_of(pa.array(keys, pa.binary()).slice(0), pa.array(bounds, pa.binary()))
    assert found.tolist() == [sum(bound < key for bound in bounds) for key in keys]


def _array(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quoted = values.map(lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
    return st.lists(st.one_of(quoted, st.just("NULL")), max_size=4).map(lambda each: "{" + ",".join(each) + "}")


def _decimal(precision: int, scale: int) -> st.SearchStrategy[str]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda number: f"{number}e-{scale}")


_TEXTS = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6),
    st.text(st.sampled_from(' \t\n\v\f\r(),"\\{}aN\u00a0\u3000'), max_size=4),
    st.sampled_from(["", "NULL", "null"]),
)
_DAYS = st.one_of(st.dates().map(str), st.sampled_from(["infinity", "-infinity", "12345-01-01"]))
_TIMES = st.one_of(st.datetimes().map(str), st.sampled_from(["infinity", "-infinity", "12345-01-01 00:00:00"]))
_DOUBLES = st.one_of(
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("d", struct.pack("Q", bits))[0]),
    st.floats(-1e15, 1e15),
    st.floats(-10, 10),
)
_SINGLES = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda bits: struct.unpack("f", struct.pack("I", bits))[0]),
    st.floats(-1e5, 1e5, width=32),
)
CASES: dict[str, tuple[str, st.SearchStrategy[str]]] = {
    "bool": ("bool", st.sampled_from("tf")),
    "int2": ("int2", st.integers(-(2**15), 2**15 - 1).map(str)),
    "int4": ("int4", st.integers(-(2**31), 2**31 - 1).map(str)),
    "int8": ("int8", st.integers(-(2**63), 2**63 - 1).map(str)),
    "oid": ("oid", st.integers(0, 2**32 - 1).map(str)),
    "float8": ("float8", _DOUBLES.map(repr)),
    "float4": ("float4", _SINGLES.map(repr)),
    "numeric(12,3)": ("numeric", _decimal(12, 3)),
    "numeric(38,38)": ("numeric", _decimal(38, 38)),
    "numeric": (
        "numeric",
        st.one_of(st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str), st.just("NaN")),
    ),
    "text": ("text", _TEXTS),
    "char(5)": ("bpchar", st.text("ab (", max_size=5)),
    "bytea": ("bytea", st.binary(max_size=6).map(lambda raw: "\\x" + raw.hex())),
    "date": ("date", _DAYS),
    "timestamp": ("timestamp", _TIMES),
    "timestamptz": ("timestamptz", _TIMES),
    "time": ("time", st.one_of(st.times().map(str), st.just("24:00:00"))),
    "uuid": ("uuid", st.uuids().map(str)),
    "jsonb": (
        "jsonb",
        st.dictionaries(st.sampled_from("ab"), st.integers(0, 9)).map(lambda d: str(d).replace("'", '"')),
    ),
    "int4[]": ("int4[]", _array(st.integers(-9, 9).map(str))),
    "text[]": ("text[]", _array(_TEXTS)),
    "float8[]": ("float8[]", _array(st.floats(-1e15, 1e15).map(repr))),
    "timestamptz[]": ("timestamptz[]", _array(_TIMES)),
    "bytea[]": ("bytea[]", _array(st.binary(max_size=3).map(lambda raw: "\\x" + raw.hex()))),
}


def _source_type(name: str, declared: str) -> SourceType:
    if name.endswith("[]"):
        return SourceType(name, element=SourceType(name.removesuffix("[]")))
    if "(" in declared and name == "numeric":
        precision, scale = map(int, declared[8:-1].split(","))
        return SourceType(name, modifier=(precision << 16 | scale) + 4)
    return SourceType(name)


@pytest.mark.parametrize("declared", CASES)
def test_values_print_as_on_the_server_and_no_two_alike(session: Session, duck: Any, declared: str) -> None:
    name, strategy = CASES[declared]
    column = Column("v", _source_type(name, declared), 1)
    schema = TableSchema(
        TableName("public", "t"), RelationId(1), (column,), (), KeyMode.APPEND, ReplicaIdentity.NOTHING
    )
    value = value_type(column)
    duck.execute(f"CREATE OR REPLACE TABLE printed (i BIGINT, v {duckdb_type(value)})")

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(strategy, min_size=1, max_size=25))
    def check(given_values: list[str]) -> None:
        listed = f"format('%%s', x::{declared}), (ROW(x::{declared}))::text"
        query = f"SELECT {listed} FROM unnest(%s::text[]) WITH ORDINALITY AS u(x, i) ORDER BY i"
        printed = session.execute(query.encode(), [given_values]).fetchall()
        rows = decoded_rows([[text] for text, _ in printed], [column], schema, decode_copy_text)
        rows = rows.append_column("i", pa.array(range(len(printed)), pa.int64()))
        duck.execute("DELETE FROM printed")
        duck.register("staged", rows)
        duck.execute(f"INSERT INTO printed SELECT s.i, {staged_as('s.c0', value)} FROM staged AS s")
        found = [
            text for (text,) in duck.execute(f"SELECT {row_text([('v', value)])} FROM printed ORDER BY i").fetchall()
        ]
        differing = [theirs for (_, theirs), ours in zip(printed, found, strict=True) if theirs != ours]
        assert [text for text in differing if not _may_differ(name, text)] == []
        values = [text for text, _ in printed]  # PostgreSQL prints different values differently.
        assert len(set(values)) == len(set(found)) == len(set(zip(values, found, strict=True)))

    check()


def _may_differ(name: str, text: str) -> bool:
    """Whether DuckDB may print more digits than are needed to tell a large number from its neighbours."""
    if not name.startswith("float"):
        return False
    return any(abs(float(each)) >= (1e16 if name == "float8" else 1e4) for each in text.strip("()").split(","))
