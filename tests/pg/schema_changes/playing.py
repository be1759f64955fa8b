"""Plays many scenarios side by side on one source with one subscription, and tells where their tables ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from engine.connectors import open_source
from engine.link.messages import (
    EventReport,
    Report,
    SchemaVersion,
    SubscriptionStateReport,
    TableRenamed,
    TableStateReport,
)
from engine.model.identity import TableId, TableName
from engine.model.schema import Column
from engine.model.subscription import BatchPolicy, ConnectionSpec, TableSpec
from engine.model.target import TableRecord
from engine.model.values import Kind, value_type
from server.demo.embedded import EmbeddedPostgres
from tests.contract.value_render import rendered as rendered_value
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.replication import Replica, duckdb_target, subscription_spec, table
from tests.pg.schema_changes.golden import Golden, Outcome, Row
from tests.pg.source_behaviour.scenario import Paragraph
from tests.pg.source_behaviour.text_oracle import _dsn, _printed_rows, held_whole

_SETTLE_S = 60.0
_END_S = 10.0
_AT_ONCE = BatchPolicy(max_age_ms=60_000, small_rows=0, tasks=3)
PROBE = "changed_to_see_that_the_catalog_was_looked_at"
_PASSING = frozenset({"source_timeout", "source_unreachable"})
_RESTING = frozenset({"live", "parked"})
_COMPARE = "compare"
_DEADLOCKS = 5
"""How often a statement is sent again."""
OWN_ERROR = "SQLSTATE XX000"
"""An error of the source itself: decoding may meet an "unexpected duplicate" of a file that was rewritten and rolled back. It passes."""
STREAM_ALL = {"debug_logical_replication_streaming": "immediate"}
"""Every open transaction is streamed, however small."""


class Sessions:
    """Named sessions on the source, shared by the scenarios one after another.

    `compare` is called with a scenario's name where its session `compare` is to speak; its paragraphs say why.
    """

    compare: Callable[[str], None]

    def __init__(self, database: Database, stack: ExitStack) -> None:
        self._database = database
        self._stack = stack
        self._open: dict[str, psycopg.Connection[tuple[object, ...]]] = {}
        self._schemas: dict[str, str] = {}

    def play(self, schema: str, paragraphs: Sequence[Paragraph]) -> None:
        """Send them; psycopg.Error where one is refused, ValueError where a transaction is left open. Afterwards none is.

        What `compare` raises goes through. A statement by itself that loses a deadlock is sent again: one that rewrites a catalog
        meets every session that reads it.
        """
        try:
            for paragraph in paragraphs:
                if paragraph.session == _COMPARE:
                    self.compare(schema)
                else:
                    self._send(self._of(paragraph.session, schema), paragraph.sql.encode())
            left = self._in_transaction()
            if left:
                raise ValueError(f"session {left[0]} leaves a transaction open over a wait")
        finally:
            for name in self._in_transaction():
                self._open[name].execute("ROLLBACK")

    @staticmethod
    def _send(session: psycopg.Connection[tuple[object, ...]], statement: bytes) -> None:
        alone = session.info.transaction_status is TransactionStatus.IDLE
        for left in reversed(range(_DEADLOCKS + 1)):
            try:
                session.execute(statement)
                return
            except psycopg.errors.DeadlockDetected:
                if not (left and alone and session.info.transaction_status is TransactionStatus.IDLE):
                    raise

    def _of(self, name: str, schema: str) -> psycopg.Connection[tuple[object, ...]]:
        if name not in self._open:
            self._open[name] = self._stack.enter_context(self._database.connect())
        if self._schemas.get(name) != schema:
            self._open[name].execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
            self._schemas[name] = schema
        return self._open[name]

    def _in_transaction(self) -> list[str]:
        idle = TransactionStatus.IDLE
        return [name for name, session in self._open.items() if session.info.transaction_status is not idle]


@dataclass(frozen=True)
class Held:
    """Rows of a table on the target as text, with the columns of the source, and the names of its columns there."""

    rows: list[Row]
    columns: list[str]


@dataclass
class Played:
    """Scenarios on one kind of target. `failures`: by scenario, what went wrong while it was played."""

    target_kind: str
    stepwise: bool
    captured: bool
    database: Database
    replica: Replica
    specs: dict[TableName, TableSpec]
    failures: dict[str, str] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    """What went wrong beyond any of them."""
    _read: dict[TableName, Held] = field(default_factory=dict)

    def outcome(self, name: TableName) -> Outcome:
        """Where the table of this name at the beginning ended, and what the target holds of it."""
        spec, reports = self.specs[name], self.replica.reports.all()
        columns = tuple(column.name for column in self._record(spec).schema.columns)
        return Outcome(self.state(name), columns, tuple(self._held(name).rows), history(reports, spec.table))

    def state(self, name: TableName) -> str:
        """The last reported state, with its code, of the table that had this name at the beginning."""
        return ended(self.replica.reports.all(), self.specs[name].table)

    def both_sides(self, name: TableName) -> tuple[list[Row], list[Row]]:
        """Rows of a live table as text, with the columns of the source, on source and target."""
        record = self._record(self.specs[name])
        return _printed_rows(self.database.dsn, self.now(name), record.schema.columns), self._held(name).rows

    def compare(self, scenario: str) -> None:
        """Wait until all that is committed by now is applied; AssertionError where a table of the scenario is not equal then.

        No other client writes meanwhile, so what the source shows is the state at that position. Played at once, nothing is
        waited for and nothing compared.
        """
        if not self.stepwise:
            return
        self.replica.catch_up()
        self.__dict__.pop("_records", None)
        self._read.clear()
        for name in [name for name in self.specs if name.schema == scenario]:
            source, target = (Counter(rows) for rows in self.both_sides(name))
            missing, extra = source - target, target - source
            assert (len(missing), len(extra)) == (0, 0), f"{name}: {len(missing)} missing, {len(extra)} extra"
        del self._records
        self._read.clear()

    def columns_on_target(self, name: TableName) -> list[str]:
        """What the target itself says that the table's columns are, in no order."""
        return sorted(self._held(name).columns)

    def now(self, name: TableName) -> TableName:
        """The name that the table goes by in the end, as was reported."""
        spec = self.specs[name]
        renamed = [r for r in self.replica.reports.all() if isinstance(r, TableRenamed) and r.table == spec.table]
        return TableName(renamed[-1].schema_name, renamed[-1].name) if renamed else name

    @cached_property
    def _records(self) -> Mapping[TableId, TableRecord]:
        target = self.replica.pipeline.target
        assert target is not None, "the target is closed"
        progress = target.progress(self.replica.spec.name)
        assert progress is not None
        return progress.tables

    def _record(self, spec: TableSpec) -> TableRecord:
        return self._records[spec.table]

    def _held(self, name: TableName) -> Held:
        """What the target holds of the table. Read once, as long as nothing is written: a query costs more than most scenarios."""
        if name not in self._read:
            record, target = self._record(self.specs[name]), self.replica.pipeline.target
            assert target is not None
            columns = record.schema.columns
            if self.target_kind == "postgres":
                dsn = _dsn(self.replica.spec.target)
                nothing = sql.SQL("SELECT * FROM {} LIMIT 0").format(
                    sql.Identifier(record.target.schema, record.target.name)
                )
                with psycopg.connect(dsn) as session:
                    names = [column.name for column in session.execute(nothing).description or ()]
                self._read[name] = Held(_printed_rows(dsn, record.target, columns), names)
            else:
                held, names = held_whole(self.replica, target, record)
                self._read[name] = Held([tuple(map(_as_text, columns, row)) for row in held], names)
        return self._read[name]


