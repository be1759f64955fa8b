"""Tables that are read by their stamps: wherever a cycle loses its connection, no change is missed by the cycles after it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.splits import ReadRules
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff import cycle_snapshot
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import ComparedDatabase, Method
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.table_reading import Conduct
from tests.fixtures.lossy_cycles import interrupted
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.stamped_tables import assert_found_by_stamps
from tests.pg.query_diff import test_cycles_find_changes as found_by
from tests.pg.query_diff.meddled import READER, end_sessions, reader_of
from tests.pg.query_diff.test_cycles_find_changes import (
    DETECTIONS,
    STAMPED,
    Copy,
    change,
    empty_tables,
    held_by,
    late_in,
    make_tables,
    present_in,
)

pytestmark = pytest.mark.pg
small_pieces = found_by.small_pieces
FOLLOWED = {name: follow for name, follow in found_by.FOLLOWED.items() if name.name in STAMPED}
_MOST_EVENTS = 400
_RIGHT = "pg_read_all_stats"
"""Of a user that sees since when others' transactions are open. For one that does not, cycles read the changes of the last 15 minutes."""


@pytest.fixture(scope="module")
def database(pg18: Any) -> Iterator[Database]:
    with standing_database(pg18, "lost_stamps") as made:
        assert isinstance(made, Database)
        make_tables(made)
        reader_of(made)
        made.execute(f"GRANT {_RIGHT} TO {READER}")
        yield made
        made.execute(f"REVOKE {_RIGHT} FROM {READER}")


class Lost:
    """Events of a cycle, at one of which the sessions of the reader are ended, and at others rows change."""

    def __init__(self, database: Database, rng: random.Random) -> None:
        self._database = database
        self._rng = rng
        self.left = 0
        self.is_counted = False

    def __call__(self) -> None:
        if not self.is_counted:
            return
        self.left -= 1
        if self.left == 0:
            end_sessions(self._database)
        elif self._rng.random() < 0.05:
            change(self._database, self._rng)


@pytest.fixture
def lost(database: Database, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lost:
    # Else each cycle would read the changes of the last second again, which are all.
    monkeypatch.setattr(cycle_snapshot, "_CLOCK_STEP_S", 0.01)
    return Lost(database, random.Random(request.node.name))


@pytest.fixture
def read(database: Database, lost: Lost) -> Iterator[ComparedDatabase]:
    """What cycles read."""
    with closing(
        PostgresDatabase(Connector(reader_of(database)), Compared(DETECTIONS), ReadRules(sessions=2))
    ) as opened:
        yield interrupted(opened, lost)


@pytest.fixture
def observed(database: Database) -> Iterator[PostgresDatabase]:
    """The same by another user, whose sessions are not lost."""
    connector = Connector(ConnectionSpec("shop", "postgres", database.settings))
    with closing(PostgresDatabase(connector, Compared(DETECTIONS))) as opened:
        yield opened


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("conduct", [Conduct(), Conduct(snapshot_s=3600.0)], ids=["one snapshot", "in parts"])
@pytest.mark.parametrize("method", [Method.INCREMENTAL, Method.ROW_CHECKSUM])
@pytest.mark.parametrize("apart", [5, pytest.param(1, marks=pytest.mark.chaos)])
def test_no_change_is_missed_wherever_the_connection_is_lost(
    database: Database,
    read: ComparedDatabase,
    observed: PostgresDatabase,
    lost: Lost,
    tmp_path: Path,
    conduct: Conduct,
    method: Method,
    apart: int,
) -> None:
    """`apart`: events between the losses of two cycles."""
    rng = random.Random(f"{method}/{apart}/{conduct.snapshot_s}")
    given = Given(0, method, 10.0, tmp_path / "reader", "shop", DETECTIONS)
    given.folder.make()
    given.folder.follow(FOLLOWED)
    copy, at, resumed = Copy(given.folder), 1, 0
    failed: list[FaultKind] = []
    empty_tables(database)
    with run_cycle(read, given) as (snapshot, number):
        copy.fill(held_by(observed, snapshot, FOLLOWED), number)
    with late_in(database, rng) as late:
        while at < _MOST_EVENTS:
            change(database, rng)
            late.go_on()
            lost.left, lost.is_counted = at, True
            try:
                with run_cycle(read, given, conduct, complete=rng.random() < 0.2) as (snapshot, number):
                    lost.is_counted = False
                    resumed += not given.folder.files.read(number).snapshot
            except EngineFault as fault:
                failed.append(fault.kind)
            lost.is_counted = False
            copy.follow()
            late.go_on()
            complete = rng.random() < 0.3
            with run_cycle(read, given, complete=complete) as (snapshot, number):
                expected, present = held_by(observed, snapshot, FOLLOWED), present_in(database, snapshot)
            found = given.folder.files.read(number)
            copy.follow()
            assert all(table.fault is None for table in found.tables)
            is_swept = not any(table.since_stamp for table in found.tables)
            assert_found_by_stamps(copy.rows, expected, present, complete=is_swept)
            if lost.left > 0:
                break
            at += apart
    assert at > 10
    assert set(failed) <= {FaultKind.SOURCE_UNREACHABLE}
    assert resumed or given.folder.files.failures(1)
