"""Subscriptions of one connection read the same table once, and each is still exactly what its snapshot was."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.subscription import ConnectionSpec
from engine.platform.clock import SystemClock
from engine.platform.failpoints import Failpoint, arm
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.reads import PostgresReads
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff import cycle_scans, scan_group, table_reading
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.cycle_files import CycleFound, TableFound
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.reader_control import CycleReader
from engine.sources.query_diff.scan_group import ScanGroup
from engine.sources.query_diff.table_reading import Conduct
from tests.fixtures import compared_reads
from tests.fixtures.postgres import Database, standing_database
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy

pytestmark = pytest.mark.pg

GOODS, OTHERS = TableName("public", "goods"), TableName("public", "others")
_FILTERS = (None, "n IS DISTINCT FROM 3", "id > 20 AND v <> 'x'", "100 / n > 10", "v = 'x' OR n IN (1, 2)")
_OPERATIONS = (ALL, ALL, frozenset({"insert", "delete"}))


@pytest.fixture(scope="module")
def source(pg18: Any) -> Iterator[Database]:
    with standing_database(pg18, "shared") as made:
        assert isinstance(made, Database)
        for name in ("goods", "others"):
            made.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text, n int)")
        yield made


@pytest.fixture(autouse=True)
def rows(source: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reading, "PIECE_BYTES", 600)
    monkeypatch.setattr(scan_group, "KEPT_S", 0.0)
    source.execute("TRUNCATE goods, others")
    for name in ("goods", "others"):
        source.execute(f"INSERT INTO {name} SELECT g, 'v' || g, g % 7 + 1 FROM generate_series(1, 200) AS g")


@dataclass
class Subscription:
    """One that is only run by hand."""

    database: PostgresDatabase
    given: Given
    follow: dict[TableName, Follow]
    copy: Copy
    group: ScanGroup

    def fill(self) -> None:
        with run_cycle(self.database, self.given, Conduct(group=self.group)) as (snapshot, number):
            self.copy.fill(self.held(snapshot), number)
        self.take_part()

    def take_part(self) -> None:
        self.group.register(0)

    def held(self, snapshot: str) -> dict[str, dict[bytes, bytes]]:
        wheres = {name: each.where for name, each in self.follow.items()}
        return compared_reads.held_by(self.database, wheres, snapshot.partition("\n")[0])

    @contextmanager
    def cycle(self) -> Iterator[str]:
        """A cycle by schedule; the block runs while its snapshot lasts."""
        with run_cycle(self.database, self.given, Conduct(group=self.group), complete=False) as (snapshot, _):
            self.take_part()
            yield snapshot

    @property
    def last(self) -> CycleFound:
        return self.given.folder.files.reports(1)[0]

    def found(self, table: TableName = GOODS) -> TableFound:
        (found,) = [each for each in self.last.tables if each.name == table.name]
        return found

    def assert_like(self, expected: dict[str, dict[bytes, bytes]]) -> None:
        """What is not followed is not compared."""
        self.copy.follow()
        for name, follow in self.follow.items():
            held, rows = self.copy.rows[name.name], expected[name.name]
            assert held.keys() == rows.keys()
            assert follow.operations < ALL or held == rows


class Place:
    """Makes subscriptions of one connection."""

    def __init__(self, source: Database, folder: Path) -> None:
        self._source = source
        self._folder = folder
        self._made = 0
        self._open = ExitStack()

    def close(self) -> None:
        self._open.close()

    def subscription(
        self, *tables: TableName, where: str | None = None, method: Method = Method.INCREMENTAL, **given: Any
    ) -> Subscription:
        self._made += 1
        operations = given.pop("operations", ALL)
        database = PostgresDatabase(Connector(ConnectionSpec("shop", "postgres", self._source.settings)), Compared())
        self._open.callback(database.close)
        shared = self._folder / ".shared" / "shop"
        made = Given(0, method, 10.0, self._folder / f"s{self._made}", "shop", shared=shared, **given)
        follow = {name: Follow(where if name == GOODS else None, operations) for name in tables or (GOODS,)}
        made.folder.make()
        made.folder.follow(follow)
        group = made.group()
        assert group is not None
        self._open.callback(group.close)
        one = Subscription(database, made, follow, Copy(made.folder), group)
        one.fill()
        return one


@pytest.fixture
def place(source: Database, tmp_path: Path) -> Iterator[Place]:
    with closing(Place(source, tmp_path)) as made:
        yield made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements by which rows were read from the source."""
    seen: list[str] = []
    read = PostgresReads.read_split

    def counted(self: PostgresReads, split: Any, snapshot: str) -> Iterator[bytes]:
        seen.append(split.sql)
        return read(self, split, snapshot)

    monkeypatch.setattr(PostgresReads, "read_split", counted)
    return seen


