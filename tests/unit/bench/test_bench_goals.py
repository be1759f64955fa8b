"""The goals with a PostgreSQL target next to made-up results, as a golden file; and which results have a mode of applying."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench import report, results, suite
from bench.contenders import subscription
from bench.errors import BenchError
from bench.lanes import PAIRS, TWO, ratios
from bench.suite import FORMAT, Order
from bench.targets import TITLE
from bench.workload import Mode, Table
from bench.workloads import WORKLOADS

GOLDEN = Path(__file__).parents[2] / "golden" / "bench" / "goals.md.txt"
Document = dict[str, Any]
MACHINE = {
    "cores": 2,
    "cpu": "A processor",
    "memory_gb": 8.0,
    "kernel": "Linux 6",
    "python": "3.11.1",
    "packages": {"penstock": "0.1.0"},
    "load_average": [0.5, 0.4, 0.3],
}


def _document(workload: str, mode: str, rounds: list[Document], apply: str, **more: Any) -> Document:
    return {
        "format": FORMAT,
        "workload": workload,
        "mode": mode,
        "target": "postgres",
        "apply": apply,
        "started_at": "2026-01-02T03:04:05+00:00",
        "machine": MACHINE,
        "size": {"amount": 200_000, "scale": 20},
        "sides": list(rounds[0]["sides"]) if rounds else [],
        "rounds": rounds,
        "summary": suite.summary(rounds),
        "checks": {"equal": True, "wrong": []},
        **more,
    }


def _backlog(workload: str, apply: str, ratios: list[float], cpu: float = 6.0, **more: Any) -> Document:
    rounds: list[Document] = [
        {
            "row_changes": 800_000,
            "ratio": ratio,
            "cpu_ratio": 1.0,
            "sides": {
                "penstock": {"seconds": 4.0, "cpu_s_per_million_rows_total": cpu + number / 10},
                "native": {"seconds": 4.0 * ratio, "cpu_s_per_million_rows_total": 11.0},
            },
        }
        for number, ratio in enumerate(ratios)
    ]
    return _document(workload, "backlog", rounds, apply, **more)


def _freshness(apply: str, p50: float, rate: float = 500.0, failed: int = 0) -> Document:
    waits = {"p50_ms": p50, "p95_ms": p50, "p99_ms": p50, "max_ms": p50, "failed": failed, "count": 1200}
    rounds: list[Document] = [{"sides": {"penstock": {"waits": waits}}}]
    return _document("freshness", "sustained", rounds, apply, size={"rate": rate, "scale": 5})


def _lanes(*two: float, **more: Any) -> Document:
    """`two`: how many times the rate of one lane two lanes had, in each round."""
    rounds: list[Document] = []
    for ratio in two:
        sides = {name: {"transactions_per_s": 10_000.0} for _, *names in PAIRS for name in names}
        sides[TWO.name] = {"transactions_per_s": 10_000.0 * ratio}
        found = ratios(sides)
        rounds.append({"sides": sides, "ratios": found, "ratio": found[PAIRS[0][0]]})
    return _document("lanes", "lanes", rounds, "transactional", delay={"round_trip_measured_ms": 2.1}, **more)


def _goals(documents: list[Document]) -> dict[str, tuple[str, str]]:
    """Measured and met, by what."""
    rows = [line.strip("| ").split(" | ") for line in _section(documents).splitlines() if line.startswith("| ")]
    return {row[0]: (row[2], row[3]) for row in rows[2:]}


def _section(documents: list[Document]) -> str:
    page = report.markdown(documents)
    begin = page.index(f"## {TITLE}")
    return page[begin : page.index("\n## ", begin + 1) + 1]


def test_every_goal_stands_beside_what_was_measured() -> None:
    section = _section(
        [
            _backlog("tpcb", "auto", [1.8, 1.9, 1.7], cpu=6.9),
            _backlog("tpcb", "batch", [1.83, 1.49, 2.02], cpu=6.0),
            _backlog("tpcb", "grouped", [0.9], cpu=14.0),
            _backlog("hot-rows", "batch", [2.2]),
            _backlog("inserts", "batch", [2.5], checks={"equal": False}),
            _backlog("inserts", "auto", [2.5], cpu=9.0),
            _backlog("wide-rows", "auto", [1.0], cpu=9.0),
            _backlog("wide-rows", "batch", [1.0], cpu=7.0),
            _freshness("auto", 84.0),
            _freshness("batch", 201.0),
            _lanes(1.9),
        ]
    )
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(section)
    assert section == GOLDEN.read_text()


def test_there_are_no_goals_where_nothing_has_a_postgres_target() -> None:
    assert TITLE not in report.markdown([_backlog("tpcb", "batch", [2.0], target="duckdb")])


def test_what_was_not_measured_is_not_met() -> None:
    goals = _goals([_backlog("wide-rows", "auto", [1.0])])
    assert {measured for measured, _ in goals.values()} == {"not measured"}
    assert {met for _, met in goals.values()} == {"–"}
    alone = _backlog("tpcb", "batch", [2.0])
    del alone["summary"]["ratio"]
    assert _goals([alone])["`tpcb`, batch"] == ("not measured", "–")


def test_a_mode_is_measured_by_its_own_results_into_postgres_only() -> None:
    other = [_backlog("tpcb", "auto", [2.0]), _backlog("tpcb", "batch", [2.0], target="duckdb")]
    other.append(_backlog("tpcb", "batch", [2.0]) | {"mode": "idle"})
    assert _goals(other)["`tpcb`, batch"] == ("not measured", "–")


def test_a_goal_is_reached_by_its_median_exactly() -> None:
    assert _goals([_backlog("tpcb", "batch", [1.7])])["`tpcb`, batch"] == ("1.70", "yes")
    assert _goals([_backlog("tpcb", "batch", [1.6, 1.69, 3.0])])["`tpcb`, batch"] == ("1.69 (1.60, 1.69, 3.00)", "no")


@pytest.mark.parametrize("checks", [{"equal": False}, {"equal": True, "wrong": ["a sum differs"]}])
def test_a_wrong_copy_meets_no_goal(checks: Document) -> None:
    goals = _goals([_backlog("tpcb", "batch", [3.0], checks=checks)])
    assert goals["`tpcb`, batch"] == ("3.00", "no: its checks failed")


def test_auto_is_compared_with_the_cheapest_mode_of_the_same_size() -> None:
    what = "`tpcb`, auto, backlog: CPU time of a row"
    auto, batch, grouped = (_backlog("tpcb", *two) for two in (("auto", [2.0]), ("batch", [2.0]), ("grouped", [1.0])))
    for one, cost in ((auto, 7.5), (batch, 8.0), (grouped, 6.0)):
        one["rounds"][0]["sides"]["penstock"]["cpu_s_per_million_rows_total"] = cost
        one["summary"] = suite.summary(one["rounds"])
    assert _goals([auto, batch, grouped])[what] == ("1.25 of grouped", "yes")
    grouped["checks"] = {"equal": False}
    assert _goals([auto, batch, grouped])[what] == ("0.94 of batch", "yes")
    batch["size"] = {"amount": 2000, "scale": 20}
    assert _goals([auto, batch, grouped])[what][1] == "–"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (_lanes(1.7, 1.9, 2.0), ("1.90 (1.70, 1.90, 2.00)", "yes")),
        (_lanes(1.7), ("1.70", "no")),
        (_lanes(1.9, checks={"equal": True, "wrong": ["3 transactions"]}), ("1.90", "no: its checks failed")),
    ],
)
def test_lanes_are_the_median_of_their_rounds(document: Document, expected: tuple[str, str]) -> None:
    (lanes,) = [row for what, row in _goals([document]).items() if what.startswith("lanes")]
    assert lanes == expected


def test_lanes_stand_beside_the_usual_ways() -> None:
    page = report.markdown([_lanes(1.2, 1.4, 1.0)])
    table = page[page.index("## Lanes to a target") :]
    assert "each round trip 2.1 ms" in table
    assert "| lanes, pessimistic | 10,000 | 12,000 | 1.20 (1.00 to 1.40) | – |" in table
    assert "| a round trip a transaction | 10,000 | 10,000 | 1.00 (1.00 to 1.00) | 1.0 |" in table
    assert report.plots([_lanes(1.2)]) == {}


def test_rows_that_lanes_left_wrong_are_told_behind_their_table() -> None:
    page = report.markdown([_lanes(1.2, checks={"equal": False, "wrong": ["3 transactions share one"]})])
    assert "**lanes into postgres, transactional: the copy is not equal to its source.**" in page
    assert "**lanes into postgres, transactional: 3 transactions share one**" in page


def test_waits_count_at_the_rate_of_the_goal_when_all_were_answered() -> None:
    what = "`freshness`, {}: waits at 500 transactions a second"
    goals = _goals([_freshness("auto", 200.0), _freshness("batch", 80.0, failed=1), _freshness("grouped", 80.0, 100.0)])
    assert goals[what.format("auto")] == ("200 ms", "yes")
    assert goals[what.format("batch")] == ("80 ms", "no: its checks failed")
    assert what.format("grouped") not in goals


def test_modes_stand_side_by_side(tmp_path: Path) -> None:
    written = [_backlog("tpcb", apply, [2.0]) for apply in ("auto", "batch", "grouped")]
    files = [results.write(tmp_path, document).name for document in written]
    names = ["tpcb-postgres-backlog", "tpcb-postgres-batch-backlog", "tpcb-postgres-grouped-backlog"]
    assert files == [f"{name}-20260102T030405.json" for name in names]
    read = results.read(tmp_path)
    labels = ["tpcb into postgres", "tpcb into postgres, batch", "tpcb into postgres, grouped"]
    assert [results.label(document) for document in read] == labels
    plots = report.plots(read)
    assert all(label in plots["ratios.svg"] for label in labels)
    assert all(ET.fromstring(text).tag.endswith("svg") for text in plots.values())


def test_names_of_what_is_not_pinned_are_as_they_were(tmp_path: Path) -> None:
    old = _backlog("tpcb", "auto", [2.0], target="duckdb")
    assert results.write(tmp_path, old).name == "tpcb-backlog-20260102T030405.json"
    assert results.label(old) == "tpcb"
    del old["apply"], old["target"]
    assert results.label(old) == "tpcb"


def test_long_labels_have_room_in_the_plots() -> None:
    label = "hot-rows-many into postgres, transactional"
    plots = report.plots([_backlog("hot-rows-many", "transactional", [0.5])])
    for name in ("ratios.svg", "cpu.svg"):
        shapes = list(ET.fromstring(plots[name]).iter())
        (text,) = [shape for shape in shapes if shape.text == label]
        assert float(text.get("x", "0")) > 6 * len(label)
        bars = [float(shape.get("x", "0")) for shape in shapes if shape.get("height") in {"14", "20"}]
        assert min(bars) > float(text.get("x", "0"))


def test_only_a_pinned_mode_is_put_into_the_subscription() -> None:
    tables = [Table("marks")]
    assert subscription(tables, "grouped")["apply"] == {"mode": "grouped"}
    assert "apply" not in subscription(tables, "auto")
    assert subscription(tables, "auto")["tables"] == [{"schema": "public", "name": "marks"}]


def test_a_duckdb_target_has_auto_and_batch_only() -> None:
    assert [Order(apply=apply).apply for apply in ("auto", "batch")] == ["auto", "batch"]
    assert Order(target="postgres", apply="transactional").apply == "transactional"
    with pytest.raises(BenchError, match="duckdb cannot apply in the mode grouped: it can in auto and batch"):
        Order(apply="grouped")


def test_the_document_says_the_mode_where_there_is_a_subscription() -> None:
    order = Order(target="postgres", apply="batch")
    assert suite.failure(WORKLOADS["tpcb"], order, "a reason")["apply"] == "batch"
    assert suite.failure(WORKLOADS["techniques"], order, "a reason")["apply"] == "auto"
    assert order.applied(Mode.SUSTAINED) == "batch"


def test_a_failure_names_its_mode() -> None:
    failed = suite.failure(WORKLOADS["tpcb"], Order(target="postgres", apply="batch"), "a reason")
    assert "- **tpcb into postgres, batch (backlog): a reason**" in report.markdown([failed])
