"""A reader's statement on a PostgreSQL target reads the subscription's tables and does nothing else, whatever it tries."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest

from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.subscription import ConnectionSpec
from engine.model.target import QueryLimits, QueryRefused
from engine.net.copy_text import decode_copy_text
from engine.postgres.query_guard import HARMLESS
from engine.targets.postgres.readers import reader_role
from engine.targets.postgres.target import PostgresTarget
from server.demo.embedded import EmbeddedPostgres
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, inserts, structure
from tests.fixtures.answers import answered
from tests.fixtures.postgres import Database, standing_database, target_settings

pytestmark = pytest.mark.pg

ORDERS = TableId("t0a")
orders = structure(TableName("public", "orders"), {"id": "int4", "note": "text"}, ["id"])
OTHER = SubscriptionName("other")


@pytest.fixture
def mart(pg: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database]) -> Database:
    return database_on(pg)


def opened(mart: Database, secrets: dict[str, str] | None = None, **settings: Any) -> PostgresTarget:
    spec = ConnectionSpec("mart", "postgres", {**target_settings(mart), **settings}, secrets or {})
    return PostgresTarget(spec, decode_copy_text)


@pytest.fixture
def target(mart: Database) -> Iterator[PostgresTarget]:
    made = opened(mart)
    yield made
    made.close()


@pytest.fixture
def pipeline(target: PostgresTarget) -> Pipeline:
    return loaded(target)


def loaded(target: PostgresTarget) -> Pipeline:
    """A subscription with rows in a target that another one has rows in, too."""
    made = Pipeline(target).claim()
    made.load(ORDERS, orders, [(1, "a"), (2, "b")])
    other = Pipeline(target, OTHER).claim()
    other.load(TableId("t0c"), replace(orders, name=TableName("theirs", "others")), [(8, "theirs")])
    return made


@pytest.fixture(scope="module", params=[pytest.param("pg16", marks=pytest.mark.chaos), "pg18"])
def standing_mart(request: pytest.FixtureRequest) -> Iterator[Database]:
    """For tests that change nothing."""
    with standing_database(request.getfixturevalue(request.param), "fences") as made:
        yield made


@pytest.fixture(scope="module")
def standing(standing_mart: Database) -> Iterator[Pipeline]:
    target = opened(standing_mart)
    yield loaded(target)
    target.close()


def refused(pipeline: Pipeline, sql: str) -> QueryRefused:
    with pytest.raises(QueryRefused) as caught:
        pipeline.select(sql)
    return caught.value


ATTACKS = [
    "SELECT * FROM penstock.progress",
    "SELECT * FROM penstock.tables",
    "SELECT * FROM penstock.refused_rows",
    "SELECT * FROM theirs.others",
    "SELECT query_to_xml('SELECT * FROM theirs.others', true, false, '')",
    "SELECT table_to_xml('theirs.others', true, false, '')",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_read_binary_file('/etc/passwd')",
    "SELECT * FROM pg_ls_dir('/')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_create(0)",
    "SELECT pg_notify('a', 'b')",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_advisory_xact_lock_shared(hashtextextended('penstock', 0))",
    'SELECT "pg_advisory_lock"(1)',
    'SELECT U&"\\0070g_advisory_lock"(1)',
    "SELECT pg_catalog . PG_ADVISORY_LOCK /* a /* b */ */ -- c\n (1)",
    "SELECT set_config('role', 'penstock', false)",
    "SELECT set_config('role', 'none', true), (SELECT count(*) FROM penstock.progress)",
    "SELECT set_config('session_authorization', 'penstock', false)",
    "SELECT set_config('statement_timeout', '0', false)",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity",
    "SELECT ts_stat('SELECT pg_advisory_lock(1)::text::tsvector')",
    "SELECT pg_export_snapshot()",
    "SELECT * FROM public.orders FOR UPDATE",
    "RESET ROLE",
    "SET ROLE penstock",
    "SET SESSION AUTHORIZATION penstock",
    "SELECT 1; RESET ROLE",
    "DISCARD ALL",
    "LISTEN a",
    "LOCK TABLE public.orders",
    "DO 'BEGIN END'",
    "CALL x()",
    "SHOW ALL",
]


@pytest.mark.parametrize("sql", ATTACKS)
def test_an_attack_changes_and_shows_nothing(standing: Pipeline, standing_mart: Database, sql: str) -> None:
    assert refused(standing, sql).code in {"query_not_a_read", "query_invalid"}
    assert standing_mart.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    assert standing.rows(orders) == [(1, "a"), (2, "b")]


def test_statements_run_as_a_role_that_has_nothing_else(pipeline: Pipeline, mart: Database) -> None:
    """Nothing that a statement could set back is in the session: the role is who logged in."""
    role = reader_role(mart.name, SUBSCRIPTION)
    sql = "SELECT session_user::text AS a, current_user::text AS b, current_setting('is_superuser') AS c, current_setting('role') AS d"
    assert pipeline.select(sql) == [(role, role, "off", "none")]
    for other in ("none", "default", "penstock", "postgres", "pg_read_all_data"):
        with mart.cluster.connect(mart.name) as ours:
            ours.execute(f'SET SESSION AUTHORIZATION "{role}"'.encode())
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                ours.execute("SELECT set_config('role', %s, false), count(*) FROM penstock.progress", [other])


def test_nobody_sees_what_other_sessions_run(pipeline: Pipeline) -> None:
    sql = "SELECT DISTINCT query FROM pg_stat_activity WHERE usename = 'penstock' AND query <> ''"
    assert pipeline.select(sql) == [("<insufficient privilege>",)]


def test_only_the_subscriptions_tables_can_be_read(pipeline: Pipeline, mart: Database) -> None:
    mart.execute("CREATE TABLE public.strange (id int)")
    sql = (
        "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'v', 'm', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
        " AND has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE')"
    )
    assert pipeline.select(sql) == [("public", "orders")]
    theirs = Pipeline(pipeline.target, OTHER)
    assert theirs.select(sql) == [("theirs", "others")]
    pipeline.load(ORDERS, orders, [(3, "reloaded")])
    assert pipeline.select("SELECT note FROM orders") == [("reloaded",)]
    pipeline.target.forget(OTHER)
    assert mart.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [reader_role(mart.name, OTHER)]) == []


FUNCTIONS = """
SELECT p.proname, array(SELECT CASE
    WHEN t.typname IN ('int2', 'int4', 'int8', 'oid', 'xid', 'xid8', 'float4', 'float8', 'numeric') THEN '1'
    WHEN t.typname = 'bool' THEN 'true' WHEN t.typname = 'regclass' THEN '''public.orders''::regclass'
    ELSE 'NULL::' || format_type(t.oid, NULL) END FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a(o, i)
    JOIN pg_type t ON t.oid = a.o ORDER BY a.i)
FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f'
    AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype, 'internal'::regtype)
    AND NOT EXISTS (SELECT FROM unnest(p.proargtypes::oid[]) a JOIN pg_type t ON t.oid = a WHERE t.typtype = 'p')
    AND p.provolatile = 'v' ORDER BY 1
"""


def test_every_volatile_function_of_this_postgres_is_refused_or_has_been_looked_at(
    pipeline: Pipeline, mart: Database
) -> None:
    """A new release may bring functions that act: they stay closed. Of those that everybody may call, each is tried."""
    tried = 0
    for name, arguments in mart.execute(FUNCTIONS):
        if name in HARMLESS:
            continue
        tried += 1
        found = refused(pipeline, f"SELECT pg_catalog.{name}({', '.join(arguments)})")
        assert found.code == "query_not_a_read", (name, found.detail)
    assert tried > 200
    assert mart.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]


def test_no_operator_of_this_postgres_calls_a_volatile_function(mart: Database) -> None:
    """Calls are looked for by name, so nothing volatile may be called in another way."""
    operators = "SELECT o.oprname FROM pg_operator o JOIN pg_proc p ON p.oid = o.oprcode WHERE p.provolatile = 'v'"
    casts = "SELECT p.proname FROM pg_cast c JOIN pg_proc p ON p.oid = c.castfunc WHERE p.provolatile = 'v'"
    assert mart.execute(f"{operators} UNION ALL {casts}") == []


def test_a_call_that_looks_like_a_column_is_a_call(pipeline: Pipeline, mart: Database) -> None:
    mart.execute("CREATE FUNCTION public.touched(public.orders) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    mart.execute("CREATE FUNCTION public.others() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    for sql in (
        "SELECT touched(o) FROM orders o",
        "SELECT o.touched FROM orders o",
        'SELECT o . /* */ "touched" FROM orders o',
    ):
        assert refused(pipeline, sql).code == "query_not_a_read", sql
    assert pipeline.select("SELECT orders.id AS touched FROM orders WHERE id = 1") == [(1,)]
    assert Pipeline(pipeline.target, OTHER).select("SELECT id FROM theirs.others") == [(8,)]


READS = [
    "SELECT random() < 2, clock_timestamp() IS NOT NULL",
    "SELECT note AS nextval FROM public.orders",
    "SELECT 'pg_notify' AS text",
    "SELECT string_agg(note, ',' ORDER BY id) FROM orders",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT * FROM t",
    "SELECT * FROM generate_series(1, 3) AS g(i) LEFT JOIN orders ON id = i",
    "SELECT jsonb_build_object('a', id) FROM orders",
    "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'",
]


@pytest.mark.parametrize("sql", READS)
def test_reads_run(standing: Pipeline, sql: str) -> None:
    assert standing.select(sql)


WIDE = "SELECT " + ", ".join(f"md5((i + {n})::text) AS c{n}" for n in range(30)) + " FROM generate_series(1, 500000) i"
"""Rows of half a gigabyte in all."""
HOSTILE = [
    WIDE,
    "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b",
    "SELECT repeat('x', 900000000)",
    "SELECT length(repeat('x', 1000000000))",
    "SELECT pg_sleep(100)",
    "SELECT md5(i::text) FROM generate_series(1, 20000000) i ORDER BY 1",
    "SELECT array_agg(repeat('x', 1000)) FROM generate_series(1, 1000000)",
    "SELECT string_agg(repeat('x', 100000), '') FROM generate_series(1, 100000)",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
    "SELECT power(9.9::numeric, 100000) * power(9.9::numeric, 100000)",
]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("sql", HOSTILE)
def test_a_statement_ends_at_its_limits_whatever_it_computes(pipeline: Pipeline, sql: str) -> None:
    """A single hostile statement ends in time, costs this process no memory, and affects neither a concurrent reader nor a writer."""
    pipeline.select("SELECT 1")
    before, began, codes = _resident_bytes(), monotonic(), []

    def ask() -> None:
        with pytest.raises(QueryRefused) as caught:
            answered(pipeline.target, sql, None, 1.5, SUBSCRIPTION, 64 << 20)
        codes.append((caught.value.code, monotonic() - began))

    thread = threading.Thread(target=ask)
    thread.start()
    others = 0
    while thread.is_alive():
        others += 1
        pipeline.change(ORDERS, orders, changes(ORDERS, insert=inserts(orders, [(2 + others, "b")])))
        assert pipeline.select("SELECT count(*) FROM orders") == [(2 + others,)]
    thread.join()
    [(code, took)] = codes
    assert code in {"query_timeout", "query_too_large", "query_invalid"}
    assert took < 8
    assert _resident_bytes() - before < 300 << 20
    assert others


def test_rows_stream_and_are_never_whole_anywhere(pipeline: Pipeline, target: PostgresTarget) -> None:
    began, rows = _resident_bytes(), 0
    with target.query(WIDE, QueryLimits(120), SUBSCRIPTION) as answer:
        for batch in answer.batches:
            rows += batch.num_rows
            assert batch.nbytes < 4 << 20
    assert rows == 500_000
    assert _resident_bytes() - began < 200 << 20


def test_a_statement_gives_way_to_a_table_that_is_replaced(pipeline: Pipeline, target: PostgresTarget) -> None:
    with target.query(
        "SELECT note, repeat('x', 100000), pg_sleep(0.1) FROM orders, generate_series(1, 6000)",
        QueryLimits(60),
        SUBSCRIPTION,
    ) as answer:
        began = monotonic()
        pipeline.load(ORDERS, orders, [(9, "reloaded")])
        assert monotonic() - began < 20
        with pytest.raises(QueryRefused) as caught:
            list(answer.batches)
    assert caught.value.code == "query_unavailable"
    assert pipeline.rows(orders) == [(9, "reloaded")]


# Who the statements run as


def _codes(target: PostgresTarget) -> list[tuple[str, str]]:
    return [
        (found[0], found[1]) for found in target.check([orders.name]) if found[1].startswith(("query_", "target_su"))
    ]


def test_a_superuser_as_the_connections_user_is_an_error_of_the_checks_and_replication_goes_on(mart: Database) -> None:
    target = opened(mart, user="postgres")
    try:
        [(_, _, what, remedy)] = [found for found in target.check([orders.name]) if found[0] == "error"]
        assert _codes(target) == [("error", "target_superuser")]
        assert "postgres" in what
        assert "CREATE ROLE" in remedy
        pipeline = Pipeline(target).claim()
        pipeline.load(ORDERS, orders, [(1, "a")])
        assert pipeline.rows(orders) == [(1, "a")]
        assert refused(pipeline, "SELECT * FROM pg_authid").code == "query_invalid"
        assert refused(pipeline, "SELECT pg_read_file('/etc/passwd')").code == "query_not_a_read"
    finally:
        target.close()


def test_where_no_role_can_be_made_queries_are_refused_with_the_remedy(mart: Database) -> None:
    target_settings(mart)
    mart.execute(
        f'CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE "{mart.name}" TO plain; GRANT CREATE ON SCHEMA public TO plain'
    )
    target = opened(mart, user="plain")
    try:
        assert _codes(target) == [("warning", "query_role_missing")]
        pipeline = Pipeline(target).claim()
        pipeline.load(ORDERS, orders, [(1, "a")])
        found = refused(pipeline, "SELECT 1")
        assert (found.code, "query_user" in str(found.remedy)) == ("query_role_missing", True)
        assert mart.execute("SELECT count(*) FROM public.orders") == [(1,)]
    finally:
        target.close()
        mart.execute("DROP OWNED BY plain CASCADE; DROP ROLE plain")


@pytest.mark.parametrize(
    ("given", "unfit"),
    [
        ("", False),
        ("ALTER ROLE given CREATEDB", True),
        ("GRANT pg_read_all_data TO given", True),
        ("CREATE TABLE public.secret (id int); GRANT SELECT ON public.secret TO given", True),
        ("CREATE TABLE public.own (id int); ALTER TABLE public.own OWNER TO given", True),
    ],
)
def test_a_role_that_is_given_has_to_be_able_to_do_nothing_else(mart: Database, given: str, unfit: bool) -> None:
    target_settings(mart)
    mart.execute(f"CREATE ROLE given LOGIN PASSWORD 'x'; {given}")
    target = opened(mart, {"query_password": "x"}, query_user="given")
    try:
        pipeline = Pipeline(target).claim()
        pipeline.load(ORDERS, orders, [(1, "a")])
        if unfit:
            found = refused(pipeline, "SELECT count(*) FROM orders")
            assert (found.code, bool(found.remedy)) == ("query_role_unfit", True)
        else:
            assert pipeline.select("SELECT current_user::text, count(*) FROM orders") == [("given", 1)]
            other = Pipeline(target, OTHER).claim()
            other.load(TableId("t0c"), replace(orders, name=TableName("theirs", "others")), [(8, "theirs")])
            assert refused(other, "SELECT 1").code == "query_role_unfit"
    finally:
        target.close()
        mart.execute("DROP OWNED BY given CASCADE; DROP ROLE given")


def test_a_role_whose_password_another_engine_has_changed_gets_a_new_one(pipeline: Pipeline, mart: Database) -> None:
    role = reader_role(mart.name, SUBSCRIPTION)
    pipeline.select("SELECT 1")
    hba = mart.cluster.data / "pg_hba.conf"
    before = hba.read_text()
    try:
        hba.write_text(f'host all "{role}" 127.0.0.1/32 scram-sha-256\n{before}')
        mart.execute("SELECT pg_reload_conf()")
        assert pipeline.select("SELECT 1 AS one") == [(1,)]
        mart.execute(f"ALTER ROLE {role} PASSWORD 'other'")
        assert pipeline.select("SELECT 1 AS one") == [(1,)]
        hba.write_text(f'host all "{role}" 127.0.0.1/32 reject\n{before}')
        mart.execute("SELECT pg_reload_conf()")
        found = refused(pipeline, "SELECT 1")
        assert (found.code, "pg_hba.conf" in str(found.remedy)) == ("query_role_unusable", True)
    finally:
        hba.write_text(before)
        mart.execute("SELECT pg_reload_conf()")
