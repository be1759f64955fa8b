"""What is installed in the source is what was shown, is upgraded in place, goes without trace, and is never taken from a stranger."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from engine.model.change_triggers import RecordedTable
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec, OriginFilter
from engine.sources.postgres_log.source import PostgresSource
from engine.sources.postgres_triggers.objects import LAYOUT
from engine.sources.postgres_triggers.source import TriggerSource
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.pg.postgres_triggers.conftest import Replicate

pytestmark = pytest.mark.pg

TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, note text);
CREATE TABLE lines (id bigint PRIMARY KEY, tags jsonb);
INSERT INTO orders SELECT i, 'note' FROM generate_series(1, 20) i;
"""
CHANGES = """
ALTER TABLE orders ADD COLUMN level int DEFAULT 7;
ALTER TABLE orders RENAME COLUMN note TO remark;
ALTER TABLE lines ADD COLUMN more text;
ALTER TABLE lines DROP COLUMN more;
"""
ORDERS, LINES = TableName("public", "orders"), TableName("public", "lines")
LAYOUT_1 = Path(__file__).parents[2] / "golden/shadow_log/layout_1.sql"
OLD_TRIGGERS = """
CREATE TRIGGER "!penstock_insert" AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION penstock.record_insert();
CREATE TRIGGER "!penstock_update" AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION penstock.record_update();
CREATE TRIGGER "!penstock_delete" AFTER DELETE ON orders FOR EACH ROW EXECUTE FUNCTION penstock.record_delete();
CREATE TRIGGER "!penstock_truncate" AFTER TRUNCATE ON orders FOR EACH STATEMENT EXECUTE FUNCTION penstock.record_truncate();
ALTER TABLE orders ENABLE ALWAYS TRIGGER "!penstock_insert"; ALTER TABLE orders ENABLE ALWAYS TRIGGER "!penstock_update";
ALTER TABLE orders ENABLE ALWAYS TRIGGER "!penstock_delete"; ALTER TABLE orders ENABLE ALWAYS TRIGGER "!penstock_truncate";
"""
CATALOG = """
SELECT format('%s %s %s', kind, name, what) FROM (
    SELECT 'schema' AS kind, nspname::text AS name, concat(nspacl::text, obj_description(oid, 'pg_namespace')) AS what
    FROM pg_namespace WHERE nspname !~ '^pg_'
    UNION ALL SELECT 'relation', c.oid::regclass::text, concat_ws(' ', relkind, relacl::text, reloptions::text,
        (SELECT string_agg(concat_ws(':', attname, atttypid::regtype, attnotnull, atthasdef), ',' ORDER BY attname)
         FROM pg_attribute a WHERE a.attrelid = c.oid AND attnum > 0 AND NOT attisdropped))
    FROM pg_class c WHERE c.oid >= 16384 AND relnamespace <> 'pg_toast'::regnamespace
    UNION ALL SELECT 'trigger', tgname::text, concat(pg_get_triggerdef(oid), tgenabled) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'function', oid::regprocedure::text, concat(prosrc, proacl::text) FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT 'event trigger', evtname::text, evtenabled::text FROM pg_event_trigger
) AS objects ORDER BY 1
"""


@contextmanager
def opened(database: Database, **settings: str) -> Iterator[TriggerSource]:
    with closing(TriggerSource(ConnectionSpec("shop", "postgres", database.settings | settings))) as source:
        yield source


def dump(database: Database) -> str:
    """The structure of the database: as pg_dump writes it if the installation has that, with what the catalog shows."""
    lines = [str(row[0]) for row in database.execute(CATALOG)]
    program = database.cluster.program("pg_dump")
    if Path(program).exists():
        written = subprocess.run([program, "-s", "-d", database.dsn], capture_output=True, text=True, check=True).stdout
        lines += [line for line in written.splitlines() if not line.startswith(("\\restrict", "\\unrestrict"))]
    return "\n".join(lines)


@pytest.fixture(params=["pg15", "pg18"])
def cluster(request: pytest.FixtureRequest) -> EmbeddedPostgres:
    found: EmbeddedPostgres = request.getfixturevalue(request.param)
    return found


