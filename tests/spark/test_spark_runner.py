"""Descriptors on a real Spark: results, faults, lost workers, cancelling, a lost Java process."""

from __future__ import annotations

import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from pyspark import cloudpickle

from engine.model.fault import EngineFault, FaultKind
from engine.model.tasks import TaskRunner, Unfinished
from engine.spark.java import find_java, write_wrapper
from engine.spark.session import SparkRunner
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

# Workers cannot import a test module by its name.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkRunner]:
    made = SparkRunner("local[2]", "runner-test", tmp_path_factory.mktemp("spark"))
    made.start()
    assert made.wait_ready(180)
    yield made
    made.stop()
    assert not made.ready


def _pid(_: int) -> int:
    return os.getpid()


def _upper(descriptor: tuple[int, str]) -> tuple[int, str]:
    return descriptor[0], descriptor[1].upper()


def _fault(number: int) -> int:
    if number == 2:
        raise EngineFault(FaultKind.QUEUE_CORRUPT, "segment 2", "block 5")
    return number


def _mistake(number: int) -> int:
    raise KeyError(f"secret {number}")


def _die(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_each_descriptor_is_a_task_and_results_keep_their_order(runner: SparkRunner) -> None:
    as_protocol: TaskRunner = runner
    results = as_protocol.run(_upper, [(3, "a"), (1, "b"), (2, "c")], "order-1")
    assert results == [(3, "A"), (1, "B"), (2, "C")]
    assert as_protocol.run(_upper, [], "order-2") == []


def test_workers_are_used_again_even_after_a_fault(runner: SparkRunner) -> None:
    before = {pid for _ in range(3) for pid in runner.run(_pid, [1, 2], "pids-1")}
    with pytest.raises(EngineFault) as caught:
        runner.run(_fault, [1, 2], "faults-1")
    assert (caught.value.kind, caught.value.subject) == (FaultKind.QUEUE_CORRUPT, "segment 2")
    after = {pid for _ in range(3) for pid in runner.run(_pid, [1, 2], "pids-2")}
    assert os.getpid() not in before
    assert before & after


def test_a_foreign_exception_names_class_and_place_only(runner: SparkRunner) -> None:
    with pytest.raises(EngineFault) as caught:
        runner.run(_mistake, [1], "mistakes-1")
    assert caught.value.kind is FaultKind.SPARK_FAILED
    assert "builtins.KeyError" in caught.value.detail
    assert "secret" not in str(caught.value)


def test_a_killed_worker_is_a_fault_and_the_next_run_works(runner: SparkRunner) -> None:
    with pytest.raises(EngineFault) as caught:
        runner.run(_die, [0, 1], "deaths-1")
    assert caught.value.kind is FaultKind.SPARK_FAILED
    assert caught.value.__cause__ is not None
    assert runner.run(_fault, [0, 1], "deaths-2") == [0, 1]


def test_a_cancelled_group_raises(runner: SparkRunner, tmp_path: Path) -> None:
    mark, go = tmp_path / "begun", tmp_path / "go"
    os.mkfifo(go)

    def wait(_: int) -> None:
        mark.touch()
        go.open().read()

    caught: list[EngineFault] = []

    def run() -> None:
        try:
            runner.run(wait, [0], "doomed-1")
        except EngineFault as fault:
            caught.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(mark.exists, 30.0)
    runner.cancel("other-1")
    runner.cancel("doomed-1")
    thread.join(30)
    assert [(fault.kind, fault.detail) for fault in caught] == [(FaultKind.SPARK_FAILED, "the run was cancelled")]
    os.close(os.open(go, os.O_RDWR | os.O_NONBLOCK))
    assert runner.run(_fault, [0], "doomed-1") == [0]


def test_the_tasks_that_have_not_ended_are_counted(runner: SparkRunner, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)

    def wait(number: int) -> int:
        return len(go.open().read()) if number else 0

    assert runner.unfinished("counted-1") is None
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(runner.run, wait, [0, 1, 0], "counted-1")
        try:
            wait_until(lambda: runner.unfinished("counted-1") == Unfinished(3, 1), 30.0, "one task is left")
            assert runner.unfinished("counted-2") is None
        finally:
            go.write_text("")
        assert found.result(30) == [0, 0, 0]
    assert runner.unfinished("counted-1") is None


def test_runs_beside_each_other(runner: SparkRunner) -> None:
    results: dict[int, list[int]] = {}

    def run(number: int) -> None:
        results[number] = runner.run(_fault, [number * 10, number * 10 + 1], f"beside-{number}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {number: [number * 10, number * 10 + 1] for number in range(1, 5)}


def test_time_of_a_small_job(runner: SparkRunner) -> None:
    spans = []
    for number in range(30):
        begun = time.perf_counter()
        runner.run(_pid, [0, 1], f"time-{number}")
        spans.append((time.perf_counter() - begun) * 1000)
    print(f"job of two tasks: median {statistics.median(spans[10:]):.0f} ms, least {min(spans):.0f} ms")
    assert statistics.median(spans[10:]) < 2000


def test_a_lost_java_process_is_named_and_replaced_also_while_it_starts(runner: SparkRunner, tmp_path: Path) -> None:
    mark, lost = tmp_path / "begun", list[str]()
    runner.on_lost = lost.append
    (java,) = _javas()

    def wait(_: int) -> None:
        mark.touch()
        threading.Event().wait(60)

    caught: list[EngineFault] = []

    def run() -> None:
        try:
            runner.run(wait, [0], "lost-1")
        except EngineFault as fault:
            caught.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(mark.exists, 30.0)
    java.kill()
    thread.join(30)
    named = f"Spark's Java process (pid {java.pid}) was ended by SIGKILL"
    assert [(fault.kind, fault.detail) for fault in caught] == [
        (FaultKind.SPARK_FAILED, f"{named}, and with it the job")
    ]
    wait_until(lambda: [one for one in _javas() if one != java], 30.0)
    (starting,) = _javas()
    starting.kill()
    assert runner.wait_ready(180)
    assert runner.run(_fault, [0], "lost-2") == [0]
    while_starting = f"Spark's Java process (pid {starting.pid}) was ended by SIGKILL while Spark started"
    assert lost == [named, while_starting]
    runner.cancel("lost-1")


def _javas() -> list[psutil.Process]:
    """Processes that are Spark's driver, or become it."""
    return [one for one in psutil.Process().children() if any("SparkSubmit" in word for word in _command(one))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.chaos
def test_a_wrapped_java_starts_spark(runner: SparkRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.stop()
    packaged = find_java(tmp_path, {"PATH": ""})
    wrapped = packaged == tmp_path / "java"
    home = packaged if wrapped else write_wrapper(packaged / "bin" / "java", tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(home))
    second = SparkRunner("local[2]", "wrapped-test", tmp_path / "spark")
    try:
        assert second.run(_fault, [0, 1], "wrapped-1") == [0, 1]
    finally:
        second.stop()
