"""What may be confirmed while the queue's mode changes: never more than one of the two places holds durably."""

from __future__ import annotations

import random

import pytest

from engine.model.position import ZERO, Lsn
from engine.model.subscription import QueueMode
from engine.queue.durability_switch import DurabilitySwitch, KeepDurable, Marks, QueueState

AUTO, MEMORY, PERSIST = QueueMode.AUTO, QueueMode.MEMORY, QueueMode.PERSIST


def marks(durable: int, written: int, checked: int = 1000) -> Marks:
    return Marks(Lsn(durable), Lsn(written), Lsn(checked))


def new(mode: QueueMode, *, resumed: bool = False, confirmed: int = 0) -> DurabilitySwitch:
    return DurabilitySwitch(mode, resumed=resumed, confirmed=Lsn(confirmed))


def test_memory_confirms_what_the_target_has() -> None:
    assert new(MEMORY).confirm(marks(100, 50)) == (Lsn(50), None)


def test_nothing_is_confirmed_by_the_queue_before_the_reader_has_said_that_it_is_on_disk() -> None:
    switch = new(AUTO)
    switch.press(on=True)
    position, order = switch.confirm(marks(100, 50))
    assert (position, order) == (Lsn(50), KeepDurable(on=True, number=1))
    assert switch.confirm(marks(100, 60)) == (Lsn(60), None)
    assert switch.holds(KeepDurable(on=True, number=1))
    assert switch.confirm(marks(100, 60)) == (Lsn(100), None)


def test_persist_is_left_only_when_the_target_has_passed_what_was_confirmed() -> None:
    switch = new(PERSIST)
    assert switch.holds(switch.order)
    assert switch.confirm(marks(100, 50))[0] == Lsn(100)
    switch.set(MEMORY)
    assert switch.confirm(marks(200, 99)) == (Lsn(99), None)
    assert switch.state is QueueState.LEAVING
    assert switch.order.on
    assert switch.confirm(marks(200, 100)) == (Lsn(100), KeepDurable(on=False, number=1))
    assert switch.confirm(marks(300, 110)) == (Lsn(110), None)
    assert switch.holds(KeepDurable(on=False, number=1))
    assert switch.state is QueueState.MEMORY


def test_a_wish_that_comes_back_while_the_target_is_waited_for_keeps_the_queue() -> None:
    switch = new(PERSIST)
    switch.holds(switch.order)
    switch.confirm(marks(100, 50))
    switch.set(MEMORY)
    switch.confirm(marks(100, 50))
    switch.set(PERSIST)
    assert switch.confirm(marks(150, 50)) == (Lsn(150), None)


def test_answers_to_earlier_orders_change_nothing() -> None:
    switch = new(PERSIST)
    first = switch.order
    switch.holds(first)
    switch.set(MEMORY)
    switch.confirm(marks(0, 50))
    assert switch.state is QueueState.GIVING_UP
    assert not switch.holds(first)
    assert switch.confirm(marks(100, 50))[0] == Lsn(50)


def test_a_queue_that_is_still_needed_stays_durable_whatever_is_set() -> None:
    switch = new(MEMORY, resumed=True, confirmed=100)
    assert switch.order.on
    assert switch.holds(switch.order)
    assert switch.confirm(marks(100, 50)) == (Lsn(50), None)
    assert switch.state is QueueState.LEAVING
    assert switch.confirm(marks(100, 100))[1] == KeepDurable(on=False, number=1)


@pytest.mark.parametrize("seed", range(300))
def test_the_order_of_marks_holds_whatever_happens(seed: int) -> None:
    """A model of disk, target and source: a crash at any moment finds all that was confirmed in one of the two places."""
    world = World(random.Random(seed))
    for _ in range(120):
        world.step()


class World:
    """The switch with a log reader that answers late, dies, and begins again; and an engine that begins again."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.captured = self.durable_end = self.written = self.confirmed = 0
        self.marked = False
        """The mark on disk: the queue is durable up to `durable_end`."""
        self.reported = 0
        self.switch = new(rng.choice(list(QueueMode)))
        self.inbox: list[KeepDurable] = []
        self.answers: list[tuple[KeepDurable, int]] = []
        self.start_reader()

    def start_reader(self) -> None:
        self.inbox, order = [], self.switch.order
        self.reader_on(order) if order.on else self.reader_off(order)

    def reader_on(self, order: KeepDurable) -> None:
        self.durable_end, self.marked = self.captured, True
        self.answers.append((order, self.captured))

    def reader_off(self, order: KeepDurable) -> None:
        self.marked = False
        self.answers.append((order, self.captured))

    def step(self) -> None:
        self.rng.choice(
            [self.read, self.apply, self.wish, self.confirm, self.confirm, self.obey, self.answer, self.reader_dies]
        )()
        if self.rng.random() < 0.03:
            self.engine_dies()
        safe = max(self.written, self.durable_end if self.marked else 0)
        assert self.confirmed <= safe, (self.switch.state, self.confirmed, self.written, self.durable_end, self.marked)

    def read(self) -> None:
        self.captured += self.rng.randint(1, 5)
        if self.marked:
            self.durable_end = self.captured

    def apply(self) -> None:
        self.written = self.rng.randint(self.written, self.captured)

    def wish(self) -> None:
        self.switch.set(self.rng.choice(list(QueueMode)))
        self.switch.press(on=self.rng.random() < 0.5)

    def confirm(self) -> None:
        position, order = self.switch.confirm(marks(self.reported, self.written, self.captured))
        if order is not None:
            self.inbox.append(order)
        self.confirmed = max(self.confirmed, position.value)

    def obey(self) -> None:
        if self.inbox:
            order = self.inbox.pop(0)
            self.reader_on(order) if order.on else self.reader_off(order)

    def answer(self) -> None:
        if self.answers:
            order, end = self.answers.pop(0)
            if order.on:
                self.reported = max(self.reported, end)
            self.switch.holds(order)
        elif self.marked:
            self.reported = self.durable_end

    def reader_dies(self) -> None:
        self.start_reader()

    def engine_dies(self) -> None:
        needed = self.confirmed > self.written
        assert not needed or (self.marked and self.durable_end >= self.confirmed)
        mode = self.rng.choice(list(QueueMode))
        resumed = needed or (self.marked and mode is PERSIST and self.durable_end >= self.written)
        self.captured = self.reported = self.durable_end if resumed else self.written
        self.durable_end, self.marked = (self.durable_end, self.marked) if resumed else (0, False)
        self.reported = self.written
        self.switch = new(mode, resumed=resumed, confirmed=self.confirmed)
        self.answers = []
        self.start_reader()


def test_an_initial_position_counts_as_confirmed() -> None:
    switch = new(AUTO, confirmed=70)
    assert switch.confirm(marks(0, 0)) == (ZERO, None)
    switch.learn_confirmed(Lsn(90))
    switch.press(on=True)
    switch.confirm(marks(0, 0))
    switch.holds(KeepDurable(on=True, number=1))
    switch.press(on=False)
    assert switch.confirm(marks(95, 89))[1] is None
    assert switch.confirm(marks(95, 90))[1] == KeepDurable(on=False, number=2)
