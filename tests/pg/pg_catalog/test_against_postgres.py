"""The same catalog queries, of the same tables, asked of PostgreSQL 15 and of a copy's catalog: golden files, psql and SQLAlchemy."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from engine.targets.duckdb.pg_catalog import catalog_rows, information_schema_rows
from engine.targets.duckdb.pg_catalog.answers import Catalog
from engine.targets.duckdb.pg_catalog.definitions import relations
from engine.targets.duckdb.pg_catalog.objects import Objects
from server.demo.binaries import system
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.pg_catalog import DDL, PreparedQuery, golden_queries, prepared_queries, shop
from tests.fixtures.postgres import Database, standing_database

_OF_THE_SERVER = """
pg_aggregate pg_amop pg_amproc pg_available_extension_versions pg_available_extensions pg_backend_memory_contexts
pg_cast pg_config pg_conversion pg_file_settings pg_hba_file_rules pg_init_privs pg_operator pg_opfamily pg_rules
pg_shmem_allocations pg_stat_archiver pg_stat_bgwriter pg_stat_database_conflicts pg_stat_gssapi
pg_stat_recovery_prefetch pg_stat_slru pg_stat_ssl pg_stat_sys_indexes pg_stat_sys_tables pg_stat_wal
pg_stat_xact_all_tables pg_stat_xact_sys_tables pg_statio_sys_indexes pg_statio_sys_tables pg_timezone_abbrevs
pg_timezone_names pg_ts_config pg_ts_config_map pg_ts_dict pg_ts_parser pg_ts_template
collation_character_set_applicability collations column_domain_usage column_udt_usage data_type_privileges
domain_constraints domain_udt_usage domains role_udt_grants role_usage_grants sql_features sql_implementation_info
sql_parts sql_sizing udt_privileges usage_privileges view_column_usage view_routine_usage view_table_usage
"""
"""Relations whose rows in every PostgreSQL describe the server itself: they are empty in a copy, which has no objects of these kinds."""

pytestmark = pytest.mark.pg15

_WIDER = {
    (25, 18),
    (25, 19),
    (25, 24),
    (25, 1043),
    (25, 2205),
    (1009, 1002),
    (1009, 1003),
    (1009, 1034),
    (20, 23),
    (25, 194),
    (25, 2277),
}
"""Types in place of PostgreSQL's that hold the same values: text for names, bigint for integer."""
_VECTORS = (22, 30)
_OF_A_SERVER = {
    *(
        "datfrozenxid",
        "datminmxid",
        "relfrozenxid",
        "relminmxid",
        "reltoastrelid",
        "attoptions",
        "indclass",
        "amhandler",
    ),
    *("rolsuper", "rolcreaterole", "rolcreatedb", "rolreplication", "rolbypassrls"),
    *("total_rel_size", "rel_size", "index_rel_size", "index_num_scans"),
}
"""Columns whose values are those of a server that stores tables, and of its superuser."""
_PSQL = [
    r"\d",
    r"\d shop.orders",
    r"\d+ shop.customers",
    r"\d public.big_orders",
    r"\d+ public.big_orders",
    r"\dt",
    r"\dt shop.*",
    r"\dv",
    r"\dm",
    r"\ds",
    r"\df",
    r"\di",
    r"\di shop.*",
    r"\dp",
    r"\dT",
    r"\dD",
    r"\ddp",
    r"\det",
    r"\dP",
    r"\dX",
    r"\dRp",
    r"\dd",
    r"\db",
    r"\sv public.big_orders",
    r"\dn shop",
    r"\dn+ shop",
    r"\dt+ nothing.*",
    r"\dy",
]


