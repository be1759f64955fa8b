"""A random history of tables with renamed, masked, left-out columns and row filters, compared with what the source's rows say."""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Callable

import pytest

from engine.connectors import open_source
from engine.model.masks import MASK_KEY, Mask, MaskMethod
from engine.model.subscription import ConnectionSpec
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

KEY = "a key of 16 characters or more"
HASH = Mask(MaskMethod.HASH)
SHOP = """
CREATE TABLE full_ (id int PRIMARY KEY, region text, secret text, gone text, big text, n int);
ALTER TABLE full_ REPLICA IDENTITY FULL;
CREATE TABLE bag (region text, secret text, gone text, big text, n int);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE keyed (id int, secret text PRIMARY KEY, gone text, big text, n int);
"""
OPTIONS = {
    "exclude_columns": ("gone*",),
    "mask": {"secret": HASH},
    "rename": {"secret": "digest", "n": "big", "big": "n"},
}
TABLES = (
    table("full_", where="region = 'eu' or n > 40", **OPTIONS),
    table("bag", where="region <> 'us'", **OPTIONS),
    table("keyed", **OPTIONS),
)
ROWS = {
    "full_": (
        "SELECT id, secret, n, big FROM full_ WHERE region = 'eu' OR n > 40",
        "SELECT id, digest, big, n FROM full_",
    ),
    "bag": ("SELECT 0, secret, n, big FROM bag WHERE region <> 'us'", "SELECT 0, digest, big, n FROM bag"),
    "keyed": ("SELECT id, secret, n, big FROM keyed", "SELECT id, digest, big, n FROM keyed"),
}
SEEDS = [11, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(12, 18))]


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def masked(row: tuple[object, ...]) -> tuple[object, ...]:
    secret = row[1]
    digest = None if secret is None else hmac.new(KEY.encode(), str(secret).encode(), hashlib.sha256).hexdigest()
    return (row[0], digest, *row[2:])


class History:
    """Random statements. `big` is often too large to be in its row, and often unchanged."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.columns = 0
        self.keys = 0

    def value(self, name: str) -> str:
        pick = self.random
        if name == "region":
            return pick.choice(["'eu'", "'us'", "NULL"])
        if name == "n":
            return str(pick.randrange(60))
        if name == "big":
            made = f"(SELECT string_agg(md5((i * {pick.randrange(9)})::text), '') FROM generate_series(1, 300) i)"
            return pick.choice([made, "'small'", "NULL"])
        self.keys += 1
        return pick.choice(["NULL", "''", "E'\\t\\\\'", "'same'"]) if name != "key" else f"'k{self.keys}'"

    def statement(self) -> str:
        pick, name = self.random, self.random.choice(list(ROWS))
        region = () if name == "keyed" else ("region",)
        if pick.random() < 0.4:
            self.keys += 1
            secret = self.value("key" if name == "keyed" else "secret")
            values = [
                *(self.value(each) for each in region),
                secret,
                self.value("gone"),
                self.value("big"),
                self.value("n"),
            ]
            ids = () if name == "bag" else ("id",)
            columns = ", ".join((*ids, *region, "secret", "gone", "big", "n"))
            return f"INSERT INTO {name} ({columns}) VALUES ({', '.join([*(str(self.keys) for _ in ids), *values])})"
        condition = f"n % 7 = {pick.randrange(7)}"
        if pick.random() < 0.2:
            return f"DELETE FROM {name} WHERE {condition}"
        changed = pick.choice([*region, "gone", "big", "n", "secret"])
        if changed == "secret" and name == "keyed":
            return f"UPDATE {name} SET secret = secret || 'x' WHERE {condition}"
        return f"UPDATE {name} SET {changed} = {self.value(changed)} WHERE {condition}"

    def change_of_structure(self) -> str:
        self.columns += 1
        name = self.random.choice(list(ROWS))
        kind = self.random.choice(["gone", "more"])
        return f"ALTER TABLE {name} ADD COLUMN {kind}_{self.columns} int DEFAULT {self.columns}"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_history(database: Database, replicate: Callable[..., Replica], seed: int) -> None:
    """On every second source with a DDL capture."""
    database.execute(SHOP)
    history = History(seed)
    for _ in range(60):
        database.execute(history.statement())
    if seed % 2 == 0:
        source = open_source(ConnectionSpec("shop", "postgres", database.settings))
        source.ddl.install()
        source.close()
    replica = replicate(database, list(TABLES), secrets={MASK_KEY: KEY})
    for turn in range(4):
        for _ in range(40):
            statements = [history.statement() for _ in range(history.random.randrange(1, 4))]
            end = history.random.choice(["COMMIT", "COMMIT", "ROLLBACK"])
            database.execute(f"BEGIN; {'; '.join(statements)}; {end}")
        database.execute(history.change_of_structure())
        if turn == 2:
            replica.restart()
            replica.wait_state("running")
            replica.wait_live()
        replica.assert_equal()
        for on_source, on_target in ROWS.values():
            expected = sorted((masked(tuple(row)) for row in database.execute(on_source)), key=repr)
            assert sorted(replica.query(on_target), key=repr) == expected
