"""The runner without Spark, and how a task's end travels."""

from __future__ import annotations

import pickle
import threading

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.tasks import TaskRunner
from engine.spark.outcome import attempt
from tests.fixtures.local_runner import LocalRunner


def _double(number: int) -> int:
    return number * 2


def _fault(number: int) -> int:
    raise EngineFault(FaultKind.QUEUE_CORRUPT, "segment 1", f"block {number}")


def _mistake(number: int) -> int:
    raise ValueError(f"secret {number}")


def test_results_come_in_the_order_of_the_descriptors() -> None:
    runner: TaskRunner = LocalRunner()
    runner.start()
    assert runner.wait_ready(0)
    assert runner.run(_double, list(range(20)), "a") == [2 * number for number in range(20)]
    assert runner.run(_double, [], "a") == []
    runner.stop()


def test_a_fault_of_a_task_comes_out_as_it_is() -> None:
    runner = LocalRunner()
    with pytest.raises(EngineFault) as caught:
        runner.run(_fault, [7], "a")
    assert (caught.value.kind, caught.value.subject, caught.value.detail) == (
        FaultKind.QUEUE_CORRUPT,
        "segment 1",
        "block 7",
    )
    runner.stop()


def test_any_other_exception_is_named_without_its_message() -> None:
    runner = LocalRunner()
    with pytest.raises(EngineFault) as caught:
        runner.run(_mistake, [7], "a")
    assert caught.value.kind is FaultKind.SPARK_FAILED
    assert "builtins.ValueError" in caught.value.detail
    assert "secret" not in str(caught.value)
    runner.stop()


def test_a_cancelled_run_raises_and_others_go_on() -> None:
    runner = LocalRunner(threads=2)
    inside, finish = threading.Event(), threading.Event()
    caught: list[EngineFault] = []

    def wait(_: int) -> None:
        inside.set()
        finish.wait(30)

    def run() -> None:
        try:
            runner.run(wait, [1], "doomed")
        except EngineFault as fault:
            caught.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(10)
    runner.cancel("another")
    assert runner.run(_double, [1], "another") == [2]
    runner.cancel("doomed")
    thread.join(10)
    finish.set()
    assert [fault.kind for fault in caught] == [FaultKind.SPARK_FAILED]
    runner.stop()


def test_a_stopped_runner_runs_nothing() -> None:
    runner = LocalRunner()
    runner.stop()
    assert not runner.ready
    with pytest.raises(EngineFault):
        runner.run(_double, [1], "a")


def test_a_fault_pickles_with_all_it_says() -> None:
    fault = EngineFault(FaultKind.VALUE_OUT_OF_DOMAIN, "public.t", "column n")
    back = pickle.loads(pickle.dumps(attempt(_fault, 3)))
    copy = pickle.loads(pickle.dumps(fault))
    assert (copy.kind, copy.subject, copy.detail, str(copy)) == (fault.kind, fault.subject, fault.detail, str(fault))
    assert back.detail == "block 3"
