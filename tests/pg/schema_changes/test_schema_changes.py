"""Every scenario of tests/golden/schema_changes: whatever becomes of a table's structure, its copy follows, and the history tells how.

All are played on one source with one subscription for each kind of target; a test then looks at what one of them came to. Played `at
once`, without waits, only the end counts: what is told on the way depends on who comes first.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from engine.link.messages import EventReport, SubscriptionStateReport
from engine.model.identity import TableName
from server.demo.embedded import EmbeddedPostgres
from tests.pg.schema_changes.golden import (
    golden_names,
    read_golden,
    rendered,
    write_golden,
)
from tests.pg.schema_changes.playing import Played, playing
from tests.pg.source_behaviour.text_oracle import columns_of

pytestmark = pytest.mark.pg

WAYS = [
    pytest.param(
        (kind, stepwise),
        marks=[pytest.mark.xdist_group(f"schema_changes_{kind}"), pytest.mark.chaos],
        id=kind if stepwise else f"{kind}_at_once",
    )
    for stepwise in (True, False)
    for kind in ("duckdb", "postgres")
]


@pytest.fixture(scope="module", params=WAYS)
def played(
    request: pytest.FixtureRequest, pg18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Played]:
    """All scenarios that a test was chosen of, played on one kind of target."""
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    chosen = {
        item.callspec.params["name"] for item in items if hasattr(item, "callspec") and "name" in item.callspec.params
    }
    goldens = [read_golden(name) for name in golden_names() if name in chosen]
    kind, stepwise = request.param
    with playing(kind, pg18, tmp_path_factory.mktemp("home"), goldens, stepwise=stepwise) as done:
        yield done


@pytest.mark.parametrize("name", golden_names())
def test_target_and_history_are_as_expected(played: Played, name: str) -> None:
    golden, kind = read_golden(name), played.target_kind
    assert (played.failures.get(name), played.troubles) == (None, [])
    differing = []
    for wanted in golden.scenario.tables:
        outcome = played.outcome(wanted.name)
        if outcome.state == "live":
            check_both_sides(played, wanted.name)
        text, expected = rendered(golden, wanted.name, kind, outcome), golden.expectation(wanted.name, kind)
        if not played.stepwise:
            assert outcome.state == golden.state(wanted.name, kind)
        elif text != expected:
            differing.append((expected, text))
            golden.replaced(wanted.name, kind, text)
    if os.environ.get("UPDATE_GOLDEN") and differing:
        write_golden(golden)
        return
    for expected, text in differing:
        assert text == expected


def check_both_sides(played: Played, name: TableName) -> None:
    source, target = (Counter(rows) for rows in played.both_sides(name))
    missing, extra = source - target, target - source
    assert (len(missing), len(extra)) == (0, 0), (
        f"{name}: missing {missing.most_common(3)}, extra {extra.most_common(3)}"[:2000]
    )
    columns = columns_of(played.database, played.now(name))
    assert list(played.outcome(name).columns) == columns
    assert played.columns_on_target(name) == sorted(columns)


def test_nothing_else_came_of_it(played: Played) -> None:
    reports = played.replica.reports.all()
    states = [report.state for report in reports if isinstance(report, SubscriptionStateReport)]
    errors = [report for report in reports if isinstance(report, EventReport) and report.severity == "error"]
    assert (played.troubles, states[-1], states.count("running"), errors) == ([], "running", 1, [])


def test_the_products_own_comparison_finds_every_live_table_equal(played: Played) -> None:
    played.replica.catch_up()
    verdicts = played.replica.verify()
    live = {spec.table for name, spec in played.specs.items() if played.outcome(name).state == "live"}
    assert len(verdicts) == len(live) + 1
    assert [verdict for verdict in verdicts if not verdict.equal] == []