def _as_text(column: Column, held: str | Sequence[str | None] | None) -> str | None:
    """A value of DuckDB as PostgreSQL prints it; a list in the form of an array."""
    element = value_type(column).element
    if held is None or isinstance(held, str) or element is None or column.type.element is None:
        return held if isinstance(held, str) else None
    delimiter = column.type.element.delimiter
    parts = [rendered_value(element, each) for each in held]
    if element.kind in (Kind.FLOAT32, Kind.FLOAT64):
        parts = [part and part.removesuffix(".0") for part in parts]
    return "{" + delimiter.join(_in_array(part, delimiter) for part in parts) + "}"


def _in_array(value: str | None, delimiter: str) -> str:
    if value is None:
        return "NULL"
    plain = value and value.lower() != "null" and not set(value) & set('{}"\\ \t\n\r\v\f' + delimiter)
    return value if plain else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def ended(reports: Sequence[Report], spec: TableId) -> str:
    """The last reported state of a table, with its code."""
    states = [r for r in reports if isinstance(r, TableStateReport) and r.table == spec]
    return " ".join(filter(None, (states[-1].state, states[-1].code))) if states else "untold"


def history(reports: Sequence[Report], spec: TableId) -> tuple[str, ...]:
    """What was reported of a table after its first copy. The same report twice in a row counts once, and a new name only as a renaming.

    A reload that was reported just before the table parks is left out: whether it was depends on whether the log or the catalog
    reported the change first.
    """
    told: list[str] = []
    for report in reports:
        if isinstance(report, SchemaVersion) and report.table == spec:
            told += [change for change in report.changes if not change.startswith("the table is ")]
        elif isinstance(report, TableStateReport) and report.table == spec and report.code:
            while report.state == "parked" and told and told[-1].startswith("reloading: "):
                told.pop()
            told.append(f"{report.state}: {report.code}")
        elif isinstance(report, TableRenamed) and report.table == spec:
            told.append(f"renamed to {report.schema_name}.{report.name}")
    return tuple(one for i, one in enumerate(told) if i == 0 or one != told[i - 1])


