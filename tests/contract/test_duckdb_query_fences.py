"""A user's query reads and does nothing else, whatever it tries."""

from __future__ import annotations

import os
import signal
import threading
from base64 import b64decode
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.schema import KeyMode
from engine.model.target import QueryLimits, QueryRefused
from engine.targets.duckdb.query_guard import TABLE_FUNCTIONS, Named
from engine.targets.duckdb.scans import Shown, Snapshot, snapshot
from engine.targets.duckdb.settings import DuckDbSettings
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, inserts, keys, structure
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
    other = Pipeline(target, SubscriptionName("other"), epoch=1).claim()
    other.load(TableId("t0c"), replace(orders, name=TableName("public", "others")), [(8, "theirs")])
    with target._open().reader() as connection:
        connection.execute("CREATE VIEW public.strange AS SELECT 1 AS x")
    yield made
    target.close()


@pytest.fixture(scope="module")
def before(pipeline: Pipeline, folder: Path) -> tuple[Any, ...]:
    return state(pipeline, folder)


def state(pipeline: Pipeline, folder: Path) -> tuple[Any, ...]:
    """Everything an attack could change: rows, tables, progress, configuration and the files in the folder."""
    with pipeline.target._open().reader() as connection:
        sql = "SELECT schema_name, table_name, column_count, sql FROM duckdb_tables() ORDER BY ALL"
        tables = connection.execute(sql).fetchall()
    files = sorted(p.name for p in folder.iterdir() if not p.name.endswith((".wal", ".tmp")))
    return pipeline.rows(orders), tables, pipeline.target.progress(SUBSCRIPTION), files


@pytest.mark.parametrize(
    ("places", "expressions", "catalog", "shown"),
    [
        ([("public", "orders")], [], False, ["public.orders"]),
        ([("mart", "orders")], [], False, ["archive.orders", "public.orders"]),
        ([("", "orders")], [], False, ["archive.orders", "public.orders"]),
        ([("public", "orders"), ("", "x")], ["x"], False, ["public.orders"]),
        ([("nowhere", "orders")], [], False, ["archive.lines", "archive.orders", "public.orders"]),
        ([("", "x")], [], False, ["archive.lines", "archive.orders", "public.orders"]),
        ([], [], True, ["archive.lines", "archive.orders", "public.orders"]),
        ([], [], False, []),
    ],
)
def test_a_statement_is_shown_the_tables_that_it_names(
    tmp_path: Path, places: list[tuple[str, str]], expressions: list[str], shown: list[str], *, catalog: bool
) -> None:
    """A subscription may have a thousand tables. It sees all of them if it reads the catalog, or names an unknown table."""
    target = DuckDbTarget(tmp_path / "mart.duckdb", SETTINGS)
    pipeline = Pipeline(target).claim()
    for number, name in enumerate(["public.orders", "archive.orders", "archive.lines"]):
        pipeline.load(TableId(f"t{number}"), replace(orders, name=TableName(*name.split("."))), [(1, "a")])
    named = Named(frozenset(places), frozenset(expressions), catalog)
    with snapshot(target._open(), 1) as found:
        names = [relation.name for relation in found.shown(SUBSCRIPTION, named)]
    assert sorted(f"{name.schema}.{name.name}" for name in names) == shown
    target.close()


def test_the_keys_of_tables_are_shown_to_readers_of_the_catalog_only(tmp_path: Path) -> None:
    """DuckDB's tables declare none: they are those of the structures that the target records with the rows."""
    target = DuckDbTarget(tmp_path / "mart.duckdb", SETTINGS)
    pipeline = Pipeline(target).claim()
    lines = structure(TableName("public", "lines"), {"n": "int4", "Order Id": "int4"}, ["Order Id", "n"])
    bag = structure(TableName("public", "bag"), {"id": "int4"}, mode=KeyMode.BAG)
    left = replace(orders, name=TableName("public", "left"))
    for number, (schema, row) in enumerate([(orders, (1, "a")), (lines, (1, 2)), (bag, (1,)), (left, (1, "a"))]):
        pipeline.load(TableId(f"t{number}"), schema, [row])
    pipeline.commit(removed=[TableId("t3")])

    def keys(*, catalog: bool) -> dict[str, tuple[str, ...]]:
        named = Named(frozenset({("public", "orders")}), frozenset(), catalog)
        with snapshot(target._open(), 1) as found:
            return {relation.name.name: relation.key for relation in found.shown(SUBSCRIPTION, named)}

    assert keys(catalog=True) == {"orders": ("id",), "lines": ("Order Id", "n"), "bag": (), "left": ()}
    assert keys(catalog=False) == {"orders": ()}
    pipeline.change(TableId("t0"), structure(orders.name, {"number": "int4", "note": "text"}, ["number"]))
    assert keys(catalog=True)["orders"] == ("number",)
    target.close()


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
    "SELECT * FROM penstock.progress",
    "SELECT * FROM penstock.tables",
    "SELECT * FROM penstock.refused_rows",
    "SELECT * FROM mart.penstock.progress",
    "SELECT * FROM public.others",
    "SELECT * FROM mart.public.others",
    "SELECT * FROM public.strange",
    "SELECT * FROM temp.main.__penstock_scan_0",
    'SELECT * FROM "__PENSTOCK_SCAN_0"',
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
    while not (target._queries and target._queries._busy) and not deadline.wait(0.001):
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


