"""Small parts of global transactions, which are kept and written together: what comes is what comes of parts that are kept one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from engine.model.merged_logs import MergedLogs
from engine.model.position import Lsn
from engine.sort.merge_records import Order
from engine.sources.postgres_logs import node_log
from engine.sources.postgres_logs.late_rows import LateRows
from engine.sources.postgres_logs.merged_stream import Keeping
from tests.unit.postgres_logs.fed_nodes import (
    Clock,
    FedStream,
    Follower,
    Log,
    Merged,
    chunk_of,
    follow,
    kept_before,
    merged,
)

MANY = 1 << 40


def two_logs() -> list[Log]:
    """Two nodes that have announced their table."""
    clock = Clock()
    logs = [Log(node, clock, 7 + node) for node in range(2)]
    for log in logs:
        log.local([log.insert(f"first of {log.node}", "v")])
    return logs


def prepared(logs: Sequence[Log], count: int) -> None:
    """Global transactions with a part on each node, of which none is committed."""
    for number in range(count):
        for log in logs:
            log.prepare(f"g{number}", [log.insert(f"{number} of {log.node}", "v") for _ in range(1 + number % 3)])


def committed(logs: Sequence[Log], numbers: Sequence[int]) -> None:
    for number in numbers:
        for log in logs:
            log.finish(f"g{number}", commit=True)


def read(logs: Sequence[Log], order: Order = Order.CAUSAL) -> Follower:
    """The merged log, from one chunk of each node."""
    streams = [FedStream([chunk_of(log.records, log.end), chunk_of([], log.end)]) for log in logs]
    with merged(streams, [log.end for log in logs], Keeping(memory_bytes=MANY), order) as stream:
        follower = Follower(Lsn(0), kept_before(len(logs)))
        follow(stream, follower, {f"n{log.node}": Lsn(log.end) for log in logs})
    return follower


def one_by_one(logs: Sequence[Log], order: Order = Order.CAUSAL) -> Follower:
    """The same without bundles."""
    with patch.object(node_log, "_SMALL_BYTES", 0):
        return read(logs, order)


def state_of(follower: Follower) -> MergedLogs:
    state = follower.kept[-1][1].logs
    assert state is not None
    return state


def contents(follower: Follower) -> list[tuple[tuple[int, int], tuple[bytes, ...]]]:
    return [(each.mark, each.rows) for each in follower.with_marks]


def rows_with(follower: Follower, value: bytes) -> list[Merged]:
    return [each for each in follower.with_marks if any(value in row for row in each.rows)]


@pytest.mark.parametrize("order", Order)
def test_what_is_written_together_is_what_is_written_one_by_one(order: Order) -> None:
    logs = two_logs()
    prepared(logs, 20)
    committed(logs, range(20))
    together = read(logs, order)
    assert contents(together) == contents(one_by_one(logs, order))
    assert [len(each.rows) for each in together.with_marks[2:]] == [2 * (1 + number % 3) for number in range(20)]


def test_each_transaction_says_where_it_is_still_prepared() -> None:
    logs = two_logs()
    prepared(logs, 5)
    committed(logs, range(3))
    committed(logs[:1], [3, 4])
    found = read(logs)
    assert len(found.with_marks) == 7
    assert state_of(found).open == {"g3": (1,), "g4": (1,)}
    assert state_of(found).open == state_of(one_by_one(logs)).open


def test_parts_that_wait_together_go_to_disk_and_their_space_comes_back(tmp_path: Path) -> None:
    logs = two_logs()
    prepared(logs, 40)
    committed(logs, range(0, 40, 2))
    committed(logs[::-1], range(39, 0, -2))
    silent: list[None] = [None] * 6
    borders = [len(logs[0].records) // 2]
    streams = [FedStream(logs[0].chunks(borders)), FedStream([*silent, *logs[1].chunks([len(logs[1].records)])])]
    with merged(streams, [log.end for log in logs], Keeping(tmp_path, 2_000), Order.CAUSAL) as stream:
        follower = Follower(Lsn(0), kept_before(2))
        seen = 0
        for _ in range(6):
            chunk = stream.read(0.0)
            seen = max(seen, stream.spooled_bytes)
            if chunk is not None:
                follower.land(chunk)
        assert seen > 2_000
        follow(stream, follower, {f"n{log.node}": Lsn(log.end) for log in logs})
        assert stream.spooled_bytes == 0
    assert sorted(contents(follower)[2:]) == sorted(contents(one_by_one(logs))[2:])


def test_a_part_that_is_rolled_back_does_not_keep_the_others_from_their_end() -> None:
    logs = two_logs()
    prepared(logs, 6)
    for log in logs:
        log.finish("g2", commit=False)
    committed(logs, [0, 1, 3, 4, 5])
    found = read(logs)
    assert contents(found) == contents(one_by_one(logs))
    assert not rows_with(found, b"2 of ")


def test_a_late_change_in_a_small_part_is_left_out() -> None:
    """The other node's row with the same key came later, and is merged first."""
    first, second = logs = two_logs()
    second.local([second.insert("moved", "new")])
    first.prepare("g", [first.delete("moved"), first.insert("other", "v")])
    first.finish("g", commit=True)
    begin, *rest = first.chunks([4])
    streams = [FedStream([begin, None, None, None, *rest]), FedStream(second.chunks([]))]
    with merged(streams, [log.end for log in logs], Keeping(memory_bytes=MANY), Order.CAUSAL) as stream:
        follower = Follower(Lsn(0), kept_before(2))
        follow(stream, follower, {f"n{log.node}": Lsn(log.end) for log in logs})
    (with_other,) = rows_with(follower, b"other")
    (with_moved,) = rows_with(follower, b"moved")
    assert follower.with_marks.index(with_moved) < follower.with_marks.index(with_other)
    assert [row[:1] for row in with_other.rows] == [b"I"]


