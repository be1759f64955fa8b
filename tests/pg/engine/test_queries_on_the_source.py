"""Statements of readers on the source: translated, they mean the same; they read the subscription's tables and do nothing else."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import duckdb
import pytest

from engine.connectors import TARGETS, open_source
from engine.control.source_query import query_source
from engine.control.source_statement import Rows, Translation
from engine.control.supervisor import SubscriptionSupervisor
from engine.kinds import SqlDialect
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.masks import Mask, MaskMethod
from engine.model.position import Lsn
from engine.model.shared import SharedInto
from engine.model.soft_delete import DeleteMode
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.model.target import QueryLimits, QueryRefused, TableRead
from engine.sources.postgres.queries import rows_of, run_query
from engine.tables.registry import TableRegistry
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

ROWS = """
INSERT INTO shop."Orders" VALUES
(1, 'b', 7, 1.50, 2.5, true, '2026-01-02', '2026-01-02 03:04:05', 'low', 'x'), (2, 'B', -7, -0.25, 0.1, false, '2024-02-29',
'2024-02-29 23:59:59', 'high', 'y'), (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (4, 'a%_\\b', 0, 100.00, -3.5, true,
'1999-12-31', '1999-12-31 00:00:00', 'low', 'x'), (5, 'Ä', 3, 7.00, 1e10, NULL, '2026-01-01', '2026-01-01 12:00:00', 'mid', NULL)
"""
TABLES = """
CREATE SCHEMA shop;
CREATE TYPE shop.mood AS ENUM ('low', 'mid', 'high');
CREATE TABLE shop."Orders" (id int PRIMARY KEY, "Note" text, n int, price numeric(10,2), f float8, ok bool, d date, ts timestamp,
    mood shop.mood, code char(3));
CREATE TABLE public.lines (id int PRIMARY KEY, order_id bigint, label varchar(20));
CREATE TABLE public.secrets (id int PRIMARY KEY, secret text);
INSERT INTO public.lines VALUES (10, 1, 'l1'), (11, 1, 'l2'), (12, 2, NULL), (13, NULL, 'l4');
INSERT INTO public.secrets VALUES (1, 'hidden');
"""
ON_TARGET = """
CREATE SCHEMA public;
CREATE TABLE public.orders (id INTEGER, "Note" VARCHAR, n INTEGER, price DECIMAL(10,2), f DOUBLE, ok BOOLEAN, d DATE, ts TIMESTAMP,
    mood VARCHAR, code VARCHAR);
CREATE TABLE public.lines (id INTEGER, order_id BIGINT, label VARCHAR);
INSERT INTO public.lines VALUES (10, 1, 'l1'), (11, 1, 'l2'), (12, 2, NULL), (13, NULL, 'l4');
"""
ORDERS = TableSpec(TableId("t1"), TableName("shop", "Orders"), TableName("public", "orders"))
LINES = TableSpec(TableId("t2"), TableName("public", "lines"), TableName("public", "lines"))


class Pipeline:
    """The part of a supervisor that a statement on the source needs."""

    query_memory = 128 << 20

    def __init__(self, database: Database, target: str, tables: tuple[TableSpec, ...] = (ORDERS, LINES)) -> None:
        self.book = TableRegistry()
        self.spec: Any = type("Spec", (), {})()
        self.spec.name = SubscriptionName("s")
        self.spec.source = ConnectionSpec("shop", "postgres", database.settings)
        self.spec.target = ConnectionSpec("mart", target, {"path": "unused"})
        self.spec.tables = tables


def _made(database: Database) -> None:
    database.execute(TABLES)
    database.execute(ROWS)


def _asked(pipeline: Pipeline, sql: str, reads: list[TableRead] | None = None, **limits: Any) -> list[tuple[Any, ...]]:
    found: list[TableRead] = [] if reads is None else reads
    with query_source(
        cast("SubscriptionSupervisor", pipeline), sql, QueryLimits(**{"timeout_s": 20, **limits}), found.extend
    ) as answer:
        assert answer.position > Lsn(0)
        return [tuple(row.values()) for batch in answer.batches for row in batch.to_pylist()]


def _refused(pipeline: Pipeline, sql: str) -> QueryRefused:
    with pytest.raises(QueryRefused) as caught:
        _asked(pipeline, sql)
    return caught.value


SAME = [
    'SELECT * FROM orders ORDER BY id',
    "SELECT ORDERS.ID, Public.Orders.NOTE, orders.note FROM Public.ORDERS ORDER BY Id DESC",
    "SELECT id FROM orders ORDER BY note, id",
    "SELECT id FROM orders ORDER BY note DESC, id DESC",
    "SELECT min(note), max(note), min(mood), max(mood) FROM orders",
    "SELECT id FROM orders WHERE note < 'a' OR note > 'z' ORDER BY id",
    "SELECT id FROM orders WHERE mood < 'lp' ORDER BY id",
    r"SELECT id FROM orders WHERE note LIKE 'a%\b' ORDER BY id",
    r"SELECT id FROM orders WHERE note LIKE 'a!%!_%' ESCAPE '!' OR note NOT LIKE 'b' ORDER BY id",
    "SELECT id, n / 2, n % 2, -n, abs(n), n * price, n + price, n - 1 FROM orders WHERE n IS NOT NULL ORDER BY id",
    "SELECT count(*), count(n), count(DISTINCT mood), sum(n), sum(price), avg(n), avg(price), avg(f) FROM orders",
    "SELECT mood, count(*) FILTER (WHERE ok) AS c, avg(n) FILTER (WHERE ok) FROM orders GROUP BY mood HAVING count(*) > 0 ORDER BY c, mood",
    "SELECT o.id, l.label FROM orders o LEFT JOIN lines AS l ON l.order_id = o.id ORDER BY o.id, l.label",
    "SELECT count(*) FROM orders FULL JOIN lines USING (id)",
    "SELECT count(*) FROM orders, lines",
    "WITH t AS (SELECT id AS X FROM orders WHERE ok) SELECT x FROM T UNION ALL SELECT id FROM lines ORDER BY x",
    "SELECT DISTINCT mood FROM orders ORDER BY mood NULLS FIRST LIMIT 3 OFFSET 1",
    "SELECT id, CASE WHEN ok THEN 'yes' WHEN NOT ok THEN 'no' ELSE 'it''s' END, coalesce(n, 0), nullif(n, 7) FROM orders ORDER BY id",
    "SELECT id, note || '/' || code, length(note), length(code) FROM orders ORDER BY id",
    "SELECT id, d + INTERVAL 1 MONTH, ts - INTERVAL '2 days', d - date '2024-01-01' FROM orders ORDER BY id",
    "SELECT id, extract(year FROM d), extract(dow FROM ts), extract(minute FROM ts) FROM orders ORDER BY id",
    "SELECT id FROM orders WHERE d BETWEEN '2024-01-01' AND '2026-01-01' AND ts IS NOT NULL ORDER BY id",
    "SELECT id FROM orders WHERE id IN (SELECT order_id FROM lines) AND EXISTS (SELECT 1 FROM lines WHERE order_id = orders.id) ORDER BY 1",
    "SELECT id, row_number() OVER (PARTITION BY mood ORDER BY n DESC), lag(id) OVER (ORDER BY note, id) FROM orders ORDER BY id",
    "SELECT id, sum(n) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM orders ORDER BY id",
    "SELECT id, f::bigint, cast(price AS int), cast('2.5' AS double), cast(1.005 AS decimal(5,2)), ts::date FROM orders ORDER BY 1",
    "SELECT id, n IS DISTINCT FROM 7, ok IS TRUE, greatest(n, 1), least(n, NULL) FROM orders ORDER BY id",
    "SELECT v.x, o.id FROM (VALUES (1), (2)) AS v(x) JOIN orders o ON o.id = v.x ORDER BY 1 -- the end",
    "SELECT id AS n, n AS id FROM orders ORDER BY n DESC",
    "SELECT n AS ok, count(*) FROM orders GROUP BY n ORDER BY ok",
    "SELECT id FROM orders EXCEPT SELECT order_id FROM lines ORDER BY 1",
    r"SELECT '\' || chr_.id, 'a''b\' FROM (SELECT id FROM orders WHERE id = 1) AS chr_",
]  # fmt: skip


def _plain(value: Any) -> Any:
    """A value as both print it: a whole number's type may differ."""
    return (
        Decimal(str(value)).normalize()
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        else value
    )


def test_a_translated_statement_means_the_same(database: Database, tmp_path: Path) -> None:
    _made(database)
    source = open_source(ConnectionSpec("shop", "postgres", database.settings))
    described = source.describe([ORDERS, LINES])
    source.close()
    rows = {
        spec.table: Rows(rows_of(schema, False), tuple(column.name for column in schema.columns))
        for spec in (ORDERS, LINES)
        for schema in [described[spec.source]]
    }
    duck, postgres = TARGETS["duckdb"].connection.dialect, TARGETS["postgres"].connection.dialect
    # The embedded source sorts text by code points anyway; others may not.
    assert '("Note"::text) COLLATE "C" AS "Note"' in rows[ORDERS.table].sql
    assert duck is not None
    assert postgres is not None
    translation = Translation(duck, postgres, [ORDERS, LINES])
    mart = duckdb.connect(str(tmp_path / "mart.duckdb"))
    mart.execute(ON_TARGET)
    mart.execute(ROWS.replace('shop."Orders"', "public.orders").replace("'x'", "'x  '").replace("'y'", "'y  '"))
    mart.execute("SET search_path = 'main,public'")
    different = {}
    for sql in SAME:
        expected = [tuple(map(_plain, row)) for row in mart.execute(sql).fetchall()]
        translated = translation.translate(sql, lambda spec: rows[spec.table]).sql
        found = [tuple(map(_plain, row)) for row in database.execute(translated)]
        if found != expected:
            different[sql] = (expected, found)
    assert not different, "\n".join(f"{sql}\n  {one}" for sql, one in different.items())
    mart.close()


NOT_TRANSLATED = [
    "SELECT lower(note) FROM orders",
    "SELECT id FROM orders WHERE note ILIKE 'b'",
    "SELECT round(f) FROM orders",
    "SELECT date_trunc('month', d) FROM orders",
    "SELECT extract(second FROM ts) FROM orders",
    "SELECT * EXCLUDE (id) FROM orders",
    "SELECT count(*) FROM orders GROUP BY ALL",
    "SELECT id FROM orders QUALIFY row_number() OVER () = 1",
    "SELECT id FROM orders USING SAMPLE 10",
    "SELECT -n AS n FROM orders ORDER BY n + 0",
    "SELECT id FROM orders LIMIT 10%",
    "SELECT TRY_CAST(note AS INT) FROM orders",
    "SELECT cast(f AS decimal(5,2)) FROM orders",
    "SELECT * FROM orders ASOF JOIN lines ON orders.id >= lines.id",
    "SELECT * FROM orders SEMI JOIN lines USING (id)",
    "WITH lines AS (SELECT 1 AS id) SELECT * FROM lines",
    "SELECT list(id) FROM orders",
    "SELECT $1",
]
NEITHER = [
    "SELECT * FROM public.secrets",
    "SELECT (SELECT secret FROM secrets) FROM orders",
    "SELECT * FROM pg_catalog.pg_authid",
    "SELECT * FROM pg_authid",
    "SELECT * FROM (WITH pg_authid AS (SELECT 1) SELECT * FROM pg_authid) x, pg_authid",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM orders.public.orders",
    "SELECT pg_read_file('/etc/passwd') FROM orders",
    "SELECT table_to_xml('public.secrets', true, false, '')",
    "SELECT query_to_xml('SELECT * FROM secrets', true, false, '')",
    "SELECT public.peek() FROM orders",
    "SELECT peek() FROM orders",
    "SELECT current_setting('data_directory')",
    "SELECT set_config('statement_timeout', '0', false)",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_sleep(1)",
    "SELECT * FROM generate_series(1, 10)",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT 'public.secrets'::regclass",
    "SELECT * INTO x FROM orders",
    "INSERT INTO orders VALUES (1)",
    "WITH x AS (DELETE FROM orders RETURNING *) SELECT * FROM x",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP TABLE lines",
    "DROP TABLE lines",
    "SET a = 1",
    "COPY orders TO '/tmp/x'",
    "CALL x()",
    "EXPLAIN SELECT 1",
    "",
]


@pytest.mark.parametrize("target", ["duckdb", "postgres"])
def test_what_is_not_a_read_of_the_subscriptions_tables_is_refused(database: Database, target: str) -> None:
    _made(database)
    database.execute(
        "CREATE FUNCTION public.peek() RETURNS text STABLE LANGUAGE sql AS 'SELECT secret FROM public.secrets'"
    )
    pipeline = Pipeline(database, target)
    more = ["SELECT * FROM orders FOR UPDATE", "SELECT ctid FROM orders", "SELECT tableoid FROM lines"]
    for sql in [*NEITHER, *(more if target == "postgres" else NOT_TRANSLATED)]:
        found = _refused(pipeline, sql)
        codes = {"query_not_translatable", "query_not_of_source", "query_not_a_read", "query_invalid"}
        assert (found.code in codes, bool(found.detail)) == (True, True), sql
        assert "hidden" not in found.detail
    assert database.execute("SELECT count(*) FROM public.lines") == [(4,)]
    assert database.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]


