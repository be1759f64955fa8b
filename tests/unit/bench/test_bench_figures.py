"""How the suite counts: histograms, processes, log statistics, drains and their medians."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import backlog
from bench.errors import BenchError
from bench.facts import cpu_model
from bench.histogram import Times
from bench.probes import growth
from bench.processes import (
    SENDER,
    Sampler,
    Usage,
    family_cpu_s,
    native_role,
    our_role,
    pss_bytes,
    written_bytes,
)
from bench.source_log import LogVolume, image_bytes
from bench.suite import is_good, summary
from bench.workload import Made

WALDUMP = """WAL statistics between 0/1A00028 and 0/2B00000:
Type            N      (%)   Record size      (%)    FPI size      (%)   Combined size      (%)
----            -      ---   -----------      ---    --------      ---   -------------      ---
Heap         1204 ( 60.20)         90300 ( 55.00)      512000 ( 98.00)          602300 ( 90.00)
         --------               --------             --------                 --------
Total        2000                 164180 [23.87%]      523616 [76.13%]          687796 [100%]
"""


def test_a_histogram_keeps_three_digits() -> None:
    times = Times()
    for ms in range(1, 1001):
        times.record(ms)
    summary_ = times.summary()
    assert summary_["count"] == 1000
    assert summary_["p50_ms"] == pytest.approx(500, rel=2e-3)
    assert summary_["p99_ms"] == pytest.approx(990, rel=2e-3)
    assert summary_["max_ms"] == pytest.approx(1000, rel=2e-3)


def test_an_empty_histogram_has_zeros() -> None:
    found = Times().summary()
    assert (found["count"], found["p50_ms"], found["max_ms"]) == (0, 0.0, 0.0)


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=50))
def test_no_time_is_lost_or_shortened_by_more_than_its_digits(values: list[float]) -> None:
    times = Times()
    for value in values:
        times.record(value)
    assert times.count == len(values)
    assert times.percentile(100) >= min(max(values), 3_600_000) * 0.998


@pytest.mark.parametrize(
    ("command", "role"),
    [
        (["/x/python", "-m", "server.cli.main", "serve"], "server"),
        (["/x/python", "-m", "engine.control"], "engine"),
        (["/x/python", "-c", "from multiprocessing.forkserver import main; main(7, 9)"], "log reader"),
        (["/usr/bin/java", "-cp", "jars", "-m", "x"], "jvm"),
        (["/x/python", "-m", "pyspark.daemon", "pyspark.worker"], "spark workers"),
        (["/x/python", "-m"], "other"),
        (["sh"], "other"),
    ],
)
def test_our_processes_have_roles(command: list[str], role: str) -> None:
    assert our_role(command) == role


def test_the_subscriber_has_appliers_and_others() -> None:
    assert native_role(["postgres: logical replication apply worker for subscription 16399"]) == "apply"
    assert native_role(["postgres: logical replication parallel apply worker for subscription 16399"]) == "apply"
    assert native_role(["postgres: logical replication tablesync worker for subscription 16399 sync 16384"]) == "apply"
    assert native_role(["postgres: checkpointer "]) == "background"


def test_proc_files_are_read() -> None:
    assert pss_bytes("55-7f ---p 0 00:00 0 [rollup]\nRss:  1744 kB\nPss:  220 kB\nPss_Anon:  112 kB\n") == 220 * 1024
    assert pss_bytes("") == 0
    assert written_bytes("rchar: 1\nwrite_bytes: 4096\ncancelled_write_bytes: 7\n") == 4096
    assert cpu_model("processor : 0\nmodel name\t: A CPU @ 3 GHz\n") == "A CPU @ 3 GHz"


def test_a_sampler_sees_this_process() -> None:
    process = psutil.Process(os.getpid())
    sampler = Sampler(lambda: [("engine", process), (SENDER, process)])
    sampler.start()
    usage = sampler.stop()
    assert usage.peak_pss["engine"] > 1_000_000
    assert usage.peak_pss_total == usage.peak_pss["engine"]
    assert usage.seconds > 0


def test_a_child_that_has_ended_counts_with_its_family() -> None:
    before = family_cpu_s(os.getpid())
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-I", "-S", "-c", busy], check=True)
    assert family_cpu_s(os.getpid()) - before > 0.25


def test_totals_leave_out_what_is_not_compared() -> None:
    usage = Usage(cpu_s={SENDER: 1.0, "apply": 2.0, "background": 4.0})
    assert usage.document()["cpu_s_total"] == 3.0


def test_page_images_are_found_in_the_statistics() -> None:
    assert image_bytes(WALDUMP) == 523616
    with pytest.raises(BenchError):
        image_bytes("nothing here")


def test_a_drain_counts_changes_not_page_images() -> None:
    usage = Usage(cpu_s={SENDER: 1.0, "engine": 3.0})
    found = backlog.account(2.0, Made(1000, 4000), LogVolume(3_000_000_000, 1_000_000_000), usage)
    assert (found["transactions_per_s"], found["rows_per_s"]) == (500.0, 2000.0)
    assert found["log_gb_per_h"] == 3600.0
    assert found["cpu_s_per_million_rows"] == {SENDER: 250.0, "engine": 750.0}
    assert found["cpu_s_per_million_rows_total"] == 1000.0


def test_ratios_need_both_sides() -> None:
    ours, theirs = {"seconds": 2.0, "cpu_s_total": 3.0}, {"seconds": 5.0, "cpu_s_total": 4.0}
    assert backlog.ratios({"penstock": ours}) == {}
    assert backlog.ratios({"penstock": ours, "native": theirs}) == {"ratio": 2.5, "cpu_ratio": 0.75}


def test_a_summary_is_medians_of_what_all_rounds_have() -> None:
    rounds = [
        {"ratio": ratio, "sides": {"penstock": {"rows_per_s": rate, "cpu_s": {"engine": rate}, "series": [1], **more}}}
        for ratio, rate, more in ((2.0, 10, {}), (3.0, 30, {"only": 1}), (2.5, 20, {}))
    ]
    found = summary(rounds)
    assert found["penstock"] == {"rows_per_s": 20, "cpu_s": {"engine": 20}}
    assert found["ratio"] == {"median": 2.5, "rounds": [2.0, 3.0, 2.5]}


def _document(**waits: Any) -> dict[str, Any]:
    side = {"waits": {"count": 5, "failed": 0, "p50_ms": 80.0, **waits}}
    return {
        "checks": {"equal": True, "wrong": []},
        "limits_ms": {"p50_ms": 200.0},
        "rounds": [{"sides": {"penstock": side}}],
    }


def test_a_good_run_is_equal_answered_and_in_time() -> None:
    assert is_good(_document())
    assert not is_good(_document(failed=1))
    assert not is_good(_document(count=0))
    assert not is_good(_document(p50_ms=201.0))
    assert not is_good({**_document(), "checks": {"equal": False}})
    assert not is_good({**_document(), "checks": {"equal": True, "wrong": ["a sum differs"]}})


def test_growth_compares_the_ends() -> None:
    assert growth(Usage(memory=[(float(n), 100 + n) for n in range(10)])) == 8.0
    assert growth(Usage()) == 0.0
