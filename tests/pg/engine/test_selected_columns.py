"""Columns that are left out: they never leave the log reader, whatever happens to them on the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.model.fault import FaultKind
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SECRET = "hunter2-swordfish"
SHOP = f"""
CREATE TABLE users (id int PRIMARY KEY, password_hash text, name text, password text DEFAULT '{SECRET}', note text,
                    upper_name text GENERATED ALWAYS AS (upper(name)) STORED,
                    upper_secret text GENERATED ALWAYS AS (upper(password)) STORED);
CREATE TABLE bag (n int, secret text, name text);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE plain (id int PRIMARY KEY, password text);
INSERT INTO users SELECT i, 'h{SECRET}', 'n' || i, '{SECRET}' || i, repeat('x', 10) FROM generate_series(1, 60) i;
INSERT INTO bag SELECT i % 10, '{SECRET}' || i, 'n' FROM generate_series(1, 60) i;
INSERT INTO plain SELECT i, 'public' FROM generate_series(1, 60) i;
"""
TABLES = (
    table("users", exclude_columns=("password*", "upper_secret")),
    table("bag", include_columns=("n", "name")),
    table("plain"),
)


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def files_with(folder: Path, value: str) -> list[str]:
    """The files below `folder` that hold the value."""
    return [str(p) for p in folder.rglob("*") if p.is_file() and value.encode() in p.read_bytes()]


def columns(replica: Replica, name: str) -> list[str]:
    found = replica.query(f"SELECT column_name FROM information_schema.columns WHERE table_name = '{name}'")
    return sorted(column for (column,) in found)


@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"], indirect=True)
def test_columns_that_are_left_out_are_in_no_file_and_the_others_are_followed(
    shop: Database, replicate: Replicate, tmp_path: Path
) -> None:
    replica = replicate(shop, list(TABLES))
    shop.execute(f"UPDATE users SET password = '{SECRET}', note = repeat('y', 5) WHERE id < 20")
    shop.execute(
        "UPDATE users SET note = (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i) WHERE id = 3"
    )
    shop.execute("UPDATE users SET id = id + 1000, name = 'moved' WHERE id < 5; DELETE FROM users WHERE id = 50")
    shop.execute(f"UPDATE bag SET secret = 'other {SECRET}' WHERE n = 1; UPDATE bag SET name = 'm' WHERE n = 2")
    shop.execute(f"DELETE FROM bag WHERE n = 3; INSERT INTO bag VALUES (99, '{SECRET}', NULL); TRUNCATE plain")
    shop.execute("INSERT INTO plain VALUES (1, 'kept')")
    replica.assert_equal()
    assert columns(replica, "users") == ["id", "name", "note", "upper_name"]
    assert columns(replica, "bag") == ["n", "name"]
    assert columns(replica, "plain") == ["id", "password"]
    assert files_with(tmp_path, SECRET) == []
    assert replica.query("SELECT password FROM plain") == [("kept",)]


def test_a_new_column_that_is_left_out_never_arrives(shop: Database, replicate: Replicate, tmp_path: Path) -> None:
    replica = replicate(shop, list(TABLES))
    shop.execute(
        f"ALTER TABLE users ADD COLUMN password_next text DEFAULT 'd{SECRET[1:]}', ADD COLUMN email text DEFAULT 'e'"
    )
    shop.execute(f"INSERT INTO users (id, password_next, email) VALUES (200, '{SECRET}', 'mail')")
    shop.execute("ALTER TABLE bag ADD COLUMN extra int; UPDATE bag SET extra = 7, name = 'p' WHERE n = 4")
    shop.execute("ALTER TABLE users DROP COLUMN password_hash; UPDATE users SET note = 'after' WHERE id < 9")
    replica.assert_equal()
    assert columns(replica, "users") == ["email", "id", "name", "note", "upper_name"]
    assert columns(replica, "bag") == ["n", "name"]
    assert files_with(tmp_path, SECRET) == []


def test_a_selection_that_changes_takes_effect_at_once(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, list(TABLES))
    replica.replace(replace(TABLES[0], exclude_columns=("note",)), *TABLES[1:])
    shop.execute("UPDATE users SET note = 'n', password = 'p' WHERE id < 9")
    replica.wait_state("running")
    replica.wait_live()
    replica.reports.wait(lambda _: "password" in columns(replica, "users") or None, "the columns are there")
    replica.assert_equal()
    assert columns(replica, "users") == ["id", "name", "password", "password_hash", "upper_name", "upper_secret"]
    assert replica.query("SELECT count(*) FROM users WHERE password = 'p'") == [(8,)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"exclude_columns": ("i*",)}, "key columns cannot be left out: id"),
        ({"include_columns": ("name",)}, "key columns cannot be left out: id"),
        ({"exclude_columns": ("passwort",)}, "does not have: passwort"),
    ],
)
def test_a_selection_that_is_impossible_parks_its_table_alone(
    shop: Database, replicate: Replicate, options: dict[str, tuple[str, ...]], words: str
) -> None:
    replica = replicate(shop, [table("users", **options), table("plain")], live=False)
    parked = replica.wait_table("users", "parked")
    assert parked.code == FaultKind.TABLE_COLUMNS_UNFIT.value
    assert words in (parked.reason or "")
    replica.wait_live("plain")


def test_a_column_that_is_named_and_renamed_is_not_replicated_under_its_new_name(
    shop: Database, replicate: Replicate, tmp_path: Path
) -> None:
    users, plain = table("users", exclude_columns=("password", "password_hash", "upper_secret")), table("plain")
    replica = replicate(shop, [users, plain])
    shop.execute("ALTER TABLE users RENAME COLUMN password TO pass")
    shop.execute(f"UPDATE users SET pass = '{SECRET}' WHERE id < 9; UPDATE plain SET password = 'on' WHERE id = 1")
    parked = replica.wait_table("users", "parked")
    assert parked.code == FaultKind.TABLE_COLUMNS_UNFIT.value
    assert "password" in (parked.reason or "")
    replica.catch_up()
    assert files_with(tmp_path, SECRET) == []
    replica.replace(replace(users, exclude_columns=("pass", "password_hash", "upper_secret")), plain)
    replica.wait_state("running")
    replica.pipeline.reload("again", [replica.table_id("users")])
    replica.wait_live("users")
    shop.execute(f"UPDATE users SET pass = 'x{SECRET}', name = 'last' WHERE id < 3")
    replica.assert_equal()
    assert files_with(tmp_path, SECRET) == []
