"""The event trigger that tells DDL: installed and removed without trace, and what it writes for real commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from engine.model.ddl import DdlMessage
from engine.model.fault import EngineFault, FaultKind
from engine.model.schema import TableSchema
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres_log.ddl_capture import MOST_BYTES, PREFIX
from engine.sources.postgres_log.ddl_message import CatalogDdlTable, read_ddl_message
from engine.sources.postgres_log.source import PostgresSource
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table

pytestmark = pytest.mark.pg

_TRACES = """
SELECT 'trigger', evtname FROM pg_event_trigger UNION ALL SELECT 'schema', nspname FROM pg_namespace WHERE nspname !~ '^pg_'
UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE oid >= 16384
UNION ALL SELECT 'comment', description FROM pg_description WHERE objoid >= 16384
UNION ALL SELECT 'depends', objid::text FROM pg_depend WHERE objid >= 16384 ORDER BY 1, 2
"""

_NAMED = """
SELECT evtname, evtevent, evtenabled, evttags, prosrc, proconfig
FROM pg_event_trigger JOIN pg_proc p ON p.oid = evtfoid ORDER BY 1
"""


@pytest.fixture
def shop(pg: EmbeddedPostgres, database_on: Callable[..., Database]) -> Database:
    return database_on(pg)


@contextmanager
def opened(database: Database, **settings: str) -> Iterator[PostgresSource]:
    with closing(PostgresSource(ConnectionSpec("shop", "postgres", database.settings | settings))) as source:
        yield source


class Log:
    """Messages in a database's log, in the order of commits."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._slot = f"s_{database.name}"
        database.execute("CREATE PUBLICATION everything FOR ALL TABLES")
        database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self._slot])

    def read_messages(self, *statements: str) -> list[DdlMessage]:
        """What these statements, each sent on its own, have the trigger tell."""
        for statement in statements:
            self._database.execute(statement)
        rows = self._database.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '2',"
            " 'publication_names', 'everything', 'messages', 'true')",
            [self._slot],
        )
        return [read_ddl_message(bytes(row)) for (row,) in rows if bytes(row[:2]) == b"M\1"]


def structures(told: list[DdlMessage], *names: str) -> list[TableSchema]:
    return [
        one.table.schema(table(name)) for one in told for name in names if _named(one, name) and one.table is not None
    ]


def _named(told: DdlMessage, name: str) -> bool:
    return isinstance(told.table, CatalogDdlTable) and told.table.table.name.name == name


def test_it_comes_as_previewed_and_goes_without_trace(shop: Database) -> None:
    before = shop.execute(_TRACES)
    with opened(shop) as source:
        preview = source.ddl.status()
        assert (preview.installed, preview.current, preview.version) == (False, False, None)
        with shop.connect() as session, session.transaction(force_rollback=True):
            for statement in preview.install_sql:
                session.execute(statement.encode())
            by_hand = session.execute(_NAMED).fetchall()
        installed = source.ddl.install()
        assert (installed.installed, installed.current, installed.version) == (True, True, 3)
        assert shop.execute(_NAMED) == by_hand
        assert source.ddl.install() == installed
        gone = source.ddl.uninstall()
        assert (gone.installed, gone.current) == (False, False)
        assert source.ddl.uninstall() == gone
    assert shop.execute(_TRACES) == before


def test_what_others_keep_in_its_schema_stays(shop: Database) -> None:
    shop.execute("CREATE SCHEMA penstock")
    with opened(shop) as source:
        source.ddl.install()
        shop.execute("CREATE TABLE penstock.theirs (id int)")
        source.ddl.uninstall()
        assert shop.execute("SELECT count(*) FROM penstock.theirs") == [(0,)]
        source.ddl.install()
        shop.execute("DROP TABLE penstock.theirs")
        source.ddl.uninstall()
    assert shop.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'penstock'") == [(1,)]


