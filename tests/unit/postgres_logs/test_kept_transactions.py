"""Transactions that wait for the merge: what fits in memory and what goes to disk makes no difference, and nothing waits for ever."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.source import RecordChunk
from engine.sort.merge_records import Order
from engine.sources.postgres_logs import merged_chunk, merged_stream
from engine.sources.postgres_logs.consistent_cut import NodeSnapshot
from engine.sources.postgres_logs.merged_stream import Keeping, MergedStream
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.postgres_logs.fed_nodes import (
    Clock,
    FedStream,
    Follower,
    Log,
    Mark,
    Merged,
    chunk_of,
    follow,
    kept_before,
    merged,
)
from tests.unit.postgres_logs.test_spool import files_up_to

MANY = 1 << 40
"""Bytes that nothing in these tests has."""
KIB = 1024


def logs_of(count: int) -> list[Log]:
    """Logs of nodes on which one table has different numbers."""
    clock = Clock()
    return [Log(node, clock, 7 + node) for node in range(count)]


def ends_of(logs: Sequence[Log]) -> list[int]:
    return [log.end for log in logs]


@dataclass
class History:
    """What is written on some nodes, and what has to be in their merged log."""

    logs: list[Log]
    expected: dict[Mark, tuple[tuple[bytes, ...], ...]] = field(default_factory=dict)
    """By the commits at which a transaction may be released, its rows by part."""


def value_of(record: bytes) -> bytes:
    """A row change without the number of its table."""
    return record[:1] + record[5:]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Local transactions, some with another structure of the table, and global ones whose records are between each other's. Rows move
    between the nodes of a global transaction."""
    logs = logs_of(draw(st.integers(1, 3)))
    history = History(logs)
    chance = draw(st.randoms(use_true_random=False))
    pending: list[Iterator[None]] = []
    columns = {log.node: ("id", "v") for log in logs}
    for number in range(draw(st.integers(1, 14))):
        if pending and chance.random() < 0.6:
            steps = chance.choice(pending)
            if next(steps, steps) is steps:
                pending.remove(steps)
            continue
        if chance.random() < 0.5:
            log = chance.choice(logs)
            if chance.random() < 0.2:
                columns[log.node] = chance.choice([("id", "v"), ("id", "w")])
            rows = rows_of(log, f"l{number}", chance.choice([0, 1, 3]))
            records = list(rows)
            if chance.random() < 0.3:
                wide = [log.insert(f"wide {number} {row}", "v", "w") for row in range(2)]
                change = (
                    pgoutput.relation(log.oid, ["id", "v", "w"], key=["id"]),
                    pgoutput.relation(log.oid, columns[log.node], key=["id"]),
                )
                records = [*rows, change[0], *wide, change[1], *rows_of(log, f"again {number}", 2)]
                rows = [record for record in records if record[:1] == b"I"]
            end = log.local(records, columns=columns[log.node])
            history.expected[log.node, end] = (tuple(rows),)
        else:
            members = chance.sample(logs, chance.randint(1, len(logs)))
            ends = chance.choice(["commit", "commit", "roll back", "wait"])
            pending.append(spread(history, f"g{number}", members, ends, has_own=chance.random() < 0.5))
    for steps in pending:
        for _ in steps:
            continue
    return history


def rows_of(log: Log, name: str, count: int) -> list[bytes]:
    return [log.insert(f"{name} {log.node} {row}", "v" * row) for row in range(count)]


def spread(history: History, name: str, members: Sequence[Log], ends: str, *, has_own: bool) -> Iterator[None]:
    """A global transaction, a record at a time: a row moves from the first node to the last one, or the other way."""
    parts: dict[int, tuple[bytes, ...]] = {}
    for at, log in enumerate(members):
        rows = rows_of(log, name, 1 + at)
        if len(members) > 1 and at in {0, len(members) - 1}:
            rows.append(log.delete(f"moved {name}") if at else log.insert(f"moved {name}", "m"))
        parts[log.node] = tuple(rows)
    own = members[0] if has_own and ends == "commit" else None
    prepared = [log for log in members if log is not own]
    for log in prepared:
        log.prepare(name, parts[log.node])
        yield
    if ends == "wait":
        return
    marks: list[Mark] = []
    if own is not None:
        marks.append((own.node, own.own(name, parts[own.node])))
        yield
    for log in prepared:
        end = log.finish(name, commit=ends == "commit")
        if ends == "commit":
            marks.append((log.node, end))
        yield
    if own is not None:
        marks = marks[:1]
    for mark in marks:
        history.expected[mark] = tuple(parts[node] for node in sorted(parts))


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[list[int]], list[list[bool]]]:
    """By node, in which chunks its log arrives, and before which of its chunks nothing arrives for a moment."""
    sizes = st.lists(st.integers(1, 9), max_size=30)
    return draw(st.lists(sizes, min_size=3, max_size=3)), draw(
        st.lists(st.lists(st.booleans(), max_size=10), min_size=3, max_size=3)
    )