LISTINGS = [
    "SELECT schema_name || '.' || table_name FROM duckdb_tables()",
    "SELECT schema_name || '.' || view_name FROM duckdb_views() WHERE NOT internal",
    "SELECT DISTINCT schema_name || '.' || table_name FROM duckdb_columns() WHERE NOT internal",
    "SELECT table_schema || '.' || table_name FROM information_schema.tables",
    "SELECT DISTINCT table_schema || '.' || table_name FROM information_schema.columns",
    "SELECT 'public.' || name FROM (SHOW TABLES)",
    "SELECT \"schema\" || '.' || name FROM (SHOW ALL TABLES)",
    "SELECT schemaname || '.' || tablename FROM pg_catalog.pg_tables",
    "SELECT schemaname || '.' || viewname FROM pg_catalog.pg_views WHERE schemaname = 'public'",
    "SELECT n.nspname || '.' || c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE relkind <> 'i'",
    "SELECT 'public.' || name FROM sqlite_master",
]


@pytest.mark.parametrize("sql", LISTINGS)
def test_what_there_is_shows_the_subscriptions_tables_only(pipeline: Pipeline, sql: str) -> None:
    assert {row[0] for row in pipeline.select(sql)} <= {"public.orders"}
    schemas = {row[0] for row in pipeline.select("SELECT schema_name FROM duckdb_schemas()")}
    assert "penstock" not in schemas
    assert [row[0] for row in pipeline.select("SELECT name FROM (SHOW TABLES)")] == ["orders"]


HOSTILE = [
    "SELECT len(range(300000000))",
    "SELECT length(repeat('x', 1500000000))",
    "SELECT length(lpad('x', 1500000000, 'y'))",
    "SELECT length(printf('%1500000000d', 1))",
    "SELECT len(list(repeat('x', 1000000))) FROM range(100000)",
    "SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))",
    "SELECT list_reduce(range(10000000), lambda x, y: x + y)",
    "SELECT string_agg(repeat('x', 100000)) FROM range(100000)",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
    "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000) c WHERE hash(a.range + b.range + c.range) = 1",
    "SELECT " + ", ".join(f"md5(CAST(range + {i} AS VARCHAR)) AS c{i}" for i in range(30)) + " FROM range(1000000)",
]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("sql", HOSTILE)
def test_a_statement_ends_at_its_limits_whatever_it_computes(tmp_path: Path, sql: str) -> None:
    """A single hostile statement ends in time, costs this process no memory, and affects neither a concurrent reader nor a writer."""
    target = DuckDbTarget(tmp_path / "x.duckdb", replace(SETTINGS, query_memory=256 << 20))
    pipeline = Pipeline(target).claim()
    pipeline.load(ORDERS, orders, [(1, "a")])
    pipeline.select("SELECT 1")
    before, began, codes = _resident_bytes(), monotonic(), []

    def ask() -> None:
        with pytest.raises(QueryRefused) as caught:
            answered(target, sql, 1_000_000, 1.5, SUBSCRIPTION, 64 << 20)
        codes.append((caught.value.code, monotonic() - began))

    thread = threading.Thread(target=ask)
    thread.start()
    others = 0
    while thread.is_alive():
        others += 1
        pipeline.change(ORDERS, orders, changes(ORDERS, insert=inserts(orders, [(1 + others, "b")])))
        assert pipeline.select("SELECT count(*) FROM orders") == [(1 + others,)]
    thread.join()
    target.close()
    [(code, took)] = codes
    assert code in {"query_timeout", "query_too_large"}
    assert took < 8
    assert _resident_bytes() - before < 200 << 20
    assert others


