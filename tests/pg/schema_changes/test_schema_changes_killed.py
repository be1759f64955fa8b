"""Every scenario of tests/golden/schema_changes again, on engines that are killed in the middle of it: the copies end the same.

In parts of forty, each on one source with one subscription. Tables end in the state and with the columns and rows that are expected,
and equal to the source. The reports before the end may differ, and are only compared with what the scenario expects: a structure that
two engines meet is reported by both, one whose engine dies between its commit and its report by none, and a table that a start
accepts again is parked for a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from engine.link.messages import SubscriptionStateReport
from engine.platform.failpoints import Failpoint
from server.demo.embedded import EmbeddedPostgres
from tests.pg.schema_changes.golden import golden_names, read_golden, rendered
from tests.pg.schema_changes.killing import Killing, ReplicaToKill
from tests.pg.schema_changes.playing import Played, playing
from tests.pg.schema_changes.test_schema_changes import check_both_sides

pytestmark = [pytest.mark.pg, pytest.mark.chaos]

_SIZE = 40
_MOMENTS = [
    Failpoint.COMMIT_BEFORE,
    Failpoint.COMMIT_AFTER,
    Failpoint.BATCH_BEFORE_JOB,
    Failpoint.BATCH_AFTER_JOB,
    Failpoint.CONFIRM_BEFORE,
]
PARTS = [golden_names()[i :: len(golden_names()) // _SIZE] for i in range(len(golden_names()) // _SIZE)]
ALL = [
    pytest.param((kind, number), marks=pytest.mark.xdist_group(f"killed_{kind}"), id=f"{kind}-{number}")
    for kind in ("duckdb", "postgres")
    for number in range(len(PARTS))
]
EACH = [
    pytest.param(part.values[0], name, marks=part.marks, id=f"{part.values[0][0]}-{name}")
    for part in ALL
    for name in PARTS[part.values[0][1]]
]


@pytest.fixture(scope="module")
def killed(
    request: pytest.FixtureRequest, pg18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Played]:
    """Forty scenarios, played on one kind of target."""
    kind, number = request.param
    goldens = [read_golden(name) for name in PARTS[number]]
    player = partial(Killing, moment=_MOMENTS[number % len(_MOMENTS)])
    folder = tmp_path_factory.mktemp("home")
    with playing(kind, pg18, folder, goldens, replicating=ReplicaToKill, player=player) as done:
        yield done


@pytest.mark.parametrize(("killed", "name"), EACH, indirect=["killed"], scope="module")
def test_target_is_as_expected(killed: Played, name: str) -> None:
    golden, kind = read_golden(name), killed.target_kind
    assert (killed.failures.get(name), killed.troubles) == (None, [])
    for wanted in golden.scenario.tables:
        outcome = killed.outcome(wanted.name)
        text, expected = rendered(golden, wanted.name, kind, outcome), golden.expectation(wanted.name, kind)
        assert expected is not None
        assert without_history(text) == without_history(expected)
        if outcome.state == "live":
            check_both_sides(killed, wanted.name)
        assert set(history_of(text)) <= set(history_of(expected))


def without_history(text: str) -> str:
    return text.partition("-- history ")[0]


def history_of(text: str) -> list[str]:
    """Lines of the history. A table that is parked and then reloaded for the same reason counts as reloaded only."""
    lines = [line.removeprefix("--   ") for line in text.partition("-- history ")[2].splitlines()[1:]]
    pairs = zip(lines, [*lines[1:], ""], strict=False)
    return [line for line, after in pairs if not line.startswith("parked: ") or after != f"reloading: {line[8:]}"]


@pytest.mark.parametrize("killed", ALL, indirect=True, scope="module")
def test_nothing_else_came_of_it(killed: Played) -> None:
    states = [report.state for report in killed.replica.reports.all() if isinstance(report, SubscriptionStateReport)]
    assert (killed.troubles, states[-1], "failed" in states) == ([], "running", False)


@pytest.mark.parametrize("killed", ALL, indirect=True, scope="module")
def test_the_products_own_comparison_finds_every_live_table_equal(killed: Played) -> None:
    killed.replica.catch_up()
    verdicts = killed.replica.verify()
    live = {spec.table for name, spec in killed.specs.items() if killed.outcome(name).state == "live"}
    assert len(verdicts) == len(live) + 1
    assert [verdict for verdict in verdicts if not verdict.equal] == []
