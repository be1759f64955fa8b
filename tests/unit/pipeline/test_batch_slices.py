"""Large batches in pieces: nothing is lost or reordered, plain runs stay whole, structures follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine.model.batch import LogRange, RelationSeen, TableChanges, TablePart
from engine.model.identity import Ordinal, RelationId, TableId
from engine.model.position import Lsn
from engine.pipeline.batch_slices import BatchSlice, Sizes, Staged, compute, cut, pieces
from tests.unit.net.batch_builder import column, table

_RECORD_BYTES = 10
_FIRST = table([column("id", "int4"), column("a")], ["id"], oid=7)
_SECOND = table([column("id", "int4"), column("a"), column("b")], ["id"], oid=7)
_THIRD = table([column("id", "int4"), column("a"), column("b"), column("c")], ["id"], oid=7)


def _bytes_of(start: Ordinal, stop: Ordinal) -> int:
    return (stop - start) * _RECORD_BYTES


def _range(start: int, stop: int, xid: int = 0) -> LogRange:
    return LogRange(Ordinal(start), Ordinal(stop), Lsn(100), xid)


def _seen(ordinal: int) -> RelationSeen:
    return RelationSeen(Ordinal(ordinal), RelationId(7), b"")


@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from([0, 0, 5, 6])), max_size=12), st.integers(1, 300))
def test_pieces_hold_the_same_records_in_the_same_order(shapes: list[tuple[int, int]], most: int) -> None:
    at, ranges = 0, []
    for records, xid in shapes:
        ranges.append(_range(at, at + records, xid))
        at += records
    groups = cut(ranges, _bytes_of, most)
    assert [n for group in groups for r in group for n in range(r.start, r.stop)] == list(range(at))
    plain = [(r.start, r.stop) for group in groups for r in group if r.xid == 0]
    assert plain == [(r.start, r.stop) for r in ranges if r.xid == 0]
    for group in groups:
        size = sum(_bytes_of(r.start, r.stop) for r in group)
        assert group
        # The parts of a chunk that is cut differ by up to a record.
        assert size <= most + _RECORD_BYTES * len(group) or len(group) == 1


def test_a_streamed_chunk_is_cut_and_a_plain_run_is_not() -> None:
    assert cut([_range(0, 10, xid=5)], _bytes_of, 50) == [(_range(0, 5, 5),), (_range(5, 10, 5),)]
    assert cut([_range(0, 10)], _bytes_of, 50) == [(_range(0, 10),)]
    assert cut([], _bytes_of, 50) == []


def test_later_pieces_begin_with_the_structures_that_earlier_ones_announced() -> None:
    part = TablePart(TableId("t"), (_FIRST, _SECOND, _THIRD), Lsn(0))
    # Chunks of a streamed transaction lie before plain records that committed earlier.
    groups = [(_range(50, 60),), (_range(0, 10, 5), _range(20, 30, 5)), (_range(60, 70),)]
    found = pieces(groups, [_seen(22), _seen(65)], [part])
    assert [piece.ranges for piece in found] == groups
    assert [len(piece.parts[0].versions) for piece in found] == [3, 3, 2]
    assert found[2].parts[0].versions == (_SECOND, _THIRD)


def test_more_announcements_than_known_structures_leave_the_last_one() -> None:
    part = TablePart(TableId("t"), (_FIRST,), Lsn(0))
    found = pieces([(_range(0, 5),), (_range(5, 9),)], [_seen(1)], [part])
    assert found[1].parts[0].versions == (_FIRST,)


class _Runs:
    """Notes what was to be run."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[tuple[str, ...]], int, int]] = []

    def __call__(self, found: Sequence[tuple[int, BatchSlice]], buckets: int, attempt: int) -> tuple[TableChanges, ...]:
        self.calls.append(([tuple(part.table for part in piece.parts) for _, piece in found], buckets, attempt))
        return ()


def test_a_slice_staged_before_its_commit_gets_the_time_of_the_commit() -> None:
    part = TablePart(TableId("t"), (_FIRST,), Lsn(0))
    open_, committed = _range(0, 10, 5), replace(_range(0, 10, 5), time_us=1_700_000_000_000_000)
    staged = Staged((open_,), frozenset({5}), {part.table: _FIRST}, (TableChanges(part.table, truncated=True),))
    (found,) = compute([committed], (), [part], Sizes(_bytes_of, 1000), _Runs(), [staged])
    assert (found.truncated, found.commit_us) == (True, committed.time_us)


def test_tables_whose_key_holds_at_commits_only_are_netted_as_a_whole() -> None:
    plain = TablePart(TableId("plain"), (_FIRST,), Lsn(0))
    declared = TablePart(TableId("declared"), (_FIRST,), Lsn(0), whole=True)
    runs = _Runs()
    compute([_range(0, 30, 5)], (), [plain, declared], Sizes(_bytes_of, 100), runs)
    assert runs.calls == [([("plain",)] * 3, 1, 0), ([("declared",)], 3, 1)]
    runs = _Runs()
    compute([_range(0, 10, 5)], (), [plain, declared], Sizes(_bytes_of, 100, 2), runs)
    assert runs.calls == [([("plain", "declared")], 2, 0)]
