"""Catalog queries without a PostgreSQL; the comparison with one is in tests/pg/pg_catalog."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.postgres.wire_types import ARRAY_OF, TypeOid
from engine.targets.duckdb.pg_catalog.answers import Catalog, answer
from engine.targets.duckdb.pg_catalog.definitions import relations, type_oids
from engine.targets.duckdb.pg_catalog.description import (
    CatalogError,
    ColumnDescription,
    Description,
    RelationDescription,
)
from engine.targets.duckdb.pg_catalog.detection import is_catalog_query, mentions_catalog
from engine.targets.duckdb.pg_catalog.objects import Objects
from engine.targets.duckdb.pg_catalog.oids import FIRST, stable_oids
from engine.targets.duckdb.pg_catalog.result_types import parameter_types
from tests.fixtures.pg_catalog import golden_queries, shop


@pytest.fixture(scope="module")
def catalog() -> Iterator[Catalog]:
    made = Catalog(shop())
    yield made
    made.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM pg_class",
        "select version()",
        "SELECT current_schema()",
        "SELECT CURRENT_USER",
        "SELECT 'shop.orders'::regclass::oid",
        "SELECT * FROM information_schema.tables",
        'SELECT 1 FROM "shopdb".INFORMATION_SCHEMA.columns',
        "WITH t AS (SELECT oid FROM pg_type) SELECT * FROM t",
        "SELECT pg_catalog.pg_sleep(1)",
        "SELECT * FROM pg_catalog.pg_no_such_relation",
        "SELECT pg_catalog.set_config('search_path', '', false)",
    ],
)
def test_catalog_queries_are_recognised(sql: str) -> None:
    assert is_catalog_query(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT count(*) FROM orders WHERE note = 'x'",
        "SELECT 'pg_class' FROM orders",
        "SELECT * FROM orders JOIN pg_class ON true",
        "SELECT version() FROM orders",
        "SELECT * FROM pg_orders",
        "WITH pg_class AS (SELECT 1) SELECT * FROM pg_class",
        "INSERT INTO pg_class VALUES (1)",
        "SHOW search_path",
        "SELECT current_user FROM",
        "SELECT name FROM users",
        "",
    ],
)
def test_other_statements_are_left_alone(sql: str) -> None:
    assert not is_catalog_query(sql)


def test_every_golden_query_is_a_catalog_query() -> None:
    others = [name for name, sql in golden_queries() if not is_catalog_query(sql)]
    assert others == []


def test_statements_without_a_word_of_the_catalog_need_no_parser() -> None:
    code = (
        "import sys; from engine.targets.duckdb.pg_catalog.detection import is_catalog_query;"
        "assert not is_catalog_query('SELECT a FROM orders'); assert 'sqlglot' not in sys.modules;"
        "assert is_catalog_query('SELECT 1 FROM pg_class'); assert 'sqlglot' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert not mentions_catalog("SELECT count(*) FROM orders WHERE note LIKE '%x%'")


@pytest.mark.parametrize(
    ("sql", "state", "part"),
    [
        ("SELECT * FROM pg_catalog.pg_no_such", "42P01", 'relation "pg_catalog.pg_no_such" does not exist'),
        ("SELECT * FROM information_schema.nothing", "42P01", 'relation "information_schema.nothing" does not exist'),
        ("SELECT * FROM x.names, pg_class", "42P01", '"x.names"'),
        ("SELECT pg_sleep(1)", "42883", "pg_sleep"),
        ("SELECT format_type(23)", "42883", "format_type"),
        ("SELECT read_text('/etc/passwd') FROM pg_class", "42883", "read_text"),
        ("SELECT * FROM duckdb_settings(), pg_class", "42883", "duckdb_settings"),
        ("SELECT nothing FROM pg_class", "42703", 'column "nothing" does not exist'),
        ("SELECT c.nothing FROM pg_class c", "42703", 'column "nothing" does not exist'),
        ("SELECT 'nothing'::regclass", "42P01", 'relation "nothing" does not exist'),
        ("SELECT 'nothing'::regtype", "42704", 'type "nothing" does not exist'),
        ("SELECT 'nothing'::regnamespace", "3F000", 'schema "nothing" does not exist'),
        ("SELECT current_setting('nothing')", "42704", "unrecognized configuration parameter"),
        ("SELECT FROM pg_class WHERE", "42601", "syntax error"),
        ("SELECT 1 FROM pg_class; SELECT 2", "42601", "2 statements"),
        ("SELECT $1 FROM pg_class", "08P01", "$1"),
        ("SELECT generate_subscripts() FROM pg_class", "0A000", "does not support this form"),
        ("SELECT * INTO copied FROM pg_class", "0A000", "only reads"),
        ("WITH a AS (DELETE FROM pg_class RETURNING *) SELECT * FROM a, pg_type", "0A000", "only reads"),
        ("SHOW server_version", "0A000", "SELECT"),
        ("SELECT 1/0 FROM pg_class WHERE relname || 1 = 2", "22P02", ""),
        ("SELECT " + "(" * 200 + "1" + ")" * 200 + " FROM pg_class", "54001", "nests"),
        ("SELECT * FROM read_csv('/etc/passwd'), pg_class", "42804", "read_csv"),
    ],
)
def test_what_the_catalog_does_not_have_is_refused_in_words(catalog: Catalog, sql: str, state: str, part: str) -> None:
    with pytest.raises(CatalogError) as refused:
        catalog.answer(sql)
    assert (refused.value.sqlstate, part in refused.value.message) == (state, True), refused.value.message


_FRAGMENTS = st.sampled_from(
    [word for _, sql in golden_queries() for word in sql.split()[:60]]
    + ["(", ")", "'", "::", "$1", "[", "]", ";", "--", "/*"]
)


@given(st.sampled_from([sql for _, sql in golden_queries()]), st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_query_is_answered_or_refused(catalog: Catalog, sql: str, data: st.DataObject) -> None:
    words = sql.split()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(words) - 1))
        words[place : place + data.draw(st.integers(0, 2))] = [data.draw(_FRAGMENTS)]
    damaged = " ".join(words)
    assert is_catalog_query(damaged) in {True, False}
    with suppress(CatalogError):
        answered = catalog.answer(damaged, ["1"])
        assert len(answered.types) == answered.rows.num_columns == len(answered.modifiers)


def test_parameters_are_values_and_never_sql(catalog: Catalog) -> None:
    hostile = "orders' OR true --"
    assert catalog.answer("SELECT relname FROM pg_class WHERE relname = $1", [hostile]).rows.num_rows == 0
    assert catalog.answer("SELECT $1::text AS a", [hostile]).rows.to_pylist() == [{"a": hostile}]
    found = catalog.answer(
        "SELECT t.typname FROM pg_type t WHERE t.oid = ANY($1::oid[]) ORDER BY t.oid LIMIT $2", ["{23,25}", "1"]
    )
    assert found.rows.to_pylist() == [{"typname": "int4"}]
    assert catalog.answer("SELECT oid FROM pg_type WHERE oid = ANY($1)", [[23]]).rows.num_rows == 1
    assert catalog.answer("SELECT oid FROM pg_type WHERE oid = ANY($1)", [None]).rows.num_rows == 0


def test_parameters_have_the_type_of_what_they_are_compared_with() -> None:
    sql = "SELECT $1::text, $5 FROM pg_class WHERE relname = $2 AND oid = ANY($3) AND (relnamespace = ($4)) AND oid = $6::regclass"
    assert parameter_types(sql) == [25, 25, 1028, 26, 25, 25]
    assert parameter_types("SELECT t.oid FROM pg_type t WHERE t.oid = ANY($1::oid[])") == [1028]


def test_columns_are_sent_with_postgresql_types(catalog: Catalog) -> None:
    sql = """SELECT c.oid, c.relname, c.relkind, c.relnatts, c.reltuples, c.relhasindex, i.indkey, k.conkey, c.reloptions, c.relacl, NULL,
        a.attnum, s.x FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid JOIN pg_constraint k ON k.conrelid = c.oid
        JOIN pg_attribute a ON a.attrelid = c.oid JOIN (SELECT contype AS x, conrelid FROM pg_constraint) s ON s.conrelid = c.oid
        WHERE c.relname = 'orders' AND a.attnum = 1"""
    answered = catalog.answer(sql)
    assert answered.types == (26, 25, 18, 21, 700, 16, 22, 1005, 1009, 1009, 25, 21, 18)
    assert answered.rows.column("indkey").to_pylist() == [[1, 2]]
    starred = catalog.answer("SELECT relkind, t.* FROM pg_class c, pg_type t LIMIT 1")
    assert starred.types[0] == starred.types[1 + starred.rows.column_names[1:].index("typtype")] == TypeOid.CHAR


def test_settings_and_the_search_path_are_those_of_the_session() -> None:
    described = shop(user="ann")
    changed = Description(
        "shopdb", "ann", described.relations, {"search_path": "shop", "application_name": "x"}, process=77
    )
    made = Catalog(changed)
    sql = "SELECT current_schema(), current_schemas(true), current_setting('application_name'), 'orders'::regclass, pg_backend_pid(), user"
    assert made.answer(sql).rows.to_pylist() == [
        {
            "current_schema": "shop",
            "current_schemas": ["pg_catalog", "shop"],
            "current_setting": "x",
            "regclass": "orders",
            "pg_backend_pid": 77,
            "user": "ann",
        }
    ]
    made.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT version();",
        " /* a */ SELECT version() ; -- b",
        "(SELECT version())",
        "WITH a AS (SELECT 1) SELECT version() FROM a",
    ],
)
def test_comments_brackets_and_semicolons_change_nothing(catalog: Catalog, sql: str) -> None:
    assert is_catalog_query(sql)
    answered = catalog.answer(sql)
    assert (answered.rows.column_names, answered.rows.num_rows) == (["version"], 1)


def test_a_new_description_is_a_new_catalog() -> None:
    sql = "SELECT count(*) AS n FROM pg_class WHERE relname = 'events'"
    assert answer(sql, [], shop()).rows.to_pylist() == [{"n": 1}]
    assert answer(sql, [], Description("shopdb", "postgres", ())).rows.to_pylist() == [{"n": 0}]


def test_oids_depend_on_the_name_alone() -> None:
    few = Objects(Description("d", "u", (shop().relations[1],))).own[0]
    many = next(one for one in Objects(shop()).own if one.name == "orders")
    assert few.oid == many.oid >= FIRST
    assert (few.oid, few.row_type) == (485485622, many.row_type), "clients keep OIDs: the hash must never change"


def test_equal_hashes_get_different_oids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.targets.duckdb.pg_catalog.oids._LAST", FIRST + 3)
    names = [("relation", str(number)) for number in range(4)]
    assert sorted(stable_oids(names).values()) == [FIRST, FIRST + 1, FIRST + 2, FIRST + 3]


def test_strange_names_stay_data() -> None:
    name = 'o\'; DROP "x" {1}\n'
    described = RelationDescription(name, name, (ColumnDescription(name, "VARCHAR"),), (name,))
    made = Catalog(Description(name, name, (described,)))
    sql = "SELECT n.nspname, c.relname, a.attname, current_user, current_database() FROM pg_class c"
    sql += " JOIN pg_namespace n ON n.oid = relnamespace"
    sql += " JOIN pg_attribute a ON attrelid = c.oid WHERE c.relkind = 'r' AND c.oid >= 16384 AND c.oid = $1::regclass"
    text = '"' + name.replace('"', '""') + '"'
    assert list(made.answer(sql, [f"{text}.{text}"]).rows.to_pylist()[0].values()) == [name] * 5
    made.close()


def test_a_key_of_unknown_columns_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing"):
        RelationDescription("s", "t", (ColumnDescription("a", "BIGINT"),), ("nothing",))


def test_array_types_are_those_of_postgresql() -> None:
    assert {element: type_oids()["_" + _name(element)] for element in ARRAY_OF} == ARRAY_OF
    assert {one.name.lower().replace("varbit", "varbit"): one.value for one in TypeOid}.items() <= type_oids().items()


def _name(oid: int) -> str:
    return next(name for name, number in type_oids().items() if number == oid)


def test_columns_that_are_rewritten_by_name_have_one_type() -> None:
    kinds: dict[str, set[str]] = {}
    for relation in relations().values():
        for column in relation.columns:
            kinds.setdefault(column.name, set()).add(column.type)
    special = ("int2vector", "oidvector", "regproc")
    assert [name for name, types in kinds.items() if types & set(special) and len(types) > 1] == []
