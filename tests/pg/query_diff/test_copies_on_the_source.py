"""With the method outer_join, whatever happens to the copy on the source and at whatever step a cycle dies, every change is found."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.model.fault import EngineFault
from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.platform.failpoints import arm
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.cycle_files import TableFound
from engine.sources.query_diff.database import DECLARED, Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.reader_control import CycleReader
from engine.sources.query_diff.source_copies import CopiesMade
from tests.fixtures.postgres import Database, standing_database
from tests.pg.query_diff.meddled import Meddled, once, reader_of
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy, held_by

pytestmark = pytest.mark.pg

_MAKE = """
CREATE SCHEMA penstock;
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE DOMAIN size AS numeric CHECK (VALUE > -100);
CREATE TYPE pair AS (a numeric, b text)
"""
_TABLES = {
    "things": "id int PRIMARY KEY, n numeric, f float8, j json, jb jsonb, t text, a numeric[], m mood, s size, p pair, b bytea",
    "named": "k numeric, l interval, v text, PRIMARY KEY (l, k)",
    "kept": "id int PRIMARY KEY, v text, n numeric",
}
_ITEMS = {
    "n": ["1", "1.0", "1.00", "NULL", "'NaN'"],
    "f": ["0", "'-0'", "NULL", "'NaN'", "1e300"],
    "j": ["'{}'", "'{ }'", "'[1]'", "'[1.0]'", "NULL", "'null'"],
    "jb": ["'1'", "'1.0'", "NULL", "'null'"],
    "t": ["'a'", "'A'", "'á'", "''", "NULL", "repeat('long ', 3000)", r"E'D\tx\nI\t\r\\N'"],
    "a": ["'{}'", "'{1}'", "'{1.0}'", "'{NULL}'", "NULL", "'[0:0]={1}'"],
    "m": ["'glad'", "'sad'", "NULL"],
    "s": ["1", "1.0", "NULL"],
    "p": ["ROW(1, 'a')", "ROW(1.0, 'a')", "ROW(NULL, NULL)", "NULL"],
    "b": ["''", r"'\x00'", "NULL"],
}
WHERE = "v NOT LIKE 'x%' OR n = 1"
THINGS, NAMED, KEPT = (TableName("public", name) for name in _TABLES)
FOLLOWED = {THINGS: Follow(None, ALL), NAMED: Follow(None, ALL), KEPT: Follow(WHERE, ALL)}
_SPANS = ("1 day", "24:00", "2 days")
"""The first two are equal."""
_DEATHS = ("join.written", "join.committed", "cycle.written", "cycle.committed")


@pytest.fixture
def database(pg18: Any) -> Iterator[Database]:
    with standing_database(pg18, "copies") as made:
        assert isinstance(made, Database)
        for statement in _MAKE.split(";"):
            made.execute(statement)
        for name, columns in _TABLES.items():
            made.execute(f"CREATE TABLE {name} ({columns})")
        yield made


@pytest.fixture
def compared(database: Database) -> Iterator[PostgresDatabase]:
    connector = Connector(ConnectionSpec("shop", "postgres", database.settings))
    with closing(PostgresDatabase(connector, Compared())) as opened:
        yield opened


def given_in(path: Path, followed: dict[TableName, Follow]) -> Given:
    given = Given(0, Method.OUTER_JOIN, 10.0, path, "shop")
    given.folder.make()
    given.folder.follow(followed)
    return given


def cycle_of(compared: PostgresDatabase, given: Given) -> dict[str, TableFound]:
    with run_cycle(compared, given) as (_, number):
        return {table.name: table for table in given.folder.files.read(number).tables}


def copies_on(database: Database) -> list[str]:
    rows = database.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'penstock'::regnamespace AND relkind = 'r'"
    )
    return sorted(name for (name,) in rows)


def changed(rng: random.Random) -> str:
    key, other, column = rng.randint(0, 12), rng.randint(0, 12), rng.choice(list(_ITEMS))
    value, number = rng.choice(_ITEMS[column]), rng.choice(_ITEMS["n"][:3])
    return rng.choice(
        [
            f"INSERT INTO things (id, {column}) VALUES ({key}, {value})",
            f"INSERT INTO things (id, {column}) SELECT i, {value} FROM generate_series(20, 20 + {key}) i ON CONFLICT DO NOTHING",
            f"UPDATE things SET {column} = {value} WHERE id = {key}",
            f"UPDATE things SET {column} = {value} WHERE id > {key}",
            f"UPDATE things SET id = {key} WHERE id = {other}",
            f"DELETE FROM things WHERE id BETWEEN {key} AND {other}",
            f"INSERT INTO named VALUES ({number} + {key % 3}, '{rng.choice(_SPANS)}', 'v')",
            f"UPDATE named SET k = k + {number} - 1, v = {_ITEMS['t'][key % 6]}",
            f"UPDATE named SET k = round(k, {key % 3}) WHERE l = '{rng.choice(_SPANS)}'",
            f"UPDATE named SET l = '{rng.choice(_SPANS)}' WHERE k = {number}",
            f"DELETE FROM named WHERE k = {number}",
            f"INSERT INTO kept VALUES ({key}, '{rng.choice(['x', 'y'])}', {value if column == 'n' else 'NULL'})",
            f"UPDATE kept SET v = '{rng.choice(['x', 'y'])}' WHERE id > {key}",
            f"UPDATE kept SET n = {number}, v = 'x' WHERE id = {key}",
            f"DELETE FROM kept WHERE id = {key}",
            *(["TRUNCATE things", "ALTER TYPE mood RENAME VALUE 'glad' TO 'merry'"] if rng.random() < 0.1 else []),
            *(["ALTER TYPE mood RENAME VALUE 'merry' TO 'glad'"] if rng.random() < 0.1 else []),
        ]
    )


def meddled(rng: random.Random, copy: str) -> list[str]:
    """What an owner may do to a copy; statements that fail have no effect."""
    table = next((name for name in _TABLES if name in copy), "things")
    column = {"things": "t", "named": "v", "kept": "v"}[table]
    target = f"penstock.{copy}"
    return rng.choice(
        [
            [f"TRUNCATE {target}"],
            [f"DROP TABLE {target}"],
            [f"DELETE FROM {target} WHERE random() < 0.5"],
            [f"UPDATE {target} SET id = id + 100 WHERE id % 2 = 0"],
            # Like the table as it is now: rows that changed since would not differ.
            [f"DELETE FROM {target}", f"INSERT INTO {target} SELECT * FROM public.{table}"],
            [f"UPDATE {target} SET {column} = 'meddled'"],
            [f"ALTER TABLE {target} ADD COLUMN more int"],
            [
                f"ALTER TABLE {target} DROP COLUMN {column}",
                f"ALTER TABLE {target} ADD COLUMN {column} text DEFAULT 'a'",
            ],
            [f"ALTER TABLE {target} DROP CONSTRAINT {copy}_pkey"],
            [f"CREATE RULE nothing AS ON INSERT TO {target} DO INSTEAD NOTHING"],
            [f"VACUUM FULL {target}", f"VACUUM FREEZE {target}", f"ANALYZE {target}"],
        ]
    )


def run_all(database: Database, statements: Sequence[str]) -> None:
    """Each by itself; those that are refused have no effect."""
    with database.connect() as connection:
        for statement in statements:
            try:
                connection.execute(statement.encode())
            except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError, psycopg.NotSupportedError):
                continue


class Reader:
    """A subscription, and what its cycles make of a copy."""

    def __init__(self, compared: PostgresDatabase, path: Path) -> None:
        self._compared = compared
        self.given = given_in(path, FOLLOWED)
        self.copy = Copy(self.given.folder)
        with run_cycle(compared, self.given) as (snapshot, number):
            self.copy.fill(held_by(compared, snapshot, FOLLOWED), number)

    def cycle(self, death: str, method: Method) -> None:
        given = replace(self.given, method=method)
        if death:
            arm(f"{death}=raise")
        try:
            with run_cycle(self._compared, given) as (snapshot, number):
                # The name continues with the tables that were left out.
                expected = held_by(self._compared, snapshot.partition("\n")[0], FOLLOWED)
        except EngineFault as fault:
            if fault.subject != death:
                raise
            return
        finally:
            for each in _DEATHS:
                arm(f"{each}=raise@1000000")
        self.copy.follow()
        left_out = {t.name for t in given.folder.files.read(number).tables if t.fault is not None}
        assert len(left_out) <= (1 if death.startswith("join") else 0)
        for name in expected.keys() - left_out:
            assert self.copy.rows[name] == expected[name], name


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(3, 40))])
def test_nothing_is_missed_whatever_happens_to_the_copies(
    database: Database, compared: PostgresDatabase, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    run_all(database, [changed(rng) for _ in range(30)])
    readers = [Reader(compared, tmp_path / name) for name in ("one", "two")]
    for _ in range(20):
        run_all(database, [changed(rng) for _ in range(rng.randint(0, 8))])
        there = copies_on(database)
        if rng.random() < 0.5 and there:
            run_all(database, meddled(rng, rng.choice(there)))
        method = rng.choice([*[Method.OUTER_JOIN] * 6, *DECLARED])
        rng.choice(readers).cycle(rng.choice(["", "", "", *_DEATHS]), method)
    for reader in readers:
        reader.cycle("", Method.OUTER_JOIN)
        found = cycle_of(compared, reader.given)
        assert {name: (t.rows_read, t.inserted + t.updated + t.deleted) for name, t in found.items()} == dict.fromkeys(
            _TABLES, (0, 0)
        )
    assert len(copies_on(database)) == 2 * len(_TABLES)


OTHER_USER = "copies_reader"


@pytest.fixture
def reader(database: Database) -> Iterator[PostgresDatabase]:
    """By a user who may read, and create tables in the schema."""
    database.execute(f"DO $$ BEGIN CREATE ROLE {OTHER_USER} LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {OTHER_USER}")
    database.execute(f"GRANT USAGE, CREATE ON SCHEMA penstock TO {OTHER_USER}")
    connector = Connector(ConnectionSpec("shop", "postgres", {**database.settings, "user": OTHER_USER}))
    with closing(PostgresDatabase(connector, Compared())) as opened:
        yield opened


def filled(database: Database) -> None:
    database.execute("INSERT INTO things (id, n) SELECT i, i FROM generate_series(1, 100) i")
    database.execute("INSERT INTO kept SELECT i, 'y' FROM generate_series(1, 50) i")


def begun(database: Database, reader: PostgresDatabase, folder: Path) -> Given:
    """`things` has rows, and a cycle has made its copy."""
    given = given_in(folder, {THINGS: Follow(None, ALL)})
    filled(database)
    cycle_of(reader, given)
    return given


def read_of(found: dict[str, TableFound], name: str = "things") -> tuple[str, int, int]:
    """By which method, rows read, and changes."""
    table = found[name]
    assert table.fault is None
    return table.method, table.rows_read, table.inserted + table.updated + table.deleted


def test_only_rows_that_differ_travel(database: Database, reader: PostgresDatabase, tmp_path: Path) -> None:
    given = given_in(tmp_path, FOLLOWED)
    filled(database)
    assert read_of(cycle_of(reader, given)) == ("outer_join", 100, 0)
    assert read_of(cycle_of(reader, given)) == ("outer_join", 0, 0)
    database.execute("UPDATE things SET n = n + 0.0 WHERE id < 4; DELETE FROM things WHERE id = 9")
    database.execute("UPDATE things SET n = n WHERE id = 7; UPDATE kept SET v = 'x' WHERE id < 3")
    found = cycle_of(reader, given)
    assert (read_of(found), read_of(found, "kept")) == (("outer_join", 3, 4), ("outer_join", 0, 2))


@pytest.mark.parametrize("death", ["join.written", "join.committed"])
def test_a_cycle_that_dies_around_the_commit_of_the_source_is_made_up_for(
    database: Database, reader: PostgresDatabase, tmp_path: Path, death: str
) -> None:
    given = begun(database, reader, tmp_path)
    database.execute("DELETE FROM things WHERE id = 1; UPDATE things SET n = 0 WHERE id = 2")
    arm(f"{death}=raise")
    assert cycle_of(reader, given)["things"].fault == "internal"
    # A copy that is ahead is not trusted; one that was not changed is.
    assert read_of(cycle_of(reader, given)) == ("outer_join", 1 if death == "join.written" else 99, 2)
    assert read_of(cycle_of(reader, given)) == ("outer_join", 0, 0)


def test_without_the_right_all_rows_are_read_and_with_it_again_few(
    database: Database, reader: PostgresDatabase, tmp_path: Path
) -> None:
    given = begun(database, reader, tmp_path)
    copies = copies_on(database)
    database.execute(f"REVOKE ALL ON SCHEMA penstock FROM {OTHER_USER}; UPDATE things SET n = 0 WHERE id = 2")
    assert read_of(cycle_of(reader, given)) == ("incremental", 100, 1)
    assert (copies_on(database), CopiesMade(tmp_path).names()) == (copies, copies)
    left = CycleReader(reader, given).remove("reader")
    assert left == [f'DROP TABLE IF EXISTS "penstock"."{copies[0]}"']
    assert not tmp_path.exists()
    database.execute(f"GRANT ALL ON SCHEMA penstock TO {OTHER_USER}")
    given = given_in(tmp_path, {THINGS: Follow(None, ALL)})
    assert read_of(cycle_of(reader, given)) == ("outer_join", 100, 0)


def test_copies_go_with_their_tables_methods_and_subscriptions(
    database: Database, reader: PostgresDatabase, tmp_path: Path
) -> None:
    given, other = given_in(tmp_path / "one", FOLLOWED), given_in(tmp_path / "two", FOLLOWED)
    cycle_of(reader, given)
    of_one = copies_on(database)
    cycle_of(reader, other)
    assert len(copies_on(database)) == 6
    given.folder.follow({THINGS: FOLLOWED[THINGS], NAMED: FOLLOWED[NAMED]})
    cycle_of(reader, given)
    assert len(copies_on(database)) == 5
    database.execute(
        f"DROP TABLE named; CREATE TABLE named ({_TABLES['named']}); GRANT SELECT ON named TO {OTHER_USER}"
    )
    cycle_of(reader, given)
    assert len(copies_on(database)) == 5
    assert len(set(copies_on(database)) & set(of_one)) == 1
    cycle_of(reader, replace(given, method=Method.ROW_CHECKSUM))
    assert len(copies_on(database)) == 3
    assert CycleReader(reader, other).remove("two") == []
    assert copies_on(database) == []


def test_columns_that_are_added_and_dropped_make_the_copy_again(
    database: Database, reader: PostgresDatabase, tmp_path: Path
) -> None:
    given = begun(database, reader, tmp_path)
    for change in ("ADD COLUMN more int", "DROP COLUMN more", "ALTER COLUMN n TYPE numeric(9, 2)"):
        database.execute(f"ALTER TABLE things {change}")
        assert read_of(cycle_of(reader, given)) == ("outer_join", 100, 100)
        assert read_of(cycle_of(reader, given)) == ("outer_join", 0, 0)


def test_values_that_print_names_and_keys_by_other_operators_have_no_copy(
    database: Database, reader: PostgresDatabase, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE classes (id int PRIMARY KEY, c regclass[])")
    database.execute("CREATE TABLE patterns (k text NOT NULL); CREATE UNIQUE INDEX ON patterns (k text_pattern_ops)")
    database.execute(f"GRANT SELECT ON classes, patterns TO {OTHER_USER}; INSERT INTO patterns VALUES ('a')")
    tables = {TableName("public", name): Follow(None, ALL) for name in ("classes", "patterns")}
    given = given_in(tmp_path, tables)
    found = cycle_of(reader, given)
    assert [read_of(found, "classes")[0], read_of(found, "patterns")[0]] == ["incremental", "incremental"]
    assert copies_on(database) == []


@pytest.mark.parametrize("table", ["things", "copy"])
def test_a_row_that_the_owner_made_alike_is_found(
    database: Database, reader: PostgresDatabase, tmp_path: Path, table: str
) -> None:
    """The copy does not differ from the table then, and has as many rows as before."""
    given = begun(database, reader, tmp_path)
    [copy] = copies_on(database)
    database.execute("UPDATE things SET n = 0 WHERE id = 2")
    database.execute(f"UPDATE penstock.{copy} SET n = 0 WHERE id = 2")
    if table == "copy":
        database.execute(f"VACUUM FULL penstock.{copy}")
    assert read_of(cycle_of(reader, given)) == ("outer_join", 100, 1)


def test_a_label_that_is_renamed_is_a_change(database: Database, reader: PostgresDatabase, tmp_path: Path) -> None:
    given = given_in(tmp_path, {THINGS: Follow(None, ALL)})
    filled(database)
    database.execute("UPDATE things SET m = 'sad' WHERE id < 4")
    cycle_of(reader, given)
    database.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'low'")
    assert read_of(cycle_of(reader, given)) == ("outer_join", 100, 3)


@pytest.mark.parametrize("other", [Method.INCREMENTAL, Method.ROW_CHECKSUM])
def test_a_value_that_came_back_while_another_method_was_chosen_is_found(
    database: Database, reader: PostgresDatabase, tmp_path: Path, other: Method
) -> None:
    given = begun(database, reader, tmp_path)
    database.execute("REVOKE ALL ON SCHEMA penstock FROM " + OTHER_USER)
    database.execute("UPDATE things SET n = 0 WHERE id = 2")
    assert read_of(cycle_of(reader, replace(given, method=other)))[2] == 1
    database.execute(f"GRANT ALL ON SCHEMA penstock TO {OTHER_USER}; UPDATE things SET n = 2 WHERE id = 2")
    assert read_of(cycle_of(reader, given))[2] == 1
    assert read_of(cycle_of(reader, given)) == ("outer_join", 0, 0)


@pytest.mark.parametrize(
    "edit",
    [
        "TRUNCATE {0}",
        "DROP TABLE {0}",
        "UPDATE {0} SET n = 0 WHERE id = 2",
        "UPDATE {0} SET t = 'A' WHERE id = 3",
        "DELETE FROM {0} WHERE id = 1",
        "INSERT INTO {0} (id) VALUES (1000)",
        "ALTER TABLE {0} DROP COLUMN n, ADD COLUMN n numeric DEFAULT 0",
        "ALTER TABLE {0} DROP CONSTRAINT {1}",
    ],
)
def test_an_owner_who_meddles_after_the_snapshot_hides_nothing(database: Database, tmp_path: Path, edit: str) -> None:
    """Committed after the snapshot of the cycle was taken, and before the transaction of the join began."""
    given = given_in(tmp_path, {THINGS: Follow(None, ALL)})
    filled(database)
    with closing(Meddled(reader_of(database))) as meddled:
        copy = Copy(given.folder)
        with run_cycle(meddled, given) as (snapshot, number):
            copy.fill(held_by(meddled, snapshot, {THINGS: FOLLOWED[THINGS]}), number)
        [name] = copies_on(database)
        database.execute("DELETE FROM things WHERE id = 1; UPDATE things SET n = 0 WHERE id = 2")
        meddled.before = once(lambda: database.execute(edit.format(f"penstock.{name}", f"{name}_pkey")))
        found = cycle_of(meddled, given)["things"]
        # The source refuses to write what others wrote after the snapshot.
        assert found.fault == "source_timeout" or (found.fault, found.updated, found.deleted) == (None, 1, 1)
        database.execute("UPDATE things SET t = 'A' WHERE id = 3")
        for _ in range(2):
            with run_cycle(meddled, given) as (snapshot, number):
                expected = held_by(meddled, snapshot.partition("\n")[0], {THINGS: FOLLOWED[THINGS]})
            copy.follow()
        assert (copy.rows, copy.last) == (expected, number)
        assert read_of(cycle_of(meddled, given)) == ("outer_join", 0, 0)
