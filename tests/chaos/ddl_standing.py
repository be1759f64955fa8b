"""The source and the one subscription that all runs of random structure changes share, and what it reports."""

from __future__ import annotations

import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from engine.connectors import open_source
from engine.link.messages import (
    EventReport,
    Progress,
    Report,
    SchemaVersion,
    SubscriptionStateReport,
    TableRenamed,
    TableStateReport,
)
from engine.model.identity import TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.subscription import ApplyMode, ApplyPolicy, ConnectionSpec, SubscriptionSpec, TableSpec
from server.demo.binaries import bundled
from server.demo.embedded import EmbeddedPostgres, server_folder
from tests.chaos.ddl_transactions import BALLAST
from tests.fixtures.postgres import Database, drop_database
from tests.fixtures.replication import Replica, Reports, duckdb_target, subscription_spec, table
from tests.pg.schema_changes.playing import OWN_ERROR

T = TypeVar("T")

PROBE = "changed_to_see_that_the_catalog_was_looked_at"
WAIT_S = 60.0
_SETTINGS = {"logical_decoding_work_mem": "'64kB'", "log_min_messages": "warning"}
LOOK_S = 0.25
_STREAMED = "ALTER SYSTEM SET debug_logical_replication_streaming = "
_SENT = "SELECT coalesce(sum(stream_txns), 0), coalesce(sum(stream_count), 0) FROM pg_stat_replication_slots"
_COMPLAINT = re.compile(r" (?:ERROR|FATAL|PANIC|WARNING|CONTEXT): ")
NOT_DECODED = "log_not_decoded"
_EXPECTED_EVENTS = frozenset({"table_copied", "log_reader_died", "copy_lost", "source_timeout", "apply_mode_changed"})
"""Any other reported warning or error is a failure, except NOT_DECODED, errors of the server itself."""


class Watched(Reports):
    """What was reported last of each table and of the subscription, kept as it comes, so that a long run does not cost ever more."""

    def __init__(self, probe: TableId) -> None:
        super().__init__()
        self._probe = probe
        self.states: dict[str, TableStateReport] = {}
        self.renewals: Counter[str] = Counter()
        """How often in a row a table's copy restarted without a request, without being live in between."""
        self.renewed = 0
        """How often any of them has, since `forget`."""
        self.names: dict[str, TableName] = {}
        self.probed: frozenset[str] = frozenset()
        self.epoch = 0
        """Epoch of the last report that the subscription runs; 0 if another state was reported since."""
        self.applied = ZERO
        self.events: Counter[str] = Counter()
        self.troubles: list[str] = []
        self.told: list[tuple[float, str]] = []
        """Reports as text, with the time, until `forget`."""
        self.begin_again: Callable[[], None] = lambda: None
        """The remedy where the source cannot decode its own log."""

    def forget(self) -> None:
        """Reset the counts."""
        with self._changed:
            self.told.clear()
            self.events.clear()
            self.troubles.clear()
            self.renewed = 0

    def wait_until(self, found: Callable[[], T | None], what: str, timeout_s: float = WAIT_S) -> T:
        """Wait for the first true value. AssertionError if it does not come in time, or an unexpected fault is reported."""
        result: list[T] = []

        def check() -> bool:
            value = found()
            if value:
                result.append(value)
            return bool(value) or bool(self.troubles)

        with self._changed:
            came = self._changed.wait_for(check, timeout_s)
            assert not self.troubles, f"reported: {self.troubles[0]}"
            assert came, f"not within {timeout_s:g} s: {what}"
        return result[0]

    def _keep(self, report: Report) -> None:
        if isinstance(report, Progress):
            self.applied = max(self.applied, report.applied)
        elif isinstance(report, TableStateReport):
            self._note_state(report)
        elif isinstance(report, SubscriptionStateReport):
            self.epoch = report.epoch if report.state == "running" else 0
            self._record(f"subscription {report.state} {report.code or ''} {report.reason or ''}")
            if report.state == "failed" and report.code == NOT_DECODED:
                self.begin_again()
            elif report.state == "failed":
                self.troubles.append(f"the subscription failed: {report.code}: {report.reason}")
        elif isinstance(report, TableRenamed):
            self.names[report.table] = TableName(report.schema_name, report.name)
            self._record(f"{report.table} renamed to {report.schema_name}.{report.name}")
        elif isinstance(report, SchemaVersion):
            if report.table == self._probe:
                self.probed = frozenset(column.name for column in report.columns)
            else:
                self._record(f"{report.table} structure by {report.learnt}: {'; '.join(report.changes)}")
        elif isinstance(report, EventReport):
            self._note_event(report)

    def _note_state(self, report: TableStateReport) -> None:
        before = self.states.get(report.table)
        self.states[report.table] = report
        if report.state == "live":
            self.renewals[report.table] = 0
        elif report.state == "reloading" and report.code and (before is None or before.state != "reloading"):
            self.renewals[report.table] += 1
            self.renewed += 1
        if before is None or (before.state, before.code) != (report.state, report.code):
            name = f"{report.schema_name}.{report.name}"
            self._record(f"{report.table} {name} {report.state} {report.code or ''} {report.reason or ''}")

    def _note_event(self, report: EventReport) -> None:
        self.events[report.code] += 1
        text = f"{report.severity} {report.code}: {report.subject}: {report.detail}"
        self._record(text)
        if report.code == NOT_DECODED:
            return
        expected = report.code in _EXPECTED_EVENTS or OWN_ERROR in report.detail
        if report.severity == "error" or (report.severity == "warning" and not expected):
            self.troubles.append(text)

    def _record(self, text: str) -> None:
        self.told.append((monotonic(), text.rstrip()))


