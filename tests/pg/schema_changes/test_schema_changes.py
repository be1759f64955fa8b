"""Every scenario of tests/golden/schema_changes: however a table's structure changes, its copy follows, and the history says how.

All are played on one source with one subscription for each kind of target; a test then checks the result of one of them. Played `at
once`, without waits, only the end counts: the reports before it depend on whether the log or the catalog is read first. `captured`,
the source sends its DDL by itself: each step of it is reported then, and less is copied again. Those runs are for `make chaos`, as are
most scenarios on PostgreSQL: the target's kind is concerned only by changes in place, and a few of each sort show those.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from engine.model.identity import TableName
from server.demo.embedded import EmbeddedPostgres
from tests.pg.schema_changes.golden import (
    Outcome,
    golden_names,
    parse_golden,
    read_golden,
    rendered,
    write_golden,
)
from tests.pg.schema_changes.playing import Played, playing, unexplained
from tests.pg.source_behaviour.text_oracle import columns_of

pytestmark = pytest.mark.pg

WAYS = [
    pytest.param(
        (kind, stepwise, captured),
        marks=[
            pytest.mark.xdist_group(f"schema_changes_{kind}"),
            *([] if stepwise and not captured else [pytest.mark.chaos]),
        ],
        id=f"{kind}{'' if stepwise else '_at_once'}{'_captured' if captured else ''}",
    )
    for stepwise, captured in ((True, False), (False, False), (True, True), (False, True))
    for kind in ("duckdb", "postgres")
]


@pytest.fixture(scope="module", params=WAYS)
def played(
    request: pytest.FixtureRequest, pg18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Played]:
    """All scenarios that a test was chosen of, played on one kind of target."""
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    chosen = {
        item.callspec.params["name"]
        for item in items
        if hasattr(item, "callspec")
        and "name" in item.callspec.params
        and item.callspec.params["played"] == request.param
    }
    goldens = [read_golden(name) for name in golden_names() if name in chosen]
    kind, stepwise, captured = request.param
    home = tmp_path_factory.mktemp("home")
    with playing(kind, pg18, home, goldens, stepwise=stepwise, captured=captured) as done:
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
        if not played.stepwise or played.captured:
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
    assert played.troubles + unexplained(played.replica.reports.all()) == []


def test_the_products_own_comparison_finds_every_live_table_equal(played: Played) -> None:
    played.replica.catch_up()
    verdicts = played.replica.verify()
    live = {spec.table for name, spec in played.specs.items() if played.state(name) == "live"}
    assert len(verdicts) == len(live) + 1
    assert [verdict for verdict in verdicts if not verdict.equal] == []


FILE = """-- What it is about.
-- replicate t
-- replicate "A".x
-- setup
CREATE TABLE t (id int);
-- workload
ALTER TABLE t ADD COLUMN n int;
-- wait
INSERT INTO t VALUES (1, 2);
-- expected t: live
--   id | n
--   1  | 2
-- history t:
--   column n was added
-- expected t on duckdb: parked some_code
-- history t: none
"""


def test_expectations_are_read_and_written_as_they_stand() -> None:
    golden = parse_golden("s", FILE)
    t, x = TableName("s", "t"), TableName("A", "x")
    assert (golden.about, [[step.sql for step in part] for part in golden.rounds]) == (
        "What it is about.",
        [["ALTER TABLE t ADD COLUMN n int;"], ["INSERT INTO t VALUES (1, 2);"]],
    )
    assert golden.text() == FILE
    kinds = ("duckdb", "postgres")
    assert [golden.state(t, kind) for kind in kinds] == ["parked some_code", "live"]
    assert [golden.expectation(x, kind) for kind in kinds] == [None, None]
    outcome = Outcome("live", ("id", "n"), (("1", "2"),), ("column n was added",))
    assert rendered(golden, t, "postgres", outcome) == golden.expectation(t, "postgres")
    golden.replaced(x, "duckdb", rendered(golden, x, "duckdb", Outcome("live", ("v",), ((None,), ("",), ("x" * 41,)))))
    shown = ['-- expected "A".x: live', "--   v", "--   NULL", "--   ''", f"--   {'x' * 12}… 41 characters"]
    assert golden.text() == FILE + "\n".join([*shown, '-- history "A".x: none', ""])


@pytest.mark.parametrize(
    "text",
    [
        FILE.partition("\n")[2],
        FILE + "-- expected y: live\n",
        FILE + "-- expected t: reloading some_code\n",
        FILE.replace("on duckdb", "on paper"),
    ],
)
def test_a_file_that_says_not_what_it_is_about_or_expects_what_it_cannot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bad"):
        parse_golden("bad", text)
