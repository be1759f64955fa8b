"""Verifications of samples of copies of MariaDB: ranges along the key, chosen by the server's estimates."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing

import pytest

from engine.connectors import open_source
from engine.link.verifications import VerifiedTable
from engine.model.identity import TableName
from engine.model.ranges import KeyInterval, KeySample
from engine.model.schema import TableSchema
from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.model.verification import VerificationMethod
from engine.sources.mariadb.catalog import load_named
from engine.sources.mariadb.key_sample import sample_key
from engine.targets.duckdb import range_rows
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import Replica, table
from tests.pg.engine.repairing import plant, repaired
from tests.pg.mariadb_checksums.compared import drawn_text, listed

pytestmark = pytest.mark.pg

Start = Callable[..., Replica]

NOPAD = "varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
TABLES = {
    "even": ("id int PRIMARY KEY, v int", "SELECT 3 * CAST(seq AS SIGNED) - 9000, seq FROM seq_1_to_12000"),
    "holes": ("id bigint PRIMARY KEY, v int", "SELECT IF(seq < 3000, seq, seq * 1000000000), seq FROM seq_1_to_6000"),
    "pairs": (
        f"a {NOPAD}, b datetime(3), c decimal(9, 2), v int, PRIMARY KEY (a, b, c)",
        "SELECT CONCAT('tenant ', seq MOD 5), '2024-01-01' + INTERVAL seq DIV 7 SECOND, seq / 4, seq FROM seq_1_to_6000",
    ),
    "digests": ("id binary(16) PRIMARY KEY, v int", "SELECT UNHEX(MD5(seq)), seq FROM seq_1_to_6000"),
    "words": (f"id {NOPAD} PRIMARY KEY, v int", "SELECT CONCAT(MD5(seq), '😀'), seq FROM seq_1_to_6000"),
    "days": (
        "d date, n int unsigned, v int, PRIMARY KEY (d, n)",
        "SELECT '1999-12-31' + INTERVAL seq DIV 9 DAY, seq, seq FROM seq_1_to_6000",
    ),
    "tenants": (
        "a int, b varchar(30), v int, PRIMARY KEY (a, b)",
        "SELECT seq DIV 10, CONCAT('Name ', seq), seq FROM seq_1_to_6000",
    ),
    "few": ("id int PRIMARY KEY, v int", "SELECT seq, seq FROM seq_1_to_1"),
    "folded": ("id varchar(30) PRIMARY KEY, v int", "SELECT CONCAT('n', seq), seq FROM seq_1_to_2000"),
}
SHARE = 0.1


@pytest.fixture
def filled(mariadb: MariaDbDatabase) -> MariaDbDatabase:
    for name, (columns, rows) in TABLES.items():
        mariadb.execute(f"CREATE TABLE {name} ({columns})")
        mariadb.execute(f"INSERT INTO {name} {rows}")
        mariadb.execute(f"ANALYZE TABLE {name}")
    return mariadb


def bounds(sample: KeySample) -> list[KeyInterval]:
    return [each.keys for part in sample.parts for each in part.ranges]


def assert_sampled(found: VerifiedTable, method: VerificationMethod, rows: int, *, leading: bool) -> None:
    assert (found.equal, found.sample, found.whole_because) == (True, SHARE, None)
    because = "a sample by the first columns of the key" if leading and method == VerificationMethod.CHECKSUM else None
    assert found.by_rows_because == because
    assert found.source_rows == found.target_rows == pytest.approx(rows * SHARE, rel=0.5)


def test_a_sample_finds_what_its_ranges_hold(
    filled: MariaDbDatabase, start: Start, target_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_rows, "_SCATTERED", 1000)  # The tables are large for it.
    replica = start(*TABLES)
    counts = {"even": 12_000} | dict.fromkeys(("holes", "pairs", "digests", "words", "days", "tenants"), 6000)
    whole = {"few": "few rows", "folded": "a table whose key cannot be walked"}
    if target_kind == "postgres":
        another = "a key of text, which the target may sort in another way"
        whole |= dict.fromkeys(("pairs", "words"), another)
    for method in VerificationMethod:
        found = repaired(replica, apply=False, method=method, sample=SHARE)
        for name, rows in counts.items():
            if name not in whole:
                assert_sampled(found[name], method, rows, leading=name == "tenants")
        assert {n: (found[n].equal, found[n].sample, found[n].whole_because) for n in whole} == {
            n: (True, 1.0, because) for n, because in whole.items()
        }
    name = f"{filled.name}.even"
    plant(
        replica, [f"DELETE FROM {name} WHERE v IN (1, 12000)", f"INSERT INTO {name} VALUES (100000, 0), (-100000, 0)"]
    )
    plant(replica, [f"UPDATE {name} SET v = 0 WHERE v BETWEEN 3000 AND 9000"])
    by_rows = repaired(replica, apply=False, sample=SHARE)["even"]
    found = repaired(replica, method=VerificationMethod.CHECKSUM, sample=SHARE)
    one = found["even"]
    # A verification with the same id chooses the same ranges, and compares them again after the repair.
    assert (by_rows.equal, one.equal, one.sample) == (False, True, SHARE)
    assert by_rows.would_repair == one.repaired is not None
    assert (one.repaired.inserted, one.repaired.deleted) == (2, 2)
    assert 200 < one.repaired.updated < 1500
    assert len(listed(by_rows)) == 100
    assert replica.look(f"SELECT count(*) FROM {name} WHERE v = 0") == [(6001 - one.repaired.updated,)]


def chosen(database: MariaDbDatabase, schema: TableSchema, share: float, seed: str) -> KeySample:
    name = TableName(database.name, schema.name.name)
    with database.connect() as connection:
        sample = sample_key(connection, load_named(connection, [name])[name], schema, share, seed)
    assert sample is not None
    return sample


def test_ranges_are_of_about_the_share_and_do_not_meet(filled: MariaDbDatabase) -> None:
    chance = random.Random(5)
    filled.execute(f"CREATE TABLE drawn (id {NOPAD} PRIMARY KEY, v int)")
    texts = {drawn_text(chance) for _ in range(4000)}
    with filled.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO drawn VALUES (%s, %s)", [(text, len(text)) for text in texts])
    counts = {"even": 12_000, "holes": 6000, "pairs": 6000, "digests": 6000, "words": 6000, "drawn": len(texts)}
    source = open_source(
        ConnectionSpec("shop", "mariadb", filled.settings, filled.secrets, capture=CaptureSpec("query_diff"))
    )
    with closing(source):
        schemas = source.describe([table(name, filled.name) for name in counts])
    assert len(schemas) == len(counts)
    for schema in schemas.values():
        for share in (0.05, 0.5):
            first, again, other = (chosen(filled, schema, share, seed) for seed in ("v1", "v1", "v2"))
            assert bounds(first) == bounds(again) != bounds(other)
            keys = bounds(first)
            assert (keys[0].after, keys[-1].upto) == (None, None)
            assert len(keys) > 5
            lines = [line for part in first.parts for line in filled.execute(part.split.sql)]
            assert len(lines) == len(set(lines)) == pytest.approx(counts[schema.name.name] * share, rel=0.4)