@pytest.mark.parametrize("method", [Method.INCREMENTAL, Method.ROW_CHECKSUM])
def test_two_subscriptions_read_the_table_once(source: Database, place: Place, method: Method) -> None:
    first, second = (place.subscription(method=method) for _ in range(2))
    source.execute("UPDATE goods SET v = 'new' WHERE id < 5; DELETE FROM goods WHERE id = 9")
    with first.cycle() as snapshot:
        source.execute("INSERT INTO goods VALUES (1000, 'later', 1)")
        expected = first.held(snapshot)
        with second.cycle():
            pass
    for each in (first, second):
        each.assert_like(expected)
    assert first.last.at_us == second.last.at_us
    assert (second.found().rows_shared, first.found().rows_shared) == (199, 0)
    # By checksums, the rows that changed are still read by each.
    assert second.found().rows_hashed == 0
    assert second.found().rows_read == (0 if method is Method.INCREMENTAL else 4)


@pytest.mark.parametrize("where", [None, "n <> 3"])
def test_the_source_is_read_once_for_all(place: Place, reads: list[str], where: str | None) -> None:
    made = [place.subscription(), place.subscription(where=where), place.subscription()]
    reads.clear()
    with ExitStack() as running:
        for each in made:
            running.enter_context(each.cycle())
    assert len(reads) == 1
    assert [each.found().rows_read for each in made] == [200, 0, 0]


@pytest.mark.parametrize("seed", [1, 2, 3, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(4, 60))])
def test_subscriptions_with_other_filters_and_operations_stay_exact(source: Database, place: Place, seed: int) -> None:
    rng = random.Random(seed)
    made = []
    for number in range(4):
        tables, where = rng.choice([(GOODS,), (GOODS, OTHERS)]), rng.choice(_FILTERS)
        # At least two of them can share.
        method = rng.choice([*Method][:4]) if number > 1 else Method.INCREMENTAL
        operations = rng.choice(_OPERATIONS) if number > 1 else ALL
        made.append(place.subscription(*tables, where=where, method=method, operations=operations))
    shared = 0
    for _ in range(6):
        change(source, rng)
        if rng.random() < 0.2:
            source.execute(f"TRUNCATE {rng.choice(['goods', 'others'])}")
        rng.shuffle(made)
        with ExitStack() as running:
            for each in made:
                snapshot = running.enter_context(each.cycle())
                expected = each.held(snapshot)
                change(source, rng)
                each.assert_like(expected)
                shared += sum(table.rows_shared for table in each.last.tables)
        for each in made:
            each.group.sweep(least_s=0)
    assert shared


def change(source: Database, rng: random.Random) -> None:
    for _ in range(rng.randint(0, 4)):
        table, key = rng.choice(["goods", "others"]), rng.randint(1, 220)
        value, number = rng.choice(["x", "y", "a\tb", "t", "f", "\\N", ""]), rng.choice([1, 2, 3, 7, 50])
        with source.connect() as connection:
            upsert = (
                f"INSERT INTO {table} VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v, n = excluded.n"
            )
            connection.execute(upsert.encode(), [key, value, number])
            connection.execute(f"DELETE FROM {table} WHERE id = %s".encode(), [rng.randint(1, 220)])


