"""What the chaos run takes for too much memory, and for memory that grows."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from tests.chaos.memory import Memory, grows
from tests.fixtures.waiting import wait_until


def series(level: Callable[[int], float], seconds: int = 600) -> list[float]:
    """Samples around a level, with a restart of the engine every half minute."""
    rng = random.Random(1)
    return [level(n) * (0.4 if n % 30 < 4 else 1.0) + rng.uniform(-40, 40) for n in range(seconds)]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (lambda _: 1000.0, False),
        (lambda n: 1000.0 + 0.2 * n, False),
        (lambda n: 1000.0 + 1.5 * n, True),
        (lambda n: 1600.0 if 250 < n < 350 else 1000.0, False),
        (lambda n: 2000.0 - 1.5 * n, False),
    ],
    ids=["flat", "hardly", "steadily", "a hill", "down"],
)
def test_memory_grows_only_where_every_third_lies_above_the_one_before(
    level: Callable[[int], float], expected: bool
) -> None:
    assert grows(series(level)) is expected


def test_few_samples_are_not_judged() -> None:
    assert not grows(series(lambda n: 100.0 * n, seconds=60))


@pytest.mark.parametrize(("bound_mb", "found"), [(100_000.0, False), (1.0, True)])
def test_the_sum_of_all_processes_is_held_against_the_bound(bound_mb: float, found: bool) -> None:
    memory = Memory(lambda: [os.getpid()], bound_mb, every_s=0.01)
    memory.start()
    wait_until(lambda: len(memory.samples) >= 3)
    memory.stop()
    assert memory.failure is None
    assert memory.summary()["peak_mb"] > 1
    assert (memory.found() is not None) is found
