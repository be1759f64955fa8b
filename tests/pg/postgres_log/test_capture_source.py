"""A real PostgreSQL as a source: structures, publications, slots and snapshots, copies, preflight, errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Any

import psycopg
import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import KeyMode, ReplicaIdentity, TableSchema
from engine.model.source import Earlier, Finding, Severity
from engine.model.subscription import ConnectionSpec, OriginFilter, TableSpec
from engine.sources.postgres.copy_out import PIECE_BYTES
from engine.sources.postgres_log import publications
from engine.sources.postgres_log.source import PostgresSource
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg


@pytest.fixture
def db(pg: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database]) -> Database:
    return database_on(pg)


@pytest.fixture
def source(db: Database) -> Iterator[PostgresSource]:
    with opened(db) as source:
        yield source


@contextmanager
def opened(db: Database, password: str | None = None, **settings: Any) -> Iterator[PostgresSource]:
    secrets = {"password": password} if password is not None else {}
    source = PostgresSource(ConnectionSpec("shop", "postgres", {**db.settings, **settings}, secrets))
    try:
        yield source
    finally:
        source.close()


def spec(name: str, schema: str = "public", **options: Any) -> TableSpec:
    table = TableName(schema, name)
    return TableSpec(TableId("t" + name.encode().hex()), table, table, **options)


def slot_of(db: Database) -> str:
    return f"s_{db.name}"


def sends_stored(db: Database) -> bool:
    """Whether the log carries stored generated columns."""
    return int(str(db.execute("SHOW server_version_num")[0][0])) >= 180000


def change_rows(db: Database, *tables: str) -> None:
    """As their owner: psycopg.Error where the server refuses it."""
    for name in tables:
        db.execute(f"INSERT INTO {name} VALUES (1, 1)")
        db.execute(f"UPDATE {name} SET n = 2")
        db.execute(f"DELETE FROM {name}")


def described(source: PostgresSource, name: str, **options: Any) -> TableSchema:
    return source.describe([spec(name, **options)])[TableName("public", name)]


def codes(findings: list[Finding]) -> set[tuple[str, str]]:
    return {(f.severity.value, f.code) for f in findings}


# Structure


def test_columns_are_described_as_the_log_sends_them(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE DOMAIN price AS numeric(10, 2)")
    db.execute("CREATE DOMAIN nice_price AS price CHECK (VALUE > 0)")
    db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    db.execute("CREATE TYPE pair AS (a int, b text)")
    db.execute("CREATE TYPE uuid AS ENUM ('mine')")
    db.execute("""
        CREATE TABLE t (a int NOT NULL, gone text, p nice_price, ps price[], n numeric(8, 3)[], m mood, c pair, r int4range,
                        v int2vector, mine public.uuid, twice int GENERATED ALWAYS AS (a * 2) STORED, b varchar(20),
                        PRIMARY KEY (b, a))
    """)
    db.execute("ALTER TABLE t DROP COLUMN gone")
    schema = described(source, "t", map_as={"m": "text"})
    columns = {c.name: c for c in schema.columns}
    assert [(c.name, c.attnum) for c in schema.columns] == [
        ("a", 1), ("p", 3), ("ps", 4), ("n", 5), ("m", 6), ("c", 7), ("r", 8), ("v", 9), ("mine", 10),
        *([("twice", 11)] if sends_stored(db) else []), ("b", 12),
    ]  # fmt: skip
    assert ([c.name for c in schema.columns if c.generated], schema.unsent) == (
        (["twice"], ()) if sends_stored(db) else ([], (11,))
    )
    asked = [(c.name, c.expression.sql) for c in schema.computed if c.expression is not None]
    assert asked == ([] if sends_stored(db) else [("twice", "(a * 2)")])
    assert [c.name for c in schema.whole.columns][-2:] == ["twice", "b"]
    assert schema.whole.logged == schema
    assert (schema.key, schema.mode, schema.identity) == (("b", "a"), KeyMode.KEYED, ReplicaIdentity.DEFAULT)
    modifier = (10 << 16 | 2) + 4
    assert (columns["p"].type.name, columns["p"].type.modifier) == ("numeric", modifier)
    assert columns["p"].type.oid == db.execute("SELECT 'nice_price'::regtype::oid")[0][0]
    element = columns["ps"].type.element
    assert element is not None
    assert (columns["ps"].type.name, element.name, element.modifier) == ("public._price", "numeric", modifier)
    element = columns["n"].type.element
    assert element is not None
    assert (columns["n"].type.name, element.name, element.modifier) == ("_numeric", "numeric", (8 << 16 | 3) + 4)
    assert [columns[n].type.category for n in ("m", "c", "r")] == ["e", "c", "r"]
    assert columns["v"].type.element is None
    assert columns["mine"].type.name == "public.uuid"
    assert (columns["m"].map_as, columns["a"].map_as) == ("text", None)
    assert (columns["a"].nullable, columns["p"].nullable) == (False, True)
    assert schema.relfilenode > 0


def test_values_of_old_rows_in_new_columns_are_known(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1)")
    db.execute("""ALTER TABLE t ADD a text DEFAULT 'it''s, {"x"}', ADD b int[] DEFAULT '{1,NULL,3}', ADD c int, ADD d box
                  DEFAULT '((1,2),(0,0))', ADD e timestamptz DEFAULT '2024-01-01 00:00+02'""")
    fills = {c.name: c.fill for c in described(source, "t").columns}
    row = db.execute("SELECT id::text, a, b::text, c::text, d::text, e::text FROM t")[0]
    assert fills == dict(zip("abcde", row[1:], strict=True)) | {"id": None}


def test_the_key_follows_declaration_identity_and_consent(db: Database, source: PostgresSource) -> None:
    for statement in (
        "CREATE TABLE plain (id int PRIMARY KEY, code text NOT NULL UNIQUE)",
        "CREATE TABLE indexed (id int PRIMARY KEY, code text NOT NULL UNIQUE)",
        "ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_code_key",
        "CREATE TABLE whole (id int PRIMARY KEY, code text NOT NULL UNIQUE)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TABLE bag (a int, b text UNIQUE)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "CREATE TABLE code_only (a int, b text NOT NULL UNIQUE)",
        "ALTER TABLE code_only REPLICA IDENTITY FULL",
        "CREATE TABLE keyless (a int)",
        "CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE)",
        "CREATE TABLE nothing (id int PRIMARY KEY)",
        "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
    ):
        db.execute(statement)

    def key(name: str, **options: Any) -> tuple[tuple[str, ...], KeyMode, ReplicaIdentity]:
        schema = described(source, name, **options)
        return schema.key, schema.mode, schema.identity

    keyed, bag, append, identity = KeyMode.KEYED, KeyMode.BAG, KeyMode.APPEND, ReplicaIdentity
    assert key("plain") == (("id",), keyed, identity.DEFAULT)
    assert key("indexed") == (("code",), keyed, identity.INDEX)
    assert key("whole") == (("id",), keyed, identity.FULL)
    assert key("whole", key=("code",)) == (("code",), keyed, identity.FULL)
    assert key("bag") == ((), bag, identity.FULL)
    assert key("code_only") == (("b",), keyed, identity.FULL)
    refused = [
        spec("plain", key=("code",)),
        spec("whole", key=("absent",)),
        *map(spec, ("keyless", "deferred", "nothing")),
    ]
    for one in refused:
        assert source.describe([one, spec("indexed")]).keys() == {TableName("public", "indexed")}
    assert key("keyless", insert_only=True) == ((), append, identity.DEFAULT)


# Publications


def test_an_index_is_no_identity_while_older_rows_may_have_no_key(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (k int, v text); CREATE UNIQUE INDEX t_k ON t (k); INSERT INTO t VALUES (NULL, 'a')"
    )
    database.execute("ALTER TABLE t ADD CONSTRAINT filled NOT NULL k NOT VALID, REPLICA IDENTITY USING INDEX t_k")
    with opened(database) as source:
        assert source.describe([spec("t")]) == {}
        (found,) = [f for f in source.preflight([spec("t")], None) if f.severity is Severity.ERROR]
        assert (found.code, "validated" in found.what) == ("table_no_identity", True)
        database.execute("UPDATE t SET k = 1; ALTER TABLE t VALIDATE CONSTRAINT filled")
        assert described(source, "t").key == ("k",)


def members(db: Database, name: str) -> set[str]:
    return {
        row[0] for row in db.execute("SELECT tablename::text FROM pg_publication_tables WHERE pubname = %s", [name])
    }


def test_publications_are_made_kept_and_watched(db: Database, source: PostgresSource) -> None:
    slot = slot_of(db)
    for statement in (
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE TABLE log (id int)",
        "CREATE TABLE keyless (id int)",
    ):
        db.execute(statement)
    tables = [spec("a"), spec("log", insert_only=True), spec("keyless"), spec("missing")]
    source.sent_tables.prepare(tables, slot)
    assert (members(db, slot), members(db, slot + "_ins")) == ({"a"}, {"log"})
    # The owner's own update of a table without identity still works.
    db.execute("UPDATE keyless SET id = 2")
    assert source.safety.check(tables, slot).sending_faults == ()

    tables = [spec("b"), spec("log", insert_only=True)]
    source.sent_tables.prepare(tables, slot)
    source.sent_tables.prepare(tables, slot)
    assert members(db, slot) == {"b"}
    for change, word in (
        (f"ALTER PUBLICATION {slot} DROP TABLE b", "missing"),
        (f"ALTER PUBLICATION {slot} ADD TABLE a", "does not belong"),
        (f"ALTER PUBLICATION {slot} SET (publish = 'insert')", "publishes 'insert'"),
        (f"ALTER PUBLICATION {slot} SET (publish_via_partition_root = false)", "root"),
        (f"ALTER PUBLICATION {slot} SET TABLE b WHERE (id > 5)", "filter"),
        (f"ALTER PUBLICATION {slot} SET TABLE b (id)", "column list"),
        (f"ALTER PUBLICATION {slot} ADD TABLES IN SCHEMA public", "schemas"),
        (f"DROP PUBLICATION {slot}_ins", "does not exist"),
    ):
        db.execute(change)
        faults = source.safety.check(tables, slot).sending_faults
        assert faults, change
        assert any(word in fault for fault in faults), (change, faults)
        # What went through them until now is gone: they are only put right for a new beginning.
        with pytest.raises(EngineFault) as caught:
            source.sent_tables.prepare(tables, slot, earlier=Earlier.OURS)
        assert caught.value.kind is FaultKind.PUBLICATION_CHANGED, change
        source.sent_tables.prepare(tables, slot)
        assert source.safety.check(tables, slot).sending_faults == (), change
    source.sent_tables.prepare([], slot)
    assert (members(db, slot), members(db, slot + "_ins")) == (set(), set())
    assert source.reader.remove(slot) == []
    assert db.execute("SELECT count(*) FROM pg_publication")[0][0] == 0


def test_tables_that_inherit_are_published_where_they_are_asked_for(db: Database, source: PostgresSource) -> None:
    slot = slot_of(db)
    db.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE a_child (PRIMARY KEY (id)) INHERITS (a)")
    db.execute("CREATE TABLE log (id int); CREATE TABLE log_child () INHERITS (log)")
    tables = [spec("a"), spec("log", insert_only=True)]
    source.sent_tables.prepare(tables, slot)
    assert (members(db, slot), members(db, slot + "_ins")) == ({"a"}, {"log"})
    source.sent_tables.prepare([*tables, spec("a_child")], slot)
    assert members(db, slot) == {"a", "a_child"}
    source.sent_tables.prepare([spec("a_child")], slot)
    assert (members(db, slot), members(db, slot + "_ins")) == ({"a_child"}, set())
    # As another user would add them, with all tables that inherit.
    db.execute(f"ALTER PUBLICATION {slot} SET TABLE a; ALTER PUBLICATION {slot}_ins SET TABLE log")
    assert (members(db, slot), members(db, slot + "_ins")) == ({"a", "a_child"}, {"log", "log_child"})
    foreign = f"table public.log_child does not belong in publication {slot}_ins"
    assert foreign in source.safety.check(tables, slot).sending_faults
    source.sent_tables.prepare(tables, slot)
    assert (members(db, slot), members(db, slot + "_ins")) == ({"a"}, {"log"})
    assert source.safety.check(tables, slot).sending_faults == ()


def test_changes_below_a_partitioned_root_are_noticed(db: Database, source: PostgresSource) -> None:
    def leaf(name: str, low: int) -> str:
        return f"CREATE TABLE {name} PARTITION OF m FOR VALUES FROM ({low}) TO ({low + 10})"

    db.execute("CREATE TABLE m (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    for number in range(3):
        db.execute(leaf(f"m{number}", number * 10))
    tables = [spec("m")]
    root = TableName("public", "m")
    source.sent_tables.prepare(tables, slot_of(db))

    def change() -> str | None:
        return source.safety.check(tables, slot_of(db)).partition_faults.get(root)

    assert change() is None
    db.execute(leaf("m3", 30))
    db.execute("INSERT INTO m VALUES (31, 'x')")
    with db.connect() as connection, connection.transaction():
        connection.execute("CREATE TABLE unrelated (id int)")
        connection.execute("INSERT INTO unrelated VALUES (1)")
        connection.execute(leaf("m4", 40))
    assert change() is None
    with db.connect() as connection, connection.transaction():
        connection.execute("CREATE TABLE m5 (id int NOT NULL, v text)")
        connection.execute("INSERT INTO m5 VALUES (55)")
        connection.execute("ALTER TABLE m ATTACH PARTITION m5 FOR VALUES FROM (50) TO (60)")
    assert "m5 was attached" in (change() or "")
    with db.connect() as connection, connection.transaction():
        connection.execute("CREATE TABLE m6 (id int NOT NULL, v text)")
        connection.execute("ALTER TABLE m ATTACH PARTITION m6 FOR VALUES FROM (60) TO (70)")
    assert "m6 was attached" in (change() or "")
    db.execute("TRUNCATE m0")
    assert "m0 was truncated" in (change() or "")
    db.execute("ALTER TABLE m DETACH PARTITION m1")
    assert "m1 was detached" in (change() or "")
    assert change() is None


def test_a_table_made_again_is_told_as_that_tables_trouble(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE a (id int PRIMARY KEY)")
    db.execute("CREATE TABLE b (id int PRIMARY KEY)")
    tables = [spec("a"), spec("b")]
    source.sent_tables.prepare(tables, slot_of(db))

    def look() -> tuple[tuple[str, ...], dict[str, str]]:
        reading = source.safety.check(tables, slot_of(db))
        return reading.sending_faults, {str(t): detail for t, detail in reading.partition_faults.items()}

    assert look() == ((), {})
    db.execute("DROP TABLE a")
    assert look() == ((), {"public.a": "the table was dropped"})
    db.execute("CREATE TABLE a (id int PRIMARY KEY)")
    assert look() == ((), {"public.a": "the table was dropped and created again"})
    assert look() == ((), {})
    source.sent_tables.prepare(tables, slot_of(db))
    assert look() == ((), {})
    assert members(db, slot_of(db)) == {"a", "b"}
    with db.connect() as connection, connection.transaction():
        connection.execute("DROP TABLE b")
        connection.execute("CREATE TABLE b (id int PRIMARY KEY)")
    assert look() == ((), {"public.b": "the table was dropped and created again"})
    db.execute(f"ALTER PUBLICATION {slot_of(db)} DROP TABLE a")
    assert len(look()[0]) == 1


def test_a_renamed_table_stays_published_whoever_has_heard_of_it(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE a (id int PRIMARY KEY)")
    db.execute("CREATE TABLE b (id int PRIMARY KEY)")
    tables = [spec("a"), spec("b")]
    source.sent_tables.prepare(tables, slot_of(db))
    source.safety.check(tables, slot_of(db))
    db.execute("ALTER TABLE a RENAME TO c")
    source.sent_tables.prepare(tables, slot_of(db))
    assert members(db, slot_of(db)) == {"b", "c"}
    reading = source.safety.check(tables, slot_of(db))
    assert (reading.renamed, reading.sending_faults) == ({tables[0].source: TableName("public", "c")}, ())
    source.sent_tables.prepare(tables, slot_of(db))
    assert members(db, slot_of(db)) == {"b", "c"}
    now = [spec("c"), tables[1]]
    for _ in range(2):
        reading = source.safety.check(now, slot_of(db))
        assert (reading.renamed, reading.partition_faults, reading.sending_faults) == ({}, {}, ())
        source.sent_tables.prepare(now, slot_of(db))
    source.sent_tables.prepare(tables[1:], slot_of(db))
    assert members(db, slot_of(db)) == {"b"}


def test_a_publishing_that_ended_before_its_time_leaves_nothing_foreign(
    db: Database, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        db.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    tables = [spec("a"), spec("b")]
    source.sent_tables.prepare(tables[:1], slot_of(db))
    source.safety.check(tables, slot_of(db))

    faults = [
        psycopg.errors.LockNotAvailable(),  # One table after the other, then.
        EngineFault(FaultKind.SOURCE_TIMEOUT, slot_of(db), "a table's replica identity was changed at the same time"),
    ]

    def ended(_: object) -> None:
        raise faults.pop(0)

    with monkeypatch.context() as patched:
        patched.setattr(publications._Preparation, "_all", ended)
        with pytest.raises(EngineFault):
            source.sent_tables.prepare(tables, slot_of(db), earlier=Earlier.OURS)
    assert members(db, slot_of(db)) == {"a", "b"}
    assert source.safety.check(tables, slot_of(db)).sending_faults == ()
    db.execute("CREATE TABLE stranger (id int PRIMARY KEY)")
    db.execute(f"ALTER PUBLICATION {slot_of(db)} ADD TABLE stranger")
    assert any("stranger" in fault for fault in source.safety.check(tables, slot_of(db)).sending_faults)


def test_what_is_gone_when_it_is_taken_out_is_tried_again(
    db: Database, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        db.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    tables = [spec("a"), spec("b")]
    source.sent_tables.prepare(tables, slot_of(db))
    steps = publications._steps

    def made_again(*args: Any) -> Any:
        found = steps(*args)
        db.execute("DROP TABLE b")
        db.execute("CREATE TABLE b (id int PRIMARY KEY)")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(publications, "_steps", made_again)
        with pytest.raises(EngineFault) as caught:
            source.sent_tables.prepare(tables[:1], slot_of(db))
    assert caught.value.kind is FaultKind.SOURCE_TIMEOUT
    source.sent_tables.prepare(tables[:1], slot_of(db))
    assert members(db, slot_of(db)) == {"a"}


def test_generated_columns_never_keep_an_owner_from_changing_rows(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE whole (id int PRIMARY KEY, n int, g int GENERATED ALWAYS AS (n * 2) STORED)")
    db.execute("ALTER TABLE whole REPLICA IDENTITY FULL")
    db.execute("CREATE TABLE keyed (id int PRIMARY KEY, n int, g int GENERATED ALWAYS AS (n * 2) STORED NOT NULL)")
    db.execute("CREATE UNIQUE INDEX by_generated ON keyed (g)")
    tables = [spec("whole"), spec("keyed")]
    source.sent_tables.prepare(tables, slot_of(db))
    change_rows(db, "whole", "keyed")
    assert members(db, slot_of(db)) == {"whole", "keyed"}
    assert not [f for f in source.preflight(tables, None) if f.severity is Severity.ERROR]
    # A log that does not send the columns of an index cannot tell rows apart by them.
    db.execute("ALTER TABLE keyed REPLICA IDENTITY USING INDEX by_generated")
    source.sent_tables.withdraw([tables[1]], slot_of(db))
    change_rows(db, "keyed")
    assert members(db, slot_of(db)) == ({"whole", "keyed"} if sends_stored(db) else {"whole"})


def test_virtual_columns_never_keep_an_owner_from_changing_rows(database: Database) -> None:
    db = database
    db.execute("CREATE TABLE whole (id int PRIMARY KEY, n int, g int GENERATED ALWAYS AS (n * 2) VIRTUAL)")
    db.execute("CREATE TABLE keyed (id int PRIMARY KEY, n int, g int GENERATED ALWAYS AS (n * 2) VIRTUAL)")
    db.execute("ALTER TABLE whole REPLICA IDENTITY FULL")
    tables = [spec("whole"), spec("keyed")]
    with opened(db) as source:
        source.sent_tables.prepare(tables, slot_of(db))
        change_rows(db, "whole", "keyed")
        assert members(db, slot_of(db)) == {"keyed"}
        errors = [f for f in source.preflight([tables[0]], None) if f.severity is Severity.ERROR]
        assert [(f.code, "generated" in f.what, "REPLICA IDENTITY" in f.remedy) for f in errors] == [
            ("table_no_identity", True, True)
        ]
        # What is published already is taken out when its whole rows identify.
        db.execute("ALTER TABLE keyed REPLICA IDENTITY FULL")
        source.sent_tables.withdraw([tables[1]], slot_of(db))
        change_rows(db, "keyed")
        assert members(db, slot_of(db)) == set()


def test_publications_come_to_carry_stored_columns_and_nobody_may_take_that_back(database: Database) -> None:
    db = database
    db.execute("CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id) STORED)")
    table, slot = spec("t"), slot_of(db)
    carried = "SELECT pubgencols::text FROM pg_publication WHERE pubname = %s"
    with opened(db) as source:
        source.sent_tables.prepare([table], slot)
        number = db.execute("SELECT oid FROM pg_publication WHERE pubname = %s", [slot])
        db.execute(f"ALTER PUBLICATION {slot} SET (publish_generated_columns = none)")
        assert f"publication {slot} publishes no generated columns" in source.safety.check([table], slot).sending_faults
        # At a start the log tells what was not sent meanwhile.
        assert source.sent_tables.unpublished([table], slot) == ()
        source.sent_tables.prepare([table], slot)
        assert db.execute(carried, [slot]) == [("s",)]
        assert db.execute("SELECT oid FROM pg_publication WHERE pubname = %s", [slot]) == number
        assert source.safety.check([table], slot).sending_faults == ()


def test_nobody_elses_transaction_ends_in_a_deadlock_with_ours(db: Database, source: PostgresSource) -> None:
    """Its user holds one table and then wants another, while both are being published."""
    names = [f"t{n}" for n in range(4)]
    for name in names:
        db.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    tables = [spec(name) for name in names]
    with db.connect() as user, ThreadPoolExecutor(1) as pool:
        user.execute("BEGIN")
        user.execute("ALTER TABLE t3 ADD COLUMN v int")
        publishing = pool.submit(source.sent_tables.prepare, tables, slot_of(db))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        wait_until(lambda: db.execute(waits)[0][0] == 1)
        user.execute("ALTER TABLE t0 ADD COLUMN v int")
        user.execute("COMMIT")
        publishing.result(30)
    assert members(db, slot_of(db)) == set(names)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE a RENAME v TO x; ALTER TABLE a RENAME w TO v; ALTER TABLE a RENAME x TO w",
        "ALTER TABLE a RENAME TO x; ALTER TABLE b RENAME TO a; ALTER TABLE x RENAME TO b",
        "ALTER TABLE a DROP COLUMN v; ALTER TABLE a ADD COLUMN v int",
    ],
)
def test_a_chunk_is_not_read_by_names_that_mean_something_else_by_now(
    db: Database, source: PostgresSource, change: str
) -> None:
    for name in ("a", "b"):
        db.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int, w int)")
        db.execute(f"INSERT INTO {name} VALUES (1, 2, 3)")
    with source.copies.snapshot(10.0) as snapshot:
        (chunk,) = source.copies.splits(described(source, "a"), spec("a"), 10**9)
        walk = source.copies.walk_key(described(source, "a"), None, 10**9, 1)
        assert walk is not None
        chunks = [chunk, walk.splits[0].split]
        for chunk in chunks:
            assert b"".join(source.copies.read_split(chunk, snapshot.name)) == b"1\t2\t3\n"
        db.execute(f"BEGIN; {change}; COMMIT")
        for chunk in chunks:
            with pytest.raises(EngineFault) as refused:
                list(source.copies.read_split(chunk, snapshot.name))
            assert refused.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED


def test_a_small_table_is_not_cut_along_its_key(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE a (id int PRIMARY KEY)")
    db.execute("INSERT INTO a SELECT generate_series(1, 10000)")
    size = db.execute("SELECT pg_table_size('a')")[0][0]
    schema = described(source, "a")
    assert source.copies.walk_key(schema, None, size, 1, size) is None
    walk = source.copies.walk_key(schema, None, size, 1, size - 1)
    assert walk is not None
    assert walk.table_bytes == size


def test_a_key_is_walked_in_its_own_order_not_in_that_of_its_text(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE a (id int PRIMARY KEY)")
    db.execute("INSERT INTO a SELECT generate_series(1, 10000)")
    db.execute("ANALYZE a")
    walk = source.copies.walk_key(described(source, "a"), None, db.execute("SELECT pg_table_size('a')")[0][0] // 8, 100)
    assert walk is not None
    step = walk.splits[0].split.rows_estimate
    bounds = [int(each.upto.values[0]) for each in walk.splits if each.upto is not None]
    assert bounds == list(range(step, 10001, step))


@pytest.mark.parametrize("change", ["ALTER TABLE a RENAME id TO number", "ALTER TABLE a RENAME TO b"])
def test_a_key_is_not_walked_by_names_that_are_gone(db: Database, source: PostgresSource, change: str) -> None:
    db.execute("CREATE TABLE a (id int PRIMARY KEY)")
    before = described(source, "a")
    db.execute(change)
    with pytest.raises(EngineFault) as refused:
        source.copies.walk_key(before, None, 10**9, 1)
    assert refused.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED


def test_names_given_again_and_again_are_no_change_of_the_publication(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE a (id int PRIMARY KEY)")
    db.execute("CREATE TABLE b (id int PRIMARY KEY)")
    tables = [spec("a"), spec("b")]
    source.sent_tables.prepare(tables, slot_of(db))
    source.safety.check(tables, slot_of(db))
    db.execute("ALTER TABLE a RENAME TO c")
    # As a table of ours that no declaration has by this name yet.
    source.sent_tables.prepare(tables, slot_of(db))
    db.execute("ALTER TABLE c RENAME TO d")
    reading = source.safety.check(tables, slot_of(db))
    assert (reading.renamed, reading.sending_faults) == ({tables[0].source: TableName("public", "d")}, ())
    tables = [spec("d"), spec("b")]
    db.execute("ALTER TABLE d RENAME TO e")
    # Nothing was published under the name that the guard reported last.
    source.sent_tables.prepare(tables, slot_of(db))
    assert members(db, slot_of(db)) == {"b", "e"}
    db.execute("ALTER TABLE e RENAME TO d")
    source.safety.check(tables, slot_of(db))
    db.execute("BEGIN; ALTER TABLE d RENAME TO x; ALTER TABLE b RENAME TO d; ALTER TABLE x RENAME TO b; COMMIT")
    reading = source.safety.check(tables, slot_of(db))
    assert (reading.renamed, reading.sending_faults) == ({}, ())
    assert reading.replaced.keys() == {t.source for t in tables}
    source.safety.accept(tables[0].source, reading.replaced[tables[0].source])
    assert source.safety.check(tables, slot_of(db)).sending_faults == ()
    db.execute("CREATE TABLE foreign_one (id int PRIMARY KEY)")
    db.execute(f"ALTER PUBLICATION {slot_of(db)} ADD TABLE foreign_one")
    assert any("foreign_one" in fault for fault in source.safety.check(tables, slot_of(db)).sending_faults)


def test_a_mark_of_an_earlier_look_is_what_the_first_look_is_compared_with(db: Database) -> None:
    tables = [spec(name) for name in ("changed", "same", "fresh", "empty", "plain")]
    changed, same, fresh, empty, plain = (t.source for t in tables)
    for name in ("changed", "same", "fresh", "empty"):
        db.execute(f"CREATE TABLE {name} (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    for name in ("changed", "same", "fresh"):
        db.execute(f'CREATE TABLE "{name} é" PARTITION OF {name} FOR VALUES FROM (0) TO (10)')
    db.execute("CREATE TABLE plain (id int PRIMARY KEY)")
    with opened(db) as source:
        source.sent_tables.prepare(tables, slot_of(db))
        before = source.safety.check(tables, slot_of(db)).marks
        assert source.safety.check(tables, slot_of(db)).marks == before
    assert before.keys() == {changed, same, fresh, empty}
    db.execute('ALTER TABLE changed DETACH PARTITION "changed é"')
    db.execute("CREATE TABLE one (id int PRIMARY KEY)")
    db.execute("ALTER TABLE empty ATTACH PARTITION one FOR VALUES FROM (0) TO (10)")
    db.execute("TRUNCATE fresh")
    with opened(db) as source:
        source.sent_tables.prepare(tables, slot_of(db))
        source.safety.remember({name: mark for name, mark in before.items() if name != fresh})
        first = source.safety.check(tables, slot_of(db))
        second = source.safety.check(tables, slot_of(db))
    assert {n: detail.split(" ", 1)[1] for n, detail in first.partition_faults.items()} == {
        changed: 'public."changed é" was detached or dropped',
        empty: "public.one was attached",
    }
    assert (first.replaced, first.sending_faults) == ({}, ())
    # Whether a new one was made in its place, or came with rows, only the source's DDL capture could tell.
    assert {name: (r.writers, len(r.attached)) for name, r in first.partition_rewrites.items()} == {empty: (set(), 1)}
    assert dict(second.partition_faults) == {}
    assert first.marks == second.marks
    assert {name for name in before if first.marks[name] != before[name]} == {changed, fresh, empty}
    with opened(db) as source:
        source.safety.remember({fresh: before[fresh]})
        rewrite = source.safety.check(tables, slot_of(db)).partition_rewrites[fresh]
        assert len(rewrite.writers) == 1
        assert plain not in first.marks


def test_a_partition_emptied_before_it_was_first_seen_is_told(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE m (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    tables = [spec("m")]
    root = tables[0].source
    assert dict(source.safety.check(tables, slot_of(db)).partition_faults) == {}
    db.execute("CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)")
    db.execute("CREATE TABLE m11 PARTITION OF m1 DEFAULT")
    db.execute("INSERT INTO m VALUES (1)")
    assert dict(source.safety.check(tables, slot_of(db)).partition_faults) == {}
    db.execute("CREATE TABLE m2 PARTITION OF m FOR VALUES FROM (10) TO (20)")
    db.execute("INSERT INTO m VALUES (11)")
    db.execute("TRUNCATE m2")
    reading = source.safety.check(tables, slot_of(db))
    assert "m2 was truncated" in reading.partition_faults[root]
    assert reading.partition_rewrites.keys() == {root}


def test_a_table_made_again_and_accepted_is_watched_again(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE a (id int)")
    tables = [spec("a")]
    source.sent_tables.prepare(tables, slot_of(db))
    source.safety.check(tables, slot_of(db))
    db.execute("DROP TABLE a")
    db.execute("CREATE TABLE a (id int PRIMARY KEY)")
    # It was in no publication for want of a key, so that the watch does not learn from this that it was made again.
    source.sent_tables.prepare(tables, slot_of(db))
    (relation,) = source.safety.check(tables, slot_of(db)).replaced.values()
    assert relation == described(source, "a").relation
    change = f"ALTER PUBLICATION {slot_of(db)} DROP TABLE a"
    source.safety.accept(tables[0].source, relation)
    assert source.safety.check(tables, slot_of(db)).sending_faults == ()
    db.execute(change)
    reading = source.safety.check(tables, slot_of(db))
    assert (len(reading.sending_faults), dict(reading.partition_faults)) == (1, {})
    db.execute("DROP TABLE a")
    assert source.safety.check(tables, slot_of(db)).replaced == {tables[0].source: 0}


# Slots and snapshots


def test_a_slots_snapshot_is_the_state_at_its_position(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE t (id int)")
    db.execute("INSERT INTO t VALUES (1)")
    before = Lsn.parse(db.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])
    with source.reader.create(slot_of(db)) as snapshot:
        assert snapshot.position >= before
        db.execute("INSERT INTO t VALUES (2)")
        with db.connect() as reader, reader.transaction():
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute(f"SET TRANSACTION SNAPSHOT '{snapshot.name}'")
            assert reader.execute("SELECT count(*) FROM t").fetchone() == (1,)
    status = source.reader.status(slot_of(db))
    assert (status.exists, status.active_pid, status.lost) == (True, None, None)
    assert status.confirmed == snapshot.position
    assert status.restart is not None
    assert status.restart <= snapshot.position
    with pytest.raises(EngineFault) as raised, source.reader.create(slot_of(db)):
        pass
    assert raised.value.kind is FaultKind.SLOT_IN_USE
    assert source.reader.remove(slot_of(db)) == []
    assert source.reader.status(slot_of(db)).exists is False
    assert source.reader.remove(slot_of(db)) == []


def test_an_open_transaction_holds_a_snapshot_up_until_the_deadline(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE t (id int)")
    with db.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO t VALUES (1)")
        pid = connection.info.backend_pid
        with pytest.raises(EngineFault) as raised, source.copies.snapshot(0.5):
            pass
        assert raised.value.kind is FaultKind.SOURCE_TIMEOUT
        assert f"pid {pid}" in raised.value.detail
        assert f"pid {pid}" in (source.safety.check([], slot_of(db)).oldest_open or "")
    with source.copies.snapshot(10) as snapshot:
        assert snapshot.position > Lsn(0)
    assert (
        db.execute("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'penstock_tmp%%' AND NOT active")[0][
            0
        ]
        == 0
    )


def test_who_the_source_is(db: Database, source: PostgresSource) -> None:
    identity = source.identify()
    assert identity.system_id == str(db.execute("SELECT system_identifier FROM pg_control_system()")[0][0])
    assert identity.timeline == 1
    assert identity.server_version // 10000 in {16, 18}


def test_now_works_for_one_who_may_not_write(db: Database) -> None:
    db.execute("CREATE TABLE t (id int)")
    db.execute(f"ALTER DATABASE {db.name} SET default_transaction_read_only = on")
    with opened(db) as source, db.connect() as writer:
        writer.execute("SET default_transaction_read_only = off")
        writer.execute("INSERT INTO t VALUES (1)")
        behind = Lsn.parse(writer.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()[0][0])
        now = source.log.now()
    assert behind.value - 40 <= now.value
    assert now.value % 8192 not in {24, 40}


# Copies


def read(
    source: PostgresSource, schema: TableSchema, name: str, split_bytes: int = 64 * 1024
) -> tuple[list[bytes], int]:
    with source.copies.snapshot(10) as snapshot:
        chunks = source.copies.splits(schema, spec(name), split_bytes)
        pieces = [piece for chunk in chunks for piece in source.copies.read_split(chunk, snapshot.name)]
    assert all(piece.endswith(b"\n") for piece in pieces)
    return sorted(b"".join(pieces).splitlines()), len(chunks)


def test_a_table_is_read_in_parts_each_row_once(db: Database, source: PostgresSource) -> None:
    db.execute('CREATE TABLE "T" (id int PRIMARY KEY, gone int, "v v" text)')
    db.execute('ALTER TABLE "T" DROP COLUMN gone')
    db.execute("""INSERT INTO "T" SELECT i, repeat('x', 50) FROM generate_series(1, 20000) i""")
    db.execute("""INSERT INTO "T" VALUES (-1, NULL), (-2, E'tab\\there\\nline \\\\ slash')""")
    rows, parts = read(source, described(source, "T"), "T")
    assert parts > 5
    assert len(rows) == len(set(rows)) == 20002
    assert b"-1\t\\N" in rows
    assert b"-2\ttab\\there\\nline \\\\ slash" in rows


def test_partitions_and_empty_tables_are_read(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE m (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id)")
    db.execute("CREATE TABLE m0 (v text, id int NOT NULL)")
    db.execute("ALTER TABLE m ATTACH PARTITION m0 FOR VALUES FROM (0) TO (10)")
    db.execute("CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)")
    db.execute("CREATE TABLE m11 PARTITION OF m1 FOR VALUES FROM (10) TO (20)")
    db.execute("INSERT INTO m VALUES (1, 'one'), (12, 'twelve')")
    assert read(source, described(source, "m"), "m")[0] == [b"1\tone", b"12\ttwelve"]
    db.execute("CREATE TABLE empty (id int PRIMARY KEY)")
    assert read(source, described(source, "empty"), "empty")[0] == []


def test_a_lost_snapshot_or_a_rewritten_table_is_a_fault(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    db.execute("INSERT INTO t VALUES (1, 'x')")
    schema = described(source, "t")
    with source.copies.snapshot(10) as snapshot:
        (chunk,) = source.copies.splits(schema, spec("t"), 1 << 20)
        assert list(source.copies.read_split(chunk, snapshot.name)) == [b"1\tx\n"]
        db.execute("VACUUM FULL t")
        with pytest.raises(EngineFault) as raised:
            list(source.copies.read_split(chunk, snapshot.name))
        assert raised.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED
        db.execute("ALTER TABLE t DROP COLUMN v")
    with source.copies.snapshot(10) as snapshot, pytest.raises(EngineFault) as raised:
        list(source.copies.read_split(chunk, snapshot.name))
    assert raised.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED
    # The source may need a moment to let the snapshot go.
    deadline = monotonic() + 30
    while raised.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED and monotonic() < deadline:
        with pytest.raises(EngineFault) as raised:
            list(source.copies.read_split(chunk, snapshot.name))
    assert raised.value.kind is FaultKind.COPY_LOST
    db.execute("DROP TABLE t")
    with pytest.raises(EngineFault) as raised:
        source.copies.splits(schema, spec("t"), 1 << 20)
    assert raised.value.kind is FaultKind.TABLE_MISSING


def test_a_reader_that_stops_half_way_leaves_nothing_behind(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    db.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i")
    schema = described(source, "t")
    with source.copies.snapshot(10) as snapshot:
        (chunk,) = source.copies.splits(schema, spec("t"), 1 << 30)
        pieces = source.copies.read_split(chunk, snapshot.name)
        assert PIECE_BYTES <= len(next(iter(pieces))) < 20_000_000
        pieces.close()  # type: ignore[attr-defined]
        assert sum(len(p) for p in source.copies.read_split(chunk, snapshot.name)) > 20_000_000
    assert source.log.current() > Lsn(0)


def test_values_are_printed_alike_whatever_the_role_prefers(db: Database) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, d date, i interval, b bytea, f float8, z timestamptz, o regclass)")
    db.execute(
        """INSERT INTO t VALUES (1, '2024-02-03', '1 day 02:00', '\\x00ff', 0.1::float8 + 0.2, '2024-01-01 00:00+02', 't')"""
    )
    for setting in (
        "datestyle = 'SQL, DMY'", "intervalstyle = iso_8601", "bytea_output = escape", "extra_float_digits = 0",
        "timezone = 'Asia/Tokyo'", "search_path = public, pg_catalog", "statement_timeout = 1",
    ):  # fmt: skip
        db.execute(f"ALTER DATABASE {db.name} SET {setting}")
    with opened(db) as source:
        rows, _ = read(source, described(source, "t"), "t")
    expected = b"1\t2024-02-03\t1 day 02:00:00\t\\\\x00ff\t0.30000000000000004\t2023-12-31 22:00:00+00\tpublic.t"
    assert rows == [expected]


# Preflight, discovery, errors


def test_discovery_lists_tables_with_their_problems(db: Database, source: PostgresSource) -> None:
    for statement in (
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.orders (id bigint PRIMARY KEY, total numeric(10,2))",
        "CREATE TABLE keyless (v text)",
        "CREATE UNLOGGED TABLE fast (id int PRIMARY KEY)",
        "CREATE TABLE m (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE m0 PARTITION OF m FOR VALUES FROM (0) TO (10)",
        "CREATE VIEW seen AS SELECT 1 AS one",
    ):
        db.execute(statement)
    found = {str(t.name): t for t in source.discover()}
    assert sorted(found) == ["public.fast", "public.keyless", "public.m", "sales.orders"]
    orders = found["sales.orders"]
    assert orders.columns == ({"name": "id", "type": "bigint"}, {"name": "total", "type": "numeric(10,2)"})
    assert (orders.key, orders.identity, orders.partitioned, orders.problems) == (("id",), "default", False, ())
    assert found["public.m"].partitioned
    assert codes(list(found["public.keyless"].problems)) == {("error", "table_no_identity")}
    assert codes(list(found["public.fast"].problems)) == {("error", "table_not_logged")}


def test_preflight_names_what_is_wrong_with_tables(db: Database, source: PostgresSource) -> None:
    for statement in (
        "CREATE TABLE good (id int PRIMARY KEY)",
        "CREATE TABLE keyless (v text)",
        "CREATE UNLOGGED TABLE fast (id int PRIMARY KEY)",
        "CREATE TABLE counted (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE TABLE m (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE m0 PARTITION OF m FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE m0 REPLICA IDENTITY NOTHING",
    ):
        db.execute(statement)

    def found(*tables: TableSpec) -> set[tuple[str, str]]:
        return codes(source.preflight(tables, None)) - {("info", "slot_without_limit"), ("info", "ddl_capture_absent")}

    assert found(spec("good")) == set()
    assert ("info", "copy_of_any_origin") in codes(source.preflight([spec("good")], None, OriginFilter.NONE))
    assert found(spec("missing")) == {("error", "table_missing")}
    assert found(spec("keyless")) == {("error", "table_no_identity")}
    assert found(spec("keyless", insert_only=True)) == {("warning", "insert_only")}
    assert found(spec("fast")) == {("error", "table_not_logged")}
    assert found(spec("counted")) == (set() if sends_stored(db) else {("info", "generated_columns_computed")})
    assert found(spec("m")) == {("error", "table_no_identity")}
    db.execute("CREATE TABLE naming (id int PRIMARY KEY, r regclass, n oid, p regprocedure[])")
    assert found(spec("naming")) == {("warning", "names_of_objects")}
    (naming,) = [f for f in source.preflight([spec("naming")], None) if f.code == "names_of_objects"]
    assert naming.what.endswith(": r, p")
    assert all(f.remedy for f in source.preflight([spec("keyless"), spec("fast"), spec("missing")], None))


def test_preflight_tells_how_the_log_comes_to_send_a_declared_key(db: Database, source: PostgresSource) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL)")
    db.execute("CREATE UNIQUE INDEX t_code ON t (code)")
    declared = spec("t", key=("code",))

    def found(table: TableSpec) -> list[Finding]:
        beside = {"slot_without_limit", "ddl_capture_absent"}
        return [f for f in source.preflight([table], None) if f.code not in beside]

    (finding,) = found(declared)
    assert (finding.severity.value, finding.code) == ("error", "table_no_identity")
    assert "declared key" in finding.what
    assert "REPLICA IDENTITY FULL" in finding.remedy
    assert "USING INDEX" in finding.remedy
    (unknown,) = found(spec("t", key=("absent",)))
    assert (unknown.code, "absent" in unknown.remedy) == ("table_no_identity", True)
    for identity in ("FULL", "USING INDEX t_code"):
        db.execute(f"ALTER TABLE t REPLICA IDENTITY {identity}")
        assert found(declared) == []
        assert described(source, "t", key=("code",)).key == ("code",)


def test_a_user_without_rights_is_told_which(db: Database) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    role = f"nobody_{db.name}"
    db.execute(f"CREATE ROLE {role} LOGIN")
    try:
        with opened(db, user=role) as source:
            found = source.preflight([spec("t")], None)
            assert {code for severity, code in codes(found) if severity == "error"} == {"source_privilege"}
            told = " ".join(f.what for f in found)
            assert "publications" in told
            assert "read public.t" in told
            assert "owner of public.t" in told
            assert "replication connection" in told
            with pytest.raises(EngineFault) as raised, source.copies.snapshot(1):
                pass
            assert raised.value.kind is FaultKind.SOURCE_PRIVILEGE
            with pytest.raises(EngineFault) as raised:
                source.sent_tables.prepare([spec("t")], slot_of(db))
            assert raised.value.kind is FaultKind.SOURCE_PRIVILEGE
            for statement in {statement for finding in found for statement in finding.sql}:
                db.execute(statement)
            mended = codes(source.preflight([spec("t")], None))
            assert [code for severity, code in mended if severity == "error"] == []
    finally:
        db.execute(f"DROP OWNED BY {role}")
        db.execute(f"DROP ROLE {role}")


def test_rows_that_are_hidden_from_the_user_are_told_and_never_left_out(db: Database) -> None:
    role = f"u_{db.name}"
    db.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE plain (id int PRIMARY KEY)")
    db.execute("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    db.execute("CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10); CREATE TABLE p_2 PARTITION OF p DEFAULT")
    db.execute("INSERT INTO t VALUES (1); INSERT INTO plain VALUES (1); INSERT INTO p VALUES (1), (20)")
    db.execute(f"CREATE ROLE {role} LOGIN REPLICATION; GRANT CREATE ON DATABASE {db.name} TO {role}")
    tables = [spec("t"), spec("plain"), spec("p")]
    try:
        for name in ("t", "plain", "p", "p_1", "p_2"):
            db.execute(f"ALTER TABLE {name} OWNER TO {role}")
        for name in ("t", "p", "p_2"):
            db.execute(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY")
        with opened(db, user=role) as source:
            assert [f for f in source.preflight(tables, None) if f.severity is Severity.ERROR] == []
            for name in ("t", "p", "p_2"):
                db.execute(f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY")
            found = [f for f in source.preflight(tables, None) if f.severity is Severity.ERROR]
            assert [(f.code, f.what) for f in found] == [
                ("source_privilege", "row-level security hides rows of public.t from the user"),
                ("source_privilege", "row-level security hides rows of public.p_2 from the user"),
            ]
            problems = {
                d.name.name: [p.code for p in d.problems if p.severity is Severity.ERROR] for d in source.discover()
            }
            assert problems == {"t": ["source_privilege"], "plain": [], "p": ["source_privilege"]}
            assert read_rows(source, "plain") == 1
            for name in ("t", "p"):
                with pytest.raises(EngineFault, match="row-level security") as refused:
                    read_rows(source, name)
                assert refused.value.kind is FaultKind.SOURCE_PRIVILEGE
            with pytest.raises(EngineFault, match="row-level security"):
                source.copies.walk_key(described(source, "t"), None, 1, 5)
            for statement in {statement for f in found for statement in f.sql}:
                db.execute(statement)
            assert [f for f in source.preflight(tables, None) if f.severity is Severity.ERROR] == []
            assert [read_rows(source, name) for name in ("t", "plain", "p")] == [1, 1, 2]
    finally:
        db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def read_rows(source: PostgresSource, name: str) -> int:
    """How many rows a copy of the table has."""
    schema = described(source, name)
    with source.copies.snapshot(10) as snapshot:
        chunks = source.copies.splits(schema, spec(name), 1024**2)
        return sum(piece.count(b"\n") for chunk in chunks for piece in source.copies.read_split(chunk, snapshot.name))


def test_connection_errors_are_told_apart(private_cluster: Callable[..., EmbeddedPostgres]) -> None:
    cluster = private_cluster(18, max_wal_senders="4", wal_level="replica")
    hba = cluster.data / "pg_hba.conf"
    cluster.execute("CREATE ROLE guarded LOGIN REPLICATION SUPERUSER PASSWORD 'right'")
    cluster.execute("CREATE ROLE shut LOGIN")
    hba.write_text("host all shut all reject\nhost all,replication guarded all scram-sha-256\n" + hba.read_text())
    cluster.execute("SELECT pg_reload_conf()")
    db = Database(cluster, "postgres")

    def kind(password: str | None = None, **settings: Any) -> FaultKind:
        with opened(db, password, **settings) as source, pytest.raises(EngineFault) as raised:
            source.log.current()
        assert "wrong" not in str(raised.value)
        (finding,) = source.preflight([], None)
        assert finding.code == raised.value.kind.value
        return raised.value.kind

    assert kind("wrong", user="guarded") is FaultKind.SOURCE_AUTHENTICATION
    assert kind(user="guarded") is FaultKind.SOURCE_AUTHENTICATION
    assert kind(user="shut") is FaultKind.SOURCE_AUTHENTICATION
    assert kind(database="nowhere") is FaultKind.SOURCE_UNREACHABLE
    assert kind(host="nowhere.invalid") is FaultKind.SOURCE_UNREACHABLE
    assert kind(port=1) is FaultKind.SOURCE_UNREACHABLE
    with opened(db, "right", user="guarded") as source:
        assert codes(source.preflight([], None)) >= {("error", "source_wal_level")}
        with pytest.raises(EngineFault) as raised, source.reader.create("s"):
            pass
        assert raised.value.kind is FaultKind.SOURCE_WAL_LEVEL


def test_slots_and_senders_run_out(private_cluster: Callable[..., EmbeddedPostgres]) -> None:
    cluster = private_cluster(16, max_wal_senders="4", max_replication_slots="1")
    db = Database(cluster, "postgres")
    with opened(db) as source:
        with source.reader.create("only") as snapshot:
            assert ("error", "source_no_slots") in codes(source.preflight([], "other"))
            assert ("error", "source_no_slots") not in codes(source.preflight([], "only"))
            with pytest.raises(EngineFault) as raised, source.reader.create("second"):
                pass
            assert raised.value.kind is FaultKind.SOURCE_NO_SLOTS
        stream = source.log.open_stream("only", snapshot.position, "penstock-a-1")
        with pytest.raises(EngineFault) as raised, ExitStackOfSenders(db):
            source.identify()
        assert raised.value.kind is FaultKind.SOURCE_NO_SENDERS
        stream.close()


class ExitStackOfSenders:
    """Takes every WAL sender that is left."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._taken: list[psycopg.Connection[Any]] = []

    def __enter__(self) -> None:
        while True:
            try:
                self._taken.append(self._db.connect(replication="database"))
            except psycopg.OperationalError:
                return

    def __exit__(self, *error: object) -> None:
        for connection in self._taken:
            connection.close()


