"""Which rows are in a partition: PostgreSQL's own judgement, and that of change filters and targets by the bounds it gives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import duckdb
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.copy.partition_filter import PartitionFilter, partition_rows
from engine.model.identity import TableId, TableName
from engine.model.partitions import DefaultBound, Edge, ListBound, Partition
from engine.model.schema import TableSchema
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.net import decode_copy_text
from engine.sources.postgres_log.source import PostgresSource
from engine.targets.duckdb.changes import Place as DuckDbPlace
from engine.targets.duckdb.changes import belongs as belongs_in_duckdb
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.identifiers import quoted
from engine.targets.postgres.changes import Place, belongs, bounds_of
from engine.targets.postgres.staging import as_arrays
from tests.fixtures.postgres import Database, Session
from tests.fixtures.replication import table

pytestmark = pytest.mark.pg

WAYS = {
    "int": ("RANGE (v)", ["FROM (MINVALUE) TO (-5)", "FROM (-5) TO (10)", "FROM (10) TO (MAXVALUE)"]),
    "bigint": ("LIST (v)", ["IN (1, -2, NULL)", "IN (9223372036854775807)", None]),
    "date": ("RANGE (v)", ["FROM ('1999-12-31') TO ('2000-01-01')", "FROM ('2000-01-01') TO ('2024-02-29')", None]),
    "timestamp": ("RANGE (v)", ["FROM ('2024-01-01') TO ('2024-01-01 00:00:00.000001')", None]),
    "timestamptz": ("RANGE (v)", ["FROM ('2024-03-31 02:00+01') TO ('2024-03-31 04:00+02')", None]),
    "uuid": (
        "RANGE (v)",
        ["FROM ('10000000-0000-0000-0000-000000000000') TO ('a0000000-0000-0000-0000-000000000000')", None],
    ),
    "numeric(10,2)": ("RANGE (v)", ["FROM (-0.01) TO (10)", "FROM (10) TO (99999.99)", None]),
    "text": ("LIST (v)", [r"IN ('it''s', E'back\\slash', 'NULL', ')', 'a, b')", "IN (NULL, '')", None]),
    "boolean": ("LIST (v)", ["IN (true)", "IN (false)", None]),
}
VALUES = {
    "int": ["-2147483648", "-6", "-5", "9", "10", "2147483647"],
    "bigint": ["1", "-2", "0", "9223372036854775807"],
    "date": ["1999-12-30", "1999-12-31", "2000-01-01", "2024-02-28", "2024-02-29"],
    "timestamp": ["2023-12-31 23:59:59.999999", "2024-01-01 00:00:00", "2024-01-01 00:00:00.000001"],
    "timestamptz": ["2024-03-31 00:59:59+00", "2024-03-31 01:00:00+00", "2024-03-31 00:30:00-01"],
    "uuid": [
        "0fffffff-ffff-ffff-ffff-ffffffffffff",
        "10000000-0000-0000-0000-000000000000",
        "A0000000-0000-0000-0000-000000000000",
    ],
    "numeric(10,2)": ["-0.02", "-0.01", "9.99", "10", "99999.99"],
    "text": ["it's", "back\\slash", "NULL", ")", "a, b", "", "other"],
    "boolean": ["t", "f"],
}
NULLABLE = {"bigint", "date", "timestamp", "timestamptz", "uuid", "numeric(10,2)", "text", "boolean"}


@pytest.fixture
def source(database: Database) -> Iterator[PostgresSource]:
    made = PostgresSource(ConnectionSpec("shop", "postgres", database.settings))
    yield made
    made.close()


def described(database: Database, source: PostgresSource, spec: TableSpec) -> TableSchema:
    """The structure of a table that logs whole rows, wherever they are."""
    for (name,) in database.execute(f"SELECT relid::text FROM pg_partition_tree('{spec.source}')"):
        database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    return source.describe([spec])[spec.source]


def judged(database: Database, source: PostgresSource, spec: TableSpec) -> None:
    """Compare the judgement of every way of telling, for each partition, with where the rows are."""
    schema = described(database, source, spec)
    name = f"public.{spec.source.name}"
    with database.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        rows = connection.execute(f"SELECT tableoid::regclass::text, * FROM {name}").fetchall()
        with connection.cursor().copy(f"COPY (SELECT * FROM {name}) TO STDOUT") as copy:
            batch = decode_copy_text(b"".join(bytes(piece) for piece in copy), schema)
        leaves = [row[0] for row in rows]
        tree = source.partitioned.partitions(schema)
        for part in tree:
            below = {str(leaf.name).removeprefix("public.") for leaf in tree if _is_below(leaf, part, tree)}
            expected = [leaf in below for leaf in leaves]
            told = PartitionFilter([part.region or ()], schema, decode_copy_text)
            columns = [batch.column(i) for i in told.key]
            assert told.holds(columns).to_pylist() == expected, part
            assert in_postgres(connection, schema, part) == expected, part
            assert in_duckdb(batch, schema, part) == expected, part


def _is_below(leaf: Partition, part: Partition, tree: list[Partition]) -> bool:
    above = {each.relation: each.parent for each in tree}
    at = leaf.relation
    while at != part.relation:
        if at not in above:
            return False
        at = above[at]
    return True


def in_postgres(connection: Session, schema: TableSchema, part: Partition) -> list[bool]:
    place = Place(TableId("t"), str(schema.name), schema)
    rows = partition_rows([part.region or ()], schema, decode_copy_text)
    given = as_arrays(rows.values, bounds_of(place, rows))
    sql = f"SELECT {belongs(place, rows, 's')} FROM {place.qualified} AS t, {given.sql}"
    return [row[0] for row in psycopg.RawCursor(connection).execute(sql.encode(), given.parameters).fetchall()]


def in_duckdb(batch: Any, schema: TableSchema, part: Partition) -> list[bool]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    place = DuckDbPlace(TableId("t"), "told", schema)
    rows = partition_rows([part.region or ()], schema, decode_copy_text)
    casts = ", ".join(
        f"CAST(c{i} AS UUID) AS {quoted(c.name)}" if c.type.name == "uuid" else f"c{i} AS {quoted(c.name)}"
        for i, c in enumerate(schema.columns)
    )
    connection.register("given", batch)
    connection.execute(f"CREATE TABLE told AS SELECT {casts} FROM given")
    staging = StagingConnection(connection)
    with staging.staged(rows.values) as bounds:
        found = staging.execute(f"SELECT {belongs_in_duckdb(place, rows)} FROM told AS t, {bounds} AS b").fetchall()
    connection.close()
    return [row[0] for row in found]


@pytest.mark.parametrize("kind", WAYS)
def test_values_at_and_around_each_bound(database: Database, source: PostgresSource, kind: str) -> None:
    way, bounds = WAYS[kind]
    database.execute(f"CREATE TABLE parted (id int, v {kind}) PARTITION BY {way}")
    for number, bound in enumerate(bounds):
        values = "DEFAULT" if bound is None else f"FOR VALUES {bound}"
        database.execute(f"CREATE TABLE parted_{number} PARTITION OF parted {values}")
    values = [*VALUES[kind], *([None] if kind in NULLABLE else [])]
    with database.connect() as connection:
        for number, value in enumerate(values):
            connection.execute(f"INSERT INTO parted VALUES (%s, %s::{kind})", [number, value])
    judged(database, source, table("parted"))


_COORDINATE = st.integers(-3, 3)
_LIMIT = st.tuples(_COORDINATE, st.one_of(_COORDINATE, st.sampled_from(list(Edge))))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limits=st.lists(_LIMIT, min_size=2, max_size=5, unique=True), default=st.booleans(), below=st.booleans())
def test_ranges_of_two_columns_with_partitions_below(
    database: Database, source: PostgresSource, limits: list[tuple[int, int | Edge]], default: bool, below: bool
) -> None:
    order = {Edge.LOWEST: -99, Edge.HIGHEST: 99}
    limits = sorted(limits, key=lambda limit: (limit[0], order.get(limit[1], limit[1])))  # type: ignore[arg-type, call-overload]
    database.execute("DROP TABLE IF EXISTS parted")
    database.execute("CREATE TABLE parted (a int, b int, c text) PARTITION BY RANGE (b, a)")
    for number, (lower, upper) in enumerate(pairwise(limits)):
        split = " PARTITION BY LIST (c)" if below and number == 0 else ""
        bound = f"FROM ({_sql(lower)}) TO ({_sql(upper)})"
        database.execute(f"CREATE TABLE parted_{number} PARTITION OF parted FOR VALUES {bound}{split}")
    if below:
        database.execute("CREATE TABLE parted_0_x PARTITION OF parted_0 FOR VALUES IN ('x')")
        database.execute("CREATE TABLE parted_0_rest PARTITION OF parted_0 DEFAULT")
    if default:
        database.execute("CREATE TABLE parted_rest PARTITION OF parted DEFAULT")
    with database.connect() as connection:
        connection.execute(
            "DO $$ DECLARE r record; BEGIN FOR r IN SELECT a, b, c FROM generate_series(-4, 4) a, generate_series(-4, 4) b,"
            " (VALUES ('x'), (NULL)) AS v(c) UNION ALL VALUES (NULL, 1, 'x'), (1, NULL, 'x'), (NULL, NULL, NULL) LOOP"
            " BEGIN INSERT INTO parted VALUES (r.a, r.b, r.c); EXCEPTION WHEN check_violation THEN NULL; END; END LOOP; END $$"
        )
    judged(database, source, table("parted"))


def _sql(limit: tuple[int, int | Edge]) -> str:
    return ", ".join(part.value if isinstance(part, Edge) else str(part) for part in limit)


@pytest.mark.parametrize(
    ("make", "obstacle"),
    [
        ("(id int, v text) PARTITION BY RANGE (v)", "values of column v may compare in another way"),
        ("(id int, v text) PARTITION BY HASH (v)", "is partitioned by hash"),
        ("(id int, v int) PARTITION BY RANGE ((v % 10))", "by an expression"),
        ("(id int, v numeric) PARTITION BY LIST (v)", "values of column v may compare in another way"),
        ("(id int, v date) PARTITION BY LIST (v)", "a value that is infinite"),
        ("(id int, v text) PARTITION BY LIST (v text_pattern_ops)", "compared in a way of its own"),
    ],
)
def test_what_compares_otherwise_elsewhere_is_said(
    database: Database, source: PostgresSource, make: str, obstacle: str
) -> None:
    database.execute(f"CREATE TABLE parted {make}")
    bound = {
        "HASH": "WITH (MODULUS 1, REMAINDER 0)",
        "RANGE (v)": "FROM ('a') TO ('b')",
        "RANGE ((": "FROM (1) TO (2)",
        "v date": "IN ('infinity')",
        "LIST": "IN ('1')",
    }
    values = next(text for word, text in bound.items() if word in make)
    database.execute(f"CREATE TABLE parted_1 PARTITION OF parted FOR VALUES {values}")
    (part,) = source.partitioned.partitions(described(database, source, table("parted")))
    assert part.region is None
    assert obstacle in (part.obstacle or "")


def test_a_key_that_leaves_the_partitions_column_out_is_said(database: Database, source: PostgresSource) -> None:
    database.execute("CREATE TABLE parted (id int, v int NOT NULL) PARTITION BY LIST (v)")
    database.execute("CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)")
    spec = table("parted", key=("id",))
    (part,) = source.partitioned.partitions(described(database, source, spec))
    assert part.obstacle == "column v is not part of the key by which changes find their rows"


def test_the_tree_is_that_of_the_snapshot(database: Database, source: PostgresSource) -> None:
    database.execute("CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY LIST (id)")
    database.execute("CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)")
    database.execute("CREATE TABLE parted_rest PARTITION OF parted DEFAULT")
    schema = described(database, source, table("parted"))
    with source.copies.snapshot(20) as snapshot:
        database.execute("CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2)")
        old = source.partitioned.partitions(schema, snapshot.name)
    one = ListBound("id", ("1",))
    assert [(part.name, part.region) for part in old] == [
        (TableName("public", "parted_1"), (one,)),
        (TableName("public", "parted_rest"), (DefaultBound((one,)),)),
    ]
    assert len(source.partitioned.partitions(schema)) == 3