class Standing(Replica):
    """A running subscription whose tables change. Like a server, it stores the reported names."""

    reports: Watched

    def __init__(self, database: Database, folder: Path, spec: SubscriptionSpec, capture: bool | None = None) -> None:
        """`capture`: whether the source has the DDL capture; None: each run decides."""
        self.capture = capture
        self._probe = next(t for t in spec.tables if t.source.name == PROBE)
        self._watched = Watched(self._probe.table)
        self._watched.begin_again = self._begin_again
        self._looks = 0
        super().__init__(database, folder, spec, guard_interval_s=LOOK_S)

    def _start(self) -> None:
        self.reports = self._watched
        self.spec = replace(self.spec, tables=self._named(self.spec.tables))
        super()._start()

    def _begin_again(self) -> None:
        """In a separate thread: the reporting thread is still handling the failure."""
        threading.Thread(target=self.pipeline.reload, args=(f"again-{uuid.uuid4().hex[:8]}", None), daemon=True).start()

    def applied(self) -> Lsn:
        return self.reports.applied

    def declare(self, tables: Sequence[TableSpec]) -> None:
        """These tables and the probe are what is replicated from now on."""
        named = (*self._named(tables), self._probe)
        self.spec = replace(self.spec, tables=named)
        self.pipeline.update(replace(self.pipeline.spec, tables=named))

    def take_names(self) -> bool:
        """Declare tables by the names that were reported. False where they are known by them already."""
        tables = self._named(self.spec.tables)
        if tables == self.spec.tables:
            return False
        self.declare([t for t in tables if t.table != self._probe.table])
        return True

    def _named(self, tables: Sequence[TableSpec]) -> tuple[TableSpec, ...]:
        return tuple(replace(t, source=self.reports.names.get(t.table, t.source)) for t in tables)

    def state(self, spec: TableSpec) -> TableStateReport | None:
        return self.reports.states.get(spec.table)

    def wait_running(self) -> None:
        epoch = int(self.spec.epoch)
        self.reports.wait_until(lambda: self.reports.epoch == epoch and self.pipeline.run is not None, "it runs")

    def look(self) -> None:
        """Return when the source's catalog was read after everything committed now, and the findings have been applied.

        A read is not atomic: two are awaited.
        """
        for _ in range(2):
            self._looks += 1
            column = f"c{self._looks}"
            self.database.execute(f"ALTER TABLE {PROBE} RENAME COLUMN c{self._looks - 1} TO {column}")
            self.reports.wait_until(partial(self._saw, column), "a look at the catalog")
        self.take_names()

    def _saw(self, column: str) -> bool:
        return column in self.reports.probed

    def satisfied(self, timeout_s: float = WAIT_S) -> frozenset[TableId]:
        """Return when a wait for "now" has been satisfied by the rules of the server: the tables that it covered."""
        deadline = monotonic() + timeout_s
        while True:
            self.wait_running()
            again = not self._all_live()
            position = self._now_for_waits(deadline)
            self.pipeline.demand(position)
            self.reports.wait_until(partial(self._reaches, position), f"a wait for {position} satisfied", timeout_s)
            covered = frozenset(spec.table for spec in self.spec.tables if _is_live(self.state(spec)))
            if not again or not self._all_live():
                return covered

    def _reaches(self, position: Lsn) -> bool:
        return self.reports.applied >= position and self._all_live()

    def _all_live(self) -> bool:
        """Whether all are that do not rest: those are left out. A paused one rests in whatever state it is."""
        reports = [self.state(spec) for spec in self.spec.tables if not spec.paused]
        return all(report is None or report.state in {"live", "parked", "paused"} for report in reports)

    def streams(self) -> tuple[int, int]:
        """How many open transactions the source has sent, and in how many parts: `stream_txns` and `stream_count` of all slots."""
        (row,) = self.database.execute(_SENT)
        return int(row[0]), int(row[1])

    def capture_ddl(self, *, on: bool) -> None:
        """Whether the source tells its DDL in the log from now on."""
        with closing(open_source(self.spec.source)) as source:
            if on != source.ddl.status().installed:
                source.ddl.install() if on else source.ddl.uninstall()

    def complaints(self) -> list[str]:
        """The last errors in the source's own log."""
        lines = self.database.cluster.log_tail(1000).splitlines()
        return [f"the source's log: {line}" for line in lines if _COMPLAINT.search(line)][-12:]

    def stream_at_once(self, *, on: bool) -> None:
        """Whether the source sends each change before its transaction has ended."""
        value = "immediate" if on else "buffered"
        self.database.execute(f"{_STREAMED}'{value}'")
        self.database.execute("SELECT pg_reload_conf()")