def test_methods_may_be_called_from_several_threads(db: Database, source: PostgresSource) -> None:
    found: list[Lsn] = []

    def ask() -> None:
        for _ in range(20):
            found.append(source.log.now())

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 120


# Structure that changes under us


def test_relation_records_follow_added_and_dropped_columns(db: Database, source: PostgresSource) -> None:
    slot, table = slot_of(db), spec("t")
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
    db.execute("INSERT INTO t VALUES (1, 'x')")
    source.sent_tables.prepare([table], slot)
    with source.reader.create(slot) as snapshot:
        start = snapshot.position
    known = described(source, "t")
    with db.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO t VALUES (2, 'y')")
        connection.execute("ALTER TABLE t ADD b int DEFAULT 7")
        connection.execute("INSERT INTO t VALUES (3, 'z', 9)")
    db.execute("ALTER TABLE t DROP COLUMN a")
    db.execute("INSERT INTO t VALUES (4, 10)")
    announced = _relation_records(source, slot, start)
    assert len(announced) == 3
    # The catalog has the last structure already when the first record is resolved.
    schemas = []
    for payload in announced:
        known = source.log.resolve(payload, table, known)
        schemas.append([(c.name, c.attnum, c.fill) for c in known.columns])
    assert schemas == [
        [("id", 1, None), ("a", 2, None)],
        [("id", 1, None), ("a", 2, None), ("b", 3, "7")],
        [("id", 1, None), ("b", 3, "7")],
    ]
    db.execute("ALTER TABLE t ADD c float DEFAULT random()")
    db.execute("INSERT INTO t VALUES (5)")
    *_, payload = _relation_records(source, slot, start)
    with pytest.raises(EngineFault) as raised:
        source.log.resolve(payload, table, known)
    assert raised.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED


