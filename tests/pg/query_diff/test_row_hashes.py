"""Hashes that PostgreSQL computes of rows: values that are equal to it, but not the same, are changes; the same values are none."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_queries import row_hashes
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import ComparedTable, Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

TYPES = """
CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE TYPE pair AS (a numeric, b text); CREATE DOMAIN price AS numeric;
CREATE DOMAIN code AS bpchar;
"""
COLLATION = "CREATE COLLATION same (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
"""Not in the PostgreSQL of the wheel, which has no ICU."""
ALIKE = [
    ("numeric", "1.0", "1.00"),
    ("numeric(9, 2)", "1.00", "1.01"),
    ("numeric", "'NaN'", "NULL"),
    ("price", "1.0", "1.00"),
    ("float8", "0", "'-0'"),
    ("float8", "0.1", "0.30000000000000004 - 0.2"),
    ("float4", "0", "'-0'"),
    ("bigint", "1", "4294967296"),
    ("bigint", "-1", "'-4294967297'"),
    ("timestamptz", "'epoch'::timestamptz + '1 us'", "'epoch'::timestamptz + interval '4294.967296 s'"),
    ("timestamp", "'epoch'", "'epoch'::timestamp + '1 us'"),
    ("int", "0", "NULL"),
    ("smallint", "1", "2"),
    ("boolean", "false", "NULL"),
    ("date", "'2024-02-29'", "'2024-03-01'"),
    ("text", "''", "NULL"),
    ("text", "'a'", "'a '"),
    ("bpchar", "'a'", "'a '"),
    ("code", "'a'", "'a '"),
    ("char(3)", "'a'", "'b'"),
    ('"char"', "'a'", "'b'"),
    ("name", "'a'", "'b'"),
    ("bytea", r"'\x00'", r"'\x0000'"),
    ("uuid", "gen_random_uuid()", "gen_random_uuid()"),
    ("interval", "'1 mon'", "'30 days'"),
    ("interval", "'1 day'", "'24 hours'"),
    ("time", "'24:00'", "'00:00'"),
    ("timetz", "'10:00+00'", "'11:00+01'"),
    ("money", "1", "1.01"),
    ("json", "'{\"a\": 1}'", "'{\"a\":1}'"),
    ("jsonb", "'{\"a\": 1.0}'", "'{\"a\": 1.00}'"),
    ("mood", "'good'", "'bad'"),
    ("pair", "'(1.0,x)'", "'(1.00,x)'"),
    ("numeric[]", "'{1.0}'", "'{1.00}'"),
    ("int[]", "'{1,2}'", "'[0:1]={1,2}'"),
    ("int[]", "'{{1,2}}'", "'{{1},{2}}'"),
    ("text[]", "'{NULL}'", "'{\"NULL\"}'"),
    ("numrange", "'[1.0,2)'", "'[1.00,2)'"),
    ("inet", "'10.0.0.1/8'", "'10.0.0.1'"),
    ("bit(3)", "B'101'", "B'100'"),
    ("oid", "1", "2"),
    ("tsvector", "'a:1'", "'a:2'"),
]
COLLATED = [("text COLLATE same", "'a'", "'A'"), ("varchar COLLATE same", "'é'", "'e'")]


def opened(database: Database) -> PostgresDatabase:
    return PostgresDatabase(Connector(ConnectionSpec("shop", "postgres", database.settings)))


@pytest.fixture
def compared(database: Database) -> Iterator[PostgresDatabase]:
    with closing(opened(database)) as found:
        yield found


def table_of(compared: PostgresDatabase, name: str) -> ComparedTable:
    return next(iter(compared.tables({TableName("public", name): None}).values()))


def digest_of(compared: PostgresDatabase, table: ComparedTable) -> tuple[int, int, int]:
    with compared.snapshot(10) as snapshot:
        (found,) = compared.range_digests(table, snapshot, [])
    return found.rows, found.low, found.high


def lines_of(compared: PostgresDatabase, table: ComparedTable) -> dict[bytes, bytes]:
    with compared.snapshot(10) as snapshot:
        lines = b"".join(compared.hashed_rows(table, snapshot)).splitlines()
    return {line.split(b"\t")[1]: line for line in lines}


@pytest.mark.parametrize(
    ("version", "form"),
    [("pg18", row_hashes.VALUES), ("pg18", ""), pytest.param("pg15", row_hashes.VALUES, marks=pytest.mark.pg15)],
)
def test_values_that_only_look_equal_to_the_database_are_changes(
    database_on: Callable[..., Database], request: pytest.FixtureRequest, version: str, form: str
) -> None:
    """For each of the two hashes."""
    database, cases = database_on(request.getfixturevalue(version)), ALIKE
    database.execute(TYPES)
    if version == "pg15":
        database.execute(COLLATION)
        cases = [*ALIKE, *COLLATED]
    columns = [f"v{i} {kind}" for i, (kind, _, _) in enumerate(cases)]
    values = ", ".join(f"({one})::{kind}" for kind, one, _ in cases)
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(columns)})")
    database.execute(f"INSERT INTO t SELECT i, {values} FROM generate_series(0, {len(cases)}) i")
    with closing(opened(database)) as compared:
        table = replace(table_of(compared, "t"), hashes=form)
        assert len(table.schema.columns) == len(cases) + 1
        before, sums = lines_of(compared, table), digest_of(compared, table)
        assert len({line.split(b"\t")[2] for line in before.values()}) == len(before) == len(cases) + 1
        database.execute("UPDATE t SET id = id")
        assert (lines_of(compared, table), digest_of(compared, table)) == (before, sums)
        for i, (kind, _, other) in enumerate(cases):
            database.execute(f"UPDATE t SET v{i} = ({other})::{kind} WHERE id = {i + 1}")
        after = lines_of(compared, table)
        same = [cases[int(key) - 1] for key in before if key != b"0" and not _differ(before[key], after[key])]
        assert same == []
        assert after[b"0"] == before[b"0"]
        assert not {sums[1], sums[2]} & set(digest_of(compared, table))


def _differ(one: bytes, other: bytes) -> bool:
    return all(a != b for a, b in zip(one.split(b"\t")[2:], other.split(b"\t")[2:], strict=True))


def test_rows_that_exchange_values_do_not_cancel_out(database: Database, compared: PostgresDatabase) -> None:
    """Sums of hashes would, in one of four cases of two rows with values that differ in one bit."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b text)")
    database.execute("INSERT INTO t SELECT i, i % 7, NULL FROM generate_series(1, 40) i")
    table, rng = table_of(compared, "t"), random.Random(5)
    seen = {digest_of(compared, table)}
    states = {tuple(database.execute("SELECT a FROM t ORDER BY id"))}
    for _ in range(300):
        one, other = rng.sample(range(1, 41), 2)
        database.execute(
            "UPDATE t SET a = (SELECT o.a FROM t o WHERE o.id = CASE t.id WHEN %s THEN %s ELSE %s END) WHERE id IN (%s, %s)",
            [one, other, one, one, other],
        )
        state = tuple(database.execute("SELECT a FROM t ORDER BY id"))
        assert (digest_of(compared, table) in seen) == (state in states)
        seen.add(digest_of(compared, table))
        states.add(state)
    assert len(states) > 200


