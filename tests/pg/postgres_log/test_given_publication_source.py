"""What a publication of others lacks is said with the statement that corrects it; what changes in it is found, also if it is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.source import Earlier, Finding, GuardReading
from engine.model.subscription import CaptureSpec, ConnectionSpec, TableSpec
from engine.sources.postgres_log.source import PostgresSource
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

_ALL = "insert, update, delete, truncate"
_FULL = f"publish = '{_ALL}', publish_via_partition_root = true"
_ROLE = "DO $$ BEGIN CREATE ROLE guest LOGIN REPLICATION; EXCEPTION WHEN duplicate_object THEN END $$"
_TABLES = """
CREATE TABLE a (id int PRIMARY KEY, v text);
CREATE TABLE b (id int PRIMARY KEY);
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE SCHEMA other;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest;
"""


@pytest.fixture(params=[*(pytest.param(old, marks=pytest.mark.chaos) for old in ("pg15", "pg16")), "pg18"])
def db(request: pytest.FixtureRequest, database_on: Callable[..., Database]) -> Database:
    made = database_on(request.getfixturevalue(request.param))
    made.execute(_ROLE)
    made.execute(_TABLES)
    return made


def version(db: Database) -> int:
    return int(str(db.execute("SHOW server_version_num")[0][0]))


@contextmanager
def opened(db: Database) -> Iterator[PostgresSource]:
    settings = {**db.settings, "user": "guest"}
    capture = CaptureSpec("postgres_log", {"publication": "theirs"})
    source = PostgresSource(ConnectionSpec("shop", "postgres", settings, capture=capture))
    try:
        yield source
    finally:
        source.close()


def spec(name: str, **options: Any) -> TableSpec:
    table = TableName("public", name)
    return TableSpec(TableId("t" + name.encode().hex()), table, table, **options)


A, B, PARTS = spec("a"), spec("b"), spec("parts")


def errors(db: Database, *tables: TableSpec) -> list[Finding]:
    with opened(db) as source:
        return [f for f in source.preflight(tables, None) if f.severity == "error"]


LACKS = {
    "membership": ("FOR TABLE b", A, "not in publication"),
    "truncate": ("FOR TABLE a WITH (publish = 'insert, update, delete')", A, "does not publish truncate"),
    "updates": ("FOR TABLE a WITH (publish = 'insert, truncate')", A, "does not publish update, delete"),
    "columns": ("FOR TABLE a (id)", A, "column list"),
    "rows": ("FOR TABLE a WHERE (id > 5)", A, "row filter"),
    "root": ("FOR TABLE parts", PARTS, "names of its partitions"),
    "all tables, not through the root": ("FOR ALL TABLES", PARTS, "names of its partitions"),
}


@pytest.mark.parametrize("lack", LACKS)
def test_what_is_lacking_is_named_with_statements_that_help(db: Database, lack: str) -> None:
    members, table, what = LACKS[lack]
    db.execute(f"CREATE PUBLICATION theirs {members}")
    (found,) = errors(db, table)
    assert found.code == "table_not_published"
    assert what in found.what
    with opened(db) as source:
        assert source.describe([table]) == {}
        assert source.sent_tables.prepare([table], "r") == frozenset()
        assert source.sent_tables.unpublished([table], "r") == (found.what,)
    for statement in found.sql:
        db.execute(statement)
    assert errors(db, table) == []
    with opened(db) as source:
        described = source.describe([table])
        assert source.sent_tables.prepare([table], "r") == {described[table.source].relation}


def test_what_no_statement_helps_against(db: Database) -> None:
    db.execute(f"CREATE PUBLICATION theirs FOR ALL TABLES WITH ({_FULL})")
    db.execute("ALTER TABLE a REPLICA IDENTITY FULL")
    for table, what in (
        (spec("parts_1"), "is a partition"),
        (spec("a", insert_only=True), "publishes updates or deletes"),
        (spec("a", where="id > 5"), "needs a row filter"),
    ):
        (found,) = errors(db, table)
        assert what in found.what
        assert found.sql == ()
    assert errors(db, A, B, PARTS) == []


def test_stored_generated_columns_must_be_published(db: Database) -> None:
    db.execute("ALTER TABLE a ADD COLUMN twice int GENERATED ALWAYS AS (id * 2) STORED")
    db.execute(f"CREATE PUBLICATION theirs FOR TABLE a WITH ({_FULL})")
    found = errors(db, A)
    assert [f.code for f in found] == (["table_not_published"] if version(db) >= 180000 else [])
    for each in found:
        for statement in each.sql:
            db.execute(statement)
    assert errors(db, A) == []


def test_a_missing_publication_is_one_finding_with_its_statement(db: Database) -> None:
    (found,) = errors(db, A, PARTS)
    assert found.code == "publication_missing"
    with opened(db) as source, pytest.raises(EngineFault) as caught:
        source.sent_tables.prepare([A], "r")
    assert caught.value.kind is FaultKind.SENT_TABLES_MISSING
    for statement in found.sql:
        db.execute(statement)
    assert errors(db, A, PARTS) == []


_OWN = f"FOR TABLE ONLY a, ONLY b, ONLY parts WITH ({_FULL})"
_SCHEMA = f"FOR TABLES IN SCHEMA public WITH ({_FULL})"
_EVERY = f"FOR ALL TABLES WITH ({_FULL})"
OF_A_TABLE = {
    "member": (_OWN, ["ALTER PUBLICATION theirs DROP TABLE a", "ALTER PUBLICATION theirs ADD TABLE ONLY a"]),
    "columns": (_OWN, ["ALTER PUBLICATION theirs SET TABLE a (id), b, parts", "ALTER PUBLICATION theirs SET TABLE a, b, parts"]),
    "schema": (
        _SCHEMA,
        ["ALTER PUBLICATION theirs DROP TABLES IN SCHEMA public", "ALTER PUBLICATION theirs ADD TABLES IN SCHEMA public"],
    ),
    "moved": (_SCHEMA, ["ALTER TABLE a SET SCHEMA other", "ALTER TABLE other.a SET SCHEMA public"]),
    "unlogged": (_EVERY, ["ALTER TABLE a SET UNLOGGED", "ALTER TABLE a SET LOGGED"]),
    "unlogged in a schema": (_SCHEMA, ["ALTER TABLE a SET UNLOGGED", "ALTER TABLE a SET LOGGED"]),
    "partition for a while": (
        _EVERY,
        [
            "CREATE TABLE root (LIKE a) PARTITION BY RANGE (id)",
            "ALTER TABLE root ATTACH PARTITION a DEFAULT",
            "ALTER TABLE root DETACH PARTITION a",
        ],
    ),
}  # fmt: skip
OF_ALL = {
    "operations": (_OWN, ["ALTER PUBLICATION theirs SET (publish = 'insert')", f"ALTER PUBLICATION theirs SET (publish = '{_ALL}')"]),
    "root": (
        _OWN,
        [
            "ALTER PUBLICATION theirs SET (publish_via_partition_root = false)",
            "ALTER PUBLICATION theirs SET (publish_via_partition_root = true)",
        ],
    ),
    "name": (_EVERY, ["ALTER PUBLICATION theirs RENAME TO away", "ALTER PUBLICATION away RENAME TO theirs"]),
    "publication": (_EVERY, ["DROP PUBLICATION theirs", f"CREATE PUBLICATION theirs {_EVERY}"]),
}  # fmt: skip
NOTHING = {
    "others": (_OWN, ["CREATE TABLE more (id int)", "ALTER PUBLICATION theirs ADD TABLE more", "ALTER PUBLICATION theirs DROP TABLE more"]),
    "vacuum": (_EVERY, ["VACUUM FULL pg_publication_rel", "VACUUM FREEZE pg_publication", "ANALYZE a"]),
    "columns of the table": (_EVERY, ["ALTER TABLE a ADD COLUMN w int", "ALTER TABLE a RENAME COLUMN v TO u"]),
    "new table in the schema": (_SCHEMA, ["CREATE TABLE more (id int)", "GRANT SELECT ON a TO PUBLIC"]),
    "storage of a member": (_OWN, ["VACUUM FULL a", "TRUNCATE a"]),
}  # fmt: skip


def changed(db: Database, statements: list[str]) -> None:
    """Run them in a session of their own each: a change is put back before any check."""
    for statement in statements:
        db.execute(statement)


def checked(source: PostgresSource) -> GuardReading:
    return source.safety.check([A, B, PARTS], "r")


@pytest.mark.parametrize("kind", OF_A_TABLE)
def test_what_is_put_back_for_a_table_concerns_it_alone(db: Database, kind: str) -> None:
    members, statements = OF_A_TABLE[kind]
    db.execute(f"CREATE PUBLICATION theirs {members}")
    concerned = {TableName("public", "a")}
    if kind == "schema":
        concerned |= {B.source, PARTS.source}
    with opened(db) as source:
        source.sent_tables.prepare([A, B, PARTS], "r")
        marks = checked(source).marks
        assert checked(source).partition_faults == {}
        changed(db, statements)
        reading = checked(source)
        assert reading.sending_faults == ()
        assert set(reading.partition_faults) == concerned
        assert set(reading.sent_otherwise.values()) == {FaultKind.TABLE_SENT_OTHERWISE}
        assert checked(source).partition_faults == {}, "it is reported once"
    # A later engine compares with the target's record.
    with opened(db) as later:
        known = [schema.relation for schema in later.describe([A, B, PARTS]).values()]
        later.sent_tables.prepare([A, B, PARTS], "r", known, Earlier.OURS)
        later.safety.remember(marks)
        assert set(checked(later).partition_faults) == concerned


@pytest.mark.parametrize("kind", OF_ALL)
def test_what_is_put_back_for_the_publication_concerns_every_table(db: Database, kind: str) -> None:
    members, statements = OF_ALL[kind]
    db.execute(f"CREATE PUBLICATION theirs {members}")
    with opened(db) as source:
        source.sent_tables.prepare([A, B, PARTS], "r")
        recorded = source.sent_tables.recorded("r")
        assert checked(source).sending_faults == ()
        changed(db, statements)
        assert len(checked(source).sending_faults) == 1
        with pytest.raises(EngineFault) as caught:
            source.sent_tables.prepare([A, B, PARTS], "r", earlier=Earlier.OURS)
        assert caught.value.kind is FaultKind.PUBLICATION_CHANGED
        assert source.sent_tables.recorded("r") == recorded, "the change must not reach the target's record"
        with opened(db) as later:
            assert later.sent_tables.recorded("r") != recorded
        source.sent_tables.prepare([A, B, PARTS], "r", earlier=Earlier.ANY)
        assert checked(source).sending_faults == ()


@pytest.mark.parametrize("kind", NOTHING)
def test_what_takes_nothing_from_the_tables_is_no_change(db: Database, kind: str) -> None:
    members, statements = NOTHING[kind]
    db.execute(f"CREATE PUBLICATION theirs {members}")
    with opened(db) as source:
        source.sent_tables.prepare([A, B, PARTS], "r")
        checked(source)
        changed(db, statements)
        reading = checked(source)
        assert (reading.sending_faults, reading.partition_faults) == ((), {})


def test_a_table_of_an_earlier_run_without_a_record_is_not_trusted(db: Database) -> None:
    db.execute(f"CREATE PUBLICATION theirs {_OWN}")
    with opened(db) as source:
        known = [schema.relation for schema in source.describe([A, B]).values()]
        source.sent_tables.prepare([A, B], "r", known, Earlier.OURS)
        source.safety.remember(source.partitioned.fingerprints([B]))
        assert set(source.safety.check([A, B], "r").partition_faults) == {A.source}


def test_the_fingerprint_of_now_covers_membership(db: Database) -> None:
    db.execute(f"CREATE PUBLICATION theirs {_SCHEMA}")
    with opened(db) as source:
        source.sent_tables.prepare([A], "r")
        checked(source)
        before = source.log.catalog_at([A], "r", now=True)
        assert source.log.catalog_at([A], "r", now=True).mark == before.mark
        changed(db, OF_A_TABLE["schema"][1])
        assert source.log.catalog_at([A], "r", now=True).mark != before.mark
