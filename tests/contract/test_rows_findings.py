"""The fake source without a log through the source monitor: it returns the same findings as any other kind of source."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.model.fault import FaultKind
from engine.model.identity import TableId
from engine.model.patterns import TablePattern
from engine.model.position import ZERO, Lsn
from engine.platform.clock import SystemClock
from engine.safety.findings import Finding, LogRetained, Park, SchemaLearnt, SourceGone, TablesAppeared
from engine.safety.log_evidence import LogEvidence
from engine.safety.source_monitor import SourceMonitor
from engine.tables.known_catalog import Settled
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.state import Live
from tests.contract.rows_database import RowsDatabase
from tests.contract.source_rows import RowsSource
from tests.fixtures.replication import table

READER = "penstock_rows"


class Watched:
    """A monitor of a live table `notes`, and its source."""

    def __init__(self) -> None:
        self.database = RowsDatabase("shop")
        self.run("CREATE TABLE notes (id bigint PRIMARY KEY, v varchar(100))")
        self.source = RowsSource(self.database)
        with self.source.reader.create(READER):
            pass
        self.notes = table("notes")
        book = TableRegistry()
        book.add(TableEntry(self.notes, Live(ZERO), self.source.describe([self.notes])[self.notes.source]))
        spec = SimpleNamespace(reader=READER, patterns=(TablePattern("public"),))
        parts = SimpleNamespace(spec=spec, clock=SystemClock(), source=self.source, book=book)
        evidence = LogEvidence(self.source.ddl.parse)
        self.monitor = SourceMonitor(cast("Any", parts), evidence, lambda: Lsn(1000))

    def run(self, statement: str) -> None:
        session = self.database.session()
        session.execute(statement)
        session.commit()

    def look(self) -> list[Finding]:
        return list(self.monitor.check())


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_nothing_to_do_settles(watched: Watched) -> None:
    retained, settled = watched.look()
    assert isinstance(retained, LogRetained)
    assert isinstance(settled, Settled)
    assert settled.tables == {watched.notes.table}
    assert watched.monitor.checked == Lsn(1000)


def test_another_schema_is_learnt_by_the_second_check_that_sees_it(watched: Watched) -> None:
    """The source names no storage of the table, so the first check leaves it to the next one whether rows came with the change."""
    watched.run("ALTER TABLE notes ADD COLUMN w bigint")
    first, second = watched.look(), watched.look()
    assert not [found for found in first if isinstance(found, SchemaLearnt | Settled)]
    (learnt,) = [found for found in second if isinstance(found, SchemaLearnt)]
    assert [column.name for column in learnt.schema.schema.columns] == ["id", "v", "w"]


def test_a_table_that_appears_is_found_once(watched: Watched) -> None:
    watched.run("CREATE TABLE lines (id bigint PRIMARY KEY, n bigint)")
    found = [found for _ in range(2) for found in watched.look() if isinstance(found, TablesAppeared)]
    assert found == [TablesAppeared({table("lines").source: True})]


def test_a_reader_that_is_gone_ends_the_run(watched: Watched) -> None:
    watched.source.reader.release(READER)
    first = next(watched.monitor.check())
    assert isinstance(first, SourceGone)
    assert first.kind is FaultKind.LOG_GAP


def test_a_table_without_a_key_parks(watched: Watched) -> None:
    """Its description leaves it out: changes of its rows cannot be identified."""
    keyless = watched.database.tables["notes"]
    keyless.structure = type(keyless.structure)(
        keyless.structure.name, keyless.structure.relation, keyless.structure.fields, ()
    )
    parked = [found for found in watched.look() if isinstance(found, Park)]
    assert [(park.table, park.kind) for park in parked] == [(TableId(watched.notes.table), FaultKind.TABLE_NO_IDENTITY)]
