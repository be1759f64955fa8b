"""The state of merged logs at every batch's end and at the position that has been read, whatever cuts the log into pieces."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import LogsSeen, RelationSeen
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal, RelationId
from engine.model.last_commit import LastCommit
from engine.model.merged_logs import LogsMessage, MergedLogs, NodeLog, commit_mark
from engine.model.position import ZERO, Lsn
from engine.model.subscription import BatchPolicy, OriginFilter
from engine.sort.batcher import Batcher
from engine.sort.committed import CommittedTransactions, TransactionRun
from engine.sort.logs_fold import LogsFold
from engine.sort.sorter import TransactionSorter
from tests.unit.sort.batcher_play import BatcherPlay, is_alone
from tests.unit.sort.log_script import LogFeed, bytes_of
from tests.unit.sort.merged_log import Merged, make_log, play, states_of

seeds = st.integers(0, 2**32)
node_counts = st.sampled_from((1, 2, 3, 5, 64))


def sorted_log(log: list[Merged], rng: random.Random, cut: float) -> list[CommittedTransactions]:
    """The log as the sorter emits it, in runs that end with probability `cut` at any record."""
    feed, sorter = LogFeed(), TransactionSorter(ZERO)
    for one in log:
        play(one, feed, rng)
        if rng.random() < cut:
            sorter.feed(*feed.flush())
    sorter.feed(*feed.flush())
    return sorter.drain()


def split(closed: CommittedTransactions, rng: random.Random) -> list[CommittedTransactions]:
    if not isinstance(closed, TransactionRun) or closed.count == 1 or rng.random() < 0.3:
        return [closed]
    head, tail = closed.split(rng.randint(1, closed.count - 1))
    return [*split(head, rng), *split(tail, rng)]


@settings(max_examples=300, deadline=None)
@given(seeds, node_counts, st.integers(0, 12), st.sampled_from((0.0, 0.2, 1.0)))
def test_any_split_of_the_same_transactions_gives_the_same_state(seed: int, nodes: int, count: int, cut: float) -> None:
    rng = random.Random(seed)
    log = make_log(rng, nodes, count)
    states = states_of(log)
    fold = LogsFold(None, ZERO)
    assert fold.state(ZERO) is None
    for whole in sorted_log(log, rng, cut):
        for part in split(whole, rng):
            fold.add(part)
            assert fold.state(ZERO) == states[part.last_end]


@settings(max_examples=200, deadline=None)
@given(seeds, node_counts, st.integers(1, 10))
def test_a_state_that_was_stored_goes_on_as_if_it_had_not_been(seed: int, nodes: int, count: int) -> None:
    rng = random.Random(seed)
    log = make_log(rng, nodes, count)
    states = states_of(log)
    fold = LogsFold(None, ZERO)
    for part in sorted_log(log, rng, 1.0):
        fold.add(part)
        state = fold.state(ZERO)
        if state is not None and rng.random() < 0.5:
            fold = LogsFold(MergedLogs.parse(state.text), Lsn(part.last_end))
        assert fold.state(ZERO) == states[part.last_end]


class WatchedPlay(BatcherPlay):
    """Compares what the batcher knows of the logs, whenever it took something or sealed a batch."""

    states: dict[int, MergedLogs | None]

    def take(self) -> None:
        super().take()
        assert self.batcher.last_commit.logs == self.state_at(self.batcher.captured)

    def seal(self) -> None:
        known = len(self.batches)
        super().seal()
        for batch in self.batches[known:]:
            assert batch.last is not None
            assert batch.last.logs == self.state_at(batch.end)
            assert not batch.messages or all(b"penstock.ddl" in one.message.payload for one in batch.messages)
        assert self.batcher.last_commit.logs == self.state_at(self.batcher.captured)

    def state_at(self, position: Lsn) -> MergedLogs | None:
        return self.states[max(end for end in self.states if end <= position.value)]


@settings(max_examples=250, deadline=None)
@given(
    seed=seeds,
    nodes=st.sampled_from((1, 2, 3)),
    count=st.integers(0, 14),
    most=st.sampled_from((1, 2, 3, 1000)),
    size=st.sampled_from((1, 40, 100, 10_000)),
)
def test_every_batch_and_every_restart_has_the_state_at_its_end(
    seed: int, nodes: int, count: int, most: int, size: int
) -> None:
    rng = random.Random(seed)
    log = make_log(rng, nodes, count)
    policy = BatchPolicy(max_transactions=most, max_bytes=size, max_age_ms=50)
    after, last = 0, None
    while True:
        feed = LogFeed()
        driven = WatchedPlay(rng, policy, feed, bytes_of, after)
        driven.batcher = Batcher(policy, Lsn(after), is_alone, last)
        driven.states = states_of(log)
        stop = rng.randint(0, 2 * len(log))
        for one in log[:stop]:
            play(one, feed, rng)
            if rng.random() < 0.4:
                driven.disturb()
        if stop >= len(log):
            break
        driven.seal()
        if driven.batches:
            # The engine is killed, and begins with what the target has.
            batch = driven.batches[rng.randrange(len(driven.batches))]
            after, last = batch.end.value, LastCommit.parse(str(batch.last))
    top = max([after, *(one.end for one in log)])
    driven.finish(top + 100)
    assert driven.batcher.sealed_end.value == top + 100
    assert driven.batcher.last_commit.logs == driven.states[max(driven.states)]


@settings(max_examples=200, deadline=None)
@given(seeds, st.sampled_from((1, 2, 3)), st.integers(1, 10), st.booleans())
def test_under_another_filter_the_last_transactions_of_the_nodes_are_unknown(
    seed: int, nodes: int, count: int, early: bool
) -> None:
    rng = random.Random(seed)
    log = make_log(rng, nodes, count)
    unknown_end = rng.choice((0, 50, *(one.end for one in log)))
    states = states_of(log, unknown_end)
    batcher = Batcher(BatchPolicy(max_transactions=rng.randint(1, 4)), ZERO, origin=OriginFilter.NONE)
    if early:
        batcher.know_nothing_before(Lsn(unknown_end))
    for part in sorted_log(log, rng, 0.3):
        batcher.add([part], 0)
    batcher.know_nothing_before(Lsn(unknown_end))
    batcher.advance(Lsn(log[-1].end))
    assert batcher.last_commit.logs == states[log[-1].end]
    while (batch := batcher.seal(10**9, bytes_of)) is not None:
        assert batch.last is not None
        assert batch.last.logs == states[batch.end.value]
    assert batcher.sealed_end.value == log[-1].end


@dataclass(frozen=True)
class Untouched:
    """In place of an array: whatever is done with it fails."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def run(marks: list[int], *seen: LogsSeen | RelationSeen, first: int = 1) -> TransactionRun:
    """Transactions of three records each, which end at 100 · `first` and so on."""
    starts = np.arange(len(marks), dtype=np.int64) * 3
    ends = (np.arange(len(marks), dtype=np.uint64) + first) * 100
    return TransactionRun(
        starts, starts + 3, ends, ends.astype(np.int64), np.array(marks, np.uint64), starts.astype(np.uint32), (), seen
    )