@pytest.mark.parametrize(
    "damage",
    [
        "ALTER EVENT TRIGGER penstock_ddl_end DISABLE",
        "DROP EVENT TRIGGER penstock_ddl_rewrite",
        "COMMENT ON FUNCTION penstock.tell_ddl() IS 'Penstock: tells changes of structure, version 0'",
        "CREATE OR REPLACE FUNCTION penstock.tell_ddl() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
    ],
)
def test_one_that_is_not_whole_or_of_another_version_is_outdated(database: Database, damage: str) -> None:
    with opened(database) as source:
        assert "ddl_capture_absent" in {f.code for f in source.preflight([], None)}
        source.ddl.install()
        assert "ddl_capture_installed" in {f.code for f in source.preflight([], None)}
        mark = source.ddl.mark()
        database.execute(damage)
        found = [(f.code, f.severity.value) for f in source.preflight([], None) if f.code.startswith("ddl_capture")]
        assert found == [("ddl_capture_outdated", "warning")]
        assert source.ddl.install().current
        assert source.ddl.mark() not in ("", mark)


def test_who_may_not_is_told_so_and_nothing_is_left(database: Database) -> None:
    database.execute(f"CREATE ROLE {database.name} LOGIN; GRANT CREATE ON DATABASE {database.name} TO {database.name}")
    try:
        with opened(database, user=database.name) as source:
            with pytest.raises(EngineFault) as refused:
                source.ddl.install()
            assert refused.value.kind is FaultKind.DDL_CAPTURE_PRIVILEGE
            assert not source.ddl.status().installed
        assert database.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'penstock'") == [(0,)]
    finally:
        database.execute(f"REVOKE ALL ON DATABASE {database.name} FROM {database.name}; DROP ROLE {database.name}")


def test_messages_tell_what_the_catalog_shows(shop: Database) -> None:
    shop.execute(
        "CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN little AS numeric(5, 2) DEFAULT 1;"
        'CREATE TABLE t (id int PRIMARY KEY, m mood[], l little, s text COLLATE "C", g int GENERATED ALWAYS AS (id) STORED);'
        "INSERT INTO t VALUES (1)"
    )
    with opened(shop) as source:
        source.ddl.install()
        log = Log(shop)
        commands = [
            "ALTER TABLE t ADD COLUMN d timestamptz DEFAULT '2020-02-03 04:05:06+02', ADD COLUMN b bytea DEFAULT '\\x00ff'",
            'ALTER TABLE t RENAME s TO "Ä\'"',
            "ALTER TABLE t DROP COLUMN d, ADD COLUMN d text[] DEFAULT '{a,NULL,\"x y\"}'",
            "ALTER TABLE t REPLICA IDENTITY USING INDEX t_pkey",
            "ALTER TABLE t ALTER l TYPE numeric(9, 2)",
            "ALTER TABLE t ALTER id SET STATISTICS 7",
        ]
        for command in commands:
            told = structures(log.read_messages(f"SET datestyle = german; SET timezone = 'Asia/Tokyo'; {command}"), "t")
            # How columns are computed that no log carries is known of the catalog alone.
            now = [replace(schema, computed=()) for schema in source.describe([table("t")]).values()]
            assert told == now, command
        assert [c.fill for c in told[0].columns if c.name == "b"] == [None]


def test_partitioned_tables_are_told_with_what_their_leaves_hold(shop: Database) -> None:
    shop.execute(
        "CREATE TABLE r (id int PRIMARY KEY, v int DEFAULT 3) PARTITION BY RANGE (id);"
        "CREATE TABLE r_1 PARTITION OF r FOR VALUES FROM (0) TO (10); INSERT INTO r VALUES (1)"
    )
    with opened(shop) as source:
        source.ddl.install()
        log = Log(shop)
        told = structures(log.read_messages("ALTER TABLE r ADD COLUMN f int DEFAULT 7"), "r")
        assert told == list(source.describe([table("r")]).values())
        assert told[0].column("f").fill == "7"
        root = told[0].relation
        made = log.read_messages("CREATE TABLE r_2 PARTITION OF r FOR VALUES FROM (10) TO (20)")
        assert [(one.partition is not None, one.below) for one in made] == [(True, {root})]
        rewritten = log.read_messages("ALTER TABLE r ADD COLUMN x float DEFAULT random()")
        assert [(root in one.rewritten, one.values) for one in rewritten] == [(True, True)] * 2 + [(False, False)]
        assert log.read_messages("ALTER TABLE r_1 ALTER v SET DEFAULT 8")[-1].unknown == {root}


