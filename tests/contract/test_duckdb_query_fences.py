"""A user's query reads and does nothing else, whatever it tries."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from engine.apply.duckdb import DuckDbSettings, DuckDbTarget
from engine.apply.duckdb.query_guard import TABLE_FUNCTIONS
from engine.model.identity import TableId, TableName
from engine.model.target import QueryRefused
from tests.contract.target_material import SUBSCRIPTION, Pipeline, inserts, structure
from tests.fixtures.answers import answered

ORDERS = TableId("t0a")
orders = structure(TableName("public", "orders"), {"id": "int4", "note": "text"}, ["id"])
SETTINGS = DuckDbSettings(memory_limit="100MB", threads=1, spill_limit="20MB")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mart")


@pytest.fixture(scope="module")
def pipeline(folder: Path) -> Iterator[Pipeline]:
    (folder / "secret.csv").write_text("a,b\n1,2\n")
    target = DuckDbTarget(folder / "mart.duckdb", SETTINGS)
    made = Pipeline(target).claim()
    made.load(ORDERS, orders, [(1, "a"), (2, "b")])
    target.adopt(SUBSCRIPTION, TableId("t0b"), TableName("public", "copying"))
    target.begin_copy(SUBSCRIPTION, TableId("t0b"), TableName("public", "copying"), orders)
    target.append_copy(TableId("t0b"), inserts(orders, [(7, "hidden")]))
    yield made
    target.close()


@pytest.fixture(scope="module")
def before(pipeline: Pipeline, folder: Path) -> tuple[Any, ...]:
    return state(pipeline, folder)


def state(pipeline: Pipeline, folder: Path) -> tuple[Any, ...]:
    """Everything an attack could change: rows, tables, progress, configuration and the files in the folder."""
    tables = pipeline.select("SELECT schema_name, table_name, column_count, sql FROM duckdb_tables() ORDER BY ALL")
    files = sorted(p.name for p in folder.iterdir() if not p.name.endswith((".wal", ".tmp")))
    return pipeline.rows(orders), tables, pipeline.target.progress(SUBSCRIPTION), files


ATTACKS = [
    "BEGIN TRANSACTION READ ONLY; COMMIT; INSERT INTO public.orders VALUES (9, 'x')",
    "COMMIT; DELETE FROM public.orders",
    "SELECT 1; DELETE FROM public.orders",
    "SELECT 1;;SELECT 2",
    "COMMIT",
    "ROLLBACK",
    "INSERT INTO public.orders VALUES (9, 'x') RETURNING *",
    "FROM public.orders INSERT INTO public.orders SELECT *",
    "UPDATE public.orders SET note = 'x'",
    "DELETE FROM public.orders RETURNING *",
    "TRUNCATE public.orders",
    "MERGE INTO public.orders USING (SELECT 1 AS id) AS s ON orders.id = s.id WHEN MATCHED THEN DELETE",
    "WITH x AS (INSERT INTO public.orders VALUES (9, 'x') RETURNING id) SELECT * FROM x",
    "WITH x AS (UPDATE public.orders SET note = 'x' RETURNING id) SELECT * FROM x",
    "SELECT * FROM (WITH x AS (DELETE FROM public.orders RETURNING id) SELECT * FROM x)",
    "UPDATE penstock.progress SET position = '0/0'",
    "DROP TABLE public.orders",
    "DROP SCHEMA penstock CASCADE",
    "ALTER TABLE public.orders DROP COLUMN note",
    "CREATE TABLE mine AS SELECT 1",
    "CREATE TEMP TABLE mine AS SELECT 1",
    "CREATE OR REPLACE TABLE public.orders AS SELECT 1 AS id",
    "CREATE VIEW v AS SELECT 1",
    "CREATE MACRO f() AS 1",
    "CREATE SEQUENCE s",
    "CREATE INDEX i ON public.orders (id)",
    "COMMENT ON TABLE public.orders IS 'x'",
    "COPY public.orders TO '{folder}/out.csv'",
    "COPY public.orders FROM '{folder}/secret.csv'",
    "COPY (SELECT * FROM public.orders) TO '{folder}/out.parquet'",
    "EXPORT DATABASE '{folder}/out'",
    "IMPORT DATABASE '{folder}/out'",
    "ATTACH '{folder}/other.duckdb' AS other",
    "DETACH mart",
    "USE mart.public",
    "SET memory_limit = '10GB'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET enable_external_access",
    "SET VARIABLE x = 1",
    "PRAGMA memory_limit = '10GB'",
    "PRAGMA enable_profiling",
    "PRAGMA force_checkpoint",
    "PRAGMA table_info('public.orders')",
    "CHECKPOINT",
    "FORCE CHECKPOINT",
    "VACUUM",
    "ANALYZE",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE INSERT INTO public.orders VALUES (9, 'x')",
    "PREPARE p AS INSERT INTO public.orders VALUES (9, 'x')",
    "EXECUTE p",
    "CALL force_checkpoint()",
    "CALL enable_logging()",
    "PIVOT public.orders ON note USING count(*)",
    "SELECT * FROM checkpoint()",
    "SELECT * FROM force_checkpoint()",
    "SELECT (SELECT count(*) FROM checkpoint())",
    "SELECT * FROM public.orders WHERE EXISTS (FROM checkpoint())",
    "WITH a AS (FROM checkpoint()) SELECT * FROM public.orders",
    "SELECT 1 UNION ALL SELECT 2 FROM checkpoint()",
    "SELECT * FROM public.orders, LATERAL (SELECT * FROM checkpoint())",
    "FROM (DESCRIBE public.orders), (FROM checkpoint())",
    "SELECT * FROM (PIVOT (FROM checkpoint()) ON x IN (1))",
    "SELECT * FROM main.checkpoint()",
    "SELECT * FROM system.main.checkpoint()",
    'SELECT * FROM "CHECKPOINT"()',
    "SELECT * FROM query('SELECT * FROM checkpoint()')",
    "SELECT * FROM query_table('__penstock_copy_t0b')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM checkpoint()'))",
    "SELECT * FROM enable_logging(storage := 'file', storage_path := '{folder}/logs')",
    "SELECT * FROM enable_profiling()",
    "SELECT * FROM truncate_duckdb_logs()",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM python_map_function(1)",
    "SELECT * FROM create_external_resource('a', 'b')",
    "SELECT * FROM seq_scan('public.orders')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_databases()",
    "SELECT * FROM read_csv('{folder}/secret.csv')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('http://127.0.0.1:1/x')",
    "SELECT * FROM read_parquet('s3://bucket/x')",
    "SELECT * FROM parquet_metadata('{folder}/x')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('{folder}/secret.csv')",
    "SELECT * FROM '{folder}/secret.csv'",
    'SELECT * FROM "{folder}/secret.csv"',
    "SELECT * FROM 'https://127.0.0.1:1/x.parquet'",
    "SELECT nextval('s')",
    "SELECT write_log('x')",
    "SELECT sleep_ms(1)",
    "SELECT current_setting('temp_directory')",
    "SELECT getenv('HOME')",
    "SELECT * FROM public.__penstock_copy_t0b",
    'SELECT * FROM public."__PENSTOCK_COPY_T0B"',
    "SELECT * FROM pipeline",
    "SELECT * FROM orders_frame",
    "SELECT $1",
    "SELECT ?",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_changes_and_shows_nothing(
    pipeline: Pipeline, folder: Path, before: tuple[Any, ...], attack: str
) -> None:
    orders_frame = [1, 2, 3]  # a variable that must not be found by its name
    with pytest.raises(QueryRefused) as caught:
        pipeline.select(attack.replace("{folder}", str(folder)))
    assert caught.value.code in {"query_not_a_read", "query_invalid"}
    assert caught.value.detail
    assert state(pipeline, folder) == before
    assert orders_frame == [1, 2, 3]


READS = [
    "SELECT count(*) FROM orders",
    "FROM public.orders",
    "TABLE public.orders",
    "VALUES (1), (2)",
    "DESCRIBE public.orders",
    "SHOW TABLES",
    "SUMMARIZE public.orders",
    "WITH a AS (SELECT 1 AS x) SELECT * FROM a",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT * FROM t",
    "SELECT * FROM range(3) AS r(i) JOIN public.orders ON id = i",
    "SELECT unnest([1, 2])",
    "SELECT table_name FROM information_schema.tables",
    "SELECT position FROM penstock.progress",
    "SELECT * FROM duckdb_columns()",
    "SELECT id, row_number() OVER (ORDER BY note DESC) FROM public.orders QUALIFY true ORDER BY 1",
    "SELECT * FROM (PIVOT public.orders ON note IN ('a', 'b') USING count(*))",
    "SELECT 1 AS a, 2 AS a -- two columns of one name\n;",
    "SELECT '; DELETE FROM public.orders' AS x",
]


@pytest.mark.parametrize("sql", READS)
def test_reads_run(pipeline: Pipeline, sql: str) -> None:
    answer = answered(pipeline.target, sql, 1000, 10.0, SUBSCRIPTION)
    assert answer.table.num_rows > 0


def test_columns_keep_their_names(pipeline: Pipeline) -> None:
    answer = answered(pipeline.target, 'SELECT 1 AS a, 2 AS a, 3 AS "A"', 10, 10.0, SUBSCRIPTION)
    assert answer.table.schema.names == ["a", "a", "A"]


def test_a_query_ends_at_its_deadline(pipeline: Pipeline) -> None:
    endless = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
    with pytest.raises(QueryRefused) as caught:
        answered(pipeline.target, endless, 10, 0.2, SUBSCRIPTION)
    assert caught.value.code == "query_timeout"
    with pytest.raises(QueryRefused) as streaming:
        answered(
            pipeline.target,
            "SELECT a.range FROM range(10000000) a, range(10000000) b WHERE hash(a.range + b.range) = 1",
            10,
            0.2,
            SUBSCRIPTION,
        )
    assert streaming.value.code == "query_timeout"
    assert pipeline.select("SELECT 1 AS one") == [(1,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list(range) FROM range(100000000)",
        "SELECT count(*) FROM (SELECT md5(CAST(range AS VARCHAR)) AS v FROM range(5000000)"
        " UNION SELECT md5(CAST(-range AS VARCHAR)) FROM range(5000000))",
        "SELECT repeat('x', 1000000) || range FROM range(1000)",
    ],
    ids=["memory", "spill", "answer"],
)
def test_a_query_too_large_is_refused(pipeline: Pipeline, sql: str) -> None:
    with pytest.raises(QueryRefused) as caught:
        answered(pipeline.target, sql, 10_000_000, 60.0, SUBSCRIPTION, 8 << 20)
    assert caught.value.code == "query_too_large"
    assert pipeline.rows(orders) == [(1, "a"), (2, "b")]


def test_an_error_in_the_middle_of_an_answer_is_the_querys(pipeline: Pipeline) -> None:
    sql = "SELECT CASE WHEN range = 90000 THEN CAST('x' || range AS INTEGER) ELSE 1 END FROM range(100000)"
    with pytest.raises(QueryRefused) as caught:
        answered(pipeline.target, sql, 1_000_000, 30.0, SUBSCRIPTION)
    assert caught.value.code == "query_invalid"


def test_a_target_without_progress_answers_no_query(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "x.duckdb", SETTINGS)
    Pipeline(target).claim()
    with pytest.raises(QueryRefused) as caught:
        answered(target, "SELECT 1", 1, 5.0, "other")  # type: ignore[arg-type]
    assert caught.value.code == "query_unavailable"
    target.close()


def test_closing_the_target_ends_running_queries(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "x.duckdb", SETTINGS)
    Pipeline(target).claim()
    codes: list[str] = []
    begun = threading.Event()

    def ask() -> None:
        begun.set()
        try:
            answered(target, "SELECT sum(a.range) FROM range(10000000) a, range(10000000) b", 10, 60.0, SUBSCRIPTION)
        except QueryRefused as refused:
            codes.append(refused.code)

    thread = threading.Thread(target=ask)
    thread.start()
    assert begun.wait(5)
    deadline = threading.Event()
    while not target._database._readers and not deadline.wait(0.001):  # type: ignore[union-attr]
        pass
    target.close()
    thread.join(10)
    assert not thread.is_alive()
    assert codes == ["query_unavailable"]


def test_every_table_function_of_this_duckdb_has_been_looked_at() -> None:
    """A new release may bring functions that act; they stay refused, and this names them so that someone decides."""
    looked_at = Path(__file__).with_name("duckdb_table_functions.txt").read_text().split()
    sql = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type LIKE 'table%' ORDER BY 1"
    present = [row[0] for row in duckdb.connect().execute(sql).fetchall()]
    assert sorted(set(present) - set(looked_at)) == []
    assert set(looked_at) >= TABLE_FUNCTIONS


@pytest.mark.parametrize(
    "sql",
    [
        "FROM (" * 5_000 + "public.orders" + ")" * 5_000,
        "SELECT " + "(" * 300 + "1" + ")" * 300,
        "SELECT " + " || ".join(["note"] * 2_000) + " FROM public.orders",
        "SELECT " + ", ".join(["note"] * 20_000) + " FROM public.orders",
    ],
    ids=["subqueries", "parentheses", "operators", "length"],
)
def test_a_statement_that_could_overwhelm_the_parser_is_refused(pipeline: Pipeline, sql: str) -> None:
    with pytest.raises(QueryRefused):
        pipeline.select(sql)
    assert pipeline.select("SELECT 1 AS one") == [(1,)]


def test_a_long_list_of_values_is_no_offence(pipeline: Pipeline) -> None:
    sql = f"SELECT id FROM public.orders WHERE id IN ({', '.join(map(str, range(2, 10_000)))})"
    assert pipeline.select(sql) == [(2,)]
