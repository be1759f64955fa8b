"""Drives sorter and batcher as the engine does, while demands, cuts, holding back and the read position come at any time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from engine.model.batch import SealedBatch
from engine.model.position import Lsn
from engine.model.subscription import BatchPolicy
from engine.sort.batcher import Batcher, BytesOf
from engine.sort.capture_tally import CaptureTally
from engine.sort.committed import Controls
from engine.sort.sorter import TransactionSorter


def is_alone(xid: int, _size: int = 0) -> bool:
    """Some streamed transactions are to be batches of their own."""
    return xid % 3 == 0


class Feed(Protocol):
    """Where control records come from."""

    def flush(self) -> tuple[Controls, Mapping[int, bytes]]:
        """Those since the last call, and the relation records among them by ordinal."""
        ...


class BatcherPlay:
    """One run of sorter and batcher from a position up to which everything is known."""

    def __init__(self, rng: random.Random, policy: BatchPolicy, log: Feed, bytes_of: BytesOf, after: int = 0) -> None:
        self.rng, self.log, self.bytes_of = rng, log, bytes_of
        self.sorter, self.batcher = TransactionSorter(Lsn(after)), Batcher(policy, Lsn(after), is_alone)
        self.tally = CaptureTally(Lsn(after))
        self.now = 0
        self.held: list[int] = []
        self.added: list[tuple[int, int]] = []
        """Ends of transactions, and when they were handed in."""
        self.batches: list[SealedBatch] = []
        self.accepted: list[int] = []
        self.reached: list[tuple[int, SealedBatch]] = []
        self.demanded_open = False

    def take(self) -> None:
        """Hand on what has come in."""
        controls, relations = self.log.flush()
        self.tally.feed(controls)
        self.sorter.feed(controls, relations)
        closed = self.sorter.drain()
        self.added += [(one.last_end, self.now) for one in closed]
        self.batcher.add(closed, self.now)

    def disturb(self) -> None:
        self.take()
        self.now += self.rng.choice((0, 1, 10, 60))
        near = self.sorter.last_closed_end.value + self.rng.randint(-30, 40)
        position = Lsn(max(0, near) if self.rng.random() < 0.9 else 0)
        chance = self.rng.random()
        if chance < 0.3:
            self.batcher.demand(position)
        elif chance < 0.5 and position.value not in self.accepted and self.batcher.request_cut(position):
            self.accepted.append(position.value)
        elif chance < 0.6:
            self.held.append(self.rng.choice((5, 30, 200)))
            self.batcher.hold_back(self.held[-1])
        elif chance < 0.8:
            # Only up to a position that precedes every commit not read yet.
            self.batcher.advance(self.sorter.last_closed_end)
        if self.held and self.rng.random() < 0.7:
            self.batcher.let_go(self.held.pop(self.rng.randrange(len(self.held))))
        self.seal()

    def seal(self) -> None:
        while (batch := self.batcher.seal(self.now, self.bytes_of)) is not None:
            latest = self.now - max(self.held, default=0)
            assert all(at <= latest for end, at in self.added if batch.after.value < end <= batch.end.value)
            assert not (batch.demanded and self.demanded_open)
            self.demanded_open = self.demanded_open or batch.demanded
            batch = replace(batch, captured=self.tally.take(batch.end))
            self.batches.append(batch)
            self.reached += [(cut.value, batch) for cut in batch.cuts]
            if self.demanded_open and self.rng.random() < 0.5:
                self.demanded_open = False
                self.batcher.in_flight_done()

    def finish(self, wal_end: int) -> None:
        self.take()
        while self.held:
            self.batcher.let_go(self.held.pop())
        self.batcher.advance(Lsn(wal_end))
        self.batcher.advance(Lsn(wal_end - 50))
        for _ in range(4):
            self.seal()
            self.now += 50
        self.seal()
