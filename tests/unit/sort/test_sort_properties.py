"""Random logs, cut into sessions and feeds anywhere, against a plain list of what was committed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import LogRange, SealedBatch
from engine.model.control import CONTROL_FIELDS, ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from engine.model.subscription import BatchPolicy
from engine.sort.batcher import Batcher
from engine.sort.committed import CommittedTransactions
from engine.sort.sorter import TransactionSorter
from tests.unit.sort.batcher_play import BatcherPlay, is_alone
from tests.unit.sort.log_script import LogFeed, bytes_of
from tests.unit.sort.walsender import Reality, Transaction, Walsender, make_transactions, play


def counted(ranges: Sequence[LogRange], reality: Reality) -> list[tuple[int, int]]:
    """What a scan over the ranges counts: (transaction, item), without records of aborted subtransactions."""
    return [
        reality.items[ordinal]
        for part in ranges
        for ordinal in range(part.start, part.stop)
        if ordinal in reality.items and reality.own_xid[ordinal] not in part.aborted
    ]


def expected(transactions: Sequence[Transaction], after: int, end: int) -> list[tuple[int, int]]:
    return [
        (t.number, k)
        for t in transactions
        if t.commits and after < t.end <= end
        for k, (kind, own) in enumerate(t.items)
        if kind != "rollback" and own not in t.aborted
    ]


def committed(transactions: Sequence[Transaction], after: int, end: int) -> list[Transaction]:
    return [t for t in transactions if t.commits and after < t.end <= end]


def relations_met(ranges: Sequence[LogRange], reality: Reality) -> list[tuple[int, int]]:
    """(ordinal, oid) of the relation records that a scan over the ranges meets, those of rolled-back savepoints as well."""
    relations = reality.relations
    return [(at, relations[at]) for part in ranges for at in range(part.start, part.stop) if at in relations]


def check_batch(batch: SealedBatch, transactions: Sequence[Transaction], reality: Reality) -> None:
    after, end = batch.after.value, batch.end.value
    inside = committed(transactions, after, end)
    assert batch.transactions == len(inside)
    assert counted(batch.ranges, reality) == expected(transactions, after, end)
    assert [(seen.ordinal, seen.relation) for seen in batch.relations] == relations_met(batch.ranges, reality)
    assert [int.from_bytes(seen.payload[1:5], "big") for seen in batch.relations] == [
        seen.relation for seen in batch.relations
    ]
    ends = [part.end for part in batch.ranges]
    assert ends == sorted(ends)
    assert batch.first_commit_us == (inside[0].end * 1000 if inside else 0)
    assert batch.last_commit_us == (inside[-1].end * 1000 if inside else 0)


def drained(sorter: TransactionSorter, log: LogFeed, floor: list[int]) -> list[CommittedTransactions]:
    """Feed what is collected, and check that nothing closed lies below what the sorter said before it still needs."""
    sorter.feed(*log.flush())
    closed = sorter.drain()
    assert all(start >= floor[0] for one in closed for start, _ in one.spans())
    oldest = sorter.oldest_open_ordinal()
    assert oldest is None or oldest < log.next_ordinal
    floor[0] = log.next_ordinal if oldest is None else oldest
    return closed


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(0, 14), sessions=st.integers(1, 4))
def test_sorter_closes_what_was_committed_once_and_in_order(seed: int, count: int, sessions: int) -> None:
    rng = random.Random(seed)
    transactions = make_transactions(rng, count)
    after = rng.choice((0, *(t.end for t in transactions)))
    sorter, log, reality = TransactionSorter(Lsn(after)), LogFeed(), Reality()
    closed: list[CommittedTransactions] = []
    floor = [0]
    sender = Walsender(rng, transactions)
    for session in range(sessions):
        confirmed = rng.choice(
            [after, *(t.end for t in transactions if after <= t.end <= sorter.last_closed_end.value)]
        )
        sorter.begin_session()
        steps = sender.session(confirmed)
        last = session == sessions - 1
        for step in steps if last else steps[: rng.randint(0, len(steps))]:
            play(step, transactions, log, reality)
            if rng.random() < 0.2:
                closed += drained(sorter, log, floor)
        closed += drained(sorter, log, floor)
    assert sorter.oldest_open_ordinal() is None
    top = max([after, *(t.end for t in transactions)])
    assert counted([part for one in closed for part in one.ranges()], reality) == expected(transactions, after, top)
    assert sum(one.count for one in closed) == len(committed(transactions, after, top))
    assert sorter.last_closed_end.value == max([after, *(t.end for t in transactions if t.commits)])


@settings(max_examples=250, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 14),
    most=st.sampled_from((1, 2, 3, 1000)),
    size=st.sampled_from((1, 40, 100, 10_000)),
)
def test_batches_hold_the_committed_sequence_once_whatever_closes_them(
    seed: int, count: int, most: int, size: int
) -> None:
    rng = random.Random(seed)
    transactions = make_transactions(rng, count)
    policy = BatchPolicy(max_transactions=most, max_bytes=size, max_age_ms=50)
    log, reality = LogFeed(), Reality()
    driven = BatcherPlay(rng, policy, log, bytes_of)
    for step in Walsender(rng, transactions).session(0):
        play(step, transactions, log, reality)
        if rng.random() < 0.4:
            driven.disturb()
    top = max([0, *(t.end for t in transactions)])
    driven.finish(top + 100)
    assert driven.batcher.sealed_end.value == top + 100
    assert driven.batcher.oldest_unsealed_ordinal() is None
    previous = 0
    for batch in driven.batches:
        assert batch.after.value == previous
        previous = batch.end.value
        check_batch(batch, transactions, reality)
        sizes = sum(bytes_of(part.start, part.stop) for part in batch.ranges)
        assert batch.transactions <= 1 or sizes <= size
        assert batch.transactions <= most
        assert batch.transactions == 1 or not any(part.xid and is_alone(part.xid) for part in batch.ranges)
    assert sorted(cut for cut, _ in driven.reached) == sorted(driven.accepted)
    for cut, batch in driven.reached:
        assert not [t for t in transactions if t.commits and batch.end.value < t.end <= cut]
        assert not [t for t in transactions if t.commits and cut < t.end <= batch.end.value]


def test_a_long_plain_run_is_sorted_without_a_loop_over_transactions() -> None:
    count = 200_000
    controls = np.zeros(2 * count, CONTROL_FIELDS)
    controls["kind"][0::2], controls["kind"][1::2] = ControlKind.BEGIN, ControlKind.COMMIT
    controls["ordinal"] = np.arange(2 * count) * 3
    controls["end_lsn"][1::2] = np.arange(1, count + 1) * 100
    sorter = TransactionSorter(Lsn(0))
    sorter.feed(controls, {})
    (run,) = sorter.drain()
    assert run.count == count
    assert run.ranges() == [LogRange(0, (2 * count - 1) * 3 + 1, Lsn(count * 100))]
    batcher = Batcher(BatchPolicy(max_transactions=20_000, max_bytes=10**9), Lsn(0))
    batcher.add([run], 0)
    batches = []
    while (batch := batcher.seal(0, bytes_of)) is not None:
        batches.append(batch)
    assert [batch.transactions for batch in batches] == [20_000] * 10
    assert batches[-1].end == Lsn(count * 100)


@pytest.mark.parametrize(
    "records",
    [
        [(ControlKind.BEGIN, 0, 7, 0), (ControlKind.BEGIN, 1, 8, 0)],
        [(ControlKind.COMMIT, 0, 0, 100)],
        [(ControlKind.STREAM_STOP, 0, 0, 0)],
        [(ControlKind.STREAM_START, 0, 7, 0), (ControlKind.STREAM_START, 1, 7, 0)],
        [(ControlKind.STREAM_START, 0, 7, 0), (ControlKind.BEGIN, 1, 8, 0)],
        [(ControlKind.BEGIN, 0, 7, 0), (ControlKind.STREAM_START, 1, 8, 0)],
        [(ControlKind.STREAM_COMMIT, 0, 7, 100)],
        [(ControlKind.BEGIN, 5, 7, 0), (ControlKind.COMMIT, 4, 0, 100)],
        [(ControlKind.BEGIN, 0, 7, 0), (ControlKind.RELATION, 1, 0, 0)],
        [(99, 0, 0, 0)],
        [
            (ControlKind.BEGIN, 0, 7, 0),
            (ControlKind.COMMIT, 1, 0, 100),
            (ControlKind.BEGIN, 2, 8, 0),
            (ControlKind.COMMIT, 3, 0, 90),
        ],
    ],
)
def test_a_log_that_makes_no_sense_is_a_fault(records: list[tuple[int, int, int, int]]) -> None:
    controls = np.zeros(len(records), CONTROL_FIELDS)
    for at, (kind, ordinal, xid, end) in enumerate(records):
        controls[at] = (kind, ordinal, xid, 0, end, 0, 0)
    with pytest.raises(EngineFault) as caught:
        TransactionSorter(Lsn(0)).feed(controls, {})
    assert caught.value.kind is FaultKind.LOG_UNREADABLE


def test_a_transaction_behind_a_sealed_position_is_a_fault() -> None:
    sorter, log = TransactionSorter(Lsn(0)), LogFeed()
    batcher = Batcher(BatchPolicy(), Lsn(0))
    batcher.advance(Lsn(500))
    batcher.demand(Lsn(500))
    assert batcher.seal(0, bytes_of) is not None
    log.control(ControlKind.BEGIN, 7)
    log.control(ControlKind.COMMIT, end=400)
    sorter.feed(*log.flush())
    with pytest.raises(EngineFault) as caught:
        batcher.add(sorter.drain(), 0)
    assert caught.value.kind is FaultKind.INTERNAL


def test_a_demand_far_ahead_does_not_keep_a_nearer_one_waiting() -> None:
    batcher = Batcher(BatchPolicy(), Lsn(0))
    for demanded in (9000, 100, 300, 100, 200):
        batcher.demand(Lsn(demanded))
    ends = []
    for read in (99, 100, 250, 8999, 9000):
        batcher.advance(Lsn(read))
        while (batch := batcher.seal(0, bytes_of)) is not None:
            assert batch.demanded
            ends.append(batch.end.value)
            batcher.in_flight_done()
    assert ends == [100, 250, 8999, 9000]


def test_age_is_told_ahead() -> None:
    batcher = Batcher(BatchPolicy(max_age_ms=200), Lsn(0))
    assert batcher.due_in_ms(0) is None
    batcher.advance(Lsn(10))
    assert batcher.seal(5, bytes_of) is None
    assert batcher.due_in_ms(105) == 100
    assert batcher.due_in_ms(500) == 0


def test_a_transaction_that_is_to_be_alone_waits_for_no_other_and_takes_none_along() -> None:
    sorter, log = TransactionSorter(Lsn(0)), LogFeed()
    batcher = Batcher(BatchPolicy(max_age_ms=200), Lsn(0), lambda xid, _: xid in {3, 6})
    for xid in (3, 4, 5, 6, 7):
        log.control(ControlKind.STREAM_START, xid)
        log.change()
        log.control(ControlKind.STREAM_STOP)
        log.control(ControlKind.STREAM_COMMIT, xid, end=xid * 100)
    sorter.feed(*log.flush())
    batcher.add(sorter.drain(), 0)
    batches = []
    for now in (0, 200):
        while (batch := batcher.seal(now, bytes_of)) is not None:
            batches.append((now, batch.end.value, batch.transactions))
    assert batches == [(0, 300, 1), (200, 500, 2), (200, 600, 1), (200, 700, 1)]


def test_a_streamed_transaction_may_be_alone_for_its_size() -> None:
    sorter, log = TransactionSorter(Lsn(0)), LogFeed()
    batcher = Batcher(BatchPolicy(max_age_ms=0), Lsn(0), lambda _, size: size >= bytes_of(Ordinal(0), Ordinal(6)))
    for xid, changes in ((3, 1), (4, 9), (5, 1), (6, 1)):
        log.control(ControlKind.STREAM_START, xid)
        for _ in range(changes):
            log.change()
        log.control(ControlKind.STREAM_STOP)
        log.control(ControlKind.STREAM_COMMIT, xid, end=xid * 100)
    sorter.feed(*log.flush())
    batcher.add(sorter.drain(), 0)
    sealed = iter(lambda: batcher.seal(0, bytes_of), None)
    assert [(batch.end.value, batch.transactions) for batch in sealed] == [(300, 1), (400, 1), (600, 2)]