@dataclass(frozen=True)
class Both:
    """A PostgreSQL with the shop's tables, and the catalog of a copy."""

    database: Database
    source: psycopg.Connection[Any]
    catalog: Catalog
    oids: dict[int, int]
    """The copy's OID for each of PostgreSQL's."""

    def differences(self, sql: str) -> list[str]:
        """How the answers differ. `sql` may name the database "shopdb"."""
        sql = sql.replace('"shopdb"', f'"{self.database.name}"')
        cursor = self.source.execute(sql.encode())
        columns = cursor.description or []
        theirs = [tuple(self._translated(value) for value in row) for row in cursor.fetchall()]
        answered = self.catalog.answer(re.sub(r"\b\d{5,}\b", lambda found: str(self._translated(int(found[0]))), sql))
        lists = [column.to_pylist() for column in answered.rows.columns]
        for i, kind in enumerate(answered.types):
            if kind in _VECTORS:
                lists[i] = [None if value is None else " ".join(map(str, value)) for value in lists[i]]
        ours = list(zip(*lists, strict=True))
        found = []
        if answered.rows.column_names != [one.name for one in columns]:
            found.append(f"names {answered.rows.column_names} instead of {[one.name for one in columns]}")
        pairs = list(zip(answered.types, [one.type_code for one in columns], strict=True))
        if wrong := [pair for pair in pairs if pair[0] != pair[1] and pair not in _WIDER]:
            found.append(f"types {wrong}")
        if sorted(map(repr, ours)) != sorted(map(repr, theirs)):
            found.append(f"rows {ours} instead of {theirs}")
        return found

    def differences_with_values(self, query: PreparedQuery) -> list[str]:
        """How the answers to a statement with parameters differ, without what is of a server's own in PostgreSQL's."""
        theirs, ours = [], []
        for expression in query.expressions("shop", "shop.orders"):
            row = self.source.execute(f"SELECT {expression}".encode(), prepare=False).fetchone()
            assert row is not None
            theirs.append(row[0])
            ours.append(self._translated(row[0]))
        cursor = psycopg.RawCursor(self.source)
        cursor.execute(query.sql.encode(), theirs, prepare=False)
        columns = cursor.description or []
        answered = self.catalog.answer(query.sql, ours)
        found = []
        if answered.rows.column_names != [one.name for one in columns]:
            return [f"names {answered.rows.column_names} instead of {[one.name for one in columns]}"]
        pairs = list(zip(answered.types, [one.type_code for one in columns], strict=True))
        if wrong := [
            (one.name, pair)
            for one, pair in zip(columns, pairs, strict=True)
            if pair[0] != pair[1] and pair not in _WIDER
        ]:
            found.append(f"types {wrong}")
        names = [one.name for one in columns]
        number = names.index("attnum") if "attnum" in names else None
        rows = [row for row in cursor.fetchall() if number is None or row[number] > 0]  # a copy has no system columns
        if answered.rows.num_rows != len(rows):
            found.append(f"{answered.rows.num_rows} rows instead of {len(rows)}")
        for i, column in enumerate(columns):
            values = answered.rows.column(i).to_pylist()
            if answered.types[i] in _VECTORS:
                values = [None if value is None else " ".join(map(str, value)) for value in values]
            expected = [self._translated(row[i]) for row in rows]
            if column.name not in _OF_A_SERVER and sorted(map(repr, values)) != sorted(map(repr, expected)):
                found.append(f"{column.name}: {values} instead of {expected}")
        return found

    def _translated(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._translated(one) for one in value]
        return self.oids.get(value, value) if isinstance(value, int) else value


@pytest.fixture(scope="module")
def both(pg15: EmbeddedPostgres) -> Iterator[Both]:
    with standing_database(pg15, "catalog") as database, database.connect() as source:
        source.execute(DDL.encode())
        described = shop(database.name, database.cluster.user)
        catalog = Catalog(described)
        yield Both(database, source, catalog, _same_objects(source, Objects(described)))
        catalog.close()


def _same_objects(source: psycopg.Connection[Any], objects: Objects) -> dict[int, int]:
    ours = {("c", one.schema, one.name): one.oid for one in objects.everything}
    ours |= {("t", one.schema, one.name): one.row_type for one in objects.own}
    ours |= {("n", name, ""): oid for name, oid in objects.schemas.items()}
    database = objects.described.database
    ours["d", database, ""] = objects.oids["database", database]
    ours |= {("k", key.table.schema, key.index.name): key.constraint for key in objects.keys}
    theirs = source.execute(
        """SELECT 'c', n.nspname, c.relname, c.oid::int8 FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
        UNION ALL SELECT 't', n.nspname, c.relname, c.reltype::int8 FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
        UNION ALL SELECT 'n', nspname, '', oid::int8 FROM pg_namespace
        UNION ALL SELECT 'd', datname, '', oid::int8 FROM pg_database
        UNION ALL SELECT 'k', n.nspname, conname, k.oid::int8 FROM pg_constraint k JOIN pg_namespace n ON n.oid = connamespace"""
    ).fetchall()
    return {
        oid: ours[kind, schema, name]
        for kind, schema, name, oid in theirs
        if oid >= 16384 and (kind, schema, name) in ours
    }


@pytest.mark.parametrize(("name", "sql"), list(golden_queries()), ids=[name for name, _ in golden_queries()])
def test_a_golden_query_has_the_same_answer(both: Both, name: str, sql: str) -> None:
    assert both.differences(sql) == [], name


@pytest.mark.parametrize("query", prepared_queries(), ids=lambda query: query.name)
def test_a_prepared_query_has_the_same_answer(both: Both, query: PreparedQuery) -> None:
    assert both.differences_with_values(query) == []


@pytest.mark.parametrize("command", _PSQL)
def test_the_queries_of_psql_have_the_same_answers(both: Both, command: str) -> None:
    psql = system(15) / "bin" / "psql"
    run = subprocess.run([psql, "-XE", both.database.dsn, "-c", command], capture_output=True, text=True, check=False)
    queries = re.findall(r"\*+ QUERY \*+\n(.*?)\n\*+\n", run.stdout + run.stderr, re.DOTALL)
    assert queries
    assert {sql: found for sql in queries if (found := both.differences(sql.rstrip(" ;\n")))} == {}


