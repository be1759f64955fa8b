"""Order and packing of splits."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine.copy.split_order import PARTS_PER_TASK, SplitSchedule
from engine.model.identity import RelationId, TableId
from engine.model.source import TableSplit


def split(size: int) -> TableSplit:
    return TableSplit(RelationId(1), "", size, 1)


def schedule_of(tables: dict[str, list[int]], window: int = 4) -> SplitSchedule:
    schedule = SplitSchedule(window)
    schedule.fill((TableId(name), [split(size) for size in sizes]) for name, sizes in tables.items())
    return schedule


def test_open_tables_take_turns_smallest_first() -> None:
    schedule = schedule_of({"big": [10, 10, 10], "small": [5], "middle": [10, 10]}, window=2)
    taken = [task[0].table for task in schedule.next_wave(9, 1)]
    assert taken == ["small", "middle", "big", "middle", "big", "big"]


def test_small_chunks_share_a_task_up_to_its_size() -> None:
    schedule = schedule_of({"a": [30], "b": [30], "c": [30], "d": [200]})
    assert [[part.table for part in task] for task in schedule.next_wave(9, 70)] == [["a", "b"], ["c"], ["d"]]


def test_a_task_has_a_bounded_number_of_parts() -> None:
    schedule = schedule_of({f"t{n:03}": [0] for n in range(40)})
    sizes = [len(task) for task in schedule.next_wave(9, 1000)]
    assert sizes == [PARTS_PER_TASK, PARTS_PER_TASK, 40 - 2 * PARTS_PER_TASK]


def test_a_chunk_comes_again_and_a_dropped_table_does_not() -> None:
    schedule = schedule_of({"a": [10], "b": [20, 20]}, window=1)
    first = schedule.next_wave(1, 1)[0][0]
    schedule.again(replace(first, attempt=2))
    assert schedule.next_wave(1, 1) == [(replace(first, attempt=2),)]
    schedule.drop(TableId("b"))
    assert schedule.next_wave(1, 1) == []


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.lists(st.integers(0, 100), max_size=8), max_size=8),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(0, 150),
)
def test_every_chunk_is_taken_exactly_once(tables: dict[str, list[int]], window: int, tasks: int, size: int) -> None:
    schedule = schedule_of(tables, window)
    taken = []
    while wave := schedule.next_wave(tasks, size):
        assert 0 < len(wave) <= tasks
        taken += [(part.table, part.number) for task in wave for part in task]
    expected = [(name, number) for name, sizes in tables.items() for number in range(len(sizes))]
    assert sorted(taken) == sorted(expected)