def test_a_root_announces_itself_with_what_its_leaves_hold(db: Database, source: PostgresSource) -> None:
    slot, table = slot_of(db), spec("m")
    db.execute("CREATE TABLE m (gone int, id int PRIMARY KEY) PARTITION BY RANGE (id)")
    db.execute("ALTER TABLE m DROP COLUMN gone")
    db.execute("CREATE TABLE m0 PARTITION OF m FOR VALUES FROM (0) TO (10)")
    db.execute("INSERT INTO m VALUES (1)")
    source.sent_tables.prepare([table], slot)
    with source.reader.create(slot) as snapshot:
        start = snapshot.position
    known = described(source, "m")
    db.execute("ALTER TABLE m ADD v text DEFAULT 'old'")
    db.execute("INSERT INTO m VALUES (2)")
    db.execute("CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (10) TO (20)")
    db.execute("INSERT INTO m VALUES (12)")
    # The log announces the leaves as well; their records name tables that are not subscribed.
    announced = {source.log.relation_name(payload): payload for payload in _relation_records(source, slot, start)}
    assert announced.keys() == {TableName("public", name) for name in ("m", "m0", "m1")}
    payload = announced[TableName("public", "m")]
    schema = source.log.resolve(payload, table, known)
    assert [(c.name, c.attnum, c.fill) for c in schema.columns] == [("id", 2, None), ("v", 3, "old")]
    assert schema.key == ("id",)


