"""Markers of tickets in the merged log: each comes after everything that was committed on any node before its request."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.identity import TicketId
from engine.model.position import Lsn
from engine.model.source import RecordChunk
from engine.model.ticket import PREFIX
from engine.sort.merge_records import Order
from engine.sources.postgres_logs.merged_stream import Keeping, MergedStream
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.postgres_logs.fed_nodes import Clock, FedStream, Follower, Log, follow, kept_before, merged

BOTH = 2
Steps = list[list[bool]]
"""By node, at each of its reads: whether the next chunk of its log has arrived."""


def two_logs(count: int) -> list[Log]:
    """On each node so many local transactions, and a part of one global transaction after them."""
    clock = Clock()
    logs = [Log(node, clock, 7 + node) for node in range(BOTH)]
    for log in logs:
        for number in range(count):
            log.local([log.insert(f"{log.node} {number}", "v")])
    for log in logs:
        log.prepare("g", [log.insert(f"g {log.node}", "v")])
    for log in logs:
        log.finish("g", commit=True)
    return logs


def fed(log: Log, arrives: list[bool]) -> FedStream:
    chunks = iter(log.chunks([3] * len(log.records)))
    early = [next(chunks, None) if now else None for now in arrives]
    return FedStream(itertools.chain(early, chunks))


def land(stream: MergedStream, follower: Follower, reads: int) -> None:
    for _ in range(reads):
        chunk: RecordChunk | None = stream.read(0.0)
        if chunk is not None:
            follower.land(chunk)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 4),
    st.lists(st.lists(st.booleans(), max_size=12), min_size=BOTH, max_size=BOTH),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.sampled_from(Order),
)
def test_a_marker_comes_after_all_that_the_nodes_had_at_its_request(
    count: int, arrivals: Steps, requests: list[int], order: Order
) -> None:
    """The logs are written before the first request, and are read at different speeds."""
    logs = two_logs(count)
    streams = [fed(log, arrives) for log, arrives in zip(logs, arrivals, strict=True)]
    with merged(streams, [log.end for log in logs], Keeping(), order) as stream:
        follower, asked = Follower(Lsn(0), kept_before(BOTH)), []
        for number, reads in enumerate(requests):
            land(stream, follower, reads)
            asked.append((f"tk{number}", stream.request_ticket(TicketId(f"tk{number}"))))
        follow(stream, follower, {f"n{log.node}": Lsn(log.end) for log in logs})
        land(stream, follower, 20)
    assert len(follower.with_marks) == BOTH * count + 1
    assert [(marker.ticket, marker.position) for marker, _, _ in follower.tickets] == asked
    for marker, end, before in follower.tickets:
        assert end >= marker.position
        assert before == BOTH * count + 1


@pytest.mark.parametrize("order", Order)
def test_a_marker_waits_for_a_silent_node_and_others_do_not_wait_for_it(order: Order) -> None:
    logs = two_logs(3)
    silent: list[RecordChunk | None] = [None] * 100
    streams = [FedStream(logs[0].chunks([])), FedStream([*silent, *logs[1].chunks([])])]
    with merged(streams, [log.end for log in logs], Keeping(), order) as stream:
        follower = Follower(Lsn(0), kept_before(BOTH))
        asked = stream.request_ticket(TicketId("tk1"))
        land(stream, follower, 50)
        assert follower.tickets == []
        assert len(follower.with_marks) == (3 if order is Order.CAUSAL else 0)
        assert follower.kept[-1][0] < asked
        follow(stream, follower, {"n1": Lsn(logs[1].end)})
        land(stream, follower, 20)
    assert [(marker.ticket, marker.position, before) for marker, _, before in follower.tickets] == [("tk1", asked, 7)]


def test_markers_that_others_write_on_a_node_are_none_of_the_merged_log() -> None:
    """Those of subscriptions that read the node by itself: their positions are of its own log."""
    logs = two_logs(1)
    logs[0].local([pgoutput.message(PREFIX, b"tk1 7"), logs[0].insert("more", "v")])
    with merged([FedStream(log.chunks([])) for log in logs], [log.end for log in logs], Keeping()) as stream:
        follower = Follower(Lsn(0), kept_before(BOTH))
        follow(stream, follower, {f"n{log.node}": Lsn(log.end) for log in logs})
    assert len(follower.with_marks) == 4
    assert follower.tickets == []
