"""Where a job runs: what costs least among what is quick enough, by what jobs cost before; pinned where the user says so."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.subscription import BatchPolicy
from engine.pipeline.cost_model import HERE, SURPRISE, JobPlacement, LinearCost, Way

FREE = BatchPolicy()


def taught(driver: tuple[float, float], spark: tuple[float, float], policy: BatchPolicy = FREE) -> JobPlacement:
    """A tuner that saw jobs whose milliseconds are fixed + per record, in one and in two Spark tasks."""
    tuner = JobPlacement(policy)
    for _ in range(100):
        for records in (100, 10_000, 60_000):
            tuner.learn(HERE, records, driver[0] + driver[1] * records)
            for tasks in (1, 2):
                tuner.learn(Way("spark", tasks), records, spark[0] * tasks + spark[1] * records / tasks)
    return tuner


def test_small_jobs_run_here_and_large_ones_in_spark() -> None:
    tuner = taught((1.0, 0.002), (30.0, 0.002))
    assert tuner.choose(1_000, 5.0, spark=2) == HERE
    assert tuner.choose(500_000, 5.0, spark=2) == Way("spark", 2)


def test_as_few_tasks_as_do_not_hold_up_the_commits() -> None:
    tuner = taught((1.0, 0.004), (30.0, 0.002))
    assert tuner.choose(200_000, 600.0, spark=2) == Way("spark", 1)
    assert tuner.choose(200_000, 50.0, spark=2) == Way("spark", 2)


def test_where_this_process_is_slow_less_is_run_in_it() -> None:
    quick, slow = taught((1.0, 0.0005), (30.0, 0.002)), taught((1.0, 0.02), (30.0, 0.002))
    assert quick.choose(20_000, 5.0, spark=2) == HERE
    assert slow.choose(20_000, 5.0, spark=2).path == "spark"


def test_a_long_job_runs_here_if_it_costs_less_and_does_not_hold_up_the_commits() -> None:
    tuner = taught((1.0, 0.001), (100.0, 0.0012))
    assert tuner.choose(1_000_000, 1_200.0, spark=2) == HERE
    assert tuner.choose(1_000_000, 500.0, spark=2) == Way("spark", 2)


@pytest.mark.parametrize("slow_ms", [150.0, 2_000.0, 60_000.0])
def test_a_way_that_was_slow_for_a_time_is_tried_again(slow_ms: float) -> None:
    """What was measured while the machine was busy says nothing for ever."""
    tuner = JobPlacement(FREE)
    for _ in range(24):
        tuner.learn(HERE, 20, slow_ms)
    assert tuner.choose(20, 10.0, spark=2).path == "spark"
    ways = []
    for _ in range(600):
        ways.append(tuner.choose(20, 10.0, spark=2))
        tuner.learn(ways[-1], 20, 2.0 if ways[-1] == HERE else 60.0)
    assert set(ways[-200:]) == {HERE}


def test_a_way_that_stays_slow_is_seldom_tried() -> None:
    tuner = JobPlacement(FREE)
    here = 0
    for _ in range(5_000):
        way = tuner.choose(20, 10.0, spark=2)
        here += way == HERE
        tuner.learn(way, 20, 2_000.0 if way == HERE else 60.0)
    assert here < 5_000 * 0.03


@settings(max_examples=40)
@given(
    slow=st.lists(st.floats(1, 10_000), max_size=50),
    records=st.integers(1, 5_000),
    quick=st.sampled_from([HERE, Way("spark", 1), Way("spark", 2)]),
)
def test_the_way_that_has_become_the_quickest_is_found(slow: list[float], records: int, quick: Way) -> None:
    """Whatever was measured before: then one way takes 20 ms, the others 200."""
    tuner = JobPlacement(FREE)
    for took in slow:
        for way in (HERE, Way("spark", 1), Way("spark", 2)):
            tuner.learn(way, records, took)
    ways = []
    for _ in range(1_000):
        ways.append(tuner.choose(records, 1.0, spark=2))
        tuner.learn(ways[-1], records, 20.0 if ways[-1] == quick else 200.0)
    assert ways[-300:].count(quick) > 270


def test_without_spark_everything_runs_here() -> None:
    assert JobPlacement(FREE).choose(10_000_000, 0.0, spark=0) == HERE
    assert JobPlacement(BatchPolicy(small_rows=0, tasks=2)).choose(10_000_000, 0.0, spark=0) == HERE


@pytest.mark.parametrize(("small", "records", "path"), [(0, 1, "spark"), (100, 99, "driver"), (100, 100, "spark")])
def test_a_set_limit_wins(small: int, records: int, path: str) -> None:
    tuner = taught((1.0, 0.5), (1.0, 0.5), BatchPolicy(small_rows=small))
    assert tuner.choose(records, 5.0, spark=2).path == path


def test_a_set_number_of_tasks_wins() -> None:
    tuner = taught((50.0, 0.5), (1.0, 0.0), BatchPolicy(tasks=7))
    assert tuner.choose(50_000, 5.0, spark=2) == Way("spark", 7)


def test_set_up_times_are_learnt() -> None:
    setup = taught((2.0, 0.001), (40.0, 0.001)).setup_ms
    assert setup["driver"] == pytest.approx(2.0, abs=0.2)
    assert setup["spark"] == pytest.approx(40.0, abs=2.0)


@given(
    fixed=st.floats(0, 200), each=st.floats(0, 0.01), sizes=st.lists(st.integers(1, 200_000), min_size=2, unique=True)
)
def test_a_cost_is_learnt_whatever_was_believed_before(fixed: float, each: float, sizes: list[int]) -> None:
    cost = LinearCost(30.0, 0.001)
    for _ in range(400):
        for size in sizes:
            cost.learn(size, fixed + each * size)
    costs = {size: fixed + each * size for size in sizes}
    off = [abs(cost.expected_ms(size) - took) for size, took in costs.items()]
    assert fmean(off) < max(2.0, fmean(costs.values()) / 10)


def test_jobs_of_nearly_one_size_tell_what_such_a_job_costs() -> None:
    """They tell nothing of a record's share, and what is believed of that may be more than the whole."""
    cost = LinearCost(30.0, 0.001)
    for _ in range(400):
        cost.learn(11_264, 0.5)
        cost.learn(11_151, 0.5)
    assert cost.expected_ms(11_200) == pytest.approx(0.5, abs=0.1)


def test_what_small_jobs_cost_says_little_of_a_large_one() -> None:
    """The times of small jobs depend more on what ran concurrently than on their sizes."""
    tuner, noise = JobPlacement(FREE), random.Random(7)
    for _ in range(1_000):
        records = noise.randint(50, 300)
        tuner.learn(HERE, records, noise.choice([3.0, 5.0, 12.0]) + 0.02 * records)
    assert tuner.choose(15_000, 40.0, spark=2) == HERE


def test_one_job_that_waited_long_counts_little() -> None:
    cost = LinearCost(1.0, 0.0)
    cost.learn(0, 60_000.0)
    assert cost.expected_ms(0) < SURPRISE