def test_only_rewrites_that_change_values_count_as_such(shop: Database) -> None:
    shop.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with opened(shop) as source:
        source.ddl.install()
    log = Log(shop)
    values = {
        "ALTER TABLE t ALTER v TYPE bigint": [True],
        "ALTER TABLE t ADD COLUMN r float DEFAULT random()": [True],
        "ALTER TABLE t SET UNLOGGED": [False],
        "ALTER TABLE t SET LOGGED": [False],
        "ALTER TABLE t ADD COLUMN c int DEFAULT 4": [],
    }
    assert {
        command: [one.values for one in log.read_messages(command) if one.rewritten] for command in values
    } == values
    assert (
        log.read_messages("VACUUM FULL t", "CLUSTER t USING t_pkey", "CREATE TABLE u (id int)", "CREATE INDEX ON t (v)")
        == []
    )


def test_what_it_cannot_tell_for_sure_it_calls_unknown(shop: Database) -> None:
    shop.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE child () INHERITS (t)")
    with opened(shop) as source:
        source.ddl.install()
        log = Log(shop)
        (oid,) = {schema.relation for schema in source.describe([table("t")]).values()}
        (child,) = shop.execute("SELECT 'child'::regclass::oid::int")[0]
        told = log.read_messages("BEGIN ISOLATION LEVEL REPEATABLE READ; ALTER TABLE t ADD COLUMN a int; COMMIT")
        assert [one.unknown for one in told] == [{oid, child}]
        told = log.read_messages("ALTER TABLE t ADD COLUMN b int")
        assert [one.unknown for one in told if one.table is None] == [{child}]
        told = log.read_messages(f"ALTER TABLE t ADD COLUMN c text DEFAULT '{'x' * MOST_BYTES}'")
        assert [one.unknown for one in told] == [{oid, child}]
        told = log.read_messages("CREATE TYPE mood AS ENUM ('a')", "ALTER TYPE mood ADD VALUE 'b'")
        assert [one.labels for one in told] == [("a", "b")]


def test_tables_that_hold_a_changed_type_somewhere_are_told(shop: Database) -> None:
    shop.execute(
        "CREATE TYPE mood AS ENUM ('a'); CREATE DOMAIN dom AS mood; CREATE DOMAIN dd AS dom[];"
        "CREATE TYPE span AS RANGE (subtype = mood); CREATE TYPE felt AS (m dd, n int); CREATE TYPE deep AS (f felt[]);"
        "CREATE TABLE plain (m mood, n mood[], o dd); CREATE TABLE ranged (s span); CREATE TABLE many (s span_multirange[]);"
        "CREATE TABLE inside (f deep); CREATE TABLE of_rows (r inside); CREATE TABLE other (id int, t text[])"
    )
    with opened(shop) as source:
        source.ddl.install()
        log = Log(shop)
        names = ["plain", "ranged", "many", "inside", "of_rows"]
        tables = [replace(table(name), insert_only=True) for name in names]
        schemas = {schema.name.name: schema for schema in source.describe(tables).values()}
        oids = {name: schema.relation for name, schema in schemas.items()}
        labels, rest = log.read_messages("ALTER TYPE mood ADD VALUE 'b'")
        assert {column.type.oid for column in schemas["plain"].columns} <= labels.types
        assert all({column.type.oid for column in schemas[name].columns}.isdisjoint(labels.types) for name in names[1:])
        assert (labels.labels, rest.unknown) == (("a", "b"), {oids[name] for name in names[1:]})
        told = [one.unknown for one in log.read_messages("ALTER TYPE felt ADD ATTRIBUTE x int")]
        assert told == [{oids["inside"], oids["of_rows"]}]
        told = [one.unknown for one in log.read_messages("ALTER TABLE inside ADD COLUMN y int") if one.table is None]
        assert told == [{oids["of_rows"]}]
        assert [
            one.unknown for one in log.read_messages("ALTER TABLE other ADD COLUMN y int") if one.table is None
        ] == []
        told = [
            one.unknown
            for one in log.read_messages("CREATE DOMAIN gone AS int", "ALTER TYPE felt ADD ATTRIBUTE z gone")
        ]
        assert told == [{oids["inside"], oids["of_rows"]}]
        told = [one.unknown for one in log.read_messages("DROP DOMAIN gone CASCADE")]
        assert told == [{oids["inside"], oids["of_rows"]}]


