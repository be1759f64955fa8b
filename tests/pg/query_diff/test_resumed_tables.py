"""A cycle of several snapshots that loses its connection continues after the last step of the table that it was reading."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import psycopg
import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.subscription import CaptureSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.splits import ReadRules
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.postgres_queries.source import open_source
from engine.sources.query_diff import table_walk
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.cycle_files import CycleFound, TableFound
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.table_reading import Conduct
from tests.fixtures.cut_reads import CutReads, Happens, assert_of_its_snapshots, make_steps_small, once_at
from tests.fixtures.postgres import Database, standing_database
from tests.pg.query_diff.meddled import READER, end_sessions, reader_of
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy

pytestmark = pytest.mark.pg

GOODS, ORDERS = TableName("public", "goods"), TableName("public", "orders")
FOLLOWED = {GOODS: Follow(None, ALL), ORDERS: Follow("n IS DISTINCT FROM 3", ALL)}
IN_PARTS = Conduct(snapshot_s=3600.0)
"""A new snapshot only if one is lost."""
METHODS = sorted(table_walk.WALKED)
AS_IT_IS = "WITH (autovacuum_enabled = false)"
"""Otherwise ANALYZE may find in the middle of a cycle that rows do not lie in the order of their key any more."""
_MOST_EVENTS = 400
_EVENTS_OF_A_STEP = 11


@pytest.fixture(scope="module", params=["pg16", "pg18"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with standing_database(request.getfixturevalue(request.param), "resumed_tables") as made:
        assert isinstance(made, Database)
        yield made


@pytest.fixture
def cut(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[CutReads]:
    make_steps_small(monkeypatch)
    database.execute("DROP TABLE IF EXISTS goods, away, orders")
    database.execute(
        f"CREATE TABLE goods (id bigint PRIMARY KEY, v text, n int, at timestamptz DEFAULT now()) {AS_IT_IS}"
    )
    database.execute(f"CREATE TABLE orders (k0 int, shop int, v text, n int, PRIMARY KEY (shop, k0)) {AS_IT_IS}")
    database.execute("INSERT INTO goods SELECT 2 * i, 'n', 0 FROM generate_series(1, 100) AS i")
    database.execute("INSERT INTO orders SELECT i % 9, i / 9, 'n', 0 FROM generate_series(1, 60) AS i")
    database.execute("ANALYZE goods, orders")
    connector, compared = Connector(reader_of(database)), Compared(in_steps=True)
    with closing(PostgresDatabase(connector, compared, ReadRules(sessions=2))) as opened:
        yield CutReads(opened, FOLLOWED)


@pytest.mark.parametrize(("settings", "is_read"), [({}, False), ({"snapshot_seconds": 60}, True)])
def test_the_order_of_keys_is_read_only_where_cycles_may_have_several_snapshots(
    database: Database, cut: CutReads, settings: dict[str, int], is_read: bool
) -> None:
    spec = replace(reader_of(database), capture=CaptureSpec("query_diff", settings))
    with closing(open_source(spec)) as source:
        tables = source._database.tables(dict.fromkeys(cut.followed))
    assert [table.in_key_order for table in tables.values()] == [is_read, is_read]


def given_for(tmp_path: Path, method: Method, cut: CutReads, stamped: bool = False) -> tuple[Given, Copy]:
    """After a first cycle."""
    tables = {"public.goods": TableDetection(method="timestamp", stamp_column="at", sweep_every=1)} if stamped else {}
    given = Given(0, method, 10.0, tmp_path / "reader", "shop", tables)
    given.folder.make()
    given.folder.follow(FOLLOWED)
    copy = Copy(given.folder)
    with run_cycle(cut.compared, given) as (snapshot, number):
        copy.fill(cut.held[snapshot], number)
    return given, copy


def goods_of(found: CycleFound) -> TableFound:
    return next(table for table in found.tables if table.name == "goods")


def change(database: Database, rng: random.Random) -> None:
    """Inserts, updates, deletes, and rows that move to other keys; often back to what they were."""
    key, other, count = rng.randint(-5, 230), rng.randint(-5, 230), rng.randint(0, 30)
    value, number = rng.choice("nm"), rng.choice([0, 3])
    statements = [
        f"UPDATE goods SET v = '{value}', n = {number} WHERE id BETWEEN {key} AND {key + count}",
        f"UPDATE orders SET v = '{value}', n = {number} WHERE shop BETWEEN {key % 9} AND {other % 9}",
        f"DELETE FROM goods WHERE id BETWEEN {key} AND {key + count}",
        f"DELETE FROM orders WHERE shop = {key % 9} AND k0 > {other % 9}",
        f"INSERT INTO goods SELECT i, '{value}', {number} FROM generate_series({key}, {key + count}) AS i ON CONFLICT DO NOTHING",
        f"INSERT INTO goods SELECT i, 'n', 0 FROM generate_series(231, {230 + 3 * count}) AS i ON CONFLICT DO NOTHING",
        f"INSERT INTO orders SELECT {other % 11}, i, '{value}', 0 FROM generate_series(0, 9) AS i ON CONFLICT DO NOTHING",
        f"UPDATE goods SET id = {other} WHERE id = {key}",
        f"UPDATE goods SET id = 1000 - id WHERE id BETWEEN {key} AND {key + count} AND id < 231",
        f"UPDATE goods SET id = 1000 - id WHERE id > {1000 - key}",
        f"UPDATE orders SET shop = {key % 13} WHERE shop = {other % 13}",
    ]
    with database.connect() as connection:
        for _ in range(rng.randint(1, 4)):
            try:
                connection.execute(rng.choice(statements).encode())
            except psycopg.errors.UniqueViolation:
                continue


class Meddler:
    """Changes rows, and ends the sessions of the reader, but not so often that no step ends."""

    def __init__(self, database: Database, rng: random.Random) -> None:
        self._database = database
        self._rng = rng
        self._share = rng.choice([0.03, 0.1, 0.5])
        self._since = _EVENTS_OF_A_STEP

    def __call__(self, table: TableName, snapshot: str) -> None:
        del table, snapshot
        self._since += 1
        if self._rng.random() < 0.2:
            change(self._database, self._rng)
        if self._since > _EVENTS_OF_A_STEP and self._rng.random() < self._share:
            self._since = 0
            end_sessions(self._database)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(2, 40))])
def test_whatever_changes_while_the_connection_is_lost_again_and_again_is_found(
    database: Database, cut: CutReads, tmp_path: Path, method: Method, seed: int
) -> None:
    rng = random.Random(f"{seed}/{method}")
    given, copy = given_for(tmp_path, method, cut, stamped=rng.random() < 0.3)
    resumed = 0
    for _ in range(5):
        for _ in range(rng.randint(0, 3)):
            change(database, rng)
        before = {name: dict(rows) for name, rows in copy.rows.items()}
        found = cut.cycle(given, IN_PARTS, Meddler(database, rng))
        copy.follow()
        for name in FOLLOWED:
            assert_of_its_snapshots(copy, before[name.name], cut, name)
        assert found.snapshot is (len(cut.held) == 1)
        resumed += sum(table.snapshots > 1 for table in found.tables)
        if rng.random() < 0.5:
            cut.cycle(given, rng.choice([IN_PARTS, Conduct()]))
            copy.follow()
            assert [copy.rows] == list(cut.held.values())
    assert resumed


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("apart", [11, pytest.param(1, marks=pytest.mark.chaos)])
def test_no_step_is_read_again_wherever_the_connection_is_lost(
    database: Database, cut: CutReads, tmp_path: Path, method: Method, apart: int
) -> None:
    """Rows are counted, and statements: but for the step that was lost, they are those of a cycle without a fault. `apart`: events between
    the losses of two cycles."""
    given, copy = given_for(tmp_path, method, cut)
    number, losses = 0, -1
    read, hashed, statements = 0, 0, 0
    while number < _MOST_EVENTS:
        database.execute("UPDATE goods SET v = v || '.'")
        found = cut.cycle(given, IN_PARTS, once_at(number, lambda: end_sessions(database)))
        copy.follow()
        assert [copy.rows] == list(cut.held.values())[-1:]
        goods = goods_of(found)
        if not number:
            read, hashed, statements = goods.rows_read, goods.rows_hashed, len(cut.reads_of_cycle)
            assert (goods.updated, goods.snapshots, found.snapshot) == (100, 1, True)
            assert statements > (30 if method is Method.RANGE_CHECKSUM else 7)
        if number > 2 * statements and found.snapshot:
            break
        losses += 1
        # The largest step has 15 rows, whose hashes are read, and then they themselves. It is tried once more for
        # each session that is not known to be lost.
        assert read <= goods.rows_read <= read + 15
        assert hashed <= goods.rows_hashed <= hashed + 15
        assert statements <= len(cut.reads_of_cycle) <= statements + 12
        number += apart
    assert losses > statements // apart


LOSSES = {
    "rights": (
        f"REVOKE SELECT ON goods FROM {READER}",
        f"GRANT SELECT ON goods TO {READER}",
        FaultKind.SOURCE_PRIVILEGE,
    ),
    "index": (
        "ALTER TABLE goods DROP CONSTRAINT goods_pkey",
        "ALTER TABLE goods ADD PRIMARY KEY (id)",
        FaultKind.TABLE_MISSING,
    ),
    "renamed": (
        "ALTER TABLE goods RENAME TO away",
        "ALTER TABLE away RENAME TO goods",
        FaultKind.TABLE_MISSING,
    ),
    "column": ("ALTER TABLE goods RENAME v TO w", "ALTER TABLE goods RENAME w TO v", "compared"),
    "truncated": ("TRUNCATE goods", "INSERT INTO goods VALUES (1, 'back', 0)", "compared"),
}
"""What is done in the middle of a cycle, how it is repaired, and the fault."""


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", METHODS)
def test_what_else_is_lost_in_the_middle_of_a_table_stops_no_other(
    database: Database, cut: CutReads, tmp_path: Path, method: Method, loss: str
) -> None:
    """In the same cycle the connection was lost, before or after: nothing of the steps so far is taken over."""
    begin, repair, fault = LOSSES[loss]
    given, copy = given_for(tmp_path, method, cut)
    database.execute("UPDATE goods SET v = 'm', n = id; UPDATE orders SET v = 'm'; DELETE FROM goods WHERE id % 3 = 0")
    found = cut.cycle(
        given, IN_PARTS, at_reads(cut, {3: lambda: end_sessions(database), 5: lambda: database.execute(begin)})
    )
    before = dict(copy.rows["goods"])
    tables = {table.name: table for table in found.tables}
    assert tables["orders"].updated == 60
    if fault == "compared":
        assert (tables["goods"].fault, tables["goods"].snapshots) == (None, 1)
    else:
        assert tables["goods"].fault == str(fault)
    if fault != "compared":
        copy.rows["goods"] = before
    copy.follow()
    database.execute(repair)
    database.execute("ANALYZE goods")
    after = cut.cycle(given, IN_PARTS)
    copy.follow()
    assert [copy.rows] == list(cut.held.values())
    assert goods_of(after).resumed is (fault != "compared")


def at_reads(cut: CutReads, acts: dict[int, Callable[[], object]]) -> Happens:
    """Acts before the reads with these numbers: no read has a lock then."""
    left = dict(acts)

    def happens(table: TableName, snapshot: str) -> None:
        del table, snapshot
        left.pop(len(cut.reads_of_cycle), lambda: None)()

    return happens


@pytest.mark.parametrize("method", METHODS)
def test_a_table_with_another_unique_column_begins_again(
    database: Database, cut: CutReads, tmp_path: Path, method: Method
) -> None:
    """A row that moves to another key between two snapshots would be there twice, which a target may refuse."""
    database.execute("CREATE UNIQUE INDEX also ON goods ((v || id))")
    try:
        given, copy = given_for(tmp_path, method, cut)
        database.execute("UPDATE goods SET v = 'm'")
        found = cut.cycle(given, IN_PARTS, once_at(2, lambda: end_sessions(database)))
        copy.follow()
    finally:
        database.execute("DROP INDEX also")
    assert goods_of(found).snapshots == 1
    assert not found.snapshot
    assert list(cut.held.values())[-1] == copy.rows


@pytest.mark.parametrize("method", METHODS)
def test_a_cycle_of_one_snapshot_does_not_continue_in_another(
    database: Database, cut: CutReads, tmp_path: Path, method: Method
) -> None:
    given, copy = given_for(tmp_path, method, cut)
    database.execute("UPDATE goods SET v = 'm'")
    found = cut.cycle(given, Conduct(), at_reads(cut, {2: lambda: end_sessions(database)}))
    copy.follow()
    assert (found.snapshot, goods_of(found).snapshots, goods_of(found).updated) == (True, 1, 100)
    assert list(cut.held.values())[-1] == copy.rows


def ended_at(which: Callable[[int], bool]) -> Happens:
    """The source ends the statement at these events of the table."""
    steps = count()

    def happens(table: TableName, snapshot: str) -> None:
        del snapshot
        if table == GOODS and which(next(steps)):
            raise EngineFault(FaultKind.SOURCE_TIMEOUT, "goods", "canceling statement due to statement timeout")

    return happens


@pytest.mark.parametrize("method", METHODS)
def test_a_statement_that_is_ended_is_read_again_from_its_step_on(
    database: Database, cut: CutReads, tmp_path: Path, method: Method
) -> None:
    given, copy = given_for(tmp_path, method, cut)
    database.execute("UPDATE goods SET v = 'm'")
    found = cut.cycle(given, IN_PARTS, ended_at(lambda step: step % 13 == 11))
    copy.follow()
    assert (goods_of(found).fault, goods_of(found).updated) == (None, 100)
    assert goods_of(found).snapshots > 1
    assert list(cut.held.values())[-1] == copy.rows


@pytest.mark.parametrize("method", METHODS)
def test_a_step_that_never_ends_leaves_its_table_out(
    database: Database, cut: CutReads, tmp_path: Path, method: Method
) -> None:
    given, copy = given_for(tmp_path, method, cut)
    database.execute("UPDATE goods SET v = 'm'; UPDATE orders SET v = 'm'")
    found = cut.cycle(given, IN_PARTS, ended_at(lambda step: step >= 6))
    assert goods_of(found).fault == "source_timeout"
    assert [table.updated for table in found.tables if table.name == "orders"] == [60]
    copy.follow()
    after = cut.cycle(given, IN_PARTS)
    copy.follow()
    assert (goods_of(after).updated, goods_of(after).resumed) == (100, True)
    assert [copy.rows] == list(cut.held.values())
