"""Every scenario of tests/golden/source_behaviour: whatever the source does, the target ends up equal to it.

Each runs twice: `stepwise` in batches as it comes, and `at_once` as one batch, with every open transaction streamed and several
key buckets. A target that keeps source transactions is given them one by one in the first run, over two lanes; its second run is one
of `make chaos`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import sql

from engine.model.identity import TableName
from engine.model.subscription import ApplyMode, ApplyPolicy, BatchPolicy, TableSpec
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.pg.source_behaviour.scenario import Paragraph, Scenario, Table, parse_scenario, read_scenario, scenario_names
from tests.pg.source_behaviour.text_oracle import columns_of, rows_that_differ

pytestmark = pytest.mark.pg

AT_ONCE = BatchPolicy(max_age_ms=60_000, small_rows=0, tasks=3)
WAYS = [
    ("stepwise", "duckdb"),
    ("at_once", "duckdb"),
    ("stepwise", "postgres"),
    pytest.param("at_once", "postgres", marks=pytest.mark.chaos),
]
ONE_BY_ONE = ApplyPolicy(ApplyMode.TRANSACTIONAL, lanes=2)


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


def spec_of(wanted: Table) -> TableSpec:
    return table(wanted.name.name, wanted.name.schema, insert_only=wanted.insert_only, key=wanted.key)


@pytest.mark.parametrize("name", scenario_names())
@pytest.mark.parametrize(("way", "target_kind"), WAYS, indirect=["target_kind"])
def test_target_equals_source(
    database: Database, replicate: Callable[..., Replica], name: str, way: str, target_kind: str
) -> None:
    scenario = read_scenario(name)
    database.execute(f'CREATE SCHEMA "{name}"')
    if way == "at_once":
        statement = sql.SQL("ALTER DATABASE {} SET debug_logical_replication_streaming = immediate")
        with database.connect() as connection:
            connection.execute(statement.format(sql.Identifier(database.name)))
    with ExitStack() as stack:
        sessions = Sessions(database, name, stack)
        for paragraph in scenario.setup:
            sessions.send(paragraph)
        specs = {wanted.name: spec_of(wanted) for wanted in scenario.tables}
        batch = AT_ONCE if way == "at_once" else None
        apply = ONE_BY_ONE if way == "stepwise" and target_kind == "postgres" else None
        replica = replicate(database, list(specs.values()), batch=batch, apply=apply)
        work(scenario, sessions, replica, stepwise=way == "stepwise")
    replica.catch_up()
    replica.wait_live(*(name.name for name in specs.keys() - scenario.parked_on(target_kind).keys()))
    check(scenario, database, replica, specs)


def work(scenario: Scenario, sessions: Sessions, replica: Replica, *, stepwise: bool) -> None:
    for step in scenario.workload:
        if isinstance(step, Paragraph):
            sessions.send(step)
        elif stepwise:
            replica.catch_up()


def check(scenario: Scenario, database: Database, replica: Replica, specs: dict[TableName, TableSpec]) -> None:
    target = replica.pipeline.target
    assert target is not None
    progress = target.progress(replica.spec.name)
    assert progress is not None
    parked = scenario.parked_on(replica.spec.target.kind)
    for name, spec in specs.items():
        if name in parked:
            assert replica.wait_table(name.name, "parked").code == parked[name]
            continue
        record = progress.tables[spec.table]
        assert (record.parked, record.ready) == (None, True), f"{name} is {record.parked or 'not ready'}"
        assert [column.name for column in record.schema.columns] == columns_of(database, name)
        missing, extra = rows_that_differ(database, replica, spec.table)
        assert (len(missing), len(extra)) == (0, 0), (
            f"{name}: missing {missing.most_common(3)}, extra {extra.most_common(3)}"[:2000]
        )
    verdicts = replica.verify()
    assert {verdict.source for verdict in verdicts} == specs.keys() - parked.keys()
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
