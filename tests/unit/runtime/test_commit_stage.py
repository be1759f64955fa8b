"""What the commit stage makes of a table that parks while later batches are planned already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from engine.link.messages import Report
from engine.model.batch import SealedBatch, TableChanges, TablePart
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, RelationId, SubscriptionName, TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.subscription import ConnectionSpec, SubscriptionSpec, TableSpec
from engine.model.table_state import TableState
from engine.model.target import BatchCommit, Target
from engine.runtime.clock import SystemClock
from engine.runtime.commits import CommitStage
from engine.runtime.jobs import Computed
from engine.runtime.planner import PlannedBatch
from engine.runtime.reporting import Reporter
from engine.runtime.table_book import TableBook, TableEntry

KEYED, OTHER = TableId("tkeyed"), TableId("tother")


def schema(name: str) -> TableSchema:
    columns = (Column("id", SourceType("int4"), 1),)
    return TableSchema(TableName("public", name), RelationId(1), columns, ("id",), KeyMode.KEYED, ReplicaIdentity.FULL)


SCHEMAS = {KEYED: schema("keyed"), OTHER: schema("other")}


class RefusingTarget:
    """Refuses every copy whose declared key is to be checked."""

    def __init__(self) -> None:
        self.batches: list[BatchCommit] = []

    def commit(self, batch: BatchCommit) -> None:
        for table in batch.tables:
            if table.handover and table.check_key:
                raise EngineFault(FaultKind.TABLE_KEY_NOT_UNIQUE, table.table, "two rows have the same key")
        self.batches.append(batch)


class Bench:
    """A commit stage over two tables, of which one has a declared key."""

    def __init__(self) -> None:
        self.target = RefusingTarget()
        self.reports: list[Report] = []
        self.book = TableBook(lambda entry, position: None)
        specs = tuple(
            TableSpec(table, s.name, s.name, key=("id",) if table == KEYED else ()) for table, s in SCHEMAS.items()
        )
        for one in specs:
            state = TableState.CATCHING_UP if one.table == KEYED else TableState.LIVE
            self.book.put(TableEntry(one, state, SCHEMAS[one.table], copied=one.table == KEYED))
        connection = ConnectionSpec("c", "none", {})
        spec = SubscriptionSpec(SubscriptionName("s"), Epoch(1), connection, connection, specs, "slot")
        clock = SystemClock()
        reporter = Reporter(spec, self.reports.append, clock)
        target = cast("Target", self.target)
        self.stage = CommitStage(spec, target, self.book, reporter, clock, ZERO, 10_000.0)

    def commit(self, number: int, handover: frozenset[TableId] = frozenset()) -> None:
        """A batch with rows for both tables, as it was planned before anything of the one before was committed."""
        batch = SealedBatch(Lsn(number * 100), Lsn(number * 100 + 100), 0, (), (), 0, 0)
        parts = tuple(TablePart(table, (s,), batch.after) for table, s in SCHEMAS.items())
        planned = PlannedBatch(BatchId(number), batch, (), parts, frozenset(), handover)
        rows: Any = object()
        changes = tuple(TableChanges(table, False, None, rows, None) for table in SCHEMAS)
        self.stage.commit(Computed(planned, changes, 0, "driver", 0.0, 0, 0.0), must_write=False)

    def written(self) -> list[dict[TableId, str | None]]:
        return [{t.table: t.parked for t in batch.tables} for batch in self.target.batches]


def test_a_refused_copy_parks_and_batches_planned_meanwhile_leave_the_table_alone() -> None:
    bench = Bench()
    bench.commit(1, frozenset({KEYED}))
    bench.commit(2)
    code = FaultKind.TABLE_KEY_NOT_UNIQUE.value
    assert bench.written() == [{KEYED: code, OTHER: None}, {OTHER: None}]
    entry = bench.book.get(KEYED)
    assert entry is not None
    assert entry.reason is not None
    assert (entry.state, entry.reason.code) == (TableState.PARKED, code)
    assert bench.stage.applied.written == Lsn(300)


def test_a_handed_over_table_takes_part_again() -> None:
    bench = Bench()
    bench.commit(1, frozenset({KEYED}))
    entry = bench.book.get(KEYED)
    assert entry is not None
    keyless = replace(entry, spec=replace(entry.spec, key=()), state=TableState.CATCHING_UP, copied=True)
    bench.book.put(keyless)
    bench.commit(2, frozenset({KEYED}))
    bench.commit(3)
    assert bench.written()[1:] == [{KEYED: None, OTHER: None}] * 2


@pytest.mark.parametrize("declared", [False, True])
def test_only_a_declared_key_is_checked(*, declared: bool) -> None:
    bench = Bench()
    table = KEYED if declared else OTHER
    bench.commit(1, frozenset({table}))
    assert ({KEYED: FaultKind.TABLE_KEY_NOT_UNIQUE.value, OTHER: None} in bench.written()) is declared
