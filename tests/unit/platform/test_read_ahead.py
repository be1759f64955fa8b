"""Iterators that are read ahead: the order of items, how many are read at once, errors, and an early end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.platform.read_ahead import in_turn, side_by_side
from tests.fixtures.waiting import wait_until

LISTS = st.lists(st.lists(st.integers(), max_size=5), max_size=6)


@given(LISTS, st.integers(1, 3), st.integers(1, 3))
def test_items_come_in_the_order_of_the_iterators(lists: list[list[int]], at_once: int, ahead: int) -> None:
    assert list(in_turn((iter(one) for one in lists), at_once, ahead)) == [item for one in lists for item in one]
    assert sorted(side_by_side([iter(one) for one in lists], ahead)) == sorted(item for one in lists for item in one)


def test_so_many_are_read_at_the_same_time_and_no_more() -> None:
    begun, go = [threading.Event() for _ in range(3)], threading.Event()

    def items(number: int) -> Iterator[int]:
        begun[number].set()
        assert go.wait(10)
        yield number

    found: list[int] = []
    reader = threading.Thread(target=lambda: found.extend(in_turn(map(items, range(3)), 2, 1)))
    reader.start()
    assert begun[0].wait(10)
    assert begun[1].wait(10)
    assert not begun[2].is_set()
    go.set()
    reader.join(10)
    assert found == [0, 1, 2]


def test_an_error_comes_in_the_place_of_its_item() -> None:
    def broken() -> Iterator[int]:
        yield 2
        raise OSError("broken")

    found: list[int] = []

    def read() -> None:
        for each in in_turn([iter([1]), broken(), iter([3])], 2, 1):
            found.append(each)

    with pytest.raises(OSError, match="broken"):
        read()
    assert found == [1, 2]


def test_after_an_early_end_nothing_is_read_any_more() -> None:
    ended: list[int] = []

    def items(number: int) -> Iterator[int]:
        try:
            yield from range(1_000_000)
        finally:
            ended.append(number)

    reading = in_turn(map(items, range(5)), 2, 3)
    assert next(reading) == 0
    reading.close()
    assert sorted(ended) == [0, 1]
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "read-ahead"])