def test_in_the_sources_own_dialect_more_is_permitted(database: Database) -> None:
    _made(database)
    pipeline = Pipeline(database, "postgres")
    reads: list[TableRead] = []
    sql = "SELECT lower(o.\"Note\"), round(f::numeric, 1), date_trunc('day', ts), string_agg(l.label, ',' ORDER BY l.id) FROM orders o"
    rows = _asked(pipeline, f"{sql} JOIN lines l ON l.order_id = o.id WHERE o.id = 1 GROUP BY 1, 2, 3", reads)
    assert [(row[0], row[3]) for row in rows] == [("b", "l1,l2")]
    assert {read.table for read in reads} == {ORDERS.table, LINES.table}
    assert _asked(pipeline, "SELECT mood::text AS m FROM orders WHERE mood > 'low' ORDER BY mood") == [
        ("mid",),
        ("high",),
    ]


def test_what_a_statement_reads_is_compared_once_more_before_it_runs(database: Database) -> None:
    """Also if the translation let it pass."""
    _made(database)
    source = ConnectionSpec("shop", "postgres", database.settings)
    for sql in (
        "SELECT secret FROM public.secrets",
        "SELECT l.id FROM public.lines l, pg_authid",
        "SELECT 1 FROM pg_roles",
    ):
        with (
            pytest.raises(QueryRefused) as caught,
            run_query(source, (sql, ()), [LINES.source], Lsn(1), QueryLimits(20), Pipeline.query_memory),
        ):
            pass
        assert (caught.value.code, "reads" in caught.value.detail) == ("query_not_a_read", True)
    for sql in ("INSERT INTO public.lines VALUES (99)", "SELECT pg_advisory_lock(1)", "SELECT 1; SELECT 2"):
        with (
            pytest.raises(QueryRefused) as caught,
            run_query(source, (sql, ()), [LINES.source], Lsn(1), QueryLimits(20), Pipeline.query_memory),
        ):
            pass
        assert caught.value.code in {"query_not_a_read", "query_invalid"}
    assert database.execute("SELECT count(*) FROM public.lines") == [(4,)]