def streams_of(logs: Sequence[Log], delivery: tuple[list[list[int]], list[list[bool]]]) -> list[FedStream]:
    found = []
    for log, sizes, pauses in zip(logs, *delivery, strict=False):
        arriving: list[RecordChunk | None] = []
        for number, chunk in enumerate(log.chunks(sizes)):
            arriving += [None] if number < len(pauses) and pauses[number] else []
            arriving.append(chunk)
        found.append(FedStream(arriving))
    return found


def read_all(
    logs: Sequence[Log],
    delivery: tuple[list[list[int]], list[list[bool]]],
    order: Order,
    limits: tuple[int, int],
    begin: tuple[Lsn, LastCommit] | None = None,
    own_rows: tuple[TableName, str] | None = None,
) -> Follower:
    """The merged log with these limits: bytes of memory of each node, and of a chunk. `own_rows`: see `merged`."""
    memory, chunk_bytes = limits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged_stream, "CHUNK_BYTES", chunk_bytes)
        streams = streams_of(logs, delivery)
        with merged(streams, ends_of(logs), Keeping(memory_bytes=memory), order, begin, own_rows) as stream:
            follower = Follower(*(begin or (Lsn(0), kept_before(len(logs)))))
            follow(stream, follower, {f"n{log.node}": Lsn(log.end) for log in logs})
    return follower


def assert_is_history(found: Sequence[Merged], history: History) -> None:
    """Every transaction is there once, with the rows of all its parts, and each node's commits are in their order."""
    marks = [each.mark for each in found]
    assert len(set(marks)) == len(marks)
    for log in history.logs:
        ends = [end for node, end in marks if node == log.node]
        assert ends == sorted(ends)
    seen = Counter(value_of(row) for each in found for row in each.rows)
    wanted = Counter(value_of(row) for parts in set(history.expected.values()) for part in parts for row in part)
    assert seen == wanted
    for each in found:
        parts = history.expected[each.mark]
        rows = [value_of(row) for row in each.rows]
        assert Counter(rows) == Counter(value_of(row) for part in parts for row in part)
        deletes = [at for at, row in enumerate(rows) if row[:1] == b"D"]
        moved = [at for at, row in enumerate(rows) if b"moved" in row and row[:1] == b"I"]
        assert all(one < other for one in deletes for other in moved)


limits = st.tuples(st.sampled_from([1, 2500, 6000, MANY]), st.sampled_from([1, 60, 200, MANY]))


@settings(max_examples=200, deadline=None)
@given(histories(), deliveries(), limits, st.sampled_from(Order))
def test_limits_of_memory_and_of_chunks_do_not_change_the_merged_log(
    history: History, delivery: tuple[list[list[int]], list[list[bool]]], given_limits: tuple[int, int], order: Order
) -> None:
    found = read_all(history.logs, delivery, order, given_limits)
    assert_is_history(found.with_marks, history)
    plain = read_all(history.logs, delivery, order, (MANY, MANY))
    if order is Order.STRICT:
        assert [(each.mark, each.rows) for each in found.with_marks] == [
            (each.mark, each.rows) for each in plain.with_marks
        ]