def test_nothing_is_computed_for_a_log_that_is_not_merged() -> None:
    untouched: Any = Untouched()
    fold = LogsFold(None, ZERO)
    relation = RelationSeen(Ordinal(1), RelationId(5), b"R")
    for seen in ((), (relation,)):
        fold.add(TransactionRun(*[untouched] * 6, (), seen))
        assert fold.state(Lsn(7)) is None
    batcher = Batcher(BatchPolicy(max_transactions=1), ZERO)
    batcher.add([run([2**64 - 1, 1, 0])], 0)
    last = batcher.last_commit
    assert last == LastCommit(Lsn(200), Lsn(300), 300)
    assert last is batcher.last_commit
    batch = batcher.seal(0, bytes_of)
    assert batch is not None
    assert batch.last == LastCommit(Lsn(0), Lsn(100), 100)


def test_the_state_is_that_of_transactions_without_changes_too() -> None:
    logs = MergedLogs((NodeLog.unknown(Lsn(5)),))
    batcher = Batcher(BatchPolicy(), Lsn(50), last=LastCommit(Lsn(20), Lsn(50), 7, logs=logs))
    empty = run([commit_mark(0, Lsn(9))])
    batcher.add([replace(empty, stops=empty.starts + 2)], 0)
    expected = LastCommit(Lsn(20), Lsn(50), 7, logs=MergedLogs((NodeLog(Lsn(9), Lsn(5), Lsn(9), 100),)))
    assert batcher.last_commit == expected
    batcher.advance(Lsn(100))
    batch = batcher.seal(10**9, bytes_of)
    assert batch is not None
    assert batch.last == expected


