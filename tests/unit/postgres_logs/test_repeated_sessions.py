"""Sessions of nodes that end at any record, and are opened again from an earlier position: the merged log is as if they had not ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.source import RecordChunk
from engine.sort.merge_records import Order
from engine.sources.postgres_logs import node_session
from engine.sources.postgres_logs.merged_stream import Keeping, MergedStream
from engine.sources.postgres_logs.node_session import NodeSession, Resume
from engine.sources.postgres_logs.repeated import Repeated
from tests.fixtures.waiting import wait_until
from tests.unit.postgres_logs.fed_nodes import FedStream, Follower, Log, chunk_of, kept_before, merged
from tests.unit.postgres_logs.test_kept_transactions import (
    MANY,
    History,
    assert_is_history,
    ends_of,
    histories,
    logs_of,
    rows_of,
)

BEGINNINGS = (b"B", b"b")
Sizes = list[list[int]]
"""Of the chunks of each session of a node."""


class EndingStream(FedStream):
    """Ends with a fault after its last chunk."""

    def read(self, timeout_s: float) -> RecordChunk | None:
        chunk = super().read(timeout_s)
        if chunk is None:
            raise EngineFault(FaultKind.SOURCE_UNREACHABLE, "n", "the source closed the connection")
        return chunk


def session_from(log: Log, start: int, sizes: Sequence[int], *, ends: bool) -> FedStream:
    """The log from one of its transactions on, with the announcement that a session makes first. `ends`: after these chunks."""
    first = log.ends[start - 1][0] if start else 0
    records = list(log.records)
    begin = next((at for at in range(first, len(records)) if records[at][:1] in BEGINNINGS), None)
    announced = [record for record in records[:first] if record[:1] == b"R"]
    if begin is not None and announced:
        records.insert(begin + 1, announced[-1])
    chunks, at, positions = [], first, dict(log.ends)
    end = 0
    for size in sizes:
        stop = min(at + size, len(records))
        moved = 1 if begin is not None and announced else 0
        for number in range(at, stop):
            original = number + 1 - (moved if begin is not None and number > begin else 0)
            end = max(end, positions.get(original, 0))
        chunks.append(chunk_of(records[at:stop], end))
        at = stop
    if ends:
        return EndingStream(chunks)
    return FedStream([*chunks, chunk_of(records[at:], log.end)])


def node_of(log: Log, sizes: Sizes, starts: Sequence[int]) -> NodeSession:
    """A node whose sessions end, but for the last one. `starts`: from which transaction each further one begins, at most."""
    further = iter(enumerate(sizes[1:], 1))

    def again(begin: Resume, away_s: float) -> Any:
        del away_s
        number, chunks = next(further)
        read = sum(end <= begin.read.value for _, end in log.ends)
        start = min(starts[number % len(starts)], read) if starts else 0
        return session_from(log, start, chunks, ends=number < len(sizes) - 1)

    first = session_from(log, 0, sizes[0], ends=len(sizes) > 1)
    begin = Resume(Lsn(0), LastCommit.unknown(Lsn(0)), Lsn(0))
    return NodeSession(cast("Any", first), begin, again)


@contextmanager
def without_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_session, "_FIRST_PAUSE_S", 0.0)
        yield


def follow(stream: MergedStream, follower: Follower, ends: Mapping[str, Lsn]) -> None:
    """As fed_nodes.follow, while sessions end."""
    mark, pause = stream.mark(ends), threading.Event()
    for _ in range(20_000):
        chunk = stream.read(0.0)
        if chunk is not None:
            follower.land(chunk)
            if chunk.wal_end >= mark:
                return
        elif stream._away():
            pause.wait(0.001)
    raise AssertionError(f"stuck, waits for {stream.waits_for}")


sessions = st.lists(st.lists(st.lists(st.integers(1, 9), max_size=12), min_size=1, max_size=4), min_size=3, max_size=3)
beginnings = st.lists(st.lists(st.integers(0, 14), max_size=4), min_size=3, max_size=3)


@settings(max_examples=300, deadline=None)
@given(histories(), sessions, beginnings, st.sampled_from([1, 2500, MANY]), st.sampled_from(Order))
def test_sessions_that_end_do_not_change_the_merged_log(
    history: History, sizes: list[Sizes], starts: list[list[int]], memory: int, order: Order
) -> None:
    follower = Follower(Lsn(0), kept_before(len(history.logs)))
    nodes = [node_of(log, *given) for log, *given in zip(history.logs, sizes, starts, strict=False)]
    with without_pauses(), merged(nodes, ends_of(history.logs), Keeping(memory_bytes=memory), order) as stream:
        follow(stream, follower, {f"n{log.node}": Lsn(log.end) for log in history.logs})
    assert_is_history(follower.with_marks, history)


def test_what_is_sent_again_goes_on_with_the_last_transaction_that_was_read() -> None:
    (log,) = logs_of(1)
    for number in range(4):
        log.local(rows_of(log, f"t{number}", 1))
    asked: list[Resume] = []

    def again(begin: Resume, away_s: float) -> Any:
        del away_s
        asked.append(begin)
        return session_from(log, 1, [4], ends=False)

    begin = Resume(Lsn(0), LastCommit.unknown(Lsn(0)), Lsn(0))
    first = session_from(log, 0, [4, 5], ends=True)
    session = NodeSession(cast("Any", first), begin, again)
    follower = Follower(Lsn(0), kept_before(1))
    with without_pauses(), merged([session], [log.end], Keeping()) as stream:
        stream.confirm(Lsn(0))
        follow(stream, follower, {"n0": Lsn(log.end)})
    (found,) = asked
    ends = [end for _, end in log.ends]
    assert (found.read, found.last.after, found.last.end) == (Lsn(ends[1]), Lsn(ends[0]), Lsn(ends[1]))
    assert found.last.known


def test_a_part_that_was_prepared_before_its_slot_needs_a_new_run() -> None:
    """It is sent when it is committed, and was not passed on before."""
    (log,) = logs_of(1)
    log.prepare("g", rows_of(log, "g", 1))
    log.finish("g", commit=True)
    repeated = Repeated(log.ends[0][1], lambda _: False, lambda _: None)
    chunk = chunk_of(log.records, log.end)
    with pytest.raises(EngineFault) as caught:
        repeated.cut(chunk)
    assert caught.value.kind is FaultKind.SOURCE_UNREACHABLE


def test_a_session_that_is_not_verified_yet_or_fails_otherwise_ends_the_run() -> None:
    (log,) = logs_of(1)
    log.local(rows_of(log, "t", 1))

    def again(begin: Resume, away_s: float) -> Any:
        raise EngineFault(FaultKind.LOG_GAP, "slot", "another log")

    begin = Resume(Lsn(0), LastCommit.unknown(Lsn(0)), Lsn(0))
    unverified = EndingStream([])
    unverified.verified = False
    session = NodeSession(cast("Any", unverified), begin, again)
    with pytest.raises(EngineFault, match="closed"):
        session.read(0.0)
    unverified.close()
    lost = NodeSession(cast("Any", EndingStream([])), begin, again)
    with without_pauses():
        assert lost.read(0.0) is None
        assert lost.away is not None
        with pytest.raises(EngineFault, match="another log"):
            wait_until(lost.resume, what="the fault")
    lost.close()
