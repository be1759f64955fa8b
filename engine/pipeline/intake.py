"""Intake of one run: turns the records that the log reader wrote to the queue into sealed batches. One thread, which is controlled
through its inbox."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from engine.model.batch import SealedBatch
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.source import Landed
from engine.pipeline.log_reader import (
    AskPosition,
    Durable,
    Failed,
    Hold,
    Holds,
    Moved,
    ReaderEvent,
    Started,
    Verified,
)
from engine.pipeline.reader_process import ReaderProcess
from engine.pipeline.streamed_transactions import StreamedSliceCutter
from engine.pipeline.tickets import RunTickets
from engine.platform.clock import Clock
from engine.queue.catalog import QueueCatalog
from engine.records.messages import messages_in
from engine.safety.log_evidence import LogEvidence
from engine.sort.batcher import Batcher
from engine.sort.capture_tally import CaptureTally
from engine.sort.sorter import TransactionSorter

IDLE_WAIT_S = 0.2
"""Longest wait for input in seconds if nothing is due; input ends it at once. It bounds the time until a stop is noticed. Not measured."""
BUSY_WAIT_S = 0.01
"""Longest wait for input in seconds while a batch becomes due or a position is demanded: as ASK_EAGERLY_MS, so that each request to the
source is made in time."""
ASK_EAGERLY_MS = 10.0
"""Pause between requests to an idle source for its position while a position is waited for (CORRECTNESS, "Now")."""
ASK_PATIENTLY_MS = 200.0
"""Pause between these requests in ms after EAGER_FOR_MS: a source that is this late is busy or away, and more requests would not help. Not
measured."""
EAGER_FOR_MS = 1000.0
"""Time in ms after a demand during which an idle source is asked every ASK_EAGERLY_MS: one that is not busy answers within milliseconds.
Not measured."""
AHEAD = 2
"""Most batches in flight: one that is committed and one that is prepared. Demands and cuts may exceed it."""
RESUME_SHARE = 0.8
"""Reading resumes when the bytes that wait for the target have decreased to this share of their room."""
WAITING_SHARE = 0.25
"""Least share of the queue's budget for bytes that wait for the target, whatever else fills the queue."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A client or the engine waits for this position: it is sealed as soon as it was read."""

    position: Lsn


@dataclass(frozen=True, slots=True)
class Cut:
    """A batch is to end at this position; `refused` is called if that is no longer possible."""

    position: Lsn
    refused: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Flush:
    """Seal a batch that ends at or after this position, even an empty one, so that a change found in the catalog takes effect."""

    position: Lsn


@dataclass(frozen=True, slots=True)
class HoldBack:
    """`on`: seal only what was read at least `for_ms` ago, while the position of a cut is being determined. Off: end such a delay."""

    for_ms: int
    on: bool


@dataclass(frozen=True, slots=True)
class Done:
    """A sealed batch is committed; `kept` is the lowest ordinal that deferred tables still need.

    `written`: the target's progress record holds its end; until then a restart begins before it.
    """

    batch: SealedBatch
    kept: int | None
    written: bool


@dataclass(frozen=True, slots=True)
class Wake:
    """Check again whether a batch may be sealed."""


Item = Demand | Cut | Flush | HoldBack | Done | Wake | tuple[ReaderProcess, ReaderEvent]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A batch on its way to the job stage."""

    batch: SealedBatch
    sealed_ms: float
    sealed_us: int


@dataclass(frozen=True, slots=True)
class Batching:
    """The stages through which records become batches; all of one run, and used by the intake's thread."""

    sorter: TransactionSorter
    ahead: StreamedSliceCutter
    batcher: Batcher
    tally: CaptureTally


@dataclass(frozen=True, slots=True)
class QueueRoom:
    """The queue, and how many bytes of it may wait for the target."""

    catalog: QueueCatalog
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class LogObservers:
    """Observers of every landing and every sealed batch."""

    tickets: RunTickets
    evidence: LogEvidence


class IntakeOwner(Protocol):
    """Receives events of the log reader, in the intake's thread."""

    def queue_holds(self, event: Holds) -> None:
        """The log reader carried out an order about the queue's durability."""
        ...

    def log_verified(self) -> None:
        """The source's log was verified to continue the log read before. Called once; nothing is sealed before."""
        ...