def test_rolled_back_commands_are_not_told(shop: Database) -> None:
    shop.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(shop) as source:
        source.ddl.install()
    log = Log(shop)
    told = log.read_messages(
        "BEGIN; ALTER TABLE t ADD COLUMN a int; ROLLBACK",
        "BEGIN; SAVEPOINT s; ALTER TABLE t ADD COLUMN b int; ROLLBACK TO s; ALTER TABLE t ADD COLUMN c int; COMMIT",
    )
    assert [schema.column("c").attnum for schema in structures(told, "t")] == [2]
    assert len(told) == 1


def test_the_users_command_never_fails(shop: Database) -> None:
    shop.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TYPE mood AS ENUM ('a')")
    with opened(shop) as source:
        source.ddl.install()
    log = Log(shop)
    shop.execute("ALTER FUNCTION pg_event_trigger_ddl_commands() RENAME TO hidden")
    told = log.read_messages("ALTER TABLE t ADD COLUMN a int", "ALTER TYPE mood ADD VALUE 'b'")
    assert [one.unknown for one in told] == [None, None]
    shop.execute("ALTER FUNCTION hidden() RENAME TO pg_event_trigger_ddl_commands")
    role = f"r_{shop.name}"
    shop.execute(f"CREATE ROLE {role}; GRANT ALL ON SCHEMA public TO {role}; ALTER TABLE t OWNER TO {role}")
    try:
        told = log.read_messages(
            f"SET ROLE {role}; ALTER TABLE t ADD COLUMN b int; SET search_path = nowhere; ALTER TABLE public.t DROP a"
        )
        assert [len(schema.columns) for schema in structures(told, "t")] == [2, 3, 2]
        shop.execute("SET session_replication_role = replica; ALTER TABLE t ADD COLUMN c int")
        assert len(log.read_messages()) == 1
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_messages_of_others_make_no_sense(database: Database) -> None:
    log = Log(database)
    for content in ("", "{}", "x", '{"v": 3, "tag": "", "by": ""}', '{"v": 2, "tag": "t", "by": "b", "table": [1]}'):
        database.execute("SELECT pg_logical_emit_message(true, %s, %s)", [PREFIX, content])
        with pytest.raises(EngineFault) as fault:
            log.read_messages()
        assert fault.value.kind is FaultKind.LOG_UNREADABLE


def test_it_is_in_force_when_all_that_ran_before_is_over(database: Database) -> None:
    with opened(database) as source, database.connect() as session:
        assert source.ddl.mark() == ""
        session.execute("BEGIN; SELECT 1")
        source.ddl.install()
        assert source.ddl.mark() == ""
        session.execute("COMMIT")
        mark = source.ddl.mark()
        assert mark
        session.execute("BEGIN; SELECT 1")
        assert source.ddl.mark() == mark