def test_the_state_of_a_position_without_transactions_is_kept() -> None:
    logs = MergedLogs((NodeLog.unknown(Lsn(5)),), {"g": (0,)})
    batcher = Batcher(BatchPolicy(), Lsn(50), last=LastCommit.unknown(Lsn(50), logs=logs))
    batcher.advance(Lsn(70))
    batch = batcher.seal(0, bytes_of)
    while batch is None:
        batch = batcher.seal(10**9, bytes_of)
    assert (batch.end, batch.last) == (Lsn(70), LastCommit(Lsn(50), Lsn(50), 0, logs=logs))


def begin(*read: int) -> bytes:
    return LogsMessage(read=tuple((node, Lsn(end)) for node, end in enumerate(read))).content


@pytest.mark.parametrize(
    "runs",
    [
        [run([1], LogsSeen(Ordinal(1), b"{"))],
        [run([1], LogsSeen(Ordinal(1), b'{"published":[["g",[99]]]}'))],
        [run([commit_mark(1, Lsn(9))], LogsSeen(Ordinal(1), begin(5)))],
        [run([2**64 - 1], LogsSeen(Ordinal(1), begin(5)))],
        [run([4], LogsSeen(Ordinal(1), begin(5)))],
        [run([9, 8, 9], LogsSeen(Ordinal(1), begin(5)))],
        [run([7, 9], LogsSeen(Ordinal(1), begin(5))), run([8], first=3)],
        [run([7], LogsSeen(Ordinal(1), begin(5))), run([8], LogsSeen(Ordinal(1), begin(5, 5)), first=2)],
    ],
)
def test_what_contradicts_the_state_is_unreadable(runs: list[TransactionRun]) -> None:
    fold = LogsFold(None, ZERO)
    for one in runs[:-1]:
        fold.add(one)
    with pytest.raises(EngineFault) as caught:
        fold.add(runs[-1])
    assert caught.value.kind is FaultKind.LOG_UNREADABLE


def test_marks_count_from_the_transaction_on_that_begins_the_state() -> None:
    fold = LogsFold(None, ZERO)
    # The second transaction has the records 3 to 5.
    fold.add(run([90, 7, 8], LogsSeen(Ordinal(5), begin(5))))
    assert fold.state(ZERO) == MergedLogs((NodeLog(Lsn(8), Lsn(7), Lsn(8), 300),))


def test_a_million_marks_are_folded_at_once() -> None:
    count, nodes = 1_000_000, 64
    node = np.arange(count, dtype=np.uint64) % np.uint64(nodes)
    end = np.arange(count, dtype=np.uint64) + np.uint64(100)
    starts = np.arange(count, dtype=np.int64) * 3
    whole = TransactionRun(
        starts, starts + 3, end, end.astype(np.int64), node << np.uint64(56) | end, starts.astype(np.uint32)
    )
    fold = LogsFold(MergedLogs((NodeLog.unknown(Lsn(1)),) * nodes), ZERO)
    fold.add(whole)
    state = fold.state(ZERO)
    assert state is not None
    top = count + 99
    assert state.nodes[63] == NodeLog(Lsn(top), Lsn(top - 64), Lsn(top), top)
    assert state.nodes[0] == NodeLog(Lsn(top - 63), Lsn(top - 127), Lsn(top - 63), top - 63)