def _relation_records(source: PostgresSource, slot: str, start: Lsn) -> list[bytes]:
    """All relation records from `start` to now; nothing is confirmed."""
    stream = source.log.open_stream(slot, start, "penstock-shop-1")
    found: list[bytes] = []
    now = source.log.now()
    try:
        end = start
        for _ in range(2000):
            stream.ask_position()
            chunk = stream.read(0.05)
            if chunk is not None:
                found += chunk.relations.values()
                end = chunk.wal_end
            if end >= now:
                return found
    finally:
        stream.close()
    raise AssertionError("the position was never reached")


def test_a_column_made_by_functions_that_the_user_may_not_call_is_left_out(
    pg16: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database]
) -> None:
    db = database_on(pg16)
    role = f"caller_{db.name}"
    db.execute("CREATE FUNCTION mine(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1'")
    db.execute("CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (mine(id)) STORED)")
    db.execute(f"REVOKE EXECUTE ON FUNCTION mine FROM PUBLIC; CREATE ROLE {role} LOGIN REPLICATION")
    try:
        db.execute(f"GRANT SELECT ON t TO {role}")
        with opened(db, user=role) as source:
            assert described(source, "t").computed == ()
            found = [f for f in source.preflight([spec("t")], None) if f.code.startswith("generated_columns")]
            assert [(f.code, "GRANT EXECUTE" in f.remedy) for f in found] == [("generated_columns", True)]
            db.execute(f"GRANT EXECUTE ON FUNCTION mine TO {role}")
            assert [column.name for column in described(source, "t").computed] == ["g"]
            (column,) = described(source, "t").computed
            assert source.computed.compute(TableId("t1"), [column], {1: '{"7",NULL}'}, 2) == b"7\n\\N\n"
            db.execute("DROP TABLE t; DROP FUNCTION mine")
            with pytest.raises(EngineFault) as refused:
                source.computed.compute(TableId("t1"), [column], {1: '{"7"}'}, 1)
            assert (refused.value.kind, refused.value.subject) == (FaultKind.TABLE_STRUCTURE_CHANGED, "t1")
    finally:
        db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
