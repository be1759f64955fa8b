"""While batches are on their way, only a demand or a cut seals the next; after them, all that gathered becomes one batch."""

from __future__ import annotations

import numpy as np

from engine.model.identity import Ordinal
from engine.model.position import ZERO, Lsn
from engine.model.subscription import BatchPolicy
from engine.sort.batcher import Batcher
from engine.sort.committed import TransactionRun

LONG_AFTER = 1_000_000


def size(start: Ordinal, stop: Ordinal) -> int:
    return 10 * (stop - start)


def gathered(count: int = 5, policy: BatchPolicy | None = None) -> Batcher:
    """Transactions of three records each, which end at 100, 200, …"""
    batcher = Batcher(policy or BatchPolicy(), ZERO)
    starts = np.arange(count, dtype=np.int64) * 3
    ends = (np.arange(count, dtype=np.uint64) + 1) * 100
    nothing = np.zeros(count, np.int64), np.zeros(count, np.uint64), np.zeros(count, np.uint32)
    batcher.add([TransactionRun(starts, starts + 3, ends, *nothing)], 0)
    batcher.advance(Lsn(100 * count))
    return batcher


def test_neither_age_nor_a_limit_seals_while_it_is_crowded() -> None:
    batcher = gathered(policy=BatchPolicy(max_transactions=2, max_bytes=1))
    assert batcher.seal(LONG_AFTER, size, crowded=True) is None
    sealed = batcher.seal(LONG_AFTER, size)
    assert sealed is not None
    assert sealed.transactions == 1


def test_what_gathered_meanwhile_goes_together() -> None:
    batcher = gathered(5)
    assert batcher.seal(LONG_AFTER, size, crowded=True) is None
    sealed = batcher.seal(LONG_AFTER, size)
    assert sealed is not None
    assert (sealed.transactions, sealed.end) == (5, Lsn(500))


def test_who_waits_does_not_wait_for_the_crowd() -> None:
    batcher = gathered()
    batcher.demand(Lsn(300))
    sealed = batcher.seal(0, size, crowded=True)
    assert sealed is not None
    assert sealed.demanded
    assert sealed.end >= Lsn(300)


def test_a_cut_does_not_wait_for_the_crowd() -> None:
    batcher = gathered()
    assert batcher.request_cut(Lsn(300))
    sealed = batcher.seal(0, size, crowded=True)
    assert sealed is not None
    assert (sealed.end, sealed.cuts) == (Lsn(300), (Lsn(300),))
