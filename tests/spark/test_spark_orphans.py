"""Nothing of Spark outlives the process that started it, however that ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

_PROGRAM = """
import os, sys
from pathlib import Path
from engine.spark.session import SparkRunner

def pid(_):
    return os.getpid()

runner = SparkRunner("local[2]", "orphans", Path(sys.argv[1]))
runner.start()
print(runner.run(pid, [0, 1], "pids-1")[0], flush=True)
sys.stdin.read()
"""


def test_java_and_workers_end_with_a_killed_driver(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    with driver:
        worker = int(driver.stdout.readline())
        family = psutil.Process(driver.pid).children(recursive=True)
        assert worker in {process.pid for process in family}
        assert any("java" in process.name() for process in family)
        driver.kill()
    _, alive = psutil.wait_procs(family, timeout=60)
    for process in alive:
        process.kill()
    assert not alive
