"""Verifications at cuts: a table that cannot be read at one is compared at another, and never counts unseen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager

import pytest

from engine.connectors import open_source
from engine.control.verification import CUTS, Comparing, verify_at_cuts
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.model.verification import VerificationMethod
from engine.verify.verdict import TableVerdict
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.pg.engine.repairing import FOLLOWED, FOLLOWED_TABLES, assert_followed_rows_are_equal

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

TABLES = """
CREATE TABLE first (id int PRIMARY KEY);
CREATE TABLE second (id int PRIMARY KEY);
INSERT INTO first SELECT generate_series(1, 50);
INSERT INTO second SELECT generate_series(1, 50);
"""


class Meddler:
    """Truncates whatever is to be compared next, `times` times, as soon as the one before it is done."""

    def __init__(self, replica: Replica, times: int) -> None:
        self._database = replica.database
        self._names = {spec.table: spec.source.name for spec in replica.spec.tables}
        self._left = times
        self.starts: list[tuple[Lsn, int]] = []
        self.verdicts: list[TableVerdict] = []

    def start(self, position: Lsn, total: int) -> None:
        self.starts.append((position, total))
        self.meddle()

    def add(self, verdict: TableVerdict) -> None:
        self.verdicts.append(verdict)

    def meddle(self) -> None:
        if self._left:
            self._left -= 1
            name = sorted(self._names.items())[-1][1]
            self._database.execute(f"TRUNCATE {name}; INSERT INTO {name} VALUES ({self._left})")

    def of(self, replica: Replica) -> tuple[TableVerdict, TableVerdict]:
        """The verdicts of the table left alone, and of the one that was truncated."""
        last = max(self._names)
        alone = [v for v in self.verdicts if v.table != last]
        meddled = [v for v in self.verdicts if v.table == last]
        assert (len(alone), len(meddled)) == (1, 1)
        return alone[0], meddled[0]


class MeddlingCuts:
    """The cuts of a run; each but the first is meddled with as soon as it is made."""

    def __init__(self, replica: Replica, meddler: Meddler, *, early: bool) -> None:
        self.early = early
        assert replica.pipeline.run is not None
        self._cuts = replica.pipeline.run.cuts
        self._meddler = meddler
        self.asked: list[list[TableId] | None] = []

    @contextmanager
    def cut(self, read_early):  # type: ignore[no-untyped-def]  # as CutDesk.cut
        with self._cuts.cut(read_early if self.early else lambda _: None) as both:
            yield both

    def records(self, tables):  # type: ignore[no-untyped-def]  # as CutDesk.records
        self.asked.append(tables)
        if len(self.asked) > 1:
            self._meddler.meddle()
        return sorted(self._cuts.records(tables), key=lambda record: record.table)


def compared(
    replica: Replica, times: int, *, early: bool = False, method: VerificationMethod = VerificationMethod.ROWS
) -> tuple[Meddler, MeddlingCuts]:
    meddler = Meddler(replica, times)
    cuts = MeddlingCuts(replica, meddler, early=early)
    source = open_source(replica.spec.source)
    try:
        specs = {spec.table: spec for spec in replica.spec.tables}
        verify_at_cuts(cuts, source, specs, None, meddler, threading.Event(), Comparing(method))
    finally:
        source.close()
    return meddler, cuts


def test_a_table_truncated_meanwhile_is_compared_at_another_cut(database: Database, replicate: Replicate) -> None:
    database.execute(TABLES)
    replica = replicate(database, [table("first"), table("second")])
    meddler, cuts = compared(replica, 2, method=VerificationMethod.CHECKSUM)
    alone, meddled = meddler.of(replica)
    assert (alone.equal, alone.method, alone.ranges) == (True, VerificationMethod.CHECKSUM, 1)
    assert meddled.equal
    assert meddled.source_rows == meddled.target_rows == 1
    assert meddler.starts == [(alone.position, 2)]
    assert meddled.position > alone.position
    assert cuts.asked == [None, [meddled.table], [meddled.table]]


def test_a_table_that_never_holds_still_is_not_called_equal(database: Database, replicate: Replicate) -> None:
    database.execute(TABLES)
    replica = replicate(database, [table("first"), table("second")])
    meddler, cuts = compared(replica, 100)
    alone, meddled = meddler.of(replica)
    assert alone.equal
    assert (meddled.equal, meddled.code) == (False, "table_structure_changed")
    assert len(cuts.asked) == CUTS


def test_a_small_table_that_is_truncated_all_the_time_is_read_before_the_target_is_there(
    database: Database, replicate: Replicate
) -> None:
    database.execute(TABLES)
    replica = replicate(database, [table("first"), table("second")])
    meddler, cuts = compared(replica, 100, early=True)
    alone, meddled = meddler.of(replica)
    assert alone.equal
    assert meddled.equal
    assert meddled.source_rows == meddled.target_rows == 1
    assert cuts.asked == [None, [meddled.table]]


def test_digests_are_those_of_the_rows_that_are_followed(database: Database, replicate: Replicate) -> None:
    database.execute(FOLLOWED)
    assert_followed_rows_are_equal(database, replicate(database, FOLLOWED_TABLES))
