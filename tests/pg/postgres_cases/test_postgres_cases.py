"""Every scenario of tests/golden/postgres_cases: what PostgreSQL's own tests do on a source ends equal on the target, at each cut, too.

All are played on one source with one subscription for each kind of target, in batches as it comes, with transactions above 64 kB
streamed. Played `at once` every transaction is streamed and nothing is waited for. Those runs, and those with PostgreSQL as the target,
are for `make chaos`. Scenarios in `contrib` need the system's PostgreSQL.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.model.identity import TableName
from server.demo.embedded import EmbeddedPostgres
from tests.pg.schema_changes.golden import Golden, parse_golden
from tests.pg.schema_changes.playing import STREAM_ALL, Played, playing, unexplained
from tests.pg.source_behaviour.text_oracle import columns_of

pytestmark = pytest.mark.pg

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "postgres_cases"
NAMES = sorted(path.stem for path in FOLDER.glob("*.sql"))
CONTRIB_NAMES = sorted(path.stem for path in FOLDER.glob("contrib/*.sql"))
STREAM_LARGE = {"logical_decoding_work_mem": "64kB"}
KINDS = ("duckdb", "postgres")
WAYS = [
    pytest.param(
        (kind, stepwise),
        marks=[
            pytest.mark.xdist_group(f"postgres_cases_{kind}"),
            *([] if stepwise and kind == "duckdb" else [pytest.mark.chaos]),
        ],
        id=kind if stepwise else f"{kind}_at_once",
    )
    for stepwise in (True, False)
    for kind in KINDS
]
CONTRIB_WAYS = [
    pytest.param("duckdb", marks=pytest.mark.xdist_group("postgres_cases_duckdb")),
    pytest.param("postgres", marks=pytest.mark.chaos),
]


def read(name: str) -> Golden:
    path = next(path for path in FOLDER.rglob("*.sql") if path.stem == name)
    return parse_golden(name, path.read_text(encoding="utf-8"))


def chosen(request: pytest.FixtureRequest, among: list[str]) -> list[Golden]:
    """The scenarios that a test of this run is about."""
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    names = {
        item.callspec.params["name"] for item in items if hasattr(item, "callspec") and "name" in item.callspec.params
    }
    return [read(name) for name in among if name in names]


@pytest.fixture(scope="module", params=WAYS)
def played(
    request: pytest.FixtureRequest, pg18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Played]:
    kind, stepwise = request.param
    settings = STREAM_LARGE if stepwise else STREAM_ALL
    goldens = chosen(request, NAMES)
    with playing(kind, pg18, tmp_path_factory.mktemp("home"), goldens, stepwise=stepwise, settings=settings) as done:
        yield done


@pytest.fixture(scope="module", params=CONTRIB_WAYS)
def contrib_played(
    request: pytest.FixtureRequest, pg15: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Played]:
    goldens = chosen(request, CONTRIB_NAMES)
    with playing(request.param, pg15, tmp_path_factory.mktemp("home"), goldens, settings=STREAM_LARGE) as done:
        yield done


@pytest.mark.parametrize("name", NAMES)
def test_target_ends_as_the_source(played: Played, name: str) -> None:
    check(played, name)


@pytest.mark.pg15
@pytest.mark.parametrize("name", CONTRIB_NAMES)
def test_target_ends_as_the_source_with_contrib(contrib_played: Played, name: str) -> None:
    check(contrib_played, name)


def check(played: Played, name: str) -> None:
    golden = read(name)
    assert (played.failures.get(name), played.troubles) == (None, [])
    for table in golden.scenario.tables:
        state = played.state(table.name)
        assert state == golden.state(table.name, played.target_kind)
        if state == "live":
            check_rows(played, table.name)


def check_rows(played: Played, name: TableName) -> None:
    source, target = (Counter(rows) for rows in played.both_sides(name))
    missing, extra = source - target, target - source
    assert (len(missing), len(extra)) == (0, 0), (
        f"{name}: missing {missing.most_common(3)}, extra {extra.most_common(3)}"[:2000]
    )
    assert played.columns_on_target(name) == sorted(columns_of(played.database, played.now(name)))


def test_nothing_failed_and_the_products_own_comparison_finds_all_equal(played: Played) -> None:
    assert played.troubles + unexplained(played.replica.reports.all()) == []
    played.replica.catch_up()
    verdicts = played.replica.verify()
    live = [name for name in played.specs if played.state(name) == "live"]
    assert (len(verdicts), [verdict for verdict in verdicts if not verdict.equal]) == (len(live) + 1, [])


def test_every_scenario_is_in_the_list_of_what_was_taken() -> None:
    listed = re.findall(r"`([a-z0-9_]+)`", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert set(NAMES + CONTRIB_NAMES) <= set(listed)
    assert all(read(name).rounds for name in NAMES + CONTRIB_NAMES)