def test_installed_changed_upgraded_and_removed_leaves_no_trace(
    cluster: EmbeddedPostgres, database_on: Callable[..., Database]
) -> None:
    shop, beside = database_on(cluster), database_on(cluster)
    for database in (shop, beside):
        database.execute(TABLES)
    shop.execute(LAYOUT_1.read_text() + OLD_TRIGGERS)
    with opened(shop) as source:
        source.sent_tables.prepare([table("orders"), table("lines")], "penstock_shop")
        with source.reader.create("penstock_shop"):
            pass
        for database in (shop, beside):
            database.execute(CHANGES)
        shop.execute("UPDATE orders SET remark = 'recorded'; DELETE FROM orders WHERE id = 3; TRUNCATE lines")
        assert shop.execute("SELECT operations FROM penstock.transactions") == [(22,)]
        assert source.reader.remove("penstock_shop") == []
        gone = source.triggers.remove()
        assert (gone.installed, gone.version, gone.tables, gone.remove_sql) == (False, None, (), ())
        assert source.triggers.remove() == gone
    assert dump(shop) == dump(beside)


def test_what_was_shown_is_what_is_run(database: Database) -> None:
    database.execute(TABLES)
    with opened(database) as source:
        plan = source.triggers.plan([ORDERS, LINES])
        assert all(statement.lock and statement.cost for statement in plan)
        by_hand = [statement.sql for statement in plan]
        with database.connect() as session:
            for statement in by_hand:
                session.execute("BEGIN")
                session.execute(statement.encode())
                session.execute("COMMIT")
        after_hand = dump(database)
        state = source.triggers.status()
        assert state.current
        assert state.tables == (RecordedTable(LINES, "exact", True), RecordedTable(ORDERS, "json", True))
        assert source.triggers.plan([ORDERS, LINES]) == state.install_sql == ()
        with database.connect() as session, session.transaction():
            for text in state.remove_sql:
                session.execute(text.encode())
        assert not source.triggers.status().installed
        assert source.triggers.install([ORDERS, LINES]) == state
        assert source.triggers.install([ORDERS]) == state
        assert dump(database) == after_hand
        database.execute(
            'ALTER TABLE orders DISABLE TRIGGER "!penstock_delete"; ALTER TABLE orders ADD COLUMN tags jsonb'
        )
        damaged = source.triggers.status()
        assert damaged.tables[1] == RecordedTable(ORDERS, "json", False)
        assert not damaged.current
        assert damaged.install_sql == tuple(statement.sql for statement in source.triggers.plan([ORDERS]))
        assert damaged.install_sql == tuple(statement.sql for statement in source.triggers.plan([]))
        assert source.triggers.install([]).tables[1] == RecordedTable(ORDERS, "exact", True)


def test_tables_that_cannot_be_recorded_are_refused_before_anything_runs(database: Database) -> None:
    database.execute(TABLES + "CREATE UNLOGGED TABLE fleeting (id int); CREATE VIEW shown AS SELECT 1 AS one")
    with opened(database) as source:
        unfit = FaultKind.TABLE_NOT_LOGGED
        for name, kind in {"none": FaultKind.TABLE_MISSING, "fleeting": unfit, "shown": unfit}.items():
            for act in (source.triggers.plan, source.triggers.install):
                with pytest.raises(EngineFault) as refused:
                    act([ORDERS, TableName("public", name)])
                assert refused.value.kind is kind
        assert not source.triggers.status().installed


def test_the_shadow_log_does_not_record_itself(database: Database) -> None:
    database.execute(TABLES)
    own = table("changes", "penstock")
    with opened(database) as source:
        source.sent_tables.prepare([table("orders"), own], "penstock_shop")
        assert "table_not_logged" in {finding.code for finding in source.preflight([own], None)}
        assert source.describe([own]) == {}
        with pytest.raises(EngineFault, match="schema penstock"):
            source.triggers.install([own.source])
        assert not [found for found in source.discover() if found.name.schema == "penstock"]
        database.execute("INSERT INTO orders (id) VALUES (4711)")
        assert database.execute("SELECT count(*) FROM penstock.changes") == [(1,)]
        source.reader.remove("penstock_shop")


