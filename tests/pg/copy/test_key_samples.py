"""Key ranges chosen at random by a PostgreSQL source: ascending, open at both ends, of about the share, and the same for a seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.model.identity import TableId, TableName
from engine.model.ranges import KeyInterval, KeySample
from engine.model.schema import TableSchema
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.sources.postgres_log.source import PostgresSource
from tests.fixtures.postgres import Database, standing_database

pytestmark = pytest.mark.pg

TABLES = """
CREATE TABLE even (id int PRIMARY KEY, note text);
INSERT INTO even SELECT 2 * i, 'note ' || i FROM generate_series(1, 20000) i;
CREATE TABLE pairs (a int, b text COLLATE "C", c text, PRIMARY KEY (a, b));
INSERT INTO pairs SELECT i % 50, 'b"\\,''{' || i, 'c' FROM generate_series(1, 5000) i;
CREATE TABLE holes (id int PRIMARY KEY);
INSERT INTO holes SELECT i FROM generate_series(1, 20000) i;
DELETE FROM holes WHERE id BETWEEN 2000 AND 18000;
CREATE TABLE few (id int PRIMARY KEY);
INSERT INTO few VALUES (1), (2);
CREATE TABLE none_there (id int PRIMARY KEY);
CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE floats (value float8 PRIMARY KEY);
ANALYZE even, pairs;
"""
NAMES = ("even", "pairs", "holes", "few", "none_there", "parted", "floats")


@pytest.fixture(scope="module")
def shop(pg18: Any) -> Iterator[tuple[Database, PostgresSource, dict[str, TableSchema]]]:
    with standing_database(pg18, "key_samples") as database:
        database.execute(TABLES)
        source = PostgresSource(ConnectionSpec("shop", "postgres", database.settings))
        specs = [TableSpec(TableId(n), TableName("public", n), TableName("main", n)) for n in NAMES]
        yield database, source, {name.name: schema for name, schema in source.describe(specs).items()}
        source.close()


def bounds(sample: KeySample) -> list[KeyInterval]:
    return [each.keys for part in sample.parts for each in part.ranges]


def rows_of(database: Database, sample: KeySample) -> int:
    """How many rows the ranges have."""
    return sum(int(database.execute(f"SELECT count(*) FROM ({part.split.sql}) AS r")[0][0]) for part in sample.parts)


@pytest.mark.parametrize(
    ("table", "rows", "share"), [("even", 20_000, 0.05), ("even", 20_000, 0.6), ("pairs", 5000, 0.1)]
)
def test_ranges_are_of_about_the_share_and_do_not_meet(shop: Any, table: str, rows: int, share: float) -> None:
    database, source, schemas = shop
    sample = source.copies.sample_key(schemas[table], share, "v1")
    assert [column.name for column in sample.columns] == list(schemas[table].key)
    keys = bounds(sample)
    assert (keys[0].after, keys[-1].upto) == (None, None)
    found = rows_of(database, sample)
    assert found == pytest.approx(rows * share, rel=0.4)
    names = ", ".join(schemas[table].key)
    (part,) = sample.parts
    assert database.execute(f"SELECT count(DISTINCT ({names})) FROM ({part.split.sql}) AS r") == [(found,)]
    assert len(keys) > 10
    inner = [bound for each in keys for bound in (each.after, each.upto) if bound is not None]
    assert len(set(inner)) == len(inner)


def test_a_seed_chooses_the_same_ranges_and_another_one_others(shop: Any) -> None:
    _, source, schemas = shop
    first, again, other = (
        bounds(source.copies.sample_key(schemas["even"], 0.05, seed)) for seed in ("v1/t", "v1/t", "v2/t")
    )
    assert first == again
    assert len(set(first) & set(other)) < len(first) / 2


def test_blocks_without_rows_are_passed_over(shop: Any) -> None:
    database, source, schemas = shop
    sample = source.copies.sample_key(schemas["holes"], 0.2, "v1")
    assert 500 < rows_of(database, sample) < 3999


@pytest.mark.parametrize("table", ["few", "none_there"])
def test_small_tables_are_one_range(shop: Any, table: str) -> None:
    _, source, schemas = shop
    assert source.copies.sample_key(schemas[table], 0.5, "v1").whole


def test_tables_whose_key_cannot_be_walked_have_no_ranges(shop: Any) -> None:
    _, source, schemas = shop
    assert source.copies.sample_key(schemas["parted"], 0.5, "v1") is None
    assert source.copies.sample_key(schemas["floats"], 0.5, "v1") is None
    nullable = tuple(replace(column, nullable=True) for column in schemas["even"].columns)
    assert source.copies.sample_key(replace(schemas["even"], columns=nullable), 0.5, "v1") is None