def test_statements_on_the_source_see_what_the_declaration_selects(database: Database) -> None:
    _made(database)
    database.execute("ALTER TABLE public.lines REPLICA IDENTITY FULL")
    lines = replace(LINES, exclude_columns=("label",), rename={"order_id": "of_order"}, where="id < 12")
    pipeline = Pipeline(database, "duckdb", (ORDERS, lines))
    assert _asked(pipeline, "SELECT * FROM lines ORDER BY id") == [(10, 1), (11, 1)]
    assert _asked(pipeline, "SELECT count(*) FROM lines WHERE of_order = 1") == [(2,)]
    with pytest.raises(QueryRefused):
        _asked(pipeline, "SELECT label FROM lines")
    masked = replace(LINES, mask={"label": Mask(MaskMethod.NULL)})
    with pytest.raises(QueryRefused, match="masked"):
        _asked(Pipeline(database, "duckdb", (ORDERS, masked)), "SELECT label FROM lines")


@pytest.mark.parametrize("target", ["duckdb", "postgres"])
def test_parameters_reach_the_source(database: Database, target: str) -> None:
    _made(database)
    sql = "SELECT id FROM public.lines WHERE order_id = $1 AND label = $2"
    pipeline = cast("SubscriptionSupervisor", Pipeline(database, target))
    with query_source(pipeline, sql, QueryLimits(20), lambda _: None, ["1", "l2"]) as answer:
        assert [row for batch in answer.batches for row in batch.to_pylist()] == [{"id": 11}]


