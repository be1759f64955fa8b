"""A wait for "now" has what only the source's catalog tells: no answer shows rows as they were before a change that was committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

NEVER_S = 600.0
"""The guard looks by itself when a run begins, and not again in a test."""
TABLES = """
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE TABLE t (id int PRIMARY KEY, v int, m mood, note text);
INSERT INTO t SELECT i, i, 'good', 'n' FROM generate_series(1, 20) i;
CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20);
CREATE TABLE spare (id int PRIMARY KEY, v int);
INSERT INTO spare VALUES (25, 1);
INSERT INTO parts SELECT i, i FROM generate_series(0, 19) i;
CREATE TABLE calm (id int PRIMARY KEY, v int);
INSERT INTO calm VALUES (1, 1);
"""
CHANGES = {
    "truncated leaf": ["TRUNCATE parts_1"],
    "detached": ["ALTER TABLE parts DETACH PARTITION parts_2"],
    "attached": ["ALTER TABLE parts ATTACH PARTITION spare FOR VALUES FROM (20) TO (30)"],
    "dropped leaf": ["DROP TABLE parts_1"],
    "away and back": [
        "ALTER TABLE parts DETACH PARTITION parts_1",
        "DELETE FROM parts_1 WHERE id = 5",
        "ALTER TABLE parts ATTACH PARTITION parts_1 FOR VALUES FROM (0) TO (10)",
    ],
    "came and went": [
        "CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (30) TO (40)",
        "INSERT INTO parts VALUES (31, 1)",
        "DROP TABLE parts_3",
    ],
    "made again": [
        "DROP TABLE t",
        "CREATE TABLE t (id int PRIMARY KEY, v int, m mood, note text)",
        "INSERT INTO t VALUES (1, 7, 'bad', 'again')",
    ],
    "type using": ["ALTER TABLE t ALTER v TYPE bigint USING v * 10"],
    "same type using": ["ALTER TABLE t ALTER v TYPE int USING v + 1"],
    "label": ["ALTER TYPE mood RENAME VALUE 'good' TO 'fine'"],
    "default": ["ALTER TABLE t ADD COLUMN more int DEFAULT 7"],
    "volatile default": ["ALTER TABLE t ADD COLUMN made uuid DEFAULT gen_random_uuid()"],
    "dropped column": ["ALTER TABLE t DROP COLUMN note"],
    "renamed column": ["ALTER TABLE t RENAME COLUMN note TO remark"],
    "generated": ["ALTER TABLE t ADD COLUMN doubled int GENERATED ALWAYS AS (v * 2) STORED"],
    "unlogged for a while": [
        "ALTER TABLE parts_1 SET UNLOGGED",
        "UPDATE parts SET v = -v WHERE id < 10",
        "ALTER TABLE parts_1 SET LOGGED",
    ],
    "truncated": ["TRUNCATE parts", "INSERT INTO parts VALUES (3, 3)"],
    "nothing": ["INSERT INTO calm VALUES (2, 2)"],
}
FOLLOWED = ("t", "parts", "calm")


def compared(database: Database, replica: Replica, name: str) -> None:
    columns = [
        row[0]
        for row in database.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [name],
        )
    ]
    select = f"SELECT {', '.join(f'CAST({c} AS text)' for c in columns)} FROM {name}"
    assert sorted(replica.query(select)) == sorted(tuple(row) for row in database.execute(select))


@pytest.mark.parametrize("change", CHANGES)
def test_an_answer_has_what_was_committed(database: Database, replicate: Callable[..., Replica], change: str) -> None:
    database.execute(TABLES)
    replica = replicate(database, [table(name) for name in FOLLOWED], guard_interval_s=NEVER_S)
    replica.satisfied()
    with database.connect() as connection:
        for statement in CHANGES[change]:
            connection.execute(statement)
    replica.satisfied()
    for name in FOLLOWED:
        compared(database, replica, name)


def test_a_table_that_waits_for_its_copy_may_go_and_holds_up_no_wait(
    database: Database, replicate: Callable[..., Replica]
) -> None:
    """It is paused, so that its copy does not begin: what was dropped meanwhile is found when it does."""
    database.execute(TABLES)
    replica = replicate(database, [table("t"), table("calm")], guard_interval_s=NEVER_S)
    replica.satisfied()
    t, calm = replica.spec.tables
    replica.replace(replace(t, paused=True), calm)
    replica.wait_table("t", "paused")
    replica.pipeline.reload("r1", [t.table])
    replica.wait_table("t", "reloading")
    database.execute("DROP TABLE t")
    database.execute("UPDATE calm SET v = 2")
    run = replica.pipeline.run
    assert run is not None
    replica.wait_applied(run.nows.read_now().position)
    compared(database, replica, "calm")
