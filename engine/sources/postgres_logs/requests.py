"""What other threads of the log reader request of the thread that reads: marks, and cuts."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from engine.model.identity import TicketId
from engine.model.position import Lsn
from engine.model.ticket import TicketMarker
from engine.sources.postgres_logs.consistent_cut import CutState, NodeSnapshot
from engine.sources.postgres_logs.merged_numbers import BETWEEN, LONG_ROOM, NEVER, MergedNumbers
from engine.sources.postgres_logs.node_ends import NodeEnds


class RequestedMarks:
    """Marks for "now". A request gets its number at once; then the ends of all nodes are taken, which are its positions."""

    def __init__(
        self, numbers: MergedNumbers, ends: NodeEnds, count: int, is_stuck: Callable[[], bool] = lambda: False
    ) -> None:
        """`count`: number of nodes. `is_stuck`: whether it may take long until a mark is reached."""
        self._numbers = numbers
        self._ends = ends
        self._nowhere = [NEVER] * count
        self._is_stuck = is_stuck
        self._lock = threading.Lock()
        self._waiting = 0
        """The mark whose ends are taken next; 0 = none. Requests until then share it."""
        self._flushed = False
        """Whether these ends have to be flushed."""
        self._taking = 0
        """The mark whose ends are being taken."""
        self._markers: list[TicketMarker] = []
        """Those that are written when their marks are reached, in ascending order of these."""

    def request(self, *, flushed: bool, ticket: TicketId | None = None) -> Lsn:
        """A position that is reached when everything that was committed before this call is in the merged log. From any thread.

        `ticket`: its marker is written at the position. It is as old as this call.
        """
        with self._lock:
            self._flushed |= flushed
            if not self._waiting:
                self._waiting = self._numbers.mark(self._nowhere, LONG_ROOM if self._is_stuck() else BETWEEN)
            number = self._waiting
            if ticket is not None:
                self._markers.append(TicketMarker(ticket, Lsn(number), time.time_ns() // 1000))
        self._ends.notify()
        return Lsn(number)

    def take_markers(self) -> list[TicketMarker]:
        """The markers whose marks are reached, by the thread that reads. Each once."""
        with self._lock:
            count = sum(marker.position.value <= self._numbers.last for marker in self._markers)
            found, self._markers = self._markers[:count], self._markers[count:]
        return found

    def step(self) -> list[int] | None:
        """Continue, by the thread that reads. The ends of the nodes' logs if they were just taken."""
        found = self._ends.take()
        if found is not None:
            self._numbers.place(self._taking, found)
            self._taking = 0
        with self._lock:
            begins = self._waiting > 0 and self._taking == 0
            if begins:
                self._taking, self._waiting = self._waiting, 0
                flushed, self._flushed = self._flushed, False
        if begins:
            self._ends.ask(flushed=flushed)
        return found


class Cuts(Protocol):
    """What cuts are made of; used by the thread that reads."""

    cut_position: Lsn | None

    @property
    def cut_state(self) -> CutState | None: ...
    def begin_cut(self) -> None: ...
    def take_snapshots(self, snapshots: Sequence[NodeSnapshot]) -> None: ...
    def end_cut(self) -> None: ...


class CutRequest:
    """One cut. Used by the thread that requests it, and by the one that reads."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        """Nothing is released from here on: the snapshots may be taken."""
        self.done = threading.Event()
        self.snapshots: Sequence[NodeSnapshot] | None = None
        self.given_up = False
        self.position: Lsn | None = None
        """Once it is done: the position of the cut; None: the snapshots are not of one moment."""


class RequestedCuts:
    """Cuts, one after another."""

    def __init__(self, ends: NodeEnds) -> None:
        """`ends`: what wakes the thread that reads."""
        self._ends = ends
        self._requests: deque[CutRequest] = deque()
        self._current: CutRequest | None = None
        self._passed = False

    def request(self) -> CutRequest:
        """From any thread. The request ends with `done`, or with `give_up`."""
        made = CutRequest()
        self._requests.append(made)
        self._ends.notify()
        return made

    def give(self, request: CutRequest, snapshots: Sequence[NodeSnapshot]) -> None:
        """The nodes' snapshots, which were taken since it began. From any thread."""
        request.snapshots = snapshots
        self._ends.notify()

    def give_up(self, request: CutRequest) -> None:
        """From any thread. Idempotent, and without effect on a request that is done."""
        request.given_up = True
        self._ends.notify()

    def step(self, cuts: Cuts) -> None:
        """Continue, by the thread that reads."""
        current = self._current
        if current is not None:
            if current.snapshots is not None and not self._passed:
                self._passed = True
                cuts.take_snapshots(current.snapshots)
            if cuts.cut_position is not None or cuts.cut_state is CutState.TORN or current.given_up:
                current.position = cuts.cut_position
                self._current = None
                cuts.end_cut()
                current.done.set()
        while self._current is None and self._requests:
            request = self._requests.popleft()
            if request.given_up:
                continue
            self._current, self._passed = request, False
            cuts.begin_cut()
            request.begun.set()