@settings(max_examples=200, deadline=None)
@given(histories(), deliveries(), limits, st.integers(0, 30))
def test_a_session_that_begins_inside_of_a_transaction_sends_it_whole(
    history: History, delivery: tuple[list[list[int]], list[list[bool]]], given_limits: tuple[int, int], reads: int
) -> None:
    memory, chunk_bytes = given_limits
    before = Follower(Lsn(0), kept_before(len(history.logs)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged_stream, "CHUNK_BYTES", chunk_bytes)
        streams = streams_of(history.logs, delivery)
        with merged(streams, ends_of(history.logs), Keeping(memory_bytes=memory)) as stream:
            for _ in range(reads):
                chunk = stream.read(0.0)
                if chunk is not None:
                    before.land(chunk)
    state = before.kept[-1][1].logs
    assert state is not None
    after = read_all(history.logs, delivery, Order.STRICT, given_limits, before.kept[-1])
    assert_is_history([*before.with_marks, *after.with_marks], history)


@pytest.mark.parametrize("order", Order)
def test_a_part_that_was_rolled_back_and_prepared_again_is_not_in_doubt_after_a_restart(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends right after the global transaction, before the merged log says how far the node's log is merged."""
    monkeypatch.setattr(merged_stream, "_TELL_S", 3600.0)
    logs = logs_of(2)
    logs[0].prepare("g", rows_of(logs[0], "first", 1))
    logs[0].finish("g", commit=False)
    logs[0].prepare("g", rows_of(logs[0], "second", 1))
    logs[1].own("g", rows_of(logs[1], "own", 1))
    delivery = [[MANY], [MANY]], [[True], [True]]
    before = read_all(logs, delivery, order, (MANY, MANY))
    (whole,) = before.with_marks
    begin = next(kept for kept in before.kept if kept[1].logs and kept[1].logs.open)
    logs[0].finish("g", commit=True)
    last = logs[1].local(rows_of(logs[1], "last", 1))
    after = read_all(logs, delivery, order, (MANY, MANY), begin)
    assert [len(each.rows) for each in (whole, *after.with_marks)] == [2, 1]
    assert after.with_marks[0].mark == (1, last)
    assert after.kept[-1][1].logs is not None
    assert not after.kept[-1][1].logs.open
    assert not after.again


@pytest.mark.parametrize("limit", [1, MANY])
def test_a_session_that_begins_between_transactions_of_one_chunk_sends_the_later_ones(limit: int) -> None:
    (log,) = logs_of(1)
    for number in range(8):
        log.local(rows_of(log, f"t{number}", 1))
    delivery: tuple[list[list[int]], list[list[bool]]] = ([[]], [[]])
    whole = read_all([log], delivery, Order.STRICT, (limit, MANY))
    begin = next(kept for kept in whole.kept if kept[1].logs and kept[1].logs.nodes[0].read == Lsn(log.ends[4][1]))
    rest = read_all([log], delivery, Order.STRICT, (limit, MANY), begin)
    assert [each.rows for each in rest.with_marks] == [each.rows for each in whole.with_marks[5:]]


def lazily(records: Sequence[bytes], each: int, end: int) -> Iterator[RecordChunk]:
    """Chunks of this many records, made when they are read."""
    for at in range(0, len(records), each):
        part = records[at : at + each]
        yield chunk_of(part, end if at + each >= len(records) else 0)
    yield chunk_of([], end)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_large_transaction_needs_no_memory_in_proportion_to_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    """40 MiB on each node, with limits of 256 KiB. The measured peak includes the chunks that this test makes."""
    monkeypatch.setattr(merged_stream, "CHUNK_BYTES", 256 * KIB)
    merged_chunk.warm()  # Kernels that are loaded need memory, too.
    logs = logs_of(2)
    wide = "x" * (10 * KIB)
    for log in logs[:parts]:
        log.prepare("g", (log.insert(f"{log.node} {row}", wide) for row in range(4 * KIB)))
    for log in logs[:parts]:
        log.finish("g", commit=True)
    streams = [FedStream(lazily(log.records, 10, log.end)) for log in logs]
    most, chunks, rows, largest = 0, 0, 0, 0
    with merged(streams, ends_of(logs), Keeping(tmp_path, 256 * KIB)) as stream:
        mark = stream.mark({f"n{log.node}": Lsn(log.end) for log in logs})
        tracemalloc.start()
        try:
            while (chunk := stream.read(0.0)) is None or chunk.wal_end < mark:
                most = max(most, stream.spooled_bytes)
                if chunk is not None:
                    chunks, rows, largest = chunks + 1, rows + chunk.count, max(largest, len(chunk.data))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert stream.spooled_bytes == 0
    assert most > parts * 40_000 * KIB
    assert rows > parts * 4 * KIB
    assert chunks > parts * 150
    assert largest < 270 * KIB
    assert peak < 8 * KIB * KIB


def test_a_chunk_inside_of_a_transaction_has_the_position_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_stream, "CHUNK_BYTES", 100)
    (log,) = logs_of(1)
    log.local(rows_of(log, "small", 1))
    log.local(rows_of(log, "large", 50), columns=("id", "w"))
    log.local(rows_of(log, "small again", 1))
    with merged([FedStream(log.chunks([]))], [log.end], Keeping()) as stream:
        follower = Follower(Lsn(0), kept_before(1))
        positions: list[list[Lsn]] = []
        while len(follower.with_marks) < 3:
            chunk = stream.read(0.0)
            assert chunk is not None
            follower.land(chunk)
            positions += [[]] * (len(follower.with_marks) - len(positions))
            if chunk.count and len(follower.with_marks) == 1:
                positions[-1] = [*positions[-1], chunk.wal_end]
    (inside,) = {position for each in positions for position in each}
    assert len(positions[0]) > 5
    assert follower.with_marks[1].chunks > 5
    # The first one has only the nodes' positions.
    assert follower.kept[2][0] <= inside < follower.kept[3][0]


@pytest.mark.parametrize("limit", [1, 3 * KIB])
def test_space_of_parts_that_are_rolled_back_or_not_needed_comes_back(tmp_path: Path, limit: int) -> None:
    logs = logs_of(2)
    for number in range(3):
        for log in logs:
            log.prepare(f"gone {number}", rows_of(log, "gone", 20))
            log.prepare(f"kept {number}", rows_of(log, "kept", 20))
        for log in logs:
            log.finish(f"gone {number}", commit=False)
            log.finish(f"kept {number}", commit=True)
    seen = 0
    with merged([FedStream(log.chunks([5] * 99)) for log in logs], ends_of(logs), Keeping(tmp_path, limit)) as stream:
        follower = Follower(Lsn(0), kept_before(2))
        mark = stream.mark({f"n{log.node}": Lsn(log.end) for log in logs})
        while (chunk := stream.read(0.0)) is None or chunk.wal_end < mark:
            seen = max(seen, stream.spooled_bytes)
            if chunk is not None:
                follower.land(chunk)
        assert stream.spooled_bytes == 0
    assert seen > 0
    assert [len(each.rows) for each in follower.with_marks] == [40] * 3


def fed_while(stream: MergedStream, follower: Follower, reads: int) -> None:
    for _ in range(reads):
        chunk = stream.read(0.0)
        if chunk is not None:
            follower.land(chunk)


def test_a_node_is_not_read_beyond_the_limit_while_another_one_is_silent(tmp_path: Path) -> None:
    """It needs no room on disk either: its source keeps what was not read."""
    logs = logs_of(2)
    for number in range(300):
        logs[0].local(rows_of(logs[0], f"t{number}", 1))
    logs[1].local(rows_of(logs[1], "late", 1))
    logs[1].local(rows_of(logs[1], "last", 1))
    silent: list[RecordChunk | None] = [None] * 50
    streams = [FedStream(logs[0].chunks([3] * 300)), FedStream([*silent, *logs[1].chunks([4])])]
    with merged(streams, ends_of(logs), Keeping(tmp_path, 10 * KIB)) as stream:
        follower = Follower(Lsn(0), kept_before(2))
        fed_while(stream, follower, 45)
        assert stream.waits_for == {"n1"}
        assert streams[0].taken < 20
        assert stream.spooled_bytes == 0
        assert follower.with_marks == []
        follow(stream, follower, {f"n{log.node}": Lsn(log.end) for log in logs})
    assert len(follower.with_marks) == 302


@dataclass
class Seconds:
    """In place of the clocks of a stream."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return round(self.now * 1e9)


def test_a_node_that_is_not_read_for_want_of_memory_is_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waited for another node is written for a minute, while the node has more to send."""
    clock = Seconds()
    monkeypatch.setattr(merged_stream, "CHUNK_BYTES", KIB)
    monkeypatch.setattr(merged_stream, "time", clock)
    logs = logs_of(2)
    for number in range(600):
        logs[0].own(f"g{number}", rows_of(logs[0], f"g{number}", 20))
    logs[1].local(rows_of(logs[1], "late", 1))
    silent: list[RecordChunk | None] = [None] * 40
    streams = [FedStream(logs[0].chunks([50] * 600)), FedStream([*silent, *logs[1].chunks([])])]
    ends, silences = ends_of(logs), {"n0": 0.0, "n1": 0.0}
    with merged(streams, ends, Keeping(tmp_path, 4 * KIB)) as stream:
        follower = Follower(Lsn(0), kept_before(2))
        mark = stream.mark({f"n{log.node}": Lsn(log.end) for log in logs})
        while follower.kept[-1][0] < mark:
            ends[0] = min(streams[0].read_to.value + 200, logs[0].end)  # It writes on.
            fed_while(stream, follower, 1)
            clock.now += 0.5
            for name, since_us in stream.state.silent_now().items():
                silences[name] = max(silences[name], clock.now - since_us / 1e6)
    assert silences["n1"] > 15
    assert silences["n0"] < 5


def with_one_between(*, is_global: bool) -> list[Log]:
    """A transaction on the first node, which is global or not and has one part, and local ones on the second node before and after."""
    logs = logs_of(2)
    for number in range(600):
        if number == 300 and is_global:
            logs[0].own("g", rows_of(logs[0], "own", 1))
        elif number == 300:
            logs[0].local(rows_of(logs[0], "own", 1))
        logs[1].local(rows_of(logs[1], f"t{number}", 1))
    return logs


@pytest.mark.parametrize("order", Order)
def test_a_node_is_read_up_to_where_a_global_transaction_may_have_a_part_there(tmp_path: Path, order: Order) -> None:
    """That is the end of its log, and the transactions before it wait on disk."""
    logs = with_one_between(is_global=True)
    streams = [FedStream(logs[0].chunks([])), FedStream(logs[1].chunks([7] * 300))]
    most = 0
    with merged(streams, ends_of(logs), Keeping(tmp_path, 4 * KIB), order) as stream:
        follower = Follower(Lsn(0), kept_before(2))
        mark = stream.mark({f"n{log.node}": Lsn(log.end) for log in logs})
        for _ in range(1000):
            chunk = stream.read(0.0)
            most = max(most, stream.spooled_bytes)
            if chunk is not None:
                follower.land(chunk)
        assert follower.kept[-1][0] >= mark
        assert stream.spooled_bytes == 0
    assert len(follower.with_marks) == 601
    assert (most > 10 * KIB) == (order is Order.STRICT)


@pytest.mark.parametrize("order", Order)
def test_nodes_are_read_up_to_their_snapshots_however_much_waits(tmp_path: Path, order: Order) -> None:
    logs = with_one_between(is_global=False)
    streams = [FedStream(logs[0].chunks([])), FedStream(logs[1].chunks([7] * 300))]
    most = 0
    with merged(streams, ends_of(logs), Keeping(tmp_path, 4 * KIB), order) as stream:
        follower = Follower(Lsn(0), kept_before(2))
        stream.begin_cut()
        fed_while(stream, follower, 50)
        assert stream.spooled_bytes == 0
        stream.take_snapshots([NodeSnapshot(100, 100, (), log.end - 80) for log in logs])
        for _ in range(1000):
            fed_while(stream, follower, 1)
            most = max(most, stream.spooled_bytes)
        assert stream.cut_position is not None
        assert stream.spooled_bytes == 0
    assert len(follower.with_marks) == 601
    assert most > 50 * KIB


def test_a_disk_that_is_full_ends_the_session_with_a_remedy(tmp_path: Path) -> None:
    (log,) = logs_of(1)
    log.local(rows_of(log, "large", 500), columns=("id", "w"))
    with merged([FedStream(log.chunks([20] * 99))], [log.end], Keeping(tmp_path, 2 * KIB)) as stream:
        with files_up_to(20 * KIB), pytest.raises(EngineFault) as caught:
            fed_while(stream, Follower(Lsn(0), kept_before(1)), 100)
        assert caught.value.kind is FaultKind.QUEUE_DISK_FULL
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_is_larger_than_all_limits_is_a_chunk_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_stream, "CHUNK_BYTES", KIB)
    (log,) = logs_of(1)
    wide = pgoutput.insert(log.oid, ["wide", "x" * 100 * KIB])
    log.local([*rows_of(log, "before", 2), wide, *rows_of(log, "after", 2)])
    with merged([FedStream(log.chunks([2, 1]))], [log.end], Keeping(tmp_path, KIB)) as stream:
        follower = Follower(Lsn(0), kept_before(1))
        follow(stream, follower, {"n0": Lsn(log.end)})
    (found,) = follower.with_marks
    assert len(found.rows) == 5
    assert found.chunks == 3
