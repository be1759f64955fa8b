"""What others change of our publications and put back is found, however it is put back, and what we change ourselves is not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId, TableName
from engine.model.source import Earlier
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.sources.postgres_log import publications
from engine.sources.postgres_log.source import PostgresSource
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

SLOT = "shop_1"
_OPTIONS = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
_STORED = ", publish_generated_columns = stored"


@pytest.fixture(params=["pg15", pytest.param("pg16", marks=pytest.mark.chaos), "pg18"])
def db(request: pytest.FixtureRequest, database_on: Callable[..., Database]) -> Database:
    made = database_on(request.getfixturevalue(request.param))
    made.execute("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY)")
    made.execute("CREATE TABLE log (id int); CREATE TABLE stranger (id int PRIMARY KEY)")
    return made


@contextmanager
def opened(db: Database) -> Iterator[PostgresSource]:
    source = PostgresSource(ConnectionSpec("shop", "postgres", db.settings))
    try:
        yield source
    finally:
        source.close()


@pytest.fixture
def source(db: Database) -> Iterator[PostgresSource]:
    """One whose publications are made."""
    with opened(db) as source:
        source.sent_tables.prepare(TABLES, SLOT)
        assert source.safety.check(TABLES, SLOT).sending_faults == ()
        yield source


def spec(name: str, **options: Any) -> TableSpec:
    table = TableName("public", name)
    return TableSpec(TableId("t" + name.encode().hex()), table, table, **options)


TABLES = [spec("a"), spec("b"), spec("log", insert_only=True)]


def relations(source: PostgresSource) -> list[RelationId]:
    return [schema.relation for schema in source.describe(TABLES).values()]


def refused(source: PostgresSource, known: list[RelationId], earlier: Earlier = Earlier.OURS) -> FaultKind | None:
    """What a preparation that must not hide anything says."""
    try:
        source.sent_tables.prepare(TABLES, SLOT, known, earlier)
    except EngineFault as fault:
        return fault.kind
    return None


_PUT_BACK = {
    "operations": ("SET (publish = 'insert')", "SET (publish = 'insert, update, delete, truncate')"),
    "root": ("SET (publish_via_partition_root = false)", "SET (publish_via_partition_root = true)"),
    "member": ("DROP TABLE a", "ADD TABLE ONLY a"),
    "members": ("SET TABLE stranger", "SET TABLE ONLY a, ONLY b"),
    "filter": ("SET TABLE a WHERE (id > 5), b", "SET TABLE ONLY a, ONLY b"),
    "columns": ("SET TABLE a (id), b", "SET TABLE ONLY a, ONLY b"),
    "owner": ("OWNER TO passer_by", "OWNER TO postgres"),
}


@pytest.mark.parametrize("what", _PUT_BACK)
def test_a_change_that_is_put_back_is_found(db: Database, source: PostgresSource, what: str) -> None:
    known = relations(source)
    change, back = (f"ALTER PUBLICATION {SLOT} {step}" for step in _PUT_BACK[what])
    if what == "owner":
        db.execute("DO $$ BEGIN CREATE ROLE passer_by SUPERUSER; EXCEPTION WHEN duplicate_object THEN END $$")
        back = back.replace("postgres", str(db.execute("SELECT quote_ident(current_user)")[0][0]))
    db.execute(change)
    db.execute(back)
    with opened(db) as later:
        assert later.sent_tables.recorded(SLOT) == source.sent_tables.recorded(SLOT)
        assert later.sent_tables.unpublished(TABLES, SLOT) == ()
        assert refused(later, known) is FaultKind.PUBLICATION_CHANGED
    assert refused(source, []) is FaultKind.PUBLICATION_CHANGED
    (fault,) = source.safety.check(TABLES, SLOT).sending_faults
    assert "not Penstock's" in fault
    # Only a new beginning takes them as they are.
    assert refused(source, [], Earlier.ANY) is None
    assert source.safety.check(TABLES, SLOT).sending_faults == ()
    assert refused(source, known) is None


def test_a_publication_made_again_is_another_one(db: Database, source: PostgresSource) -> None:
    known, before = relations(source), source.sent_tables.recorded(SLOT)
    comment = db.execute("SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s", [SLOT])
    stored = _STORED if int(str(db.execute("SHOW server_version_num")[0][0])) >= 180000 else ""
    with db.connect() as connection, connection.transaction():
        connection.execute(f"DROP PUBLICATION {SLOT}")
        connection.execute(f"CREATE PUBLICATION {SLOT} FOR TABLE ONLY a, ONLY b WITH ({_OPTIONS}{stored})")
    assert source.sent_tables.recorded(SLOT) not in {before, None}
    assert refused(source, known) is FaultKind.PUBLICATION_CHANGED
    assert len(source.safety.check(TABLES, SLOT).sending_faults) == 1
    # Nor does the comment help, as pg_dump would write it.
    db.execute(f"COMMENT ON PUBLICATION {SLOT} IS '{comment[0][0]}'")
    assert refused(source, known) is FaultKind.PUBLICATION_CHANGED
    assert len(source.safety.check(TABLES, SLOT).sending_faults) == 1
    db.execute(f"DROP PUBLICATION {SLOT}_ins")
    assert source.sent_tables.recorded(SLOT) is None
    assert refused(source, known) is FaultKind.PUBLICATION_CHANGED


def test_a_publication_renamed_and_back_is_found(db: Database, source: PostgresSource) -> None:
    db.execute(f"ALTER PUBLICATION {SLOT} RENAME TO elsewhere")
    assert refused(source, []) is FaultKind.PUBLICATION_CHANGED
    db.execute(f"ALTER PUBLICATION elsewhere RENAME TO {SLOT}")
    assert refused(source, []) is FaultKind.PUBLICATION_CHANGED
    assert len(source.safety.check(TABLES, SLOT).sending_faults) == 1


def test_what_takes_nothing_from_our_tables_is_no_change(db: Database, source: PostgresSource) -> None:
    """Other tables than ours that are added and removed again, and what keeps the catalog small."""
    known = relations(source)
    for statement in (
        f"ALTER PUBLICATION {SLOT} ADD TABLE stranger",
        f"ALTER PUBLICATION {SLOT} DROP TABLE stranger",
        f"ALTER PUBLICATION {SLOT} ADD TABLES IN SCHEMA public",
        f"ALTER PUBLICATION {SLOT} DROP TABLES IN SCHEMA public",
        "VACUUM FREEZE pg_publication",
        "VACUUM FREEZE pg_publication_rel",
        "VACUUM FULL pg_publication",
        "VACUUM FULL pg_publication_rel",
        "VACUUM (FULL, FREEZE) pg_publication_rel",
        "ALTER TABLE a RENAME COLUMN v TO w",
    ):
        db.execute(statement)
    assert source.safety.check(TABLES, SLOT).sending_faults == ()
    with opened(db) as later:
        assert refused(later, known) is None


def test_a_table_taken_out_is_not_put_in_again_in_silence(db: Database, source: PostgresSource) -> None:
    known = relations(source)
    db.execute(f"ALTER PUBLICATION {SLOT} DROP TABLE a")
    with opened(db) as later:
        assert refused(later, known) is FaultKind.PUBLICATION_CHANGED
        # Tables without rows on the target do not depend on what was published.
        assert refused(later, []) is None
    assert source.safety.check(TABLES, SLOT).sending_faults == ()


def test_our_own_changes_are_none_whoever_sees_them(db: Database, source: PostgresSource) -> None:
    known = relations(source)
    db.execute("CREATE TABLE c (id int PRIMARY KEY)")
    with opened(db) as another:
        another.sent_tables.prepare([*TABLES, spec("c")], SLOT, known, Earlier.OURS)
        another.sent_tables.prepare(TABLES, SLOT, earlier=Earlier.OURS)
    db.execute("ALTER TABLE b DROP CONSTRAINT b_pkey")
    source.sent_tables.withdraw(TABLES, SLOT)
    assert source.safety.check(TABLES, SLOT).sending_faults == ()
    db.execute("ALTER TABLE b ADD PRIMARY KEY (id)")
    with opened(db) as another:
        another.sent_tables.prepare(TABLES, SLOT, earlier=Earlier.OURS)
        assert another.safety.check(TABLES, SLOT).sending_faults == ()
    db.execute("DROP TABLE b; CREATE TABLE b (id int PRIMARY KEY)")
    source.sent_tables.prepare(TABLES, SLOT, earlier=Earlier.OURS)
    assert source.safety.check(TABLES, SLOT).sending_faults == ()


def test_tables_published_one_by_one_are_marked_one_by_one(
    db: Database, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that another holds splits the work, and an end in between leaves marks for what was done."""
    db.execute("CREATE TABLE c (id int PRIMARY KEY); CREATE TABLE d (id int PRIMARY KEY)")
    more = [*TABLES, spec("c"), spec("d")]
    change = publications._change

    def change_until_d(connection: Any, publication: str, word: str, tables: Any, *filters: Any) -> None:
        if TableName("public", "d") in tables:
            raise psycopg.errors.LockNotAvailable
        change(connection, publication, word, tables, *filters)

    with monkeypatch.context() as patched:
        patched.setattr(publications, "_change", change_until_d)
        with pytest.raises(EngineFault) as caught:
            source.sent_tables.prepare(more, SLOT, earlier=Earlier.OURS)
        assert caught.value.kind is FaultKind.SOURCE_TIMEOUT
    assert source.safety.check(more, SLOT).sending_faults == ()
    with opened(db) as later:
        later.sent_tables.prepare(more, SLOT, earlier=Earlier.OURS)
        assert later.safety.check(more, SLOT).sending_faults == ()
        published = "SELECT count(*) FROM pg_publication_tables WHERE pubname = %s"
        assert db.execute(published, [SLOT]) == [(4,)]