def test_a_filter_that_fails_harms_its_own_subscription_only(source: Database, place: Place) -> None:
    plain, failing = place.subscription(), place.subscription(where="100 / n > 10")
    source.execute("UPDATE goods SET n = 0 WHERE id = 7")
    with plain.cycle() as snapshot:
        expected = plain.held(snapshot)
        with failing.cycle():
            pass
    plain.assert_like(expected)
    assert plain.found().fault is None
    assert failing.found().fault == FaultKind.INTERNAL.value
    # It continues when it can be read, and what was refused is not tried with the others'.
    source.execute("UPDATE goods SET n = 5 WHERE id = 7")
    with failing.cycle() as snapshot:
        expected = failing.held(snapshot)
    failing.assert_like(expected)
    assert plain.group.refused


def test_a_request_after_the_snapshot_needs_a_later_one(source: Database, place: Place) -> None:
    first, second = place.subscription(), place.subscription()
    with first.cycle():
        source.execute("INSERT INTO goods VALUES (1001, 'asked for', 1)")
        number = second.given.folder.numbers.request()
        with second.cycle() as snapshot:
            expected = second.held(snapshot)
    second.assert_like(expected)
    assert second.last.number >= number
    assert b"1001" in second.copy.rows["goods"]
    assert second.found().rows_shared == 0


def test_no_cycle_goes_back_to_an_older_snapshot(source: Database, place: Place) -> None:
    first, second = place.subscription(), place.subscription()
    second.group.close()
    with first.cycle():
        pass
    third = place.subscription()
    with third.cycle():
        source.execute("INSERT INTO goods VALUES (1002, 'new', 1)")
        second.group.note((), covers=False)
        with second.cycle() as snapshot:  # By itself, and later than the offer.
            expected = second.held(snapshot)
        second.assert_like(expected)
        with second.cycle() as snapshot:
            expected = second.held(snapshot)
        second.assert_like(expected)
    assert b"1002" in second.copy.rows["goods"]
    assert second.found().rows_shared == 0


def test_a_change_of_the_structure_is_not_read_from_what_was_kept(source: Database, place: Place) -> None:
    first, second = place.subscription(), place.subscription()
    with first.cycle():
        source.execute("ALTER TABLE goods ADD COLUMN more text DEFAULT 'd'")
        with second.cycle() as snapshot:
            expected = second.held(snapshot)
    second.assert_like(expected)
    assert second.found().rows_shared == 0
    source.execute("ALTER TABLE goods DROP COLUMN more")


def test_rows_that_were_kept_outlast_the_table(source: Database, place: Place) -> None:
    first, second = place.subscription(), place.subscription()
    source.execute("UPDATE goods SET v = 'last' WHERE id < 9")
    with first.cycle() as snapshot:
        expected = first.held(snapshot)
        source.execute("TRUNCATE goods")
        with second.cycle():
            pass
    second.assert_like(expected)
    assert second.found().rows_shared == 200
    with second.cycle() as snapshot:
        expected = second.held(snapshot)
    second.assert_like(expected)
    assert second.copy.rows["goods"] == {}