def test_limits_hold_on_the_source(database: Database) -> None:
    _made(database)
    pipeline = Pipeline(database, "duckdb")
    assert len(_asked(pipeline, "SELECT id FROM orders ORDER BY id", max_rows=2)) == 2
    heavy = "SELECT count(*) FROM " + ", ".join(f"orders o{i}" for i in range(14))
    with pytest.raises(QueryRefused) as caught:
        _asked(pipeline, heavy, timeout_s=1.0)
    assert caught.value.code == "query_timeout"
    with pytest.raises(QueryRefused) as caught:
        _asked(pipeline, "SELECT a.note FROM orders a, orders b, orders c", max_bytes=10)
    assert caught.value.code == "query_too_large"


def test_what_the_source_cannot_answer_says_why(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    _made(database)
    shared = SharedInto(TableName("public", "all_orders"), "shop", "a")
    member = TableSpec(TableId("t3"), TableName("shop", "Orders"), TableName("members", "orders"), shared=shared)
    found = _refused(Pipeline(database, "duckdb", (member, LINES)), "SELECT * FROM all_orders")
    assert (found.code, "several sources" in found.detail) == ("query_not_of_source", True)
    soft = replace(LINES, deletes=DeleteMode.MARK)
    found = _refused(Pipeline(database, "duckdb", (soft,)), "SELECT * FROM lines")
    assert (found.code, "keeps deleted rows" in found.detail) == ("query_not_of_source", True)
    gone = TableSpec(TableId("t4"), TableName("public", "gone"), TableName("public", "gone"))
    assert "public.gone does not exist" in _refused(Pipeline(database, "duckdb", (gone,)), "SELECT * FROM gone").detail
    pipeline = Pipeline(database, "duckdb")
    kind = "engine.control.source_query.source_kind"
    without = type(
        "Kind", (), {"queries": None, "name": "files", "connection": type("C", (), {"name": "x", "dialect": None})}
    )
    monkeypatch.setattr(kind, lambda _: without)
    found = _refused(pipeline, "SELECT 1")
    assert (found.code, "runs no SQL" in found.detail, bool(found.remedy)) == ("source_query_unsupported", True, True)


def test_a_dialect_without_a_translation_is_refused(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    _made(database)
    other = SqlDialect("snowflake", ("public",))
    kinds = {"duckdb": type("T", (), {"connection": type("C", (), {"dialect": other})})}
    monkeypatch.setattr("engine.control.source_query.TARGETS", kinds)
    assert _refused(Pipeline(database, "duckdb"), "SELECT 1").code == "query_not_translatable"
