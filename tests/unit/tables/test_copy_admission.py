"""Which copies may begin a chunk now."""

from __future__ import annotations

from engine.model.identity import BatchId, TableId
from engine.model.position import Lsn
from engine.tables.copy_admission import CopyAdmission
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.state import CaughtUp, CopyLost, Reload, Reloading
from tests.fixtures.table_copies import finish_copy
from tests.unit.tables.test_planner import A, spec

T = TableId("ta")


def admission() -> tuple[TableRegistry, CopyAdmission]:
    """Of a table that waits for a copy, for which changes are retained from batch 1 on."""
    book = TableRegistry()
    book.add(TableEntry(spec("a"), Reloading(BatchId(1)), A))
    return book, CopyAdmission(book)


def test_no_chunk_begins_under_a_snapshot_that_precedes_what_is_retained() -> None:
    book, admitted = admission()
    admitted.snapshot_follows([T])
    book.apply(T, CopyLost(BatchId(2)))
    assert admitted.begin_chunk(T, A, Lsn(1), None) is None
    admitted.snapshot_follows([T])
    assert admitted.begin_chunk(T, A, Lsn(2), None) is not None


def test_no_chunk_begins_during_a_hand_over_of_its_table() -> None:
    _, admitted = admission()
    with admitted.handing_over(frozenset({T})):
        assert admitted.begin_chunk(T, A, Lsn(1), None) is None
    assert admitted.begin_chunk(T, A, Lsn(1), None) is not None


def test_a_restarted_copy_is_whole_until_the_table_is_live() -> None:
    book, admitted = admission()
    assert admitted.begin_chunk(T, A, Lsn(1), None) is not None
    admitted.restart_copy(T)
    assert admitted.is_whole(T)
    assert admitted.begin_chunk(T, A, Lsn(2), None) is not None
    finish_copy(book, T)
    book.apply(T, CaughtUp())
    assert not admitted.is_whole(T)
    book.apply(T, Reload(BatchId(3)))
    assert not admitted.is_whole(T)
