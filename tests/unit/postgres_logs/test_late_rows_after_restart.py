"""Rows that moved before a restart: what their earlier node did to them is late, in whatever order the nodes are read afterwards."""

from __future__ import annotations

import pytest

from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.source import RecordChunk
from engine.sort.merge_records import Order
from engine.sources.postgres_logs.merged_stream import Keeping, MergedStream
from tests.fixtures.waiting import wait_until
from tests.unit.postgres_logs.fed_nodes import FedStream, Follower, Log, follow, kept_before, merged
from tests.unit.postgres_logs.test_kept_transactions import MANY, logs_of

State = tuple[Lsn, LastCommit]
SILENT: list[RecordChunk | None] = [None] * 50


def moved() -> tuple[Log, Log]:
    """The row 7 is deleted on n0, then inserted on n1, where something is prepared all the time."""
    left, arrived = logs_of(2)
    left.local([left.delete("7")])
    arrived.prepare("h", [arrived.insert("8", "prepared")])
    arrived.local([arrived.insert("7", "of n1")])
    return left, arrived


def kinds_of(follower: Follower) -> list[tuple[int, bytes]]:
    """Node and type of each row that was written."""
    return [(each.mark[0], row[:1]) for each in follower.with_marks for row in each.rows]


def land_next(stream: MergedStream, follower: Follower) -> bool:
    chunk = stream.read(0.0)
    if chunk is not None:
        follower.land(chunk)
    return chunk is not None


def is_recorded(stream: MergedStream, follower: Follower, log: Log) -> bool:
    land_next(stream, follower)
    _, last = follower.kept[-1]
    return last.logs is not None and bool(last.logs.kept) and last.logs.nodes[log.node].read >= Lsn(log.ends[-1][1])


def begun_with_the_arrival(left: Log, arrived: Log) -> State:
    """What is recorded once the log of n1 is merged, and that of n0 is not read."""
    follower = Follower(Lsn(0), kept_before(2))
    streams = [FedStream(SILENT), FedStream(arrived.chunks([]))]
    with merged(streams, [left.end, arrived.end], Keeping(), Order.CAUSAL) as stream:
        wait_until(lambda: is_recorded(stream, follower, arrived), what="how far n1 is merged is recorded")
    assert kinds_of(follower) == [(1, b"I")]
    end, last = follower.kept[-1]
    assert last.logs is not None
    assert last.logs.kept[1] < last.logs.nodes[1].read
    return end, last


@pytest.mark.parametrize("memory", [1, MANY])
def test_a_late_delete_is_left_out_if_it_is_read_before_the_arrival_is_read_again(memory: int) -> None:
    left, arrived = moved()
    begin = begun_with_the_arrival(left, arrived)
    follower, ends = Follower(*begin), [left.end, arrived.end]
    given = [FedStream(left.chunks([])), FedStream([*SILENT, *arrived.chunks([4])])]
    with merged(given, ends, Keeping(memory_bytes=memory), Order.CAUSAL, begin) as stream:
        assert stream.read(0.0) is not None
        assert stream.waits_for == {"n1"}
        follow(stream, follower, {"n0": Lsn(left.end), "n1": Lsn(arrived.end)})
    assert kinds_of(follower) == []


def test_a_late_delete_is_left_out_if_the_row_arrived_with_a_global_transaction() -> None:
    """The state is of its commit, so it does not say that the part was read that has to be read again."""
    left, arrived, coordinator = logs_of(3)
    left.local([left.delete("7")])
    arrived.prepare("g", [arrived.insert("7", "of n1")])
    coordinator.own("g\nn1,n2", [coordinator.insert("9", "of n2")])
    logs = (left, arrived, coordinator)
    ends = [log.end for log in logs]
    first = Follower(Lsn(0), kept_before(3))
    given = [FedStream(SILENT), *(FedStream(log.chunks([])) for log in logs[1:])]
    with merged(given, ends, Keeping(), Order.CAUSAL) as stream:
        wait_until(lambda: land_next(stream, first) and bool(first.with_marks), what="the global transaction")
    (found,) = first.with_marks
    assert [row[:1] for row in found.rows] == [b"I", b"I"]
    begin = first.kept[-1]
    state = begin[1].logs
    assert state is not None
    assert state.open == {"g": (1,)}
    arrived.finish("g", commit=True)
    second = Follower(*begin)
    chunks = [left.chunks([]), [*SILENT, *arrived.chunks([])], coordinator.chunks([])]
    with merged(
        [FedStream(each) for each in chunks], [log.end for log in logs], Keeping(), Order.CAUSAL, begin
    ) as stream:
        follow(stream, second, {f"n{log.node}": Lsn(log.end) for log in logs})
    assert kinds_of(second) == []
