"""Which rule the queue follows at this moment, and how it gets from one to the other while a run goes on. Pure; any thread may use it.

CORRECTNESS, "Order of marks": what is confirmed to the source is at or before the durable end of the queue while it is durable, and
at or before the target's progress record while it is not. So the queue's own end counts only once the log reader has said that all of
the queue is on disk, and is given up only when the target has passed everything that was ever confirmed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum

from engine.model.position import Lsn
from engine.model.subscription import QueueMode


class QueueState(StrEnum):
    """`making_durable` and `giving_up`: the log reader was told and has not answered. `leaving`: the target is waited for."""

    MEMORY = "memory"
    MAKING_DURABLE = "making_durable"
    PERSIST = "persist"
    LEAVING = "leaving"
    GIVING_UP = "giving_up"


@dataclass(frozen=True, slots=True)
class KeepDurable:
    """For the log reader: from now on the queue is durable before the source is told, or no longer. `number`: which order this is."""

    on: bool
    number: int


@dataclass(frozen=True, slots=True)
class Marks:
    """Durable end of the queue, end of the target's progress record, and up to where publications are known to have been right."""

    durable: Lsn
    written: Lsn
    checked: Lsn


class DurabilitySwitch:
    """Decides what may be confirmed, and when the log reader is told to change.

    `resumed`: the run begins with a queue that an earlier process left and that is still needed. `confirmed`: what the source was told.
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
        """What a log reader that starts now has to do."""
        with self._lock:
            on = self._state in {QueueState.MAKING_DURABLE, QueueState.PERSIST, QueueState.LEAVING}
            return KeepDurable(on, self._number)

    @property
    def may_persist(self) -> bool:
        """Whether the guard can make a queue durable that is not."""
        return self._setting is QueueMode.AUTO and self._state in {QueueState.MEMORY, QueueState.GIVING_UP}

    def set(self, setting: QueueMode) -> None:
        """The user's wish; it takes hold with the next `confirm`."""
        with self._lock:
            self._setting = setting

    def press(self, on: bool) -> None:
        """The guard's wish, for `auto`: the source's log has to go sooner than the target comes on, or no longer."""
        with self._lock:
            self._pressed = on

    def learn_confirmed(self, confirmed: Lsn) -> None:
        """The source was told this much, perhaps by an earlier process."""
        with self._lock:
            self._confirmed = max(self._confirmed, confirmed)

    def confirm(self, marks: Marks) -> tuple[Lsn, KeepDurable | None]:
        """What may be confirmed now, and what the log reader has to be told before anything else is."""
        with self._lock:
            order = self._move(marks.written)
            rule = marks.durable if self._state is QueueState.PERSIST else marks.written
            position = min(rule, marks.checked)
            self._confirmed = max(self._confirmed, position)
            return position, order

    def holds(self, order: KeepDurable) -> bool:
        """The log reader did as it was told. True where this ends a switch; answers to earlier orders are passed over."""
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
            # Nothing is confirmed by the queue's end from here on, so that the target can pass what was.
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