def test_two_engines_of_ours_take_each_others_changes_for_ours(db: Database, source: PostgresSource) -> None:
    for number in range(12):
        db.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY)")
    faults: list[EngineFault] = []
    both = threading.Barrier(2)

    def add() -> None:
        with opened(db) as engine:
            for number in range(12):
                both.wait(60)
                try:
                    engine.sent_tables.prepare(
                        [*TABLES, *(spec(f"t{n}") for n in range(number + 1))], SLOT, earlier=Earlier.OURS
                    )
                except EngineFault as fault:
                    faults.append(fault)

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    with opened(db) as later:
        later.sent_tables.prepare(TABLES, SLOT, earlier=Earlier.OURS)
        assert later.safety.check(TABLES, SLOT).sending_faults == ()


def test_a_change_between_our_look_and_our_own_change_is_found(
    db: Database, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comment that the engine writes after its own change does not cover it."""
    db.execute("CREATE TABLE c (id int PRIMARY KEY)")
    steps = publications._steps

    def meanwhile(connection: Any, wanted: Any, current: Any) -> Any:
        if wanted.name == SLOT:
            db.execute(f"ALTER PUBLICATION {SLOT} SET (publish = 'insert')")
            db.execute(f"ALTER PUBLICATION {SLOT} SET (publish = 'insert, update, delete, truncate')")
            db.execute(f"ALTER PUBLICATION {SLOT} DROP TABLE a")
            db.execute(f"ALTER PUBLICATION {SLOT} ADD TABLE ONLY a")
        return steps(connection, wanted, current)

    with monkeypatch.context() as patched:
        patched.setattr(publications, "_steps", meanwhile)
        with pytest.raises(EngineFault) as caught:
            source.sent_tables.prepare([*TABLES, spec("c")], SLOT, earlier=Earlier.OURS)
    assert caught.value.kind is FaultKind.PUBLICATION_CHANGED
    assert len(source.safety.check(TABLES, SLOT).sending_faults) == 1


def test_publications_of_a_version_that_left_no_mark_are_taken_over_once(db: Database, source: PostgresSource) -> None:
    known = relations(source)
    for name in (SLOT, f"{SLOT}_ins"):
        db.execute(f"COMMENT ON PUBLICATION {name} IS NULL")
    with opened(db) as later:
        assert refused(later, known) is FaultKind.PUBLICATION_CHANGED
        assert refused(later, known, Earlier.UNMARKED) is None
        assert refused(later, known) is None
        assert later.safety.check(TABLES, SLOT).sending_faults == ()
    db.execute(f"ALTER PUBLICATION {SLOT} SET (publish_via_partition_root = true)")
    with opened(db) as later:
        assert refused(later, known, Earlier.UNMARKED) is FaultKind.PUBLICATION_CHANGED