def test_rows_with_nothing_but_a_key_count(database: Database, compared: PostgresDatabase) -> None:
    database.execute(
        "CREATE TABLE empty (id bigint PRIMARY KEY, v text); CREATE TABLE keys (a int, b bigint, PRIMARY KEY (a, b))"
    )
    database.execute("INSERT INTO empty VALUES (1); INSERT INTO keys VALUES (1, 2)")
    for name, change in (("empty", "id = 2"), ("keys", "(a, b) = (2, 1)")):
        table = table_of(compared, name)
        before = digest_of(compared, table)
        database.execute(f"UPDATE {name} SET {change}")
        assert digest_of(compared, table)[1:] != before[1:]


@pytest.mark.parametrize("kind", ["smallint", "int", "bigint", "uuid", "text", "numeric", "price", "timestamptz"])
def test_each_key_has_hashes_of_its_own(database: Database, compared: PostgresDatabase, kind: str) -> None:
    """Of bigint also those of which one hash function of PostgreSQL, or the nearest float8, is the same."""
    numbers = range(-9, 9)
    if kind == "bigint":
        near = [sign * 2**bit + by for bit in range(64) for sign in (1, -1) for by in range(-2100, 2101, 3)]
        folded = [high << 32 | (high ^ 77) for high in range(1, 500)] + [
            -1 - (high << 32 | (high ^ 77)) for high in range(500)
        ]
        numbers = sorted({number for number in [*numbers, *near, *folded] if -(2**63) <= number < 2**63})
    values = {"uuid": "md5(n::text)::uuid", "timestamptz": "'epoch'::timestamptz + n * interval '1 us'"}
    database.execute(f"{TYPES} CREATE TABLE t (id {kind} PRIMARY KEY)")
    of_number = values.get(kind, f"n::{kind}")
    database.execute(f"INSERT INTO t SELECT {of_number} FROM unnest(%s::bigint[]) n", [list(numbers)])
    found = [line.split(b"\t")[2:] for line in lines_of(compared, table_of(compared, "t")).values()]
    assert len(found) == len({low for low, _ in found}) == len({high for _, high in found}) == len(numbers)


@pytest.mark.parametrize("method", [Method.ROW_CHECKSUM, Method.RANGE_CHECKSUM])
def test_hashes_of_an_earlier_release_are_replaced_and_nothing_is_missed(
    database: Database, compared: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n numeric); INSERT INTO t SELECT i, i FROM generate_series(1, 90) i"
    )
    given, name = Given(0, method, 10.0, tmp_path / "reader", "shop"), TableName("public", "t")
    given.folder.make()
    given.folder.follow({name: Follow(None, frozenset({"insert", "update", "delete"}))})
    with monkeypatch.context() as earlier:
        earlier.setattr("engine.sources.postgres_queries.database.VALUES", "")
        assert _found(compared, given) == (0, 0, 0)
        database.execute("UPDATE t SET n = 1.0 WHERE id = 1")
        assert _found(compared, given) == (0, 1, 0)
    database.execute("UPDATE t SET n = 1.00 WHERE id = 1; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (100, NULL)")
    assert _found(compared, given) == (1, 1, 1)
    assert _found(compared, given) == (0, 0, 0)
    read: list[str] = []
    monkeypatch.setattr(row_hashes, "hashes", _noting(row_hashes.hashes, read))
    database.execute("UPDATE t SET n = 1.000 WHERE id = 1")
    assert _found(compared, given) == (0, 1, 0)
    assert set(read) == {row_hashes.VALUES}


def _noting(real: Callable[[ComparedTable], Any], read: list[str]) -> Callable[[ComparedTable], Any]:
    def noted(table: ComparedTable) -> Any:
        read.append(table.hashes)
        return real(table)

    return noted


def _found(compared: PostgresDatabase, given: Given) -> tuple[int, int, int]:
    with run_cycle(compared, given) as (_, number):
        (table,) = given.folder.files.read(number).tables
    return table.inserted, table.updated, table.deleted
