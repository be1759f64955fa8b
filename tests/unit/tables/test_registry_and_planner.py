"""What the planner keeps, what a copy's end does to a parked table, and what a queue may release."""

from __future__ import annotations

import pytest

from engine.model.batch import LogRange, SealedBatch
from engine.model.identity import BatchId, Ordinal, TableId
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.table_state import Refused
from engine.tables.copy_admission import CopyAdmission
from engine.tables.planner import Planner
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.schema_reading import SchemaReading
from engine.tables.state import CopyStarted, Pause, Registered, Reload, holds_up_to
from tests.fixtures.table_copies import finish_copy
from tests.unit.tables.test_planner import A, B, Bench, live, spec

__all__ = ["TableSchema"]


def test_a_copy_that_ends_behind_its_tables_fault_is_not_handed_over() -> None:
    bench = Bench(TableEntry(spec("a"), Registered()))
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    bench.admission.begin_chunk(TableId("ta"), A, Lsn(150), None)
    bench.plan()
    bench.parking.park(TableId("ta"), "table_partitions_changed", "a partition was detached")
    bench.plan()
    finish_copy(bench.book, TableId("ta"))
    assert bench.plan().handover == frozenset()


def test_a_pause_that_a_copying_table_refuses_leaves_its_position() -> None:
    bench = Bench(TableEntry(spec("a"), Registered()))
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    bench.admission.begin_chunk(TableId("ta"), A, Lsn(150), None)
    bench.book.apply(TableId("ta"), Pause(bench.planner.next_number, Lsn(400), taken_in=False))
    entry = bench.book.get(TableId("ta"))
    assert entry is not None
    assert holds_up_to(entry.state) == Lsn(150)


def test_a_reload_behind_a_planned_hand_over_does_not_plan_it_again() -> None:
    bench = Bench(TableEntry(spec("a"), Registered()))
    bench.book.apply(TableId("ta"), CopyStarted(bench.planner.next_number))
    bench.admission.begin_chunk(TableId("ta"), A, Lsn(150), None)
    finish_copy(bench.book, TableId("ta"))
    assert bench.plan().handover == {"ta"}
    # The table does not take the event while it catches up.
    moved = bench.book.apply(TableId("ta"), Reload(bench.planner.next_number))
    assert isinstance(moved, Refused)
    assert bench.plan().handover == frozenset()


def test_batches_without_records_are_not_kept_for_a_paused_table() -> None:
    bench = Bench(live("a", A), live("b", B))
    bench.book.apply(TableId("ta"), Pause(bench.planner.next_number, Lsn(100), taken_in=False))
    for _ in range(1000):
        bench.plan(records=0)
    assert len(bench.planner._history) < 10


def test_a_removed_table_does_not_end_the_planner() -> None:
    """The catalog is read between the reading of the book and its change; the table may be gone by then."""
    from engine.model.batch import RelationSeen

    book = TableRegistry()
    book.add(live("a", A))

    def resolve(*_: object) -> TableSchema:
        book.forget(TableId("ta"))
        return A

    planner = Planner(book, SchemaReading(lambda _: resolve, lambda _: A.name), BatchId(1))
    seen = (RelationSeen(Ordinal(0), A.relation, b"A"),)
    batch = SealedBatch(Lsn(1), Lsn(2), 1, (LogRange(Ordinal(0), Ordinal(3), Lsn(2)),), seen, 0, 0)
    planner.plan(batch)
    assert not book.all()


@pytest.mark.parametrize("method", ["copy_ends", "copy_begins"])
def test_the_end_of_a_copy_of_a_removed_table_is_passed_over(method: str) -> None:
    book = TableRegistry()
    if method == "copy_ends":
        assert isinstance(finish_copy(book, TableId("gone")), Refused)
    else:
        assert not CopyAdmission(book).begin_chunk(TableId("gone"), A, Lsn(1), None)
    assert not book.all()


def test_a_number_that_a_parked_table_had_before_is_the_table_that_has_it_now() -> None:
    bench = Bench(live("a", A), live("b", B))
    bench.parking.park(TableId("ta"), "table_no_identity", "the two exchanged their names")
    bench.book.amend(TableId("tb"), schema=A)
    found = bench.book.all().by_relation(A.relation)
    assert found is not None
    assert found.table == "tb"
    bench.book.forget(TableId("tb"))
    found = bench.book.all().by_relation(A.relation)
    assert found is not None
    assert found.table == "ta"
