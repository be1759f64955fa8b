"""Copy and comparison with a real source and a real target: one snapshot whatever happens meanwhile, and faults as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.copy.coordinator import CopyCoordinator
from engine.copy.job import CopyJob, CopySettings, CopyTable, CopyTools
from engine.copy.split_task import ReadLimits
from engine.model.batch import TableChanges, TableFault
from engine.model.copies import CopyProgress
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, SubscriptionName, TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.source import ExportedSnapshot
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.model.target import BatchCommit, LogStart, TableCommit, Target
from engine.model.verification import VerificationMethod
from engine.net import decode_copy_text
from engine.sources.postgres_log.source import PostgresSource
from engine.targets.duckdb.target import DuckDbTarget
from engine.verify import by_ranges
from engine.verify.compare import VerifyTable, verify_tables
from engine.verify.verdict import TableVerdict, VerdictStatus
from tests.contract.targets import target_opener
from tests.fixtures.answers import answered
from tests.fixtures.local_runner import LocalRunner
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg

NAME = SubscriptionName("copied")
SMALL_CHUNKS = CopySettings(split_bytes=32 * 1024, limits=ReadLimits(batch_bytes=20_000, file_bytes=60_000))


@dataclass
class World:
    """A source with tables, a target, and what the copy reported."""

    database: Database
    source: PostgresSource
    connection: ConnectionSpec
    target: Target
    folder: Path
    specs: list[TableSpec] = field(default_factory=list)
    copied: dict[TableId, int] = field(default_factory=dict)
    failed: dict[TableId, TableFault] = field(default_factory=dict)
    lost: dict[TableId, str] = field(default_factory=dict)
    last: dict[TableId, CopyProgress] = field(default_factory=dict)

    def on_table_copied(self, table: TableId, position: Lsn, rows: int) -> None:
        assert position > ZERO
        self.copied[table] = rows

    def on_table_failed(self, table: TableId, fault: TableFault) -> None:
        self.failed[table] = fault

    def on_table_lost(self, table: TableId, detail: str) -> None:
        self.lost[table] = detail

    def on_progress(self, progress: CopyProgress) -> None:
        self.last[progress.table] = progress

    def add(self, name: str, **options: Any) -> TableSpec:
        spec = TableSpec(
            TableId(f"t{len(self.specs):x}"), TableName("public", name), TableName("main", name), **options
        )
        self.specs.append(spec)
        self.target.adopt(NAME, spec.table, spec.target)
        return spec

    def copy(self, snapshot: ExportedSnapshot, before: Callable[[], None] = lambda: None) -> dict[TableId, CopyTable]:
        described = self.source.describe(self.specs)
        tables = tuple(CopyTable(spec, described[spec.source]) for spec in self.specs)
        before()
        runner = LocalRunner(2)
        job = CopyJob(NAME, Epoch(1), self.connection, snapshot, tables, self.folder / "staging", SMALL_CHUNKS)
        tools = CopyTools(self.source, self.target, runner, PostgresSource, decode_copy_text, nullcontext, lambda: 0.0)
        try:
            CopyCoordinator(job, tools, self).run()
        finally:
            runner.stop()
        return {table.spec.table: table for table in tables}

    def hand_over(self, tables: dict[TableId, CopyTable], end: Lsn) -> None:
        commits = tuple(
            TableCommit(table, tables[table].schema, tables[table].spec.target, handover=True) for table in self.copied
        )
        self.target.commit(BatchCommit(NAME, Epoch(1), BatchId(1), end, commits))

    def change(self, spec: TableSpec, changes: TableChanges) -> None:
        progress = self.target.progress(NAME)
        assert progress is not None
        commit = TableCommit(spec.table, progress.tables[spec.table].schema, spec.target, (changes,))
        self.target.commit(BatchCommit(NAME, Epoch(1), BatchId(progress.batch + 1), progress.end, (commit,)))

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        answer = answered(self.target, statement, 100_000, 30.0, NAME)
        return [tuple(row.values()) for row in answer.table.to_pylist()]

    def verify(
        self,
        snapshot: ExportedSnapshot,
        only: TableSpec | None = None,
        method: VerificationMethod = VerificationMethod.ROWS,
    ) -> list[TableVerdict]:
        progress = self.target.progress(NAME)
        assert progress is not None
        specs = [only] if only else self.specs
        tables = [VerifyTable(spec, progress.tables[spec.table]) for spec in specs]
        with self.target.pin(NAME) as reader:
            return verify_tables(self.source, reader, snapshot, tables, decode_copy_text, method=method)


@pytest.fixture
def world(database: Database, tmp_path: Path) -> Iterator[World]:
    connection = ConnectionSpec("shop", "postgres", database.settings)
    source = PostgresSource(connection)
    target = DuckDbTarget(tmp_path / "mart.duckdb")
    target.claim(NAME, Epoch(1), LogStart("system", 1, "slot", ZERO))
    yield World(database, source, connection, target, tmp_path)
    source.close()
    target.close()


@contextmanager
def snapshot_of(world: World) -> Iterator[ExportedSnapshot]:
    opened: AbstractContextManager[ExportedSnapshot] = world.source.copies.snapshot(20.0)
    with opened as snapshot:
        yield snapshot


SETUP = """
CREATE TABLE keyed (id int PRIMARY KEY, n numeric(10, 2), pad text);
INSERT INTO keyed SELECT g, g / 4.0, repeat(md5(g::text), 10) FROM generate_series(1, 3000) g;
CREATE TABLE bag (a int, b text);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO bag SELECT g % 10, 'x' FROM generate_series(1, 500) g;
INSERT INTO bag VALUES (NULL, NULL), (NULL, NULL);
CREATE TABLE parts (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM ('2020-02-01') TO ('2020-03-01');
INSERT INTO parts SELECT g, '2020-01-01'::date + g % 60 FROM generate_series(1, 300) g;
CREATE TABLE nothing_in_it (id int PRIMARY KEY);
"""


def test_a_copy_holds_the_snapshots_rows_whatever_happens_meanwhile(world: World) -> None:
    world.database.execute(SETUP)
    for name in ("keyed", "bag", "parts", "nothing_in_it"):
        world.add(name)

    def meanwhile() -> None:
        world.database.execute(
            "UPDATE keyed SET n = -1; DELETE FROM keyed WHERE id > 100; INSERT INTO keyed VALUES (9999, 0, '')"
        )
        world.database.execute(
            "DELETE FROM bag; INSERT INTO parts VALUES (1000, '2020-01-05'); INSERT INTO nothing_in_it VALUES (1)"
        )

    with snapshot_of(world) as snapshot:
        tables = world.copy(snapshot, before=meanwhile)
        assert (world.failed, world.lost) == ({}, {})
        assert list(world.copied.values()).count(0) == 1
        world.hand_over(tables, snapshot.position)
        verdicts = world.verify(snapshot)
    assert [(v.status, v.source_rows, v.target_rows) for v in verdicts] == [
        (VerdictStatus.EQUAL, count, count) for count in (3000, 502, 300, 0)
    ]
    assert world.query("SELECT count(*), sum(n), min(n) FROM keyed") == [
        (3000, pytest.approx(1125375), pytest.approx(0.25))
    ]
    assert {progress.percent for progress in world.last.values()} == {100.0}
    assert list((world.folder / "staging").iterdir()) == []


def test_a_snapshot_that_is_gone_loses_every_table_and_leaves_nothing(world: World) -> None:
    world.database.execute(SETUP)
    world.add("keyed")
    world.add("bag")
    with snapshot_of(world) as snapshot:
        pass
    world.copy(snapshot)
    assert world.lost.keys() == {spec.table for spec in world.specs}
    assert all(detail.startswith("copy_lost") for detail in world.lost.values())
    assert world.copied == {}
    with pytest.raises(EngineFault) as raised:
        world.target.append_copy(world.specs[0].table, pa.table({}))
    assert raised.value.kind is FaultKind.COPY_FAILED


@pytest.mark.parametrize("change", ["ALTER TABLE keyed DROP COLUMN pad", "TRUNCATE keyed", "DROP TABLE keyed"])
def test_a_table_that_changed_under_the_snapshot_does_not_hold_up_the_others(world: World, change: str) -> None:
    world.database.execute(SETUP)
    keyed, bag = world.add("keyed"), world.add("bag")
    with snapshot_of(world) as snapshot:
        world.copy(snapshot, before=lambda: world.database.execute(change) and None)
    assert world.copied.keys() == {bag.table}
    assert world.lost.keys() | world.failed.keys() == {keyed.table}
    if keyed.table in world.failed:
        assert (change, world.failed[keyed.table].code) == ("DROP TABLE keyed", "table_missing")


def test_a_value_out_of_domain_and_a_forbidden_table_fail_alone(world: World) -> None:
    world.database.execute(SETUP + "CREATE ROLE reader LOGIN REPLICATION; CREATE TABLE forbidden (id int PRIMARY KEY);")
    world.database.execute("GRANT SELECT ON keyed, bag TO reader; UPDATE keyed SET n = 'NaN' WHERE id = 1500")
    keyed, bag, forbidden = world.add("keyed"), world.add("bag"), world.add("forbidden")
    world.connection = ConnectionSpec("shop", "postgres", {**world.database.settings, "user": "reader"})
    try:
        with snapshot_of(world) as snapshot:
            world.copy(snapshot)
    finally:
        world.database.execute("DROP OWNED BY reader; DROP ROLE reader")
    assert world.copied.keys() == {bag.table}
    assert {table: fault.code for table, fault in world.failed.items()} == {
        keyed.table: "value_out_of_domain",
        forbidden.table: "source_privilege",
    }


def test_verification_finds_every_planted_difference(world: World) -> None:
    world.database.execute(SETUP)
    keyed, bag = world.add("keyed"), world.add("bag")
    with snapshot_of(world) as snapshot:
        tables = world.copy(snapshot)
        world.hand_over(tables, snapshot.position)
        source_row = world.query("SELECT n, pad FROM keyed WHERE id = 7")[0]
        planted = pa.table(
            {
                "c0": pa.array([7, 5000], pa.int32()),
                "c1": pa.array([source_row[0] + 1, None], pa.decimal128(10, 2)),
                "c2": pa.array([source_row[1], None], pa.string()),
            }
        )
        world.change(
            keyed, TableChanges(keyed.table, False, pa.table({"k0": pa.array([7, 8], pa.int32())}), planted, None)
        )
        twins = pa.table({"c0": pa.array([None], pa.int32()), "c1": pa.array([None], pa.string())})
        removed = twins.append_column("n", pa.array([1], pa.int64()))
        added = pa.table({"c0": pa.array([3], pa.int32()), "c1": pa.array(["x"], pa.string())})
        world.change(bag, TableChanges(bag.table, False, removed, added, None))
        of_keyed, of_bag = world.verify(snapshot)
    assert of_keyed.status is VerdictStatus.DIFFERENT
    assert sorted((each.key, each.kind) for each in of_keyed.differences) == [
        (("5000",), "extra"),
        (("7",), "different"),
        (("8",), "missing"),
    ]
    assert (of_keyed.source_rows, of_keyed.target_rows) == (3000, 3000)
    assert of_bag.status is VerdictStatus.DIFFERENT
    assert {each.kind for each in of_bag.differences} == {"missing", "extra"}


WIDE_TYPES = """
CREATE TABLE every_type (
    a int, b bigint, flag bool, small smallint, f4 real, f8 double precision, n numeric(12, 3), free numeric, t text, v varchar(20),
    c char(5), raw bytea, d date, ts timestamp, tz timestamptz, tm time, u uuid, j jsonb, ints int[], texts text[], i interval,
    PRIMARY KEY (b, a)
);
INSERT INTO every_type
SELECT g, g % 7, g % 2 = 0, g % 100, g / 8.0, g / 3.0, g / 1000.0, g * 1.10, CASE g % 3 WHEN 0 THEN '' WHEN 1 THEN 'a "b" \\ (' || g END,
       'v' || g, 'c' || g % 10, decode(md5(g::text), 'hex'), '2020-01-01'::date + g % 1000, '2020-01-01'::timestamp + g * '1.5 s'::interval,
       '1999-12-31 23:59:59+02'::timestamptz + g * '1 h'::interval, '00:00'::time + g * '1 s'::interval, md5(g::text)::uuid,
       jsonb_build_object('g', g, 'null', null), ARRAY[g, NULL, -g], ARRAY['', 'NULL', 'a b', NULL, '{"' || g], g * '1 min'::interval
FROM generate_series(1, 3000) g;
CREATE TABLE texts (k text COLLATE "C" PRIMARY KEY, x int);
INSERT INTO texts SELECT 'k' || md5(g::text), g FROM generate_series(1, 3000) g;
CREATE TABLE padded (k char(5) PRIMARY KEY, x int);
INSERT INTO padded SELECT 'k' || g, g FROM generate_series(1, 100) g;
CREATE TABLE scales (k numeric(20, 4) PRIMARY KEY, free numeric);
INSERT INTO scales SELECT g, g FROM generate_series(1, 100) g;
ANALYZE;
"""


@pytest.fixture(params=["duckdb", "postgres18"])
def on_target(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Iterator[World]:
    """As `world`, with each kind of target."""
    connection = ConnectionSpec("shop", "postgres", database.settings)
    source = PostgresSource(connection)
    with target_opener(request.param, request, tmp_path) as opener:
        target = opener()
        target.claim(NAME, Epoch(1), LogStart("system", 1, "slot", ZERO))
        yield World(database, source, connection, target, tmp_path)
        source.close()
        target.close()


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several round trips with several ranges each, in small tables."""
    monkeypatch.setattr(by_ranges, "READ_BYTES", 150_000)
    monkeypatch.setattr(by_ranges, "RANGE_BYTES", 30_000)
    monkeypatch.setattr(by_ranges, "PART_ROWS", 20)


def both_ways(world: World) -> dict[str, TableVerdict]:
    """Verdicts by checksum for the source as it is now, by table; those by rows must find the same."""
    found: dict[str, TableVerdict] = {}
    progress = world.target.progress(NAME)
    assert progress is not None
    with snapshot_of(world) as taken:
        snapshot = replace(taken, position=progress.end)
        by_checksum, by_rows = (
            world.verify(snapshot, method=method) for method in (VerificationMethod.CHECKSUM, VerificationMethod.ROWS)
        )
    for one, other in zip(by_checksum, by_rows, strict=True):
        assert (one.status, one.code, one.source_rows, one.target_rows) == (
            other.status,
            other.code,
            other.source_rows,
            other.target_rows,
        )
        assert one.differences == other.differences
        found[one.source.name] = one
    return found


@pytest.mark.usefixtures("small_ranges")
def test_digests_find_what_rows_find(on_target: World) -> None:
    world = on_target
    world.database.execute(WIDE_TYPES)
    names = ("every_type", "texts", "padded", "scales")
    for name in names:
        world.add(name)
    with snapshot_of(world) as snapshot:
        world.hand_over(world.copy(snapshot), snapshot.position)
    found = both_ways(world)
    assert [(v.equal, v.method, v.ranges_different) for v in found.values()] == [
        (True, VerificationMethod.CHECKSUM, 0),
        (True, VerificationMethod.CHECKSUM, 0),
        (True, VerificationMethod.ROWS, 0),
        (True, VerificationMethod.CHECKSUM, 0),
    ]
    assert found["padded"].by_rows_because == "a key that does not sort by bytes or numbers, or has no index"
    assert found["every_type"].ranges > 20
    assert found["every_type"].bytes_from_source < 10_000
    world.database.execute("UPDATE every_type SET f8 = f8 + 1e-13 WHERE a = 100")
    world.database.execute(
        "UPDATE every_type SET t = NULL WHERE a = 1003; UPDATE every_type SET tz = tz + '1 h' WHERE a = 2500"
    )
    world.database.execute(
        "DELETE FROM every_type WHERE a IN (1002, 2999); INSERT INTO every_type (a, b) VALUES (0, -5), (9999, 99)"
    )
    world.database.execute(
        "UPDATE texts SET k = k || ' ' WHERE x = 77; UPDATE scales SET k = 1.00, free = 1.00 WHERE k = 1"
    )
    found = both_ways(world)
    assert [v.method for v in found.values()] == [
        VerificationMethod.CHECKSUM,
        VerificationMethod.CHECKSUM,
        VerificationMethod.ROWS,
        VerificationMethod.CHECKSUM,
    ]
    assert len(found["every_type"].differences) == 7
    assert {each.kind for each in found["every_type"].differences} == {"missing", "extra", "different"}
    assert found["every_type"].ranges_different <= 7
    assert sorted(each.kind for each in found["texts"].differences) == ["extra", "missing"]
    assert [(each.key, each.kind) for each in found["scales"].differences] == [(("1.0000",), "different")]


@pytest.mark.usefixtures("small_ranges")
def test_keys_at_the_ends_and_twice_are_in_a_range(world: World) -> None:
    world.database.execute(
        "CREATE TABLE times (at timestamptz PRIMARY KEY, x int);"
        "INSERT INTO times SELECT '2020-01-01'::timestamptz + g * '1 h'::interval, g FROM generate_series(1, 3000) g;"
        "INSERT INTO times VALUES ('infinity', 1), ('-infinity', 2); ANALYZE times"
    )
    for setting in (
        "datestyle = 'German'",
        "timezone = 'Asia/Tokyo'",
        "extra_float_digits = 0",
        "bytea_output = 'escape'",
    ):
        world.database.execute(f"ALTER DATABASE {world.database.name} SET {setting}")
    times = world.add("times")
    with snapshot_of(world) as snapshot:
        world.hand_over(world.copy(snapshot), snapshot.position)
    assert [(v.equal, v.method, v.source_rows) for v in both_ways(world).values()] == [
        (True, VerificationMethod.CHECKSUM, 3002)
    ]
    key = pa.array([datetime(2020, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    twin = pa.table({"c0": key, "c1": pa.array([24], pa.int32())})
    world.change(times, TableChanges(times.table, False, None, twin, None))
    world.database.execute("DELETE FROM times WHERE at IN ('infinity', '-infinity')")
    (verdict,) = both_ways(world).values()
    assert sorted((each.key[0], each.kind) for each in verdict.differences) == [
        ("-infinity", "extra"),
        ("2020-01-02 00:00:00+00", "extra"),
        ("infinity", "extra"),
    ]
    assert verdict.method is VerificationMethod.CHECKSUM


@pytest.mark.parametrize(
    "change", ["ALTER TABLE keyed DROP COLUMN pad", "TRUNCATE keyed", "ALTER TABLE keyed RENAME COLUMN n TO pad2"]
)
def test_a_table_that_changed_after_the_snapshot_is_not_compared_by_digests(world: World, change: str) -> None:
    world.database.execute(SETUP)
    keyed, bag = world.add("keyed"), world.add("bag")
    with snapshot_of(world) as snapshot:
        world.hand_over(world.copy(snapshot), snapshot.position)
        world.database.execute(change)
        of_keyed, of_bag = world.verify(snapshot, method=VerificationMethod.CHECKSUM)
    assert (keyed.table, of_keyed.status, of_keyed.code) == (
        of_keyed.table,
        VerdictStatus.NOT_COMPARED,
        "table_structure_changed",
    )
    assert (bag.table, of_bag.equal, of_bag.by_rows_because) == (of_bag.table, True, "no key")
