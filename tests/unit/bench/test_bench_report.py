"""The report of fixed results, as golden files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench import captures, lanes, report, results, scaling
from bench.errors import BenchError
from bench.suite import FORMAT, summary

GOLDEN = Path(__file__).parents[2] / "golden" / "bench"

MACHINE = {
    "cores": 2,
    "cpu": "A processor",
    "memory_gb": 8.0,
    "kernel": "Linux 6",
    "python": "3.11.1",
    "packages": {"penstock": "0.1.0"},
    "load_average": [0.5, 0.4, 0.3],
    "core_ms": 30.0,
}
CLUSTERS = {
    "source": {"server_version": "18.1", "shared_buffers": "512MB"},
    "subscriber": {"same_settings_as_source": True, "streaming": "on"},
}


def _drained(seconds: float, cpu: float) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "rows_per_s": 1_600_000 / seconds,
        "log_gb_per_h": 144.0,
        "transactions_per_s": 400_000 / seconds,
        "cpu_s_per_million_rows": {"walsender": 1.5, "engine": cpu - 1.5},
        "cpu_s_per_million_rows_total": cpu,
        "peak_pss_mb": {"walsender": 5.0, "engine": 900.0},
        "written_mb": {"walsender": 0.0, "engine": 310.5},
        "peak_pss_mb_total": 900.0,
    }


def _read(seconds: float, cpu: float, reader: str) -> dict[str, Any]:
    return {
        **_drained(seconds, cpu),
        "cpu_s_per_million_rows": {"walsender": 1.5, reader: cpu - 1.5},
        "peak_pss_mb": {"walsender": 5.0, reader: 160.0},
        "peak_pss_mb_total": 160.0,
        "walsender_cpu_s": {"user": 1.6, "system": 0.8},
        "sent_mb": 264.0,
    }


def _waits(p50: float) -> dict[str, Any]:
    times = {"p50_ms": p50, "p95_ms": p50 * 2, "p99_ms": p50 * 3, "max_ms": p50 * 4, "failed": 0, "count": 1200}
    return {"transactions_per_s": 500.0, "rows_per_s": 2000.0, "waits": times, "peak_pss_mb_total": 700.0}


def _live(seconds: float) -> dict[str, Any]:
    memory = [[0.0, 500.0], [1.0, 800.0], [2.0, 790.0]]
    return {"row_changes": 10_000_000, "commit_to_visible_s": seconds, "peak_pss_mb_total": 800.0, "memory_mb": memory}


def _document(workload: str, mode: str, rounds: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "workload": workload,
        "mode": mode,
        "started_at": "2026-01-02T03:04:05+00:00",
        "machine": MACHINE,
        "clusters": CLUSTERS,
        "sides": list(rounds[0]["sides"]),
        "rounds": rounds,
        "summary": summary(rounds),
        "checks": {"equal": True, "wrong": []},
        **more,
    }


def _documents() -> list[dict[str, Any]]:
    drains = [
        {
            "row_changes": 1_600_000,
            "core_ms": 20.0 * ratio,
            "ratio": ratio,
            "cpu_ratio": 6 / 11,
            "sides": {"penstock": _drained(10, 6), "native": _drained(10 * ratio, 11)},
        }
        for ratio in (2.25, 2.5, 2.0)
    ]
    reads = {
        "row_changes": 1_600_000,
        "ratio": 3.0,
        "cpu_ratio": 0.5,
        "sides": {"penstock": _read(2, 2, "log reader"), "native": _read(6, 4, "receiver")},
        "decoding_alone": {"cpu_s_per_million_rows": 0.9},
    }
    ways = [
        {
            "technique": name,
            "netted": netted,
            "transactions_per_commit": 1000,
            "row_changes": 4000,
            "seconds": 4000 / rate,
            "rows_per_s": rate,
            "equal": True,
        }
        for name, netted, rate in (("a statement a change", False, 900.0), ("bulk delete and insert", True, 310_000.0))
    ]
    written = {name: {"transactions_per_s": rate} for name, rate in _LANE_RATES.items()}
    lanes_round = {"sides": written, "ratios": lanes.ratios(written), "ratio": 1.05}
    ways_to_capture = {
        way: {"transactions_per_s": 4000.0 * share, "drain_rows_per_s": 160_000.0 * share}
        for way, share in (
            (captures.NONE, 1.0),
            (captures.LOG, 0.975),
            (captures.TRIGGERS, 0.75),
            (captures.CSV, 0.625),
        )
    }
    waited = {way: _waits(40.0) for way in (captures.LOG, captures.TRIGGERS)}
    idle = {"seconds": 600.0, "cpu_percent_total": 2.5, "peak_pss_mb_total": 650.0, "memory_growth_mb": 0.5}
    return [
        _document("huge-transaction", "live", [{"sides": {"penstock": _live(1.5), "native": _live(45.0)}}]),
        _document("idle", "idle", [{"sides": {"penstock": idle}}], checks={}),
        _document("freshness", "sustained", [{"sides": {"penstock": _waits(60.0), "native": _waits(5.0)}}]),
        _document("tpcb", "backlog", drains, checks={"equal": False, "wrong": ["a sum differs"]}),
        _document("capture-only", "capture", [reads], clusters={"source": CLUSTERS["source"]}),
        _without_rounds("techniques", "techniques", techniques=ways, checks={"equal": True, "wrong": []}),
        _without_rounds("scaling", "scaling", rows_per_s={"1": 500_000, "2": 900_000}, scaling_ratio=1.8, checks={}),
        _document("lanes", "lanes", [lanes_round], **_FAR),
        _document("triggers", "captures", [{"sides": ways_to_capture, "ratio": 0.75}], waits=waited),
        _without_rounds("tpcc", "backlog", failed="Traceback\nRuntimeError: the last line"),
    ]


_LANE_RATES = dict(
    zip(
        dict.fromkeys(name for _, *names in lanes.PAIRS for name in names),
        (12_000.0, 12_600.0, 5_000.0, 400.0, 780.0, 70.0, 139.0),
        strict=True,
    )
)
_FAR = {"target": "postgres", "apply": "transactional", "delay": {"round_trip_measured_ms": 2.25}}


def _without_rounds(workload: str, mode: str, **more: Any) -> dict[str, Any]:
    whole = _document(workload, mode, [{"sides": {}}], **more)
    return {name: value for name, value in whole.items() if name != "clusters"} | {"rounds": [], "summary": {}}


def test_the_page_and_its_plots_are_as_they_were(tmp_path: Path) -> None:
    files = report.write(tmp_path, _documents())
    plots = ["ratios.svg", "cpu.svg", "waits.svg", "huge-transaction-memory.svg", "techniques.svg"]
    assert [f.name for f in files] == ["report.md", *plots]
    for file in files:
        golden = GOLDEN / f"{file.name}.txt"
        if os.environ.get("UPDATE_GOLDEN") == "1":
            golden.parent.mkdir(parents=True, exist_ok=True)
            golden.write_text(file.read_text())
        assert file.read_text() == golden.read_text()


def test_what_could_not_be_measured_stands_before_all_tables() -> None:
    page = report.markdown(_documents())
    assert "- **tpcc (backlog): RuntimeError: the last line**" in page
    assert page.index("Could not be measured") < page.index("Draining a backlog")


def test_waits_above_their_limits_are_named() -> None:
    late = _documents()[2] | {"limits_ms": {"p50_ms": 50.0, "p99_ms": 1000.0}}
    page = report.markdown([late])
    assert "**freshness: a p50 of ours was above its limit of 50 ms.**" in page
    assert "p99 of ours" not in page


def test_small_sizes_are_named_as_such() -> None:
    assert "--quick" not in report.markdown(_documents())
    assert "not for figures" in report.markdown([_documents()[0] | {"quick": True}])


def test_a_folder_of_failures_makes_a_page_too() -> None:
    page = report.markdown([document for document in _documents() if "failed" in document])
    assert "RuntimeError: the last line" in page
    assert "|" not in page


def test_plots_are_well_formed() -> None:
    for text in report.plots(_documents()).values():
        assert ET.fromstring(text).tag.endswith("svg")


def test_the_latest_result_of_a_workload_counts(tmp_path: Path) -> None:
    old, new = _documents()[1], _documents()[1] | {"started_at": "2026-02-02T03:04:05+00:00"}
    for document in (new, old):
        results.write(tmp_path, document)
    assert results.read(tmp_path) == [json.loads(json.dumps(new))]


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BenchError):
        results.read(tmp_path)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(BenchError):
        results.read(tmp_path)


def test_two_cores_are_compared_with_one_by_the_medians_of_all_jobs() -> None:
    jobs = [
        {"cores": cores, "rows": 1000, "seconds": seconds}
        for cores, seconds in ((1, 2), (2, 1), (2, 9), (1, 2), (2, 1))
    ]
    assert scaling.rates(jobs) == {"1": 500, "2": 1000}
    assert scaling.ratio(jobs) == 2.0
