"""The `techniques` workload through its own process."""

from __future__ import annotations

from bench import suite
from bench.isolated.techniques import TECHNIQUES
from bench.report import markdown, plots
from bench.workloads import WORKLOADS


def test_every_way_is_measured_and_reported() -> None:
    said: list[str] = []
    order = suite.Order(against=True, amount=200, scale=1, seconds=0.01)
    document = suite.run(WORKLOADS["techniques"], order, said.append)
    assert suite.is_good(document)
    assert document["sides"] == ["penstock"]
    found = [(one["technique"], one["netted"]) for one in document["techniques"]]
    assert found == [(one.name, one.netted) for one in TECHNIQUES]
    assert len(said) == len(TECHNIQUES)
    assert "| bulk delete and insert | yes |" in markdown([document])
    assert list(plots([document])) == ["techniques.svg"]
