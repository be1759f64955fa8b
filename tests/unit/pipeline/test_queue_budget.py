"""When reading of the log stops because the queue is full, and when a stop would free nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from engine.model.batch import BlockRef
from engine.model.control import CONTROL_FIELDS, ControlKind
from engine.model.identity import Ordinal
from engine.model.last_commit import LastCommit
from engine.model.position import ZERO, Lsn
from engine.model.source import Landed
from engine.model.subscription import BatchPolicy
from engine.pipeline.intake import Batching, Done, Intake, LogObservers, QueueRoom, Sealed
from engine.pipeline.log_reader import Hold, Verified
from engine.pipeline.reader_process import ReaderProcess
from engine.pipeline.streamed_transactions import StreamedSliceCutter, StreamedTransactionStager
from engine.pipeline.tickets import RunTickets, TicketTracker
from engine.platform.clock import SystemClock
from engine.queue import QueueCatalog
from engine.safety.log_evidence import LogEvidence
from engine.sort.batcher import Batcher
from engine.sort.capture_tally import CaptureTally
from engine.sort.sorter import TransactionSorter

BUDGET = 1000


class Bench:
    """An intake with a simulated reader, whose batches stay under way until the test marks them as done."""

    def __init__(self, folder: Path, *, verified: bool = True) -> None:
        self.holds: list[bool] = []
        self.sealed: list[Sealed] = []
        to_job = SimpleNamespace(full=lambda: False, put=self.sealed.append)
        policy = BatchPolicy(max_transactions=1)
        # It works on large transactions only, and there is none.
        desk = StreamedTransactionStager(
            *cast("Any", [None] * 4), folder, cast("Any", SimpleNamespace(holds=lambda _xid, _bytes: False))
        )
        self._catalog = QueueCatalog(folder)
        sorter = TransactionSorter(ZERO)
        self._intake = Intake(
            Batching(
                sorter,
                StreamedSliceCutter(sorter, self._catalog.bytes_between, 1 << 30, desk),
                Batcher(policy, ZERO, last=LastCommit.unknown(ZERO)),
                CaptureTally(ZERO),
            ),
            QueueRoom(self._catalog, BUDGET),
            SystemClock(),
            cast("Any", to_job),
            LogObservers(
                RunTickets(TicketTracker(cast("Any", None)), SystemClock(), cast("Any", None), lambda _: None, ZERO),
                LogEvidence(cast("Any", None)),
            ),
            self,
        )
        self._intake.attach(cast("ReaderProcess", self))
        self.verified = 0
        if verified:
            self.verify()
        self._end = 0

    def send(self, command: object) -> None:
        """As the log reader."""
        if isinstance(command, Hold):
            self.holds.append(command.on)

    def verify(self) -> None:
        """The reader's session was found to read the log that is held."""
        self._intake.from_reader(cast("ReaderProcess", self), Verified())
        self._turn()

    def log_verified(self) -> None:
        self.verified += 1

    def queue_holds(self, event: object) -> None:
        """No order is given."""

    def open(self, xid: int, size: int) -> None:
        """A chunk of a transaction that stays open."""
        self._land(size, (ControlKind.STREAM_START, 0, xid, 0, 0, 0, 0), (ControlKind.STREAM_STOP, 2, 0, 0, 0, 0, 0))

    def end_open(self, xid: int) -> None:
        self._end += 10
        self._land(1, (ControlKind.STREAM_COMMIT, 0, xid, 0, self._end, 0, 0))

    def commit(self, size: int) -> None:
        """A whole small transaction."""
        self._end += 10
        self._land(size, (ControlKind.BEGIN, 0, 1, 0, 0, 0, 0), (ControlKind.COMMIT, 2, 0, 0, self._end, 0, 0))

    def apply(self) -> None:
        """The oldest batch under way is in the target."""
        self._intake.put(Done(self.sealed.pop(0).batch, None, written=True))
        self._turn()

    def _land(self, size: int, *controls: tuple[int, ...]) -> None:
        first = int(self._catalog.next_ordinal)
        found: Any = np.array(list(controls), np.dtype(CONTROL_FIELDS))
        found["ordinal"] += first
        block = BlockRef("unused.arrow", 0, size, 0, Ordinal(first), 3)
        self._intake.from_reader(cast("ReaderProcess", self), Landed(block, found, {}, Lsn(self._end)))
        self._turn()

    def _turn(self) -> None:
        once: Iterator[bool] = iter([False, True])
        self._intake.run(lambda: next(once), lambda failed: pytest.fail(str(failed)))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_what_waits_for_the_target_stops_the_reading_until_it_is_there(bench: Bench) -> None:
    bench.commit(BUDGET)
    assert bench.holds == []
    bench.commit(BUDGET)
    assert bench.holds == [True]
    bench.apply()
    assert bench.holds == [True]
    bench.apply()
    assert bench.holds == [True, False]


def test_a_queue_that_open_transactions_fill_is_read_into_all_the_same(bench: Bench) -> None:
    bench.open(7, 3 * BUDGET)
    bench.commit(10)
    bench.apply()
    assert bench.holds == []
    bench.end_open(7)
    assert bench.holds == [True]  # now it waits for the target as anything else does
    bench.apply()
    assert bench.holds == [True, False]


def test_beside_open_transactions_there_is_a_share_for_what_waits_and_no_more(bench: Bench) -> None:
    bench.open(7, BUDGET)
    bench.commit(BUDGET // 4)
    assert bench.holds == []
    bench.commit(10)
    assert bench.holds == [True]
    bench.apply()
    assert bench.holds == [True, False]


def test_nothing_is_sealed_before_the_session_is_verified_and_its_reading_goes_on(tmp_path: Path) -> None:
    """Else a full queue would keep the reader from what verifies it, for ever."""
    bench = Bench(tmp_path, verified=False)
    bench.commit(2 * BUDGET)
    bench.commit(BUDGET)
    assert (bench.holds, bench.sealed, bench.verified) == ([], [], 0)
    bench.verify()
    assert (len(bench.sealed), bench.verified) == (2, 1)
    bench.commit(10)
    assert bench.holds == [True]
    bench.verify()
    assert bench.verified == 1