def unexplained(reports: Sequence[Report]) -> list[str]:
    """Errors, a subscription that does not run in the end, and starts again for anything but what passes on a busy source."""
    events = [report for report in reports if isinstance(report, EventReport) and report.severity != "info"]
    passing = [event for event in events if event.code in _PASSING or OWN_ERROR in event.detail]
    states = [report.state for report in reports if isinstance(report, SubscriptionStateReport)]
    found = [f"{event.code}: {event.detail}" for event in events if event.severity == "error"]
    if states.count("running") > 1 + len(passing):
        found += [f"started again: {event.code}: {event.detail}" for event in events] or ["started again, untold why"]
    return found if states[-1] == "running" else [*found, f"the subscription is {states[-1]}"]


class Told:
    """What was reported so far, read on from where it was left."""

    def __init__(self, probe: TableId) -> None:
        self._probe = probe
        self._read = 0
        self.states: dict[str, str] = {}
        self.probed: set[str] = set()
        self.failed = ""

    def read(self, reports: Sequence[Report]) -> None:
        for report in reports[self._read :]:
            if isinstance(report, TableStateReport):
                self.states[report.table] = " ".join(filter(None, (report.state, report.code)))
            elif isinstance(report, SchemaVersion) and report.table == self._probe:
                self.probed |= {column.name for column in report.columns}
            elif isinstance(report, SubscriptionStateReport):
                self.failed = f"failed: {report.code}: {report.reason}" if report.state == "failed" else ""
        self._read = len(reports)