def test_what_a_subscription_reads_is_not_removed(database: Database) -> None:
    database.execute(TABLES)
    with opened(database) as source:
        source.sent_tables.prepare([table("orders")], "penstock_shop")
        for _ in range(2):
            with pytest.raises(EngineFault, match="penstock_shop") as refused:
                source.triggers.remove()
            assert refused.value.kind is FaultKind.CHANGE_TRIGGERS_IN_USE
            with source.reader.create("penstock_shop" if _ == 0 else "penstock_other"):
                pass
        source.reader.remove("penstock_shop")
        source.reader.remove("penstock_other")
        assert not source.triggers.remove().installed


def test_the_ddl_capture_shares_the_schema(database: Database) -> None:
    database.execute(TABLES)
    before = dump(database)
    spec = ConnectionSpec("shop", "postgres", database.settings)
    with opened(database) as source, closing(PostgresSource(spec)) as log:

        def record() -> object:
            return source.triggers.install([ORDERS])

        for first, second in ((log.ddl.install, record), (record, log.ddl.install)):
            for undo, rest in (
                (log.ddl.uninstall, source.triggers.remove),
                (source.triggers.remove, log.ddl.uninstall),
            ):
                first()
                second()
                assert source.triggers.status().version == LAYOUT
                undo()
                rest()
                assert dump(database) == before


def test_readers_go_on_over_an_upgrade_in_place(database: Database, replicate: Replicate) -> None:
    """Also with functions of another version: the marks that the readers recorded are brought up to date."""
    database.execute(TABLES)
    replica = replicate(database, "orders")
    database.execute("UPDATE orders SET note = 'before'")
    replica.assert_equal()
    replica.pipeline.close()
    database.execute(
        "DROP VIEW penstock.transactions; ALTER TABLE penstock.changes DROP COLUMN who, DROP COLUMN application;"
        "ALTER TABLE penstock.followed DROP COLUMN inserts_only, DROP COLUMN row_filter;"
        "COMMENT ON TABLE penstock.changes IS NULL; COMMENT ON SCHEMA penstock IS 'Penstock: shadow log, layout 1'"
    )
    source = database.execute("SELECT prosrc FROM pg_proc WHERE proname = 'record_update'")[0][0]
    database.execute(
        f"CREATE OR REPLACE FUNCTION penstock.record_update() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $${source} -- older $$;"
        "UPDATE penstock.followed SET triggers = (SELECT string_agg(concat_ws(':', t.oid, t.xmin, t.tgenabled, p.oid, p.xmin), ' '"
        " ORDER BY tgname) FROM pg_trigger t JOIN pg_proc p ON p.oid = tgfoid WHERE tgrelid = relation AND tgname LIKE '!pen%')"
    )
    database.execute("UPDATE orders SET note = 'by older functions'")
    replica.restart()
    replica.wait_live()
    database.execute("UPDATE orders SET note = 'after' WHERE id < 5")
    replica.assert_equal()
    assert "parked" not in replica.states_of("orders")
    with opened(database) as opened_source:
        assert (opened_source.triggers.status().version, opened_source.triggers.status().current) == (LAYOUT, True)


def test_a_later_layout_is_refused(database: Database) -> None:
    database.execute(TABLES)
    with opened(database) as source:
        source.triggers.install([ORDERS])
        database.execute("COMMENT ON TABLE penstock.changes IS 'Penstock: shadow log, layout 99'")
        with pytest.raises(EngineFault, match="layout 99") as refused:
            source.sent_tables.prepare([table("orders")], "penstock_shop")
    assert refused.value.kind is FaultKind.LOG_UNREADABLE


@pytest.fixture
def stranger(database: Database) -> Iterator[str]:
    """A role that may create schemas in the database, and nothing else."""
    role = f"stranger_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE {database.name} TO {role}; {TABLES}")
    yield role
    database.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