def test_the_queries_of_sqlalchemy_have_the_same_answers(both: Both) -> None:
    recorded: list[str] = []
    settings = both.database.settings
    engine = sa.create_engine(
        f"postgresql+psycopg://{settings['user']}@{settings['host']}:{settings['port']}/{settings['database']}"
    )

    @sa.event.listens_for(engine, "before_cursor_execute")
    def record(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        recorded.append(psycopg.ClientCursor(cursor.connection).mogrify(statement, parameters))

    inspector = sa.inspect(engine)
    for look in (
        inspector.get_schema_names,
        lambda: inspector.get_table_names("shop"),
        inspector.get_view_names,
        inspector.get_materialized_view_names,
        lambda: inspector.has_table("orders", "shop"),
        lambda: inspector.get_columns("customers", "shop"),
        lambda: inspector.get_pk_constraint("orders", "shop"),
        lambda: inspector.get_foreign_keys("orders", "shop"),
        lambda: inspector.get_indexes("orders", "shop"),
        lambda: inspector.get_unique_constraints("orders", "shop"),
        lambda: inspector.get_check_constraints("orders", "shop"),
        lambda: inspector.get_table_comment("customers", "shop"),
        lambda: inspector.get_table_options("orders", "shop"),
        lambda: inspector.get_view_definition("big_orders"),
        inspector.get_sequence_names,
        inspector.get_temp_table_names,
        lambda: inspector.get_multi_columns(schema="shop"),
        lambda: inspector.get_multi_pk_constraint(schema="shop"),
        lambda: sa.MetaData().reflect(engine, schema="shop", views=True),
    ):
        look()
    engine.dispose()
    asked = [sql for sql in recorded if "version()" not in sql and "pg_opclass.oid" not in sql]
    assert len(asked) > 20
    assert {sql: found for sql in asked if (found := both.differences(sql))} == {}


def test_the_relations_are_those_of_postgresql_15(both: Both) -> None:
    found: dict[tuple[str, str], list[tuple[str, str, bool]]] = {}
    for schema, name, column, kind, required in both.source.execute(
        """SELECT n.nspname, c.relname, a.attname, coalesce(b.typname, t.typname), a.attnotnull FROM pg_class c
        JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_attribute a ON attrelid = c.oid JOIN pg_type t ON t.oid = atttypid
        LEFT JOIN pg_type b ON b.oid = t.typbasetype
        WHERE n.nspname IN ('pg_catalog', 'information_schema') AND relkind IN ('r', 'v') AND attnum > 0 ORDER BY attnum"""
    ).fetchall():
        found.setdefault((schema, name), []).append((column, kind.replace("_pg_statistic", "anyarray"), required))
    ours = {
        key: [(one.name, one.type, one.required) for one in relation.columns] for key, relation in relations().items()
    }
    assert ours == found


def test_the_types_are_those_of_postgresql_15(both: Both) -> None:
    sql = """SELECT oid, typname, typarray, typlen, typbyval, typtype, typcategory, typispreferred, typdelim, typelem, typcollation,
        typalign,
        typstorage, typinput::text, typoutput::text, typsubscript::text, format_type(oid, NULL) FROM pg_type
        WHERE typnamespace = 'pg_catalog'::regnamespace AND typrelid = 0 AND typarray <> 0 AND typname <> 'record'"""
    assert both.differences(sql) == []
    modifiers = "(1700, 655366), (1231, 655366), (1043, 14), (1015, 14), (1114, 3), (1115, 3), (1184, 0), (1083, 6), (1562, 9), (23, 5)"
    assert (
        both.differences(
            f"SELECT t, m, format_type(t, m) FROM (VALUES {modifiers}, (1700, -1), (0, -1), (99999, -1)) AS v(t, m)"
        )
        == []
    )


def test_a_relation_that_has_rows_in_any_server_has_rows_or_is_refused(both: Both) -> None:
    """A copy has no functions, statistics or roles besides its own, so that no rows is the true answer for those."""
    none_of_its_own = {
        *(
            "pg_proc",
            "pg_opclass",
            "pg_auth_members",
            "pg_shdescription",
            "pg_statistic",
            "pg_stats",
            "pg_extension",
            "pg_group",
            "pg_locks",
        ),
        *(
            "routines",
            "parameters",
            "routine_privileges",
            "role_routine_grants",
            "routine_routine_usage",
            "applicable_roles",
        ),
    }
    known = catalog_rows.ROWS.keys() | information_schema_rows.ROWS.keys() | frozenset(_OF_THE_SERVER.split())
    assert known <= {name for _, name in relations()}
    unanswered = set()
    for schema, name in relations():
        if name not in known and both.source.execute(f'SELECT 1 FROM {schema}."{name}" LIMIT 1'.encode()).fetchall():
            unanswered.add(name)
    assert unanswered <= none_of_its_own
