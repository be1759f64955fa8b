"""Queue modes switched under load while engine and log reader are killed in the middle: nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.model.subscription import QueueMode
from engine.platform.failpoints import Failpoint
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.pg.bad_days.conftest import SHOP, BadDay, Circumstances
from tests.pg.engine.killed_engines import OrderLoad, arm, engine, wait_for

pytestmark = pytest.mark.pg

IN_A_SWITCH = [
    Failpoint.QUEUE_SWITCH_TOLD,
    Failpoint.READER_BEFORE_MARK,
    Failpoint.READER_AFTER_MARK,
    Failpoint.QUEUE_SWITCHED,
    Failpoint.READER_AFTER_UNMARK,
    Failpoint.CONFIRM_BEFORE,
    Failpoint.COMMIT_AFTER,
]
"""The reader's deaths leave the engine alive, which starts another reader; the others end the engine."""
KILLED_S = 60.0


@pytest.fixture
def replica(database: Database, tmp_path: Path) -> Iterator[BadDay]:
    database.execute(SHOP)
    made = BadDay(database, tmp_path, [table("orders"), table("lines")], Circumstances())
    made.wait_live()
    yield made
    made.release()


def switch_until_hit(process: subprocess.Popen[str], point: Path, rng: random.Random) -> bool:
    """Ask for one mode after the other until some process died at the failpoint."""
    modes = [QueueMode.PERSIST, QueueMode.MEMORY]
    deadline = time.monotonic() + KILLED_S
    pause = threading.Event()
    assert process.stdin is not None
    while point.exists() and process.poll() is None:
        if time.monotonic() >= deadline:
            process.kill()
            raise AssertionError(f"nothing passed {point.name}; the engine said {process.communicate()[0][-2000:]}")
        try:
            process.stdin.write(f"{modes[0].value}\n")
            process.stdin.flush()
        except BrokenPipeError:
            break
        modes.reverse()
        pause.wait(rng.uniform(0.05, 0.6))
    return not point.exists()


@pytest.mark.parametrize(
    ("seed", "deaths"),
    [(1, 2), pytest.param(2, 7, marks=pytest.mark.chaos), pytest.param(3, 7, marks=pytest.mark.chaos)],
)
def test_nothing_is_lost_whatever_dies_in_the_middle_of_a_switch(
    replica: BadDay, tmp_path: Path, seed: int, deaths: int
) -> None:
    rng = random.Random(seed)
    armed = tmp_path / "armed"
    armed.mkdir()
    replica.close()
    points = IN_A_SWITCH.copy()
    rng.shuffle(points)
    with OrderLoad(replica.database.connect, seed):
        for point in points[:deaths]:
            with engine(replica, rng.choice(list(QueueMode)), armed) as process:
                wait_for(process, "lines live")
                arm(armed, point, rng.randint(1, 3))
                assert switch_until_hit(process, armed / point.value, rng)
    replica.again(replace(replica.spec, queue_mode=rng.choice(list(QueueMode))))
    replica.wait_live()
    replica.assert_nothing_lost()
    assert "log_gap" not in replica.codes()


@pytest.mark.parametrize("seed", [3])
def test_switches_without_deaths_go_on_in_one_run(replica: BadDay, seed: int) -> None:
    rng = random.Random(seed)
    run = replica.pipeline.run
    with OrderLoad(replica.database.connect, seed):
        for _ in range(12):
            replica.respec(replace(replica.spec, queue_mode=rng.choice(list(QueueMode))))
            replica.catch_up()
    assert replica.pipeline.run is run
    replica.assert_nothing_lost()
