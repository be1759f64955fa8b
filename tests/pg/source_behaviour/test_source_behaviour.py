"""Every scenario of tests/golden/source_behaviour: whatever the source does, the target ends up equal to it.

Each runs twice: `stepwise` in batches as it comes, and `at_once` as one batch, with every open transaction streamed and several
key buckets. A target that keeps source transactions is given them one by one in the first run, over two lanes; its second run is one
of `make chaos`.

All scenarios' tables are in one subscription for each way and kind of target, copied together. Each test then plays its own scenario
on it and is alone in doing so: its batches hold no other's changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from engine.model.identity import TableName
from engine.model.subscription import (
    ApplyMode,
    ApplyPolicy,
    BatchPolicy,
    ConnectionSpec,
    TableSpec,
)
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.replication import Replica, duckdb_target, subscription_spec, table
from tests.pg.schema_changes.playing import ended
from tests.pg.source_behaviour.scenario import Paragraph, Scenario, Table, parse_scenario, read_scenario, scenario_names
from tests.pg.source_behaviour.text_oracle import columns_of, rows_that_differ

pytestmark = pytest.mark.pg

AT_ONCE = BatchPolicy(max_age_ms=60_000, small_rows=0, tasks=3)
ONE_BY_ONE = ApplyPolicy(ApplyMode.TRANSACTIONAL, lanes=2)
WAYS = [
    pytest.param(
        (way, kind),
        marks=[pytest.mark.xdist_group(f"source_behaviour_{way}_{kind}"), *marks],
        id=f"{way}-{kind}",
    )
    for way, kind, marks in (
        ("stepwise", "duckdb", (pytest.mark.chaos,)),
        ("at_once", "duckdb", ()),
        ("stepwise", "postgres", ()),
        ("at_once", "postgres", (pytest.mark.chaos,)),
    )
]


class Sessions:
    """Named sessions on the source, opened as they are first used."""

    def __init__(self, database: Database, schema: str, stack: ExitStack) -> None:
        self._database = database
        self._schema = schema
        self._stack = stack
        self._open: dict[str, psycopg.Connection[tuple[object, ...]]] = {}

    def send(self, paragraph: Paragraph) -> None:
        if paragraph.session not in self._open:
            connection = self._stack.enter_context(self._database.connect())
            connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(self._schema)))
            self._open[paragraph.session] = connection
        self._open[paragraph.session].execute(paragraph.sql.encode())


@dataclass(frozen=True)
class Standing:
    """A running subscription with the tables of many scenarios, live, nothing of their workloads done."""

    database: Database
    replica: Replica
    specs: Mapping[str, Mapping[TableName, TableSpec]]
    """By scenario."""
    stepwise: bool


@pytest.fixture(scope="module", params=WAYS)
def standing(
    request: pytest.FixtureRequest, pg18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    """All scenarios that a test was chosen of, in one way with one kind of target."""
    way, kind = request.param
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    chosen = {
        item.callspec.params["name"] for item in items if hasattr(item, "callspec") and "name" in item.callspec.params
    }
    with ExitStack() as stack:
        database = stack.enter_context(standing_database(pg18, f"behaviour_{way}_{kind}"))
        folder = tmp_path_factory.mktemp("home")
        target = duckdb_target(folder)
        if kind == "postgres":
            copies = stack.enter_context(standing_database(pg18, f"copies_{way}"))
            target = ConnectionSpec("mart", "postgres", copies.settings)
        if way == "at_once":
            database.execute(f'ALTER DATABASE "{database.name}" SET debug_logical_replication_streaming = immediate')
        scenarios = [read_scenario(name) for name in sorted(chosen)]
        with ExitStack() as sessions:
            for scenario in scenarios:
                set_up(scenario, database, sessions)
        yield stack.enter_context(standing_for(scenarios, way, database, target, folder))


def set_up(scenario: Scenario, database: Database, stack: ExitStack) -> None:
    database.execute(f'CREATE SCHEMA "{scenario.name}"')
    sessions = Sessions(database, scenario.name, stack)
    for paragraph in scenario.setup:
        sessions.send(paragraph)


@contextmanager
def standing_for(
    scenarios: list[Scenario], way: str, database: Database, target: ConnectionSpec, folder: Path
) -> Iterator[Standing]:
    specs = {scenario.name: {wanted.name: spec_of(wanted) for wanted in scenario.tables} for scenario in scenarios}
    spec = subscription_spec(
        database,
        target,
        [spec for own in specs.values() for spec in own.values()],
        batch=AT_ONCE if way == "at_once" else BatchPolicy(),
        apply=ONE_BY_ONE if way == "stepwise" and target.kind == "postgres" else ApplyPolicy(),
    )
    replica = Replica(database, folder, spec)
    try:
        wait_live(replica, spec.tables)
        yield Standing(database, replica, specs, way == "stepwise")
    finally:
        replica.close()


def spec_of(wanted: Table) -> TableSpec:
    return table(wanted.name.name, wanted.name.schema, insert_only=wanted.insert_only, key=wanted.key)


def wait_live(replica: Replica, specs: Collection[TableSpec]) -> None:
    replica.reports.wait(
        lambda reports: all(ended(reports, spec.table) == "live" for spec in specs),
        f"live: {sorted(spec.source for spec in specs)}",
    )


@pytest.mark.parametrize("name", scenario_names())
def test_target_equals_source(standing: Standing, name: str) -> None:
    scenario, replica = read_scenario(name), standing.replica
    specs, parked = standing.specs[name], scenario.parked_on(replica.spec.target.kind)
    with ExitStack() as stack:
        work(scenario, Sessions(standing.database, name, stack), replica, stepwise=standing.stepwise)
    replica.catch_up()
    wait_live(replica, [spec for table_name, spec in specs.items() if table_name not in parked])
    for table_name, code in parked.items():
        reached = f"parked {code}"
        replica.reports.wait(
            lambda reports, spec=specs[table_name], r=reached: ended(reports, spec.table) == r, reached
        )
    check(
        standing.database, replica, {table_name: spec for table_name, spec in specs.items() if table_name not in parked}
    )


def work(scenario: Scenario, sessions: Sessions, replica: Replica, *, stepwise: bool) -> None:
    for step in scenario.workload:
        if isinstance(step, Paragraph):
            sessions.send(step)
        elif stepwise:
            replica.catch_up()


def check(database: Database, replica: Replica, specs: Mapping[TableName, TableSpec]) -> None:
    """Each of these live tables is equal, as both sides print it and as the product compares it."""
    target = replica.pipeline.target
    assert target is not None
    progress = target.progress(replica.spec.name)
    assert progress is not None
    for name, spec in specs.items():
        record = progress.tables[spec.table]
        assert (record.parked, record.ready) == (None, True), f"{name} is {record.parked or 'not ready'}"
        assert [column.name for column in record.schema.columns] == columns_of(database, name)
        missing, extra = rows_that_differ(database, replica, spec.table)
        assert (len(missing), len(extra)) == (0, 0), (
            f"{name}: missing {missing.most_common(3)}, extra {extra.most_common(3)}"[:2000]
        )
    verdicts = replica.verify({spec.table for spec in specs.values()})
    assert {verdict.source for verdict in verdicts} == specs.keys()
    assert [verdict for verdict in verdicts if not verdict.equal] == []


def test_paragraphs_sessions_and_names_are_read_as_written() -> None:
    scenario = parse_scenario(
        "s",
        '-- replicate "A.b""c".x insert_only\n-- replicate y key=a,b\n-- setup\nCREATE x;\nmore;\n\nCREATE y;\n'
        "-- workload\nBEGIN;\n-- session b\nSELECT 1;\n-- wait\nSELECT 2;\n-- parked y some_code\n"
        "-- parked x other_code duckdb\n",
    )
    assert [(t.name, t.insert_only, t.key) for t in scenario.tables] == [
        (TableName('A.b"c', "x"), True, ()),
        (TableName("s", "y"), False, ("a", "b")),
    ]
    assert [p.sql for p in scenario.setup] == ["CREATE x;\nmore;", "CREATE y;"]
    steps = [(step.session, step.sql) if isinstance(step, Paragraph) else "wait" for step in scenario.workload]
    assert steps == [("a", "BEGIN;"), ("b", "SELECT 1;"), "wait", ("b", "SELECT 2;")]
    assert scenario.parked_on("postgres") == {TableName("s", "y"): "some_code"}
    assert len(scenario.parked_on("duckdb")) == 2


@pytest.mark.parametrize(
    "text", ["SELECT 1;", "-- replicate a\n-- setup\n", "-- replicate a\n-- workload\n-- wiat\nSELECT 1;"]
)
def test_a_malformed_scenario_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bad"):
        parse_scenario("bad", text)