@contextmanager
def standing(target: str, version: int, mode: str, capture: bool | None = None) -> Iterator[Standing]:
    """A source and a subscription of one table, which is live; removed completely at the end. `capture` as in Standing.

    AssertionError if the subscription leaves something on the source that it should not.
    """
    with ExitStack() as stack:
        folder = server_folder("penstock-ddl-")
        cluster = EmbeddedPostgres(folder, installation=bundled(version), settings=_SETTINGS)
        stack.callback(cluster.destroy)
        cluster.start()
        source = stack.enter_context(_database(cluster, "shop"))
        home = folder / "home"
        home.mkdir()
        place = (
            ConnectionSpec("mart", "postgres", stack.enter_context(_database(cluster, "mart")).settings)
            if target == "postgres"
            else duckdb_target(home)
        )
        source.execute(f"CREATE TABLE {PROBE} (id int PRIMARY KEY, c0 int); CREATE TABLE {BALLAST} (filler text)")
        spec = subscription_spec(source, place, (table(PROBE),), apply=ApplyPolicy(mode=ApplyMode(mode)))
        replica = Standing(source, home, spec, capture)
        stack.callback(replica.close)
        probe = replica.spec.tables[0]
        replica.reports.wait_until(lambda: _is_live(replica.state(probe)), "the first table live")
        yield replica
        left = [*replica.pipeline.forget(), *_left(source)]
        assert not left, f"left behind on the source: {left}"


def _is_live(report: TableStateReport | None) -> bool:
    return report is not None and report.state == "live"


def _left(source: Database) -> list[Any]:
    """Slots, publications and sessions of ours; a session may take a moment to end."""
    pause = threading.Event()
    left: list[Any] = []
    for _ in range(50):
        left = source.execute(
            "SELECT 'slot', slot_name::text FROM pg_replication_slots UNION ALL SELECT 'publication', pubname::text FROM pg_publication"
            " UNION ALL SELECT 'session', application_name FROM pg_stat_activity WHERE application_name LIKE 'penstock%'"
            " AND datname = current_database()"
        )
        if not left:
            break
        pause.wait(0.1)
    return left


@contextmanager
def _database(cluster: EmbeddedPostgres, name: str) -> Iterator[Database]:
    cluster.execute(f"CREATE DATABASE {name}")
    database = Database(cluster, name)
    try:
        yield database
    finally:
        drop_database(database)
