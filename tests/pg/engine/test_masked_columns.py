"""Masked columns: copy and log give the same bytes, and no file of the engine holds a value."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.model.fault import FaultKind
from engine.model.masks import MASK_KEY, HashType, Mask, MaskMethod
from engine.model.subscription import TableSpec
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.pg.engine.test_selected_columns import files_with

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

KEY = "0123456789abcdef-of-tests"
SECRET = "hunter2-swordfish"
HASH, BYTES = Mask(MaskMethod.HASH), Mask(MaskMethod.HASH, type=HashType.BYTEA)
NOTHING, STARS = Mask(MaskMethod.NULL), Mask(MaskMethod.CONSTANT, "*\t\\*\n*")
SHOP = """
CREATE TABLE users (id int PRIMARY KEY, ssn text, mail text, born date NOT NULL, note text, level numeric(10, 2), tags text[],
                    loud text GENERATED ALWAYS AS (upper(ssn)) STORED, twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE keyed (ssn text PRIMARY KEY, n int);
CREATE TABLE bag (ssn text, word text, n int);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE plain (id int PRIMARY KEY, ssn text);
"""
USERS = {"ssn": HASH, "mail": STARS, "born": NOTHING, "note": BYTES, "level": HASH, "tags": HASH}
TABLES = (
    table("users", mask=USERS, exclude_columns=("loud",)),
    table("keyed", mask={"ssn": HASH}),
    table("bag", mask={"ssn": BYTES, "word": STARS}),
    table("plain"),
)
VALUES = (
    f"('{SECRET}', 'm{SECRET}'), (NULL, NULL), ('', ''), (E'tab\\there\\\\back\\nline\\r\\b\\f\\v', 'x'),"
    " (E'\\\\N', 'y'), ('ünï€😀', 'z')"
)
FILL = f"""
INSERT INTO users SELECT base + row_number() OVER (), v, w, date '2001-01-01', (SELECT string_agg(md5(i::text || v), '{SECRET}')
    FROM generate_series(1, 400) i), 1.50, ARRAY[v, '{SECRET}'] FROM (VALUES {VALUES}) AS t(v, w), (SELECT %s AS base) AS b;
INSERT INTO keyed SELECT v || %s, 1 FROM (VALUES {VALUES}) AS t(v, w) WHERE v IS NOT NULL;
INSERT INTO bag SELECT v, w, %s % 7 FROM (VALUES {VALUES}) AS t(v, w), generate_series(1, 3);
"""


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    database.execute(FILL.replace("%s", "100"))
    return database


def with_key(
    replicate: Replicate, database: Database, tables: list[TableSpec], key: str = KEY, **more: object
) -> Replica:
    return replicate(database, tables, secrets={MASK_KEY: key}, **more)


def hashed(value: str) -> str:
    return hmac.new(KEY.encode(), value.encode(), hashlib.sha256).hexdigest()


@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"], indirect=True)
def test_copy_and_log_mask_alike_and_no_file_holds_a_value(
    shop: Database, replicate: Replicate, tmp_path: Path
) -> None:
    replica = with_key(replicate, shop, list(TABLES))
    shop.execute(FILL.replace("%s", "200"))
    shop.execute("UPDATE users SET level = 2 WHERE id % 2 = 0; UPDATE users SET id = id + 1000 WHERE id % 3 = 0")
    shop.execute(f"UPDATE keyed SET n = n + 1; UPDATE keyed SET ssn = '{SECRET}' || ssn WHERE ssn LIKE 'h%'")
    shop.execute(
        "DELETE FROM keyed WHERE ssn LIKE 'tab%'; DELETE FROM bag WHERE ssn IS NULL; UPDATE bag SET n = 9 WHERE n = 2"
    )
    shop.execute(f"UPDATE bag SET ssn = 'other{SECRET}' WHERE ssn = ''; INSERT INTO plain VALUES (1, 'clear')")
    replica.assert_equal()
    hashes = dict(replica.query("SELECT id, ssn FROM users WHERE id IN (101, 1201, 202)"))
    assert hashes == {101: hashed(SECRET), 1201: hashed(SECRET), 202: None}
    assert replica.query("SELECT DISTINCT mail, born FROM users WHERE mail IS NOT NULL") == [(STARS.value, None)]
    levels = {level for (level,) in replica.query("SELECT DISTINCT level FROM users")}
    assert levels == {hashed("1.50"), hashed("2.00")}
    assert len(replica.query("SELECT DISTINCT u.ssn FROM users u JOIN users o ON u.ssn = o.ssn AND u.id < o.id")) > 3
    columns = replica.query("SELECT column_name FROM information_schema.columns WHERE table_name = 'users' ORDER BY 1")
    assert [name for (name,) in columns] == ["born", "id", "level", "mail", "note", "ssn", "tags", "twice"]
    assert files_with(tmp_path, SECRET) == []
    assert files_with(tmp_path, KEY) == []
    assert replica.query("SELECT ssn FROM plain") == [("clear",)]


def test_a_mask_that_is_set_or_changed_or_has_another_key_means_a_new_copy(
    shop: Database, replicate: Replicate
) -> None:
    keyed, plain = table("keyed"), table("plain")
    replica = with_key(replicate, shop, [keyed, plain])
    replica.replace(replace(keyed, mask={"ssn": HASH}), plain)
    shop.execute(f"INSERT INTO keyed VALUES ('later{SECRET}', 5)")
    count = "SELECT count(*) FROM keyed WHERE length(ssn) <> 64"
    replica.reports.wait(lambda _: replica.query(count) == [(0,)] or None, "the keys are hashed")
    replica.wait_live()
    replica.assert_equal()
    assert replica.query(f"SELECT n FROM keyed WHERE ssn = '{hashed('later' + SECRET)}'") == [(5,)]
    replica.spec = replace(replica.spec, source=replace(replica.spec.source, secrets={MASK_KEY: KEY + "2"}))
    replica.restart()
    old = f"SELECT count(*) FROM keyed WHERE ssn = '{hashed('later' + SECRET)}'"
    replica.reports.wait(
        lambda _: (replica.pipeline.target is not None and replica.query(old) == [(0,)]) or None, "rehashed"
    )
    replica.wait_live()
    replica.assert_equal()


@pytest.mark.parametrize(
    ("mask", "key", "words"),
    [
        ({"ssn": STARS}, KEY, "key columns can only be masked by a hash: ssn"),
        ({"ssn": NOTHING}, KEY, "key columns can only be masked by a hash: ssn"),
        ({"ssn": HASH}, "short", "hashes need the secret mask_key"),
        ({"sssn": HASH}, KEY, "does not have: sssn"),
    ],
)
def test_a_mask_that_is_impossible_parks_its_table_alone(
    shop: Database, replicate: Replicate, mask: dict[str, Mask], key: str, words: str, tmp_path: Path
) -> None:
    replica = with_key(replicate, shop, [table("keyed", mask=mask), table("plain")], key, live=False)
    parked = replica.wait_table("keyed", "parked")
    assert parked.code == FaultKind.TABLE_COLUMNS_UNFIT.value
    assert words in (parked.reason or "")
    replica.wait_live("plain")
    if mask == {"ssn": HASH}:
        shop.execute(f"INSERT INTO keyed VALUES ('x{SECRET}', 1); INSERT INTO plain VALUES (7, 'a')")
        replica.catch_up()
        assert files_with(tmp_path, SECRET) == []


def test_a_masked_column_that_is_renamed_is_not_replicated_unmasked(
    shop: Database, replicate: Replicate, tmp_path: Path
) -> None:
    replica = with_key(replicate, shop, [table("bag", mask={"ssn": HASH, "word": NOTHING}), table("plain")])
    shop.execute(f"ALTER TABLE bag RENAME ssn TO social; INSERT INTO bag VALUES ('new{SECRET}', 'w', 1)")
    shop.execute("INSERT INTO plain VALUES (2, 'b')")
    assert replica.wait_table("bag", "parked").code == FaultKind.TABLE_COLUMNS_UNFIT.value
    replica.catch_up()
    assert files_with(tmp_path, SECRET) == []


def test_a_masked_table_that_is_added_while_others_are_replicated(
    shop: Database, replicate: Replicate, tmp_path: Path
) -> None:
    plain = table("plain")
    replica = with_key(replicate, shop, [plain])
    shop.execute(f"INSERT INTO keyed VALUES ('before{SECRET}', 1)")
    replica.replace(plain, TABLES[1])
    shop.execute(f"INSERT INTO keyed VALUES ('after{SECRET}', 2); INSERT INTO plain VALUES (3, 'clear')")
    replica.wait_live("keyed")
    shop.execute(
        f"UPDATE keyed SET ssn = ssn || '{SECRET}' WHERE n = 2; CREATE TABLE more (id int PRIMARY KEY, v text)"
    )
    more = table("more")
    replica.replace(plain, TABLES[1], more)
    shop.execute("INSERT INTO more VALUES (1, 'clear')")
    replica.wait_live("more", "keyed")
    shop.execute("UPDATE more SET v = 'still clear'")
    replica.assert_equal()
    assert replica.query("SELECT v FROM more") == [("still clear",)]
    assert files_with(tmp_path, SECRET) == []
    shop.execute(
        f"DROP TABLE keyed; CREATE TABLE keyed (ssn text PRIMARY KEY, n int); INSERT INTO keyed VALUES ('{SECRET}', 9)"
    )
    replica.reports.wait(
        lambda _: replica.query("SELECT n FROM keyed") == [(9,)] or None, "the table that was made again"
    )
    replica.wait_live()
    shop.execute(f"INSERT INTO keyed VALUES ('again{SECRET}', 10)")
    replica.assert_equal()
    assert files_with(tmp_path, SECRET) == []