class Intake:
    """Feeds sorter and batcher. One thread calls `run`; any may call `put`."""

    def __init__(
        self,
        batching: Batching,
        room: QueueRoom,
        clock: Clock,
        to_job: queue.Queue[Sealed],
        seen: LogObservers,
        owner: IntakeOwner,
    ) -> None:
        """`to_job`: receives the sealed batches. While it is full, no batch is sealed."""
        after = batching.batcher.captured
        self._sorter, self._ahead, self._batcher = batching.sorter, batching.ahead, batching.batcher
        self._tally = batching.tally
        self._catalog, self._budget_bytes = room.catalog, room.budget_bytes
        self._clock = clock
        self._to_job = to_job
        self._tickets, self._evidence = seen.tickets, seen.evidence
        self._owner = owner
        self._verified = False
        self._reader_failed: Callable[[Failed], None] | None = None
        self._inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._in_flight: deque[SealedBatch] = deque()
        self._kept: int | None = None
        self._unwritten: list[SealedBatch] = []
        self._last_written = 0
        """Ordinal of the last record that the target's progress record includes. Its segment is kept: the queue never begins after it."""
        self._written = after
        self._held = False
        self.held_since_ms: float | None = None
        """Since when reading has stopped because of the queue's budget, by the monotonic clock; None while it is read."""
        self.demanded = after
        """The highest position that is waited for."""
        self.demanded_since_ms: float | None = None
        """Since when positions that were not read yet have been waited for, by the monotonic clock; None if none is."""
        self._demanded_ms = 0.0
        self._asked_ms = 0.0
        self._reader: ReaderProcess | None = None
        self.waiting_since_us: int | None = None
        """Commit time of the oldest transaction that was read and is not on the target yet, in µs since 1970; None if there is none."""
        self.durable = after
        """Everything up to here is durable in the queue. Not valid while the queue is in memory."""

    @property
    def captured(self) -> Lsn:
        """Everything committed up to here was read."""
        return self._batcher.captured

    @property
    def last_commit(self) -> LastCommit:
        """The last transaction up to `captured`."""
        return self._batcher.last_commit

    def put(self, item: Item) -> None:
        """Queue an item for the intake's thread. Returns at once."""
        self._inbox.put(item)

    def from_reader(self, reader: ReaderProcess, event: ReaderEvent) -> None:
        """Queue an event of the log reader for the intake's thread. Returns at once."""
        self._inbox.put((reader, event))

    def attach(self, reader: ReaderProcess) -> None:
        """Accept events of this reader only; those of earlier readers are ignored."""
        self._reader = reader
        self._held, self.held_since_ms = False, None

    def restore(self, landed: list[Landed], next_ordinal: Ordinal, unknown_end: Lsn) -> None:
        """Process the records that an earlier process left in the queue. Call it before the first reader is attached.

        `next_ordinal`: of the first record that will be read. `unknown_end`: the log up to here was read with another origin filter.
        """
        for one in landed:
            self._land(one)
        self._catalog.start_at(next_ordinal)
        self._batcher.know_nothing_before(unknown_end)

    def run(self, stopped: Callable[[], bool], reader_failed: Callable[[Failed], None]) -> None:
        """Work until `stopped()` is true. `reader_failed` is called if the log reader ends with a fault.

        Raises EngineFault if the log cannot be read, and any fault that `reader_failed` raises.
        """
        self._reader_failed = reader_failed
        while not stopped():
            busy = self._batcher.due_in_ms(self._now()) is not None or self.demanded > self.captured
            self._drain_inbox(BUSY_WAIT_S if busy else IDLE_WAIT_S)
            self._seal()
            self._ask()
            self.waiting_since_us = self._waiting_since_us()

    def _waiting_since_us(self) -> int | None:
        sent = next((batch.first_commit_us for batch in self._in_flight if batch.transactions), None)
        return self._batcher.oldest_commit_us if sent is None else sent

    def _now(self) -> int:
        return int(self._clock.monotonic_ms())

    def _drain_inbox(self, wait_s: float) -> None:
        try:
            item = self._inbox.get(timeout=wait_s)
            while True:
                self._handle(item)
                item = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _handle(self, item: Item) -> None:
        if isinstance(item, tuple):
            reader, event = item
            if reader is self._reader:
                self._reader_event(event)
        elif isinstance(item, Demand):
            self._demand(item.position)
        elif isinstance(item, Cut):
            if self._batcher.request_cut(item.position):
                self._demand(item.position)
            else:
                item.refused()
        elif isinstance(item, Flush):
            position = max(item.position, self._batcher.sealed_end)
            self._batcher.request_cut(position)
            self._demand(position)
        elif isinstance(item, HoldBack):
            if item.on:
                self._batcher.hold_back(item.for_ms)
            else:
                self._batcher.let_go(item.for_ms)
        elif isinstance(item, Done):
            self._done(item)

    def _demand(self, position: Lsn) -> None:
        self._batcher.demand(position)
        if position > self.captured:
            self.demanded = max(self.demanded, position)
            self._demanded_ms = self._clock.monotonic_ms()
            self._asked_ms = 0.0
            if self.demanded_since_ms is None:
                self.demanded_since_ms = self._demanded_ms

    def _reader_event(self, event: ReaderEvent) -> None:
        if isinstance(event, Landed):
            self._land(event)
        elif isinstance(event, Moved):
            self._batcher.advance(event.wal_end)
        elif isinstance(event, Durable):
            self.durable = max(self.durable, event.wal_end)
        elif isinstance(event, Holds):
            if event.order.on:
                self.durable = max(self.durable, event.wal_end)
            self._owner.queue_holds(event)
        elif isinstance(event, Started):
            self._sorter.begin_session(event.start)
            self._tally.begin_session(event.start)
            self._ahead.begin_session(event.start)
            self._tickets.begin_session(event.start)
            self._evidence.begin_session()
        elif isinstance(event, Verified):
            if not self._verified:
                self._verified = True
                self._owner.log_verified()
        elif self._reader_failed is not None:
            self._reader_failed(event)

    def _land(self, landed: Landed) -> None:
        if landed.block is not None:
            self._catalog.add(landed.block)
        messages = messages_in(landed)
        self._evidence.landed(landed, messages)
        self._tickets.landed(landed, messages)
        self._tally.feed(landed.controls)
        self._sorter.feed(landed.controls, landed.relations)
        self._ahead.process_controls(landed.controls)
        self._batcher.add(self._sorter.drain(), self._now())
        self._batcher.advance(landed.wal_end)
        self._throttle()

    def _throttle(self) -> None:
        """Stop reading while the bytes that wait for the target exceed their room in the queue's budget. The source then retains its log;
        its keepalives are still answered.

        Bytes of open transactions and deferred tables reduce the room, but not below WAITING_SHARE of the budget: they are released only
        by records that are read later. The source retains at least as much for an open transaction, which the guard limits. Before
        the first session is verified nothing is sealed, so reading is not stopped.
        """
        size = self._catalog.size_bytes
        waiting = self._waiting_bytes() if size > self._budget_bytes * WAITING_SHARE * RESUME_SHARE else 0
        room = max(self._budget_bytes - (size - waiting), self._budget_bytes * WAITING_SHARE)
        hold = self._verified and waiting > room * (RESUME_SHARE if self._held else 1.0)
        if hold != self._held and self._reader is not None:
            self._held = hold
            self.held_since_ms = self._clock.monotonic_ms() if hold else None
            self._reader.send(Hold(hold))

    def _seal(self) -> None:
        # Sealed as late as possible: transactions that arrive while earlier batches are processed are netted against each other.
        while self._verified and not self._to_job.full():
            now, crowded = self._now(), len(self._in_flight) >= AHEAD
            batch = self._batcher.seal(now, self._catalog.bytes_between, crowded=crowded)
            if batch is None:
                return
            batch = replace(batch, captured=self._tally.take(batch.end))
            self._in_flight.append(batch)
            self._evidence.sealed(batch)
            sealed = Sealed(batch, self._clock.monotonic_ms(), self._clock.wall_us())
            self._tickets.sealed(batch, sealed.sealed_us)
            self._to_job.put(sealed)

    def _ask(self) -> None:
        """Request an idle source's position while a position that was not read yet is demanded."""
        if self.demanded <= self.captured:
            self.demanded_since_ms = None
            return
        if self._reader is None:
            return
        now = self._clock.monotonic_ms()
        eager = now - self._demanded_ms < EAGER_FOR_MS
        if now - self._asked_ms >= (ASK_EAGERLY_MS if eager else ASK_PATIENTLY_MS):
            self._asked_ms = now
            self._reader.send(AskPosition())

    def _done(self, done: Done) -> None:
        if not self._in_flight or self._in_flight[0] is not done.batch:
            raise EngineFault(FaultKind.INTERNAL, "intake", "batches were committed out of order")
        self._in_flight.popleft()
        self._kept = done.kept
        self._unwritten.append(done.batch)
        if done.written:
            last = [int(r.stop) - 1 for batch in self._unwritten for r in batch.ranges]
            self._last_written = max(last, default=self._last_written)
            self._written = done.batch.end
            self._unwritten = []
        if done.batch.demanded:
            self._batcher.in_flight_done()
        self._catalog.retain(self._oldest_needed(), self._written)
        self._throttle()

    def _waiting_bytes(self) -> int:
        """Bytes from the first record that is committed on the source but not on the target to the end of the queue."""
        firsts = [int(r.start) for batch in self._in_flight for r in batch.ranges]
        unsealed = self._batcher.oldest_unsealed_ordinal()
        firsts += [] if unsealed is None else [int(unsealed)]
        return self._catalog.bytes_between(Ordinal(min(firsts)), self._catalog.next_ordinal) if firsts else 0

    def _oldest_needed(self) -> Ordinal:
        """Records below this ordinal may be removed: no open transaction, unsealed or uncommitted batch, or deferred table needs them."""
        needed = [self._last_written]
        needed += [int(r.start) for batch in (*self._in_flight, *self._unwritten) for r in batch.ranges]
        for oldest in (self._sorter.oldest_open_ordinal(), self._batcher.oldest_unsealed_ordinal(), self._kept):
            if oldest is not None:
                needed.append(int(oldest))
        return Ordinal(min(needed, default=int(self._catalog.next_ordinal)))


__all__ = ["Cut", "Demand", "Done", "Flush", "HoldBack", "Intake", "Sealed", "Wake"]