TRAPS = [
    "CREATE SCHEMA penstock",
    "CREATE SCHEMA penstock; CREATE TABLE penstock.windows (no bigint, snapshot pg_snapshot, at timestamptz)",
    "CREATE SCHEMA penstock; CREATE FUNCTION penstock.trap() RETURNS bigint LANGUAGE sql AS 'SELECT 1/0';"
    " CREATE VIEW penstock.windows AS SELECT penstock.trap() AS no, NULL::pg_snapshot AS snapshot, now() AS at",
    "CREATE SCHEMA penstock; CREATE FUNCTION penstock.close_window() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 1/0'",
]


@pytest.mark.parametrize("trap", TRAPS, ids=["schema", "table", "view", "function"])
def test_objects_of_a_stranger_are_neither_used_nor_run(database: Database, stranger: str, trap: str) -> None:
    """The connection's user is a superuser here: whatever it runs of a stranger's could take over the cluster."""
    with database.connect(user=stranger) as session:
        session.execute(trap.encode())
    with opened(database) as source:
        acts: list[Callable[[], object]] = [
            source.triggers.status,
            lambda: source.triggers.install([ORDERS]),
            source.triggers.remove,
            lambda: source.sent_tables.prepare([table("orders")], "penstock_shop"),
        ]
        if "windows" in trap:
            acts += [source.log.now, source.log.current, lambda: source.reader.status("penstock_shop")]
        for act in acts:
            with pytest.raises(EngineFault, match=stranger) as refused:
                act()
            assert refused.value.kind is FaultKind.CHANGE_LOG_FOREIGN
        codes = {finding.code for finding in source.preflight([], None, OriginFilter.ANY)}
        assert codes == {"change_log_foreign"}
    assert database.execute("SELECT count(*) FROM pg_trigger WHERE tgname LIKE '!penstock%'") == [(0,)]


def test_functions_given_to_a_stranger_park_their_tables(
    database: Database, stranger: str, replicate: Replicate
) -> None:
    replica = replicate(database, "orders")
    database.execute(f"ALTER FUNCTION penstock.record_delete() OWNER TO {stranger}")
    failed = replica.wait_state("failed")
    assert failed.code == "change_log_foreign"
    database.execute("ALTER FUNCTION penstock.record_delete() OWNER TO CURRENT_USER")
    replica.restart()
    assert replica.wait_table("orders", "parked").code == "change_triggers_changed"
    replica.pipeline.reload("again", [replica.table_id("orders")])
    replica.wait_live()
    database.execute("DELETE FROM orders WHERE id < 5")
    replica.assert_equal()


def test_an_event_trigger_that_refuses_leaves_nothing_half_installed(database: Database) -> None:
    database.execute(
        TABLES
        + "CREATE FUNCTION no() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'not here'; END$$;"
        "CREATE EVENT TRIGGER no ON ddl_command_end WHEN TAG IN ('CREATE VIEW') EXECUTE FUNCTION no()"
    )
    before = dump(database)
    with opened(database) as source:
        with pytest.raises(EngineFault):
            source.triggers.install([ORDERS])
        assert dump(database) == before
        database.execute("DROP EVENT TRIGGER no")
        assert source.triggers.install([ORDERS]).current


def test_a_user_without_rights_is_refused_and_nothing_is_left(database: Database, stranger: str) -> None:
    """It may create the schema, but owns no table."""
    with opened(database, user=stranger) as source:
        with pytest.raises(EngineFault) as refused:
            source.triggers.install([ORDERS])
        assert refused.value.kind is FaultKind.CHANGE_TRIGGERS_PRIVILEGE
        assert source.triggers.status().tables == ()


def test_a_source_without_triggers_refuses(database: Database) -> None:
    with closing(PostgresSource(ConnectionSpec("shop", "postgres", database.settings))) as source:
        for act in (source.triggers.status, source.triggers.remove, source.triggers.grants):
            with pytest.raises(EngineFault) as refused:
                act()
            assert refused.value.kind is FaultKind.NOT_WITH_THIS_CAPTURE