class Playing:
    """One source, one subscription and all scenarios' tables in it."""

    def __init__(self, goldens: Sequence[Golden], played: Played, sessions: Sessions, probe: TableId) -> None:
        self._goldens = goldens
        self._played = played
        self._sessions = sessions
        self._told = Told(probe)
        self._probes = 0

    def play(self, *, stepwise: bool) -> None:
        """All rounds of all scenarios, then wait until each table is where it is expected, or will not get there."""
        self._wait(lambda state, _: state == "live", "live to begin with")
        if self._played.captured:
            self._look()
            self._look()
        rounds = max(len(golden.rounds) for golden in self._goldens)
        for number in range(rounds):
            self._play_part(number)
            if stepwise or number == rounds - 1:
                self._settle(f"at rest after part {number + 1}")
        self._wait_until(lambda: not self._late(lambda state, wanted: state == wanted), _END_S)

    def _play_part(self, number: int) -> None:
        for golden in self._goldens:
            self._play_round(golden, number)

    def _settle(self, what: str) -> None:
        """Wait until all that is committed now is applied, the guard has checked it, and no table is being copied."""
        self._look()
        self._look()
        self._wait(lambda state, _: state.partition(" ")[0] in _RESTING, what)

    def _play_round(self, golden: Golden, number: int) -> None:
        name = golden.scenario.name
        if number >= len(golden.rounds) or name in self._played.failures:
            return
        try:
            self._sessions.play(name, golden.rounds[number])
        except (psycopg.Error, ValueError, AssertionError) as error:
            self._played.failures[name] = f"part {number + 1} could not be played: {error}"

    def _look(self) -> None:
        """Return when the guard has read the source's catalog after all that is committed now, and what it found is applied.

        The guard reads the tables in their order, and the probe is the last. What it finds below partitioned tables it may
        judge one reading later.
        """
        self._probes += 1
        column = f"c{self._probes}"
        # In this isolation a DDL trigger says of no table what it looks like.
        isolation = "ISOLATION LEVEL REPEATABLE READ"
        self._played.database.execute(f"BEGIN {isolation}; ALTER TABLE {PROBE} ADD COLUMN {column} int; COMMIT")
        if not self._wait_until(lambda: column in self._told.probed):
            missed = f"look {self._probes} at the catalog did not come"
            self._played.troubles.append(self._told.failed or missed)

    def _wait(self, reached: Callable[[str, str], bool], what: str) -> None:
        """Wait until each table's state is as it should be. Scenarios of others are over."""
        if not self._wait_until(lambda: not self._late(reached)):
            for name, state in self._late(reached).items():
                self._played.failures[name] = f"a table is {state}, not {what}"

    def _late(self, reached: Callable[[str, str], bool]) -> dict[str, str]:
        """Scenarios with a table whose state, given the one that it is expected to end in, does not do, with that state."""
        found = {}
        for golden in self._goldens:
            for each in golden.scenario.tables if golden.scenario.name not in self._played.failures else ():
                state = self._told.states.get(self._played.specs[each.name].table, "untold")
                if not reached(state, golden.state(each.name, self._played.target_kind)):
                    found[golden.scenario.name] = state
        return found

    def _wait_until(self, done: Callable[[], bool], timeout_s: float = _SETTLE_S) -> bool:
        def check(reports: list[Report]) -> bool:
            self._told.read(reports)
            return bool(self._told.failed) or done()

        try:
            self._played.replica.reports.wait(check, "", timeout_s)
        except AssertionError:
            return False
        return not self._told.failed


@contextmanager
def playing(
    target_kind: str,
    cluster: EmbeddedPostgres,
    folder: Path,
    goldens: Sequence[Golden],
    *,
    stepwise: bool = True,
    captured: bool = False,
    replicating: type[Replica] = Replica,
    player: Callable[[Sequence[Golden], Played, Sessions, TableId], Playing] = Playing,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Played]:
    """Make a source with all scenarios' tables, replicate them and play. `captured`: the source tells its DDL by itself.

    Not `stepwise`: nothing is waited for between the parts. `settings` are the source database's; without any, every open
    transaction is streamed where not played stepwise.
    """
    with ExitStack() as stack:
        source = stack.enter_context(standing_database(cluster, f"schema_changes_{target_kind}"))
        if target_kind == "postgres":
            target = ConnectionSpec(
                "mart", "postgres", stack.enter_context(standing_database(cluster, "schema_copies")).settings
            )
        else:
            target = duckdb_target(folder)
        for setting, value in ((STREAM_ALL if not stepwise else {}) if settings is None else settings).items():
            source.execute(f"ALTER DATABASE \"{source.name}\" SET {setting} = '{value}'")
        sessions = Sessions(source, stack)
        for golden in goldens:
            source.execute(f'CREATE SCHEMA "{golden.scenario.name}"')
            sessions.play(golden.scenario.name, golden.scenario.setup)
        source.execute(f"CREATE TABLE {PROBE} (id int PRIMARY KEY)")
        tables = [each for golden in goldens for each in golden.scenario.tables]
        specs = {
            each.name: table(each.name.name, each.name.schema, insert_only=each.insert_only, key=each.key)
            for each in tables
        }
        probe = table(PROBE)
        spec = subscription_spec(
            source,
            target,
            (*specs.values(), probe),
            batch=BatchPolicy() if stepwise else _AT_ONCE,
        )
        if captured:
            with closing(open_source(spec.source)) as opened:
                opened.ddl.install()
        replica = replicating(source, folder, spec)
        stack.callback(replica.close)
        played = Played(target_kind, stepwise, captured, source, replica, specs)
        sessions.compare = played.compare
        player(goldens, played, sessions, probe.table).play(stepwise=stepwise)
        yield played