def test_a_table_that_one_cannot_read_does_not_matter_to_others(
    source: Database, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = place.subscription(GOODS, OTHERS), place.subscription(GOODS, OTHERS)
    reads = first.database.cycle_reads

    class Refused:
        def splits(self, schema: Any, *args: Any) -> Any:
            if schema.name == GOODS:
                raise EngineFault(FaultKind.SOURCE_TIMEOUT, "goods", "a lock")
            return reads.splits(schema, *args)

        def __getattr__(self, name: str) -> Any:
            return getattr(reads, name)

    monkeypatch.setattr(first.database, "cycle_reads", Refused())
    source.execute("UPDATE goods SET v = 'other'; UPDATE others SET v = 'other'")
    with first.cycle(), second.cycle() as snapshot:
        expected = second.held(snapshot)
    second.assert_like(expected)
    assert first.found().fault is not None
    assert (second.found().rows_shared, second.found().rows_read) == (0, 200)
    assert second.found(OTHERS).rows_shared == 200


def _lead(settings: dict[str, Any], given: Given, point: str) -> None:
    """A cycle in a process of its own, which dies at a failpoint, or raises there."""
    database = PostgresDatabase(Connector(ConnectionSpec("shop", "postgres", settings)), Compared())
    group = given.group()
    assert group is not None
    with run_cycle(database, given, Conduct(group=group), complete=False):
        pass  # A first one, after which it takes part.
    group.register(0)
    arm(point)
    with run_cycle(database, given, Conduct(group=group), complete=False):
        pass


def _kill_leader(source: Database, one: Subscription, point: Failpoint) -> None:
    one.group.close()
    child = multiprocessing.get_context("spawn").Process(
        target=_lead, args=(source.settings, replace(one.given), f"{point.value}=kill")
    )
    child.start()
    child.join(120)
    assert child.exitcode == -9


@pytest.mark.parametrize(
    "point", [Failpoint.SCAN_OFFERED, Failpoint.SCAN_SPOOLED, Failpoint.CYCLE_WRITTEN, Failpoint.CYCLE_COMMITTED]
)
def test_whoever_reads_may_be_killed(source: Database, place: Place, point: Failpoint) -> None:
    first, second = place.subscription(GOODS, OTHERS), place.subscription(GOODS, OTHERS)
    source.execute("UPDATE goods SET v = 'new' WHERE id < 50; DELETE FROM others WHERE id > 150")
    _kill_leader(source, first, point)
    source.execute("INSERT INTO goods VALUES (1003, 'after', 3)")
    # What was read before may still be used.
    with second.cycle():
        pass
    second.copy.follow()
    with second.cycle() as snapshot:
        expected = second.held(snapshot)
    second.assert_like(expected)
    assert b"1003" in second.copy.rows["goods"]
    second.group.sweep(least_s=0)
    with first.cycle() as snapshot:
        expected = first.held(snapshot)
    first.assert_like(expected)


def test_rows_of_a_killed_process_do_not_outlast_the_subscriptions(
    source: Database, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = place.subscription(), place.subscription()
    _kill_leader(source, first, Failpoint.CYCLE_WRITTEN)
    monkeypatch.setattr(scan_group, "KEPT_S", 1_000.0)
    second.given.sweep_shared()
    assert list((tmp_path / ".shared").rglob("*.arrow"))
    CycleReader(second.database, second.given).remove("reader")
    assert not list((tmp_path / ".shared").rglob("*.arrow"))


def test_who_uses_the_reads_may_die(source: Database, place: Place) -> None:
    first, second = place.subscription(), place.subscription()
    source.execute("UPDATE goods SET v = 'new' WHERE id < 50")
    arm("scan.joined=raise")
    with first.cycle() as snapshot:
        expected = first.held(snapshot)
        with pytest.raises(EngineFault), second.cycle():
            pass
        with second.cycle():
            pass
    for each in (first, second):
        each.assert_like(expected)
    assert second.found().rows_shared == 200


def test_files_are_private_and_removed(place: Place, tmp_path: Path) -> None:
    first, second = place.subscription(), place.subscription()
    with first.cycle():
        kept = [path for path in (tmp_path / ".shared").rglob("*") if path.is_file()]
        assert any(path.suffix == ".arrow" for path in kept)
        assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    second.group.sweep(least_s=0)
    assert not list((tmp_path / ".shared" / "shop" / "offers").iterdir())


def test_reads_are_not_waited_for_without_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle_scans, "_STILL_S", 0.2)
    first, second = place.subscription(), place.subscription()
    with first.cycle():
        (offer,) = first.group._all()
        for path in offer.folder.glob("*.arrow"):
            path.unlink()
        with second.cycle() as snapshot:
            expected = second.held(snapshot)
    second.assert_like(expected)
    assert (second.found().rows_shared, second.found().rows_read) == (0, 200)


def test_only_who_is_due_is_read_for(place: Place) -> None:
    first, second = place.subscription(), place.subscription()
    now = SystemClock().wall_us()
    assert first.group.others_want(now)
    second.group.register(now + 1_000_000)
    assert first.group.others_want(now) == []
    second.group.register(0)
    second.group.close()
    assert first.group.others_want(now) == []
