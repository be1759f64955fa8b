"""Open transactions whose changes are sent before their commit: masked as they arrive, also if their structures are rolled back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.pg.engine.test_masked_columns import HASH, SECRET, hashed, with_key
from tests.pg.engine.test_selected_columns import files_with

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]


def test_large_open_transactions_are_masked_as_they_are_sent(
    pg18: EmbeddedPostgres,
    database_on: Callable[..., Database],
    replicate: Replicate,
    tmp_path: Path,
) -> None:
    shop = database_on(pg18, logical_decoding_work_mem="'64kB'")
    shop.execute(
        "CREATE TABLE users (id int PRIMARY KEY, ssn text, gone text); CREATE TABLE plain (id int PRIMARY KEY)"
    )
    users = table("users", mask={"ssn": HASH}, exclude_columns=("gone*",))
    replica = with_key(replicate, shop, [users, table("plain")])
    rows = "SELECT i, '{0}' || i, '{0}' FROM generate_series({1}, {2}) i"
    with shop.connect() as connection:
        connection.execute("BEGIN; INSERT INTO users " + rows.format(SECRET, 1, 4000))
        shop.execute("INSERT INTO users " + rows.format(SECRET, 9001, 9003))
        connection.execute(
            "SAVEPOINT s; ALTER TABLE users ADD COLUMN note text; UPDATE users SET note = 'x' WHERE id < 3000"
        )
        connection.execute("ROLLBACK TO s; ALTER TABLE users ADD COLUMN gone_too text, ADD COLUMN more int")
        connection.execute(f"UPDATE users SET gone_too = '{SECRET}', more = id, ssn = ssn || '!' WHERE id < 3000")
        connection.execute("COMMIT")
    shop.execute(
        f"INSERT INTO users VALUES (9999, '{SECRET}', '{SECRET}', '{SECRET}', 1); INSERT INTO plain VALUES (1)"
    )
    replica.assert_equal()
    assert replica.query("SELECT count(*), count(more), count(DISTINCT ssn) FROM users") == [(4004, 3000, 4004)]
    assert replica.query("SELECT ssn FROM users WHERE id = 7") == [(hashed(f"{SECRET}7!"),)]
    assert files_with(tmp_path, SECRET) == []
