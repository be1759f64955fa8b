"""Two engines for one subscription, and a clock that jumps."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engine.model.identity import Epoch
from engine.model.subscription import QueueMode, SubscriptionSpec
from engine.platform.clock import SystemClock
from tests.fixtures.postgres import Database
from tests.pg.bad_days.conftest import BadDays

pytestmark = pytest.mark.pg

BOTH_MODES = pytest.mark.parametrize(
    "mode", [QueueMode.MEMORY, pytest.param(QueueMode.PERSIST, marks=pytest.mark.chaos)]
)


@contextmanager
def another_engine(spec: SubscriptionSpec, home: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that replicates `spec`; it tells its states, one `state code` per line."""
    home.mkdir(exist_ok=True)
    given = home / "spec.pickle"
    given.write_bytes(pickle.dumps((spec, home)))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pg.bad_days.other_engine", str(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def await_line(process: subprocess.Popen[str], *wanted: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() in wanted:
            return line.strip()
    raise AssertionError(f"the other engine ended without saying {wanted}")


@BOTH_MODES
def test_the_second_engine_waits_and_takes_over_when_the_first_is_killed(
    shop: Database, bad_day: BadDays, tmp_path: Path, mode: QueueMode
) -> None:
    replica = bad_day(shop, queue_mode=mode)
    replica.close()
    spec = replace(replica.spec, epoch=Epoch(2))
    with another_engine(spec, replica.home) as first:
        await_line(first, "running")
        replica.spec = spec
        replica.again()
        assert replica.wait_code("starting", "target_locked").remedy
        replica.touch("by the first")
        os.kill(first.pid, signal.SIGKILL)
        replica.touch("while nobody was there")
        replica.wait_state("running")
        replica.assert_nothing_lost()


def test_the_second_engine_with_a_home_of_its_own_disturbs_nothing(
    shop: Database, bad_day: BadDays, tmp_path: Path
) -> None:
    replica = bad_day(shop)
    with another_engine(replace(replica.spec, epoch=Epoch(2)), tmp_path / "other") as second:
        await_line(second, "starting target_locked")
        replica.assert_nothing_lost("while the other waits")
        replica.close()
        await_line(second, "running")
    replica.spec = replace(replica.spec, epoch=Epoch(2))
    replica.again()
    replica.wait_live()
    replica.assert_nothing_lost()


def test_somebody_else_reads_the_slot(shop: Database, bad_day: BadDays, tmp_path: Path) -> None:
    """The same subscription with another target file: the slot is the fence that is left."""
    replica = bad_day(shop)
    made = "SELECT oid, pubname FROM pg_publication ORDER BY oid"
    publications = shop.execute(made)
    target = replace(replica.spec.target, settings={"path": str(tmp_path / "other.duckdb")})
    stranger = bad_day(shop, live=False, spec=replace(replica.spec, target=target), target=tmp_path / "other.duckdb")
    assert "another process still reads it" in str(stranger.wait_code("starting", "slot_in_use").reason)
    assert shop.execute(made) == publications
    replica.assert_nothing_lost()
    stranger.close()
    replica.assert_nothing_lost("still here")
    assert "log_gap" not in replica.codes()


class JumpingClock(SystemClock):
    """Wall time jumps at every look, hours to and fro; the monotonic clock does not."""

    def __init__(self) -> None:
        self._looks = 0

    def wall_us(self) -> int:
        self._looks += 1
        there = 7_200_000_000 if self._looks % 2 else -7_200_000_000
        return super().wall_us() + there


def test_wall_clock_jumps(shop: Database, bad_day: BadDays) -> None:
    replica = bad_day(shop, clock=JumpingClock())
    for i in range(10):
        started = time.monotonic()
        replica.touch(f"round {i}")
        replica.catch_up(timeout_s=5)
        assert time.monotonic() - started < 5
    replica.assert_nothing_lost()
    figures = [r for r in replica.reports.all() if getattr(r, "kind", "") in {"progress", "batch"}]
    assert all(getattr(r, "lag_seconds", 0.0) is None or getattr(r, "lag_seconds", 0.0) >= 0 for r in figures)
    assert all(s >= 0 for r in figures for s in getattr(r, "seconds", {}).values())
    assert not replica.codes()
