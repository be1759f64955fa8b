"""Whatever happens on the source in the middle of a cycle, later cycles find every change."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.splits import ReadRules
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff import cycle
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.cycle_files import CycleFound
from engine.sources.query_diff.database import DECLARED, Method
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.folder import Folder, Follow
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.table_reading import Conduct
from engine.sources.query_diff.unread_tables import read_under
from tests.fixtures.postgres import Database, standing_database
from tests.pg.query_diff import test_cycles_find_changes as found_by
from tests.pg.query_diff.meddled import READER, Meddled, end_sessions, once, reader_of
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy, change, empty_tables, held_by, late_in, make_tables

pytestmark = pytest.mark.pg
small_pieces = found_by.small_pieces
FOLLOWED = {
    name: follow
    for name, follow in found_by.FOLLOWED.items()
    if name.name in {"by_number", "by_both", "by_name", "partly", "stamped"}
}
IN_PARTS = Conduct(snapshot_s=0.0)
"""A new snapshot for each table."""


@pytest.fixture(scope="module")
def database(pg18: Any) -> Iterator[Database]:
    with standing_database(pg18, "meddled_cycles") as made:
        assert isinstance(made, Database)
        make_tables(made)
        yield made


@pytest.fixture
def compared(database: Database) -> Iterator[PostgresDatabase]:
    """By a user who may read everything at any time."""
    with closing(PostgresDatabase(Connector(ConnectionSpec("shop", "postgres", database.settings)))) as opened:
        yield opened


@pytest.fixture
def meddled(database: Database) -> Iterator[Meddled]:
    with closing(Meddled(reader_of(database))) as opened:
        yield opened


def followed_by(tmp_path: Path, method: Method, tables: dict[TableName, Follow]) -> Given:
    by_stamps = {"public.stamped": TableDetection(method="timestamp", stamp_column="at", sweep_every=5)}
    given = Given(0, method, 10.0, tmp_path / "reader", "shop", by_stamps)
    given.folder.make()
    given.folder.follow(tables)
    return given


class Meddler:
    """Does something to the source before one of the reads of each cycle, and knows what each table was like in the snapshot that was
    read."""

    def __init__(self, database: Database, compared: PostgresDatabase, rng: random.Random) -> None:
        self._database = database
        self._compared = compared
        self._rng = rng
        self._reads = self._at = 0
        self._snapshots: dict[str, str] = {}
        self.held: dict[str, dict[bytes, bytes]] = {}
        self.revoked: set[str] = set()
        self.ended = False

    def begin(self) -> None:
        self._reads, self._at, self.ended = 0, self._rng.randint(1, 14), False
        self._snapshots.clear()

    def __call__(self, table: TableName, snapshot: str) -> None:
        if self._snapshots.get(table.name) != snapshot:
            self._snapshots[table.name] = snapshot
            self.held[table.name] = held_by(self._compared, snapshot, {table: FOLLOWED[table]})[table.name]
        self._reads += 1
        if self._reads == self._at:
            self._rng.choice([self._change, self.revoke, self.revoke, self._end])()

    def _change(self) -> None:
        change(self._database, self._rng)

    def revoke(self) -> None:
        name = self._rng.choice(sorted(table.name for table in FOLLOWED))
        self._database.execute(f"REVOKE SELECT ON {name} FROM {READER}")
        self.revoked.add(name)

    def _end(self) -> None:
        end_sessions(self._database)
        self.ended = True

    def grant(self) -> None:
        for name in self.revoked:
            self._database.execute(f"GRANT SELECT ON {name} TO {READER}")
        self.revoked.clear()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("seed", "method", "conduct"),
    [
        pytest.param(
            seed,
            method,
            conduct,
            # One of each method runs always, not all three in the same way.
            marks=[]
            if seed == 1 and (name == "in parts") == (method is not Method.ROW_CHECKSUM)
            else pytest.mark.chaos,
            id=f"{seed}-{method}-{name}",
        )
        for seed in range(1, 30)
        for method in DECLARED
        for name, conduct in (("one snapshot", Conduct()), ("in parts", IN_PARTS))
    ],
)
def test_nothing_is_missed_whatever_happens_between_two_statements(
    database: Database,
    compared: PostgresDatabase,
    meddled: Meddled,
    tmp_path: Path,
    conduct: Conduct,
    method: Method,
    seed: int,
) -> None:
    rng = random.Random(f"{seed}/{method}/{conduct.snapshot_s}")
    given = followed_by(tmp_path, method, FOLLOWED)
    copy, meddler = Copy(given.folder), Meddler(database, compared, rng)
    empty_tables(database)
    change(database, rng)
    with run_cycle(meddled, given) as (snapshot, number):
        copy.fill(held_by(compared, snapshot, FOLLOWED), number)
    meddled.before = meddler
    with late_in(database, rng) as late:
        for _ in range(12):
            change(database, rng)
            late.go_on()
            _one_cycle(meddled, given, copy, meddler, conduct, rng)
            if rng.random() < 0.5:
                meddler.grant()
    meddler.grant()
    meddled.before = lambda table, snapshot: None
    with run_cycle(meddled, given) as (snapshot, number):
        expected = held_by(compared, snapshot, FOLLOWED)
    copy.follow()
    assert (copy.rows, copy.last) == (expected, number)
    assert all(table.fault is None for table in given.folder.files.read(number).tables)


def _one_cycle(
    meddled: Meddled, given: Given, copy: Copy, meddler: Meddler, conduct: Conduct, rng: random.Random
) -> None:
    files, complete, before = (
        given.folder.files,
        rng.random() < 0.3,
        {name: dict(rows) for name, rows in copy.rows.items()},
    )
    meddler.begin()
    try:
        with run_cycle(meddled, given, conduct, complete=complete) as (snapshot, number):
            found = files.read(number)
            unread = {table.name for table in found.tables if table.fault is not None}
            assert_refused(snapshot, unread)
    except EngineFault:
        # Only with the connection, and in one snapshot.
        [failed] = files.failures(1)
        assert (conduct.snapshot_s, meddler.ended, files.last) == (None, True, copy.last)
        assert (failed.fault, failed.number) == ("source_unreachable", given.folder.numbers.read()[0])
        return
    copy.follow()
    assert unread <= meddler.revoked
    for table in found.tables:
        expected = before[table.name] if table.name in unread else dict(meddler.held[table.name])
        if table.since_stamp:
            # Deletes are not looked for.
            for gone in copy.rows[table.name].keys() - expected.keys():
                expected[gone] = copy.rows[table.name][gone]
        assert copy.rows[table.name] == expected, table.name
    assert found.snapshot is (conduct.snapshot_s is None)


def assert_refused(snapshot: str, unread: set[str]) -> None:
    """A copy of a table that the cycle did not read is not made under its snapshot."""
    for table in FOLLOWED:
        if table.name not in unread:
            assert read_under(snapshot, table)
            continue
        with pytest.raises(EngineFault) as refused:
            read_under(snapshot, table)
        assert refused.value.kind is FaultKind.SOURCE_PRIVILEGE


@pytest.fixture
def goods(database: Database) -> Iterator[TableName]:
    reader_of(database)
    database.execute("CREATE TABLE goods (id int, shop int, name text, PRIMARY KEY (id, shop))")
    database.execute("INSERT INTO goods SELECT i, i % 7, 'n' FROM generate_series(1, 30) AS i")
    database.execute("CREATE TABLE other (id int PRIMARY KEY, v int); INSERT INTO other VALUES (1, 1)")
    database.execute(f"GRANT SELECT ON goods, other TO {READER}")
    yield TableName("public", "goods")
    database.execute("DROP TABLE IF EXISTS goods, other")


OTHER = TableName("public", "other")


def cycle_of(meddled: Meddled, given: Given, conduct: Conduct | None = None) -> CycleFound:
    with run_cycle(meddled, given, conduct) as (_, number):
        return given.folder.files.read(number)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("conduct", [Conduct(), IN_PARTS], ids=["one snapshot", "in parts"])
def test_without_the_index_of_its_key_ranges_are_not_read(
    database: Database, meddled: Meddled, goods: TableName, tmp_path: Path, conduct: Conduct
) -> None:
    given = followed_by(tmp_path, Method.RANGE_CHECKSUM, {goods: Follow(None, ALL), OTHER: Follow(None, ALL)})
    cycle_of(meddled, given)
    database.execute("UPDATE goods SET name = 'm' WHERE id < 3; UPDATE other SET v = 2")
    statements: list[str] = []

    def drop(table: TableName, _: str) -> None:
        statements.append(table.name)
        if statements == ["goods"]:
            database.execute("ALTER TABLE goods DROP CONSTRAINT goods_pkey")

    meddled.before = drop
    found = cycle_of(meddled, given, conduct)
    # It has no key any more, and is not compared.
    assert [(table.name, table.fault) for table in found.tables] == [("other", None), ("goods", "table_missing")]
    assert statements.count("goods") == 1
    database.execute("ALTER TABLE goods ADD PRIMARY KEY (id, shop)")
    (goods_now,) = [table for table in cycle_of(meddled, given).tables if table.name == "goods"]
    assert (goods_now.updated, goods_now.fault, goods_now.filled, goods_now.resumed) == (2, None, False, True)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("method", DECLARED)
@pytest.mark.parametrize("conduct", [Conduct(), IN_PARTS], ids=["one snapshot", "in parts"])
def test_a_table_that_is_dropped_in_a_cycle_stops_no_other(
    database: Database, meddled: Meddled, goods: TableName, tmp_path: Path, method: Method, conduct: Conduct
) -> None:
    given = followed_by(tmp_path, method, {goods: Follow(None, ALL), OTHER: Follow(None, ALL)})
    cycle_of(meddled, given)
    database.execute("UPDATE other SET v = 3")
    meddled.before = once(lambda: database.execute("DROP TABLE goods"), of="goods")
    found = cycle_of(meddled, given, conduct)
    assert [(table.name, table.updated, table.fault) for table in found.tables] == [
        ("other", 1, None),
        ("goods", 0, "table_missing"),
    ]


@pytest.mark.usefixtures("small_pieces")
def test_a_table_that_never_stands_still_is_left_out_in_the_end(
    database: Database, meddled: Meddled, goods: TableName, tmp_path: Path
) -> None:
    given = followed_by(tmp_path, Method.INCREMENTAL, {goods: Follow(None, ALL), OTHER: Follow(None, ALL)})
    cycle_of(meddled, given)
    database.execute("UPDATE other SET v = 4")

    def truncate(table: TableName, _: str) -> None:
        if table == goods:
            database.execute("TRUNCATE goods")

    meddled.before = truncate
    found = {table.name: table for table in cycle_of(meddled, given).tables}
    assert (found["other"].updated, found["other"].fault) == (1, None)
    assert found["goods"].fault == FaultKind.TABLE_STRUCTURE_CHANGED.value
    assert len(given.folder.files.failures(10)) == cycle._TRIES - 1
    meddled.before = lambda table, snapshot: None
    found = {table.name: table for table in cycle_of(meddled, given).tables}
    assert (found["goods"].deleted, found["goods"].resumed) == (30, True)


def test_a_statement_that_takes_too_long_is_a_fault_of_its_table(
    database: Database, goods: TableName, tmp_path: Path
) -> None:
    given = followed_by(tmp_path, Method.INCREMENTAL, {goods: Follow(None, ALL), OTHER: Follow(None, ALL)})
    with (
        closing(Meddled(reader_of(database), rules=ReadRules(timeout_ms=200))) as meddled,
        database.connect() as locker,
    ):
        meddled.before = once(lambda: locker.execute("BEGIN; LOCK TABLE goods IN ACCESS EXCLUSIVE MODE"), of="goods")
        found = {table.name: table for table in cycle_of(meddled, given).tables}
        assert (found["goods"].fault, found["other"].fault) == (FaultKind.SOURCE_TIMEOUT.value, None)
        locker.execute("ROLLBACK")
        found = {table.name: table for table in cycle_of(meddled, given).tables}
    assert (found["goods"].fault, found["goods"].rows_read, found["goods"].filled) == (None, 30, True)


def test_an_error_of_a_row_filter_is_a_fault_of_its_table(
    database: Database, meddled: Meddled, goods: TableName, tmp_path: Path
) -> None:
    followed = {goods: Follow("10 / (id - 5) >= 0", ALL), OTHER: Follow(None, ALL)}
    given = followed_by(tmp_path, Method.ROW_CHECKSUM, followed)
    found = {table.name: table for table in cycle_of(meddled, given).tables}
    assert (found["goods"].fault, found["goods"].detail) == ("internal", "SQLSTATE 22012")
    assert found["other"].fault is None
    database.execute("DELETE FROM goods WHERE id = 5")
    found = {table.name: table for table in cycle_of(meddled, given).tables}
    assert (found["goods"].fault, found["goods"].filled) == (None, True)


@pytest.mark.parametrize("method", DECLARED)
def test_a_key_that_changed_while_the_table_could_not_be_read_is_still_told(
    database: Database, meddled: Meddled, goods: TableName, tmp_path: Path, method: Method
) -> None:
    """A fault while a table is filled again leaves what was known: the cycle after it finds that the key is another one."""
    given = followed_by(tmp_path, method, {goods: Follow(None, ALL)})
    cycle_of(meddled, given)
    database.execute("ALTER TABLE goods DROP CONSTRAINT goods_pkey, ADD PRIMARY KEY (shop, id)")
    meddled.before = once(lambda: database.execute(f"REVOKE SELECT ON goods FROM {READER}"))
    (left_out,) = cycle_of(meddled, given).tables
    assert (left_out.fault, left_out.unreadable) == (FaultKind.SOURCE_PRIVILEGE.value, False)
    database.execute(f"GRANT SELECT ON goods TO {READER}")
    (again,) = cycle_of(meddled, given).tables
    assert (again.fault, again.unreadable, again.filled, again.resumed) == (None, True, True, True)
    (now,) = cycle_of(meddled, given).tables
    assert (now.unreadable, now.filled, now.resumed) == (False, False, False)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_change_of_the_method_that_is_interrupted_loses_nothing(
    database: Database, meddled: Meddled, goods: TableName, tmp_path: Path, at: int
) -> None:
    folder = Folder(tmp_path / "reader")
    given = followed_by(tmp_path, Method.ROW_CHECKSUM, {goods: Follow(None, ALL)})
    cycle_of(meddled, given)
    database.execute("UPDATE goods SET name = 'other' WHERE id = 8; DELETE FROM goods WHERE id = 9")
    meddled.before = once(lambda: database.execute(f"REVOKE SELECT ON goods FROM {READER}"), at)
    by_range = Given(0, Method.RANGE_CHECKSUM, 10.0, folder.path, "shop")
    found = [cycle_of(meddled, by_range).tables[0]]
    database.execute(f"GRANT SELECT ON goods TO {READER}")
    found += [cycle_of(meddled, by_range).tables[0], cycle_of(meddled, by_range).tables[0]]
    assert sum(table.updated for table in found) == 1
    assert sum(table.deleted for table in found) == 1
    assert found[-1].method == "range_checksum"
    assert not any(table.unreadable or table.filled for table in found)
