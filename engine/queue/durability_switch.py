"""State machine that turns the queue's durability on and off during a run. Pure; any thread may use it.

Invariant: the position confirmed to the source is at or before the durable end of the queue while the queue is durable, and at or before
the target's progress record while it is not. So the queue's end counts only after the log reader has reported that the whole queue is on
disk, and stops to count only after the target has passed every position that was ever confirmed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum

from engine.model.position import Lsn
from engine.model.subscription import QueueMode


class QueueState(StrEnum):
    """`making_durable`, `giving_up`: the order was sent to the log reader, which has not answered. `leaving`: waits for the target."""

    MEMORY = "memory"
    MAKING_DURABLE = "making_durable"
    PERSIST = "persist"
    LEAVING = "leaving"
    GIVING_UP = "giving_up"


@dataclass(frozen=True, slots=True)
class KeepDurable:
    """Order to the log reader: make the queue durable before positions are confirmed to the source (`on`), or stop to. `number`: of the
    order."""

    on: bool
    number: int


@dataclass(frozen=True, slots=True)
class Marks:
    """`durable`: durable end of the queue. `written`: end of the target's progress record. `checked`: the publications are known to have
    been correct up to this position."""

    durable: Lsn
    written: Lsn
    checked: Lsn


class DurabilitySwitch:
    """Decides which position may be confirmed, and when the log reader gets an order.

    `resumed`: the run starts with a queue of an earlier process that is still needed. `confirmed`: last position confirmed to the source.
    """

    def __init__(self, setting: QueueMode, *, resumed: bool, confirmed: Lsn, pressed: bool = False) -> None:
        self._lock = threading.Lock()
        self._setting = setting
        self._pressed = pressed
        self._confirmed = confirmed
        self._number = 0
        self._state = QueueState.MAKING_DURABLE if resumed or self._wanted else QueueState.MEMORY

    @property
    def state(self) -> QueueState:
        return self._state

    @property
    def setting(self) -> QueueMode:
        return self._setting

    @property
    def order(self) -> KeepDurable:
        """The order for a log reader that starts now."""
        with self._lock:
            on = self._state in {QueueState.MAKING_DURABLE, QueueState.PERSIST, QueueState.LEAVING}
            return KeepDurable(on, self._number)

    @property
    def may_persist(self) -> bool:
        """Whether `press` can make the queue durable that is not durable now."""
        return self._setting is QueueMode.AUTO and self._state in {QueueState.MEMORY, QueueState.GIVING_UP}

    def set(self, setting: QueueMode) -> None:
        """Set the user's queue mode; it takes effect with the next `confirm`."""
        with self._lock:
            self._setting = setting

    def press(self, on: bool) -> None:
        """For `auto`: set whether retained WAL requires a durable queue, because the target's progress releases it too slowly."""
        with self._lock:
            self._pressed = on

    def learn_confirmed(self, confirmed: Lsn) -> None:
        """Record a position confirmed to the source, possibly by an earlier process."""
        with self._lock:
            self._confirmed = max(self._confirmed, confirmed)

    def confirm(self, marks: Marks) -> tuple[Lsn, KeepDurable | None]:
        """The position that may be confirmed now, and an order that the log reader must get before that; None if there is none."""
        with self._lock:
            order = self._move(marks.written)
            rule = marks.durable if self._state is QueueState.PERSIST else marks.written
            position = min(rule, marks.checked)
            self._confirmed = max(self._confirmed, position)
            return position, order

    def holds(self, order: KeepDurable) -> bool:
        """The log reader has carried out `order`. Returns True if that completes a switch; answers to earlier orders are ignored."""
        with self._lock:
            if order.number != self._number:
                return False
            if self._state is QueueState.MAKING_DURABLE and order.on:
                self._state = QueueState.PERSIST
                return True
            if self._state is QueueState.GIVING_UP and not order.on:
                self._state = QueueState.MEMORY
                return True
            return False

    @property
    def _wanted(self) -> bool:
        return self._setting is QueueMode.PERSIST or (self._setting is QueueMode.AUTO and self._pressed)

    def _move(self, written: Lsn) -> KeepDurable | None:
        if self._state is QueueState.MEMORY and self._wanted:
            self._state = QueueState.MAKING_DURABLE
        elif self._state is QueueState.PERSIST and not self._wanted:
            # From here on only the target's progress is confirmed, until it has passed the last confirmed position.
            self._state = QueueState.LEAVING
            return self._move(written)
        elif self._state is QueueState.LEAVING and self._wanted:
            self._state = QueueState.PERSIST
            return None
        elif self._state is QueueState.LEAVING and written >= self._confirmed:
            self._state = QueueState.GIVING_UP
        else:
            return None
        self._number += 1
        return KeepDurable(self._state is QueueState.MAKING_DURABLE, self._number)