def test_rows_that_small_parts_move_are_deleted_before_they_are_inserted() -> None:
    first, second = logs = two_logs()
    for number in range(4):
        second.prepare(f"g{number}", [second.delete(f"row {number}"), second.insert(f"stays {number}", "v")])
        first.prepare(f"g{number}", [first.insert(f"row {number}", "v")])
    committed(logs, range(4))
    found = read(logs)
    for number in range(4):
        (one,) = rows_with(found, b"row %d" % number)
        assert [row[:1] for row in one.rows] == [b"D", b"I", b"I"]


def test_parts_that_are_written_count_as_held_no_longer() -> None:
    """Or the nodes would be read with pauses, and what waits would go to disk."""
    logs = two_logs()
    for number in range(40):
        for log in logs:
            log.prepare(f"g{number}", [log.insert(f"{number} of {log.node}", "v")])
            log.finish(f"g{number}", commit=True)
    streams = [FedStream(log.chunks([12] * 12)) for log in logs]
    with (
        patch.object(node_log.NodeLog, "spool") as spool,
        merged(streams, [log.end for log in logs], Keeping(memory_bytes=120_000), Order.CAUSAL) as stream,
    ):
        follower = Follower(Lsn(0), kept_before(2))
        follow(stream, follower, {f"n{log.node}": Lsn(log.end) for log in logs})
        assert [log.held_bytes for log in stream._logs] == [0, 0]
    spool.assert_not_called()
    assert len(follower.with_marks) == 42


def test_small_parts_are_written_before_the_nodes_count_as_merged() -> None:
    """Or a row that has just settled on one node would be taken for an earlier one than a row of a part that was written before."""
    logs = two_logs()
    prepared(logs, 3)
    committed(logs, range(3))
    unwritten: list[int] = []

    def advance(late: LateRows, merged_to: Sequence[int]) -> None:
        unwritten.append(len(stream._writer._wholes))
        plain(late, merged_to)

    plain = LateRows.advance
    streams = [FedStream(log.chunks([])) for log in logs]
    with (
        patch.object(LateRows, "advance", advance),
        merged(streams, [log.end for log in logs], Keeping(memory_bytes=MANY), Order.CAUSAL) as stream,
    ):
        follower = Follower(Lsn(0), kept_before(2))
        follow(stream, follower, {f"n{log.node}": Lsn(log.end) for log in logs})
    assert len(follower.with_marks) == 5
    assert set(unwritten) == {0}