def test_the_death_of_a_query_process_is_its_statements_alone(pipeline: Pipeline) -> None:
    with ExitStack() as stack:
        answer = stack.enter_context(
            pipeline.target.query("SELECT range FROM range(100000000)", QueryLimits(60), SUBSCRIPTION)
        )
        beside = stack.enter_context(
            pipeline.target.query("SELECT range FROM range(1000000)", QueryLimits(60), SUBSCRIPTION)
        )
        next(answer.batches), next(beside.batches)
        process, _ = sorted(pipeline.target._queries._busy, key=lambda one: one.pid)  # type: ignore[attr-defined]
        other = {one.pid for one in pipeline.target._queries._busy} - {process.pid}  # type: ignore[attr-defined]
        os.kill(process.pid, signal.SIGKILL)
        ends = []
        for one in (answer, beside):
            try:
                ends.append(sum(batch.num_rows for batch in one.batches))
            except QueryRefused as refused:
                ends.append(refused.code)
        assert sum(end == "query_unavailable" for end in ends) == 1
        assert len(other) == 1
    assert pipeline.select("SELECT 1 AS one") == [(1,)]


def test_a_scan_that_fails_never_makes_a_short_answer(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(_self: Any, _connection: Any, _relation: Any, _message: Any, file: Any) -> None:
        schema = pa.schema([("c0", pa.int32())])
        with pa.ipc.new_stream(file, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays([pa.array([1], pa.int32())], schema=schema))
            raise duckdb.IOException("the disk is gone")

    monkeypatch.setattr(Snapshot, "_write", cut)
    for limit in (10, None):  # Without a limit, rows are passed on as scanned.
        with pytest.raises(QueryRefused) as caught:
            answered(pipeline.target, "SELECT id FROM orders", limit, 30.0, SUBSCRIPTION)
        assert caught.value.code == "query_unavailable"


@pytest.mark.parametrize(("timeout_s", "code"), [(60, "query_unavailable"), (1, "query_timeout")])
def test_rows_that_are_passed_on_end_with_their_process(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, timeout_s: float, code: str
) -> None:
    def endless(_self: Any, _connection: Any, _relation: Any, message: Any, file: Any) -> None:
        schema = pa.ipc.read_schema(pa.py_buffer(b64decode(message["schema"])))
        with pa.ipc.new_stream(file, schema) as writer:
            while True:
                writer.write_batch(pa.RecordBatch.from_arrays([pa.array([1] * 9999, pa.int32())], schema=schema))

    monkeypatch.setattr(Snapshot, "_write", endless)
    limits = QueryLimits(timeout_s)
    with pipeline.target.query("SELECT id FROM orders", limits, SUBSCRIPTION) as answer:
        next(answer.batches)
        if code == "query_unavailable":
            [process] = pipeline.target._queries._busy  # type: ignore[attr-defined]
            os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(QueryRefused) as caught:
            deque(answer.batches, maxlen=0)
    assert caught.value.code == code


def test_many_rows_pass_with_flat_memory(pipeline: Pipeline) -> None:
    limits = QueryLimits(60)
    with pipeline.target.query(
        "SELECT range AS n, repeat('x', 100) AS s FROM range(2000000)", limits, SUBSCRIPTION
    ) as answer:
        next(answer.batches)
        before = most = _resident_bytes()
        rows = 0
        for batch in answer.batches:
            rows += batch.num_rows
            most = max(most, _resident_bytes())
    assert 1_990_000 < rows < 2_000_000
    assert most - before < 64 << 20


def test_scans_of_one_statement_see_one_state(pipeline: Pipeline) -> None:
    """Each of them has a transaction of its own; a writer commits all the while."""
    table = TableId("t0e")
    schema = replace(orders, name=TableName("public", "moving"))
    pipeline.load(table, schema, [(0, "0")])
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            one = changes(table, delete=keys(schema, [(0,)]), insert=inserts(schema, [(0, str(number))]))
            pipeline.change(table, schema, one)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen = set()
        for _ in range(20):
            sql = "SELECT DISTINCT note FROM (" + " UNION ALL ".join(["SELECT note FROM moving"] * 8) + ")"
            [(note,)] = pipeline.select(sql)
            seen.add(note)
        assert len(seen) > 1
    finally:
        stop.set()
        thread.join()


PUSHED = [
    "id = 3", "id <> 3", "id < 3", "id <= 3", "id > 3", "id >= 3", "id IN (1, 3, 99)", "id NOT IN (1, 3)", "id IS NULL",
    "id IS NOT NULL", "id IS DISTINCT FROM 3", "id BETWEEN 2 AND 4 OR id = 1", "NOT (id = 3 OR id IS NULL)",
    "d > 1", "d = 'nan'", "d < 'nan'", "d = 0", "d = -0.0", "d IN (1.5, 'nan')", "d = 'infinity'", "d >= 'infinity'",
    "n = 1.50", "n > 1.505", "n < 0", "n IN (1.5, 2)", "ts = 'infinity'", "ts < '2026-01-01 00:00:00.000001'",
    "ts = '-infinity'", "ts > '0044-03-15 (BC) 00:00:00'", "tz = '2026-01-01 00:00:00+01'", "tz > '2025-12-31'",
    "dt = 'infinity'", "dt < '2026-01-02'", "dt = '9999-12-31'", "tm = '24:00:00'", "tm < '01:02:03.000004'", "b",
    "NOT b", "b IS NULL", "s = 'it''s'", "s = 'Ä'", "s > 'a'", "s LIKE 'a%'", "s IN ('', 'a')", "s = ''", "s = 'a\\nb'",
    "y = '\\x00\\xFF'::BLOB", "y < '\\x61'::BLOB", "u = '00000000-0000-0000-0000-00000000000a'", "u IS NULL",
    "l = [1, 2]", "id = 3 AND s = 'a' AND d > 0", "id + 1 = 4", "s = chr(0)", "id = (SELECT max(id) FROM public.kinds)",
]  # fmt: skip
KINDS = {
    "id": "int4", "d": "float8", "n": "numeric(10,2)", "ts": "timestamp", "tz": "timestamptz", "dt": "date", "tm": "time",
    "b": "bool", "s": "text", "y": "bytea", "u": "uuid", "l": "int4[]",
}  # fmt: skip


@pytest.fixture(scope="module")
def kinds(pipeline: Pipeline) -> Pipeline:
    """A table of every kind, with a row for each of its odd values."""
    schema = structure(TableName("public", "kinds"), {"k": "int4", **KINDS}, ["k"])
    pipeline.load(TableId("t0d"), schema, [])
    rows = [
        "(1, 1, 'nan', 1.5, 'infinity', '2026-01-01 00:00:00+01', 'infinity', '24:00:00', true, "
        "'it''s', '\\x00\\xFF', uuid '00000000-0000-0000-0000-00000000000a', [1, 2])",
        "(2, 3, 0, -1.5, '-infinity', 'infinity', '9999-12-31', '01:02:03.000004', false, 'Ä', 'a', "
        "uuid '10000000-0000-0000-0000-00000000000b', [])",
        "(3, 3, -0.0, 99999999.99, '2026-01-01', '-infinity', '-infinity', '00:00', NULL, '', '', "
        "uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff', [NULL, 3])",
        "(4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        "(5, -2147483648, 'infinity', 0, '0044-03-15 (BC) 12:00:00', '0001-01-01 00:00:00+00', "
        "'0044-03-15 (BC)', '23:59:59.999999', true, 'a', 'b', NULL, [4])",
        "(6, 2147483647, 1.5, 2, '294246-01-01', '9999-12-31 23:59:59+00', '2026-01-01', "
        "'00:00:00.000001', false, 'a\\nb', 'ab', NULL, NULL)",
    ]
    with pipeline.target._open().reader() as connection:  # type: ignore[attr-defined]
        connection.execute(f"INSERT INTO public.kinds VALUES {', '.join(rows)}")
    return pipeline


@pytest.mark.parametrize("condition", PUSHED)
def test_a_condition_chooses_the_rows_that_it_chooses_in_the_file(kinds: Pipeline, condition: str) -> None:
    """Conditions are pushed into the scan of the target's own file; what is left out there, and nothing else, is not true."""
    sql = f"SELECT k FROM public.kinds WHERE {condition} ORDER BY k"
    assert kinds.select(sql) == kinds.look(sql)


def test_values_come_as_they_are_in_the_file(kinds: Pipeline) -> None:
    sql = "SELECT * FROM public.kinds ORDER BY k"
    with kinds.target._open().reader() as connection:  # type: ignore[attr-defined]
        there = connection.sql(sql).to_arrow_table()
    here = answered(kinds.target, sql, None, 30.0, SUBSCRIPTION).table
    assert here.schema == there.schema
    assert [column.cast(pa.string()) if pa.types.is_floating(column.type) else column for column in here.columns] == [
        column.cast(pa.string()) if pa.types.is_floating(column.type) else column for column in there.columns
    ]


PLAIN = {
    "SELECT * FROM public.orders": True,
    "FROM orders": True,
    "SELECT * FROM kinds": False,  # The form of uuid depends on a setting of scans.
    'SELECT "K" AS key, s, s AS again, k FROM Kinds AS x': True,
    "SELECT k AS s FROM kinds": True,
    "SELECT k AS s, s FROM kinds": False,
    "SELECT x.k FROM kinds AS x": False,
    "SELECT kinds FROM kinds": False,
    "SELECT * FROM kinds LIMIT 3": False,
    "SELECT k FROM kinds WHERE k > 2": False,
    "SELECT DISTINCT b FROM kinds": False,
    "SELECT * EXCLUDE (k) FROM kinds": False,
    "SELECT k + 0 FROM kinds": False,
    "WITH kinds AS (SELECT 1 AS k) SELECT * FROM kinds": False,
    "SELECT * FROM kinds AS x (a, b)": False,
    "SELECT k FROM kinds, orders": False,
    "SELECT * FROM kinds USING SAMPLE 100%": False,
    "SELECT count(*) FROM kinds": False,
}


@pytest.mark.parametrize("sql", PLAIN)
def test_rows_that_are_passed_on_as_scanned_are_those_of_the_statement(
    kinds: Pipeline, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    passed: list[bool] = []
    scan = Snapshot.scan

    def noted(self: Snapshot, relation: Shown, message: dict[str, Any], sink: int) -> None:
        passed.append(message["schema"] is not None)
        scan(self, relation, message, sink)

    monkeypatch.setattr(Snapshot, "scan", noted)
    found = answered(kinds.target, sql, None, 30.0, SUBSCRIPTION).table
    assert any(passed) is PLAIN[sql]
    passed.clear()
    other = answered(kinds.target, f"({sql}) LIMIT 1000", None, 30.0, SUBSCRIPTION).table
    assert not any(passed)
    assert found.schema.equals(other.schema, check_metadata=True)
    assert found.num_rows
    assert [str(column.combine_chunks()) for column in found.columns] == [
        str(column.combine_chunks()) for column in other.columns
    ]


def test_a_row_too_large_is_refused_where_rows_are_passed_on(kinds: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BATCH_BYTES", "MOST_ROW_BYTES"):
        monkeypatch.setattr(f"engine.queries.rows.{name}", 8)
    with pytest.raises(QueryRefused) as caught:
        answered(kinds.target, "SELECT s, y FROM kinds", None, 30.0, SUBSCRIPTION)
    assert caught.value.code == "query_too_large"


HUGE = {
    "VARCHAR": "repeat('x', 1000000)",
    "BIGINT": "1500000000::BIGINT",
    "INTEGER": "1500000000::INTEGER",
    "DOUBLE": "1e300",
    "BLOB": "repeat('x', 1000000)::BLOB",
    "T[]": "range(3000000)",
    "ANY[]": "range(3000000)",
    "BIGINT[]": "range(3000000)",
    "VARCHAR[]": "[repeat('x', 1000000), repeat('y', 1000000)]",
    "T": "repeat('x', 1000000)",
    "ANY": "repeat('x', 1000000)",
    "BOOLEAN": "true",
    "DATE": "DATE '2026-01-01'",
    "TIMESTAMP": "TIMESTAMP '2026-01-01'",
    "INTERVAL": "INTERVAL 1 MICROSECOND",
}


@pytest.mark.chaos
def test_no_function_of_this_duckdb_passes_the_limits(tmp_path: Path) -> None:
    """Every function that a reader may call, with extreme sizes: it answers or is refused in time, and other statements continue."""
    sql = (
        "SELECT DISTINCT function_name, parameter_types FROM duckdb_functions() WHERE function_type IN ('scalar', 'aggregate')"
        " AND regexp_full_match(function_name, '[a-z_0-9]+') AND len(parameter_types) BETWEEN 1 AND 3 ORDER BY ALL"
    )
    calls = [
        f"SELECT {name}({', '.join(HUGE[kind] for kind in kinds)})"
        for name, kinds in duckdb.connect().execute(sql).fetchall()
        if set(kinds) <= HUGE.keys()
    ]
    assert len(calls) > 300
    target = DuckDbTarget(tmp_path / "x.duckdb", replace(SETTINGS, query_memory=256 << 20))
    pipeline = Pipeline(target).claim()
    pipeline.load(ORDERS, orders, [(1, "a")])
    pipeline.select("SELECT 1")
    before, late = _resident_bytes(), []
    for call in calls:
        began = monotonic()
        with suppress(QueryRefused):
            answered(target, call, 10, 2.0, SUBSCRIPTION, 64 << 20)
        if monotonic() - began > 10:
            late.append(call)
    assert late == []
    assert pipeline.select("SELECT count(*) FROM orders") == [(1,)]
    assert _resident_bytes() - before < 300 << 20
    target.close()
