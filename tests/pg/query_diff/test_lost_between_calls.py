"""PostgreSQL: whatever is lost between two calls of a cycle, other tables are read, nothing wrong is found, and the next one finds all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.splits import ReadRules
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff.database import DECLARED, Method
from tests.fixtures.cut_reads import make_steps_small
from tests.fixtures.lossy_cycles import (
    IN_PARTS,
    ONE_SNAPSHOT,
    ImpossibleError,
    Loss,
    LossyCycles,
    followed,
    hurry,
    interrupted,
)
from tests.fixtures.postgres import Database, standing_database
from tests.pg.query_diff.meddled import READER, end_sessions, reader_of

pytestmark = pytest.mark.pg

_KEPT = "WITH (autovacuum_enabled = false)"
_TABLES = f"""
DROP TABLE IF EXISTS goods, away, orders;
CREATE TABLE goods (id bigint PRIMARY KEY, v text, n numeric DEFAULT 0) {_KEPT};
CREATE TABLE orders (id int PRIMARY KEY, v text) {_KEPT};
INSERT INTO goods SELECT 2 * i, 'n', i / 2.0 FROM generate_series(1, 30) AS i;
INSERT INTO orders SELECT i, 'n' FROM generate_series(1, 12) AS i;
ANALYZE goods, orders;
"""
_STATEMENTS = {
    "rights": (f"REVOKE SELECT ON goods FROM {READER}", f"GRANT SELECT ON goods TO {READER}"),
    "index": ("ALTER TABLE goods DROP CONSTRAINT goods_pkey", "ALTER TABLE goods ADD PRIMARY KEY (id)"),
    "renamed": ("ALTER TABLE goods RENAME TO away", "ALTER TABLE away RENAME TO goods"),
    "column": ("ALTER TABLE goods RENAME n TO m", "ALTER TABLE goods RENAME m TO n"),
    "added": ("ALTER TABLE goods ADD COLUMN more int DEFAULT 7", "ALTER TABLE goods DROP COLUMN more"),
    "type": ("ALTER TABLE goods ALTER n TYPE text", "ALTER TABLE goods ALTER n TYPE numeric USING n::numeric"),
    "truncated": ("TRUNCATE goods", "INSERT INTO goods VALUES (1, 'back')"),
}
_GONE = frozenset({FaultKind.TABLE_MISSING, FaultKind.TABLE_STRUCTURE_CHANGED, FaultKind.SOURCE_PRIVILEGE})
_FAILURES = {
    "unreachable": (FaultKind.SOURCE_UNREACHABLE, FaultKind.COPY_LOST),
    "ended": (FaultKind.SOURCE_TIMEOUT,),
}
"""Faults of a statement, and those that the cycle may have then."""
_OF_ALL = 1 + len(_FAILURES)
LOSSES = ("connection", *_FAILURES, *_STATEMENTS)
"""The first ones are of the whole source."""


@pytest.fixture(scope="module")
def database(pg18: Any) -> Iterator[Database]:
    with standing_database(pg18, "lost_between_calls") as made:
        assert isinstance(made, Database)
        yield made


def loss_of(database: Database, name: str) -> Loss:
    if name == "connection":
        lost = frozenset({FaultKind.SOURCE_UNREACHABLE, FaultKind.COPY_LOST})
        return Loss(lambda: end_sessions(database), faults=lost, is_of_all=True)
    if name in _FAILURES:

        def fail() -> None:
            raise EngineFault(_FAILURES[name][0], "shop", "the statement failed")

        return Loss(fail, faults=frozenset(_FAILURES[name]), is_of_all=True)
    begin, repair = _STATEMENTS[name]

    def act() -> None:
        try:
            database.execute(f"SET lock_timeout = 1; {begin}")
        except psycopg.errors.LockNotAvailable as error:
            raise ImpossibleError from error

    return Loss(act, lambda: database.execute(f"{repair}; ANALYZE goods"), _GONE)


@pytest.fixture
def lossy(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[Method], LossyCycles]]:
    hurry(monkeypatch)
    make_steps_small(monkeypatch)
    database.execute(_TABLES)
    rng = random.Random(5)

    def change() -> None:
        number, key = rng.randint(0, 10), rng.randint(1, 60)
        database.execute(
            f"UPDATE goods SET n = n + 0.25 WHERE id % 7 < 3; DELETE FROM goods WHERE id % 11 = {number};"
            f" INSERT INTO goods (id, v) VALUES ({key}, 'new') ON CONFLICT DO NOTHING; UPDATE orders SET v = '{number}' || id"
        )

    everything = ConnectionSpec("shop", "postgres", database.settings)
    with (
        closing(
            PostgresDatabase(Connector(reader_of(database)), Compared(in_steps=True), ReadRules(sessions=2))
        ) as read,
        closing(PostgresDatabase(Connector(everything))) as observer,
    ):

        def begin(method: Method) -> LossyCycles:
            cycles = LossyCycles(tmp_path / "reader", followed("public"), method, observer, change)
            cycles.database = interrupted(read, cycles.before_statement)
            cycles.begin()
            return cycles

        yield begin


def _cases() -> Iterator[Any]:
    """Each loss runs always with one method and one kind of cycle; lost connections, and statements that fail, with each method."""
    for place, loss in enumerate(LOSSES):
        for at, method in enumerate(DECLARED):
            for parts in (False, True):
                parted = loss != "ended"
                always = parts is parted if place < _OF_ALL else (at, parts) == (place % len(DECLARED), place % 2 == 0)
                marks = [] if always else [pytest.mark.chaos]
                yield pytest.param(
                    loss, method, parts, marks=marks, id=f"{loss}-{method}-{'parts' if parts else 'one'}"
                )


@pytest.mark.parametrize(("loss", "method", "parts"), list(_cases()))
def test_what_is_lost_between_two_calls_stops_no_other_table_and_is_found_afterwards(
    database: Database,
    lossy: Callable[[Method], LossyCycles],
    request: pytest.FixtureRequest,
    loss: str,
    method: Method,
    parts: bool,
) -> None:
    cycles = lossy(method)
    step = 1 if loss in _FAILURES or request.node.get_closest_marker("chaos") else 3
    happened = cycles.assert_found_wherever(
        loss_of(database, loss), IN_PARTS if parts else ONE_SNAPSHOT, first=1 + LOSSES.index(loss) % step, step=step
    )
    assert happened >= 4 // step
