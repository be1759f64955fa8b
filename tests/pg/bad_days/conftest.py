"""A subscription on a bad day: every part of it can be chosen, and everything it says can be waited for."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.connectors import open_source, open_target, terms_of
from engine.control.supervisor import EngineContext, SubscriptionSupervisor
from engine.control.target_registry import TargetRegistry
from engine.link.messages import EventReport, Report, SubscriptionStateReport, TableStateReport
from engine.model.fault import EngineFault
from engine.model.identity import Epoch
from engine.model.position import Lsn
from engine.model.subscription import BatchPolicy, ConnectionSpec, QueueMode, SchemaPolicy, SubscriptionSpec, TableSpec
from engine.platform.clock import Clock, SystemClock
from engine.platform.failpoints import watch
from engine.platform.settings import EngineSettings
from engine.tables.reporter import Reporter
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, Reports, subscription_spec, table
from tests.pg.bad_days.small_disk import small_disk

__all__ = ["BadDay", "BadDays", "Circumstances", "small_disk"]

PATIENCE_S = 25.0
SHOP = """
CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(12, 2), note text);
CREATE TABLE lines (order_id bigint, n int, sku text, PRIMARY KEY (order_id, n));
INSERT INTO orders SELECT i, i * 1.5, 'note ' || i FROM generate_series(1, 200) i;
INSERT INTO lines SELECT i, 1, 'sku' || i FROM generate_series(1, 200) i;
"""


@dataclass
class Circumstances:
    """What a subscription finds; `engine` are settings of the engine process."""

    source: Mapping[str, str | int] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    home: Path | None = None
    target: Path | None = None
    queue_mode: QueueMode = QueueMode.MEMORY
    batch: BatchPolicy = field(default_factory=BatchPolicy)
    schema_changes: SchemaPolicy = SchemaPolicy.APPLY
    clock: Clock = field(default_factory=SystemClock)
    engine: Mapping[str, Any] = field(default_factory=dict)
    spec: SubscriptionSpec | None = None
    """Take over this subscription instead of making one."""


class BadDay(Replica):
    """A replica under the given circumstances."""

    def __init__(self, database: Database, folder: Path, tables: Sequence[TableSpec], given: Circumstances) -> None:
        self.given = given
        self.home = given.home or folder
        self.target = given.target or folder / "mart.duckdb"
        spec = subscription_spec(
            database,
            ConnectionSpec("mart", "duckdb", {"path": str(self.target)}),
            tables,
            queue_mode=given.queue_mode,
            batch=given.batch,
            schema_changes=given.schema_changes,
        )
        source = ConnectionSpec("shop", "postgres", {**spec.source.settings, **given.source}, given.secrets)
        super().__init__(database, folder, given.spec or replace(spec, source=source))

    def _start(self) -> None:
        chosen: dict[str, Any] = {"guard_interval_s": 0.3, "position_write_s": 1.0, "snapshot_timeout_s": 20.0}
        settings = EngineSettings(home=self.home, **{**chosen, **self.given.engine})
        self._targets = TargetRegistry(lambda connection: open_target(connection, settings))
        parts = EngineContext(open_source, self._targets, self._runner, settings, self.given.clock)
        self.pipeline = SubscriptionSupervisor(
            self.spec, parts, Reporter(self.spec, self.reports.take, self.given.clock, terms_of(self.spec.source).form)
        )
        self.pipeline.start()

    def wait_live(self, *names: str, timeout_s: float = PATIENCE_S) -> None:
        super().wait_live(*names, timeout_s=timeout_s)

    def wait_table(self, name: str, state: str, timeout_s: float = PATIENCE_S) -> TableStateReport:
        return super().wait_table(name, state, timeout_s)

    def catch_up(self, timeout_s: float = PATIENCE_S) -> Lsn:
        """Wait until everything committed by now is visible; a run that is just beginning again is given the time."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                position = self.now()
                break
            except EngineFault:
                if time.monotonic() > deadline:
                    raise
        self.wait_applied(position, timeout_s)
        return position

    @property
    def queue(self) -> Path:
        return self.home / "queue" / self.spec.reader

    def close(self) -> None:
        """End it; safe to repeat."""
        self.pipeline.close()
        self._targets.close_all()

    def release(self) -> None:
        """At the test's end."""
        self.close()
        self._runner.stop()

    def again(self, spec: SubscriptionSpec | None = None) -> None:
        """Start again as a new epoch, as another engine process would, after `close`."""
        self.close()
        spec = spec or self.spec
        self.spec = replace(spec, epoch=Epoch(self.spec.epoch + 1))
        self.reports = Reports()
        self._start()

    def respec(self, spec: SubscriptionSpec) -> None:
        """The user changed connection or subscription."""
        self.spec = spec
        self.pipeline.update(spec)

    def reload_all(self) -> None:
        self.pipeline.reload("all", None)
        self.reports.wait(lambda reports: reloaded(reports, "all"), "everything reloaded")

    def reload_table(self, name: str) -> None:
        request = f"reload-{name}-{uuid.uuid4().hex[:4]}"
        self.pipeline.reload(request, [self.table_id(name)])
        self.wait_table(name, "live")

    def wait_code(self, state: str, code: str, timeout_s: float = 30.0) -> SubscriptionStateReport:
        """A report of this state for this reason, with a remedy."""

        def found(reports: list[Report]) -> SubscriptionStateReport | None:
            own = [r for r in reports if isinstance(r, SubscriptionStateReport)]
            return next((r for r in reversed(own) if r.state == state and r.code == code), None)

        report = self.reports.wait(found, f"{state} with {code}", timeout_s)
        assert report.remedy, report
        assert report.reason, report
        return report

    def wait_event(self, code: str, timeout_s: float = 30.0) -> EventReport:
        def found(reports: list[Report]) -> EventReport | None:
            return next((r for r in reports if isinstance(r, EventReport) and r.code == code), None)

        return self.reports.wait(found, f"event {code}", timeout_s)

    def settled_or_failed(self) -> str:
        """`running` or `failed`, whichever comes next after the failure."""

        def last(reports: list[Report]) -> str | None:
            own = [r for r in reports if isinstance(r, SubscriptionStateReport)]
            return own[-1].state if own and own[-1].state in {"running", "failed"} else None

        return self.reports.wait(last, "running or failed", PATIENCE_S)

    def wait_captured(self, position: Lsn) -> None:
        """Until everything up to here lies in the queue."""
        deadline = time.monotonic() + PATIENCE_S
        with self.database.connect() as connection:
            while (run := self.pipeline.run) is None or run.captured < position:
                assert time.monotonic() < deadline, f"{position} was never captured"
                # Later traffic makes the source send its next position, without a request for one.
                connection.execute("SELECT pg_logical_emit_message(true, 'test', ''), pg_sleep(0.05)")

    def wait_slot(self, condition: str, *values: str) -> None:
        """Until the slot satisfies a condition over pg_replication_slots; the server itself waits between looks."""
        found = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND {condition}"
        deadline = time.monotonic() + PATIENCE_S
        with self.database.connect() as connection:
            while connection.execute(found, [self.spec.reader, *values]).fetchone() is None:
                assert time.monotonic() < deadline, f"the slot never was: {condition}"
                connection.execute("SELECT pg_sleep(0.05)")

    def wait_slot_free(self) -> None:
        self.wait_slot("NOT active")

    def wait_confirmed(self, position: Lsn) -> None:
        """Wait until everything up to here is confirmed to the source, which may then remove it."""
        self.wait_slot("confirmed_flush_lsn >= %s::text::pg_lsn", str(position))

    def codes(self) -> list[str]:
        """Codes of all warnings and errors so far."""
        return [r.code for r in self.reports.all() if isinstance(r, EventReport) and r.severity != "info"]

    def touch(self, note: str) -> None:
        """Change, delete and insert rows of both tables on the source."""
        with self.database.connect() as connection, connection.transaction():
            connection.execute("UPDATE orders SET note = %s WHERE id <= 100", [note])
            connection.execute("DELETE FROM lines WHERE order_id = (SELECT max(order_id) FROM lines)")
            connection.execute("INSERT INTO lines SELECT coalesce(max(order_id), 0) + 1000, 1, %s FROM lines", [note])

    def assert_nothing_lost(self, note: str = "afterwards") -> None:
        """Changes still arrive, and every table equals the source at a cut."""
        self.touch(note)
        self.assert_equal()
        assert self.query(f"select count(*) from orders where note = '{note}'") == [(100,)]


def reloaded(reports: list[Report], request: str) -> bool:
    return any(getattr(r, "request_id", None) == request and getattr(r, "state", "") == "succeeded" for r in reports)


BadDays = Callable[..., BadDay]


@pytest.fixture
def bad_day(tmp_path: Path) -> Iterator[BadDays]:
    """Starts subscriptions: `bad_day(database, live=False, source={"port": 1})`."""
    started: list[BadDay] = []

    def start(
        database: Database, tables: Sequence[TableSpec] | None = None, *, live: bool = True, **given: Any
    ) -> BadDay:
        folder = tmp_path / f"home{len(started)}"
        folder.mkdir()
        chosen = [table("orders"), table("lines")] if tables is None else tables
        replica = BadDay(database, folder, chosen, Circumstances(**given))
        started.append(replica)
        if live:
            replica.wait_live()
        return replica

    yield start
    for replica in started:
        replica.release()


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


@pytest.fixture
def private_shop(
    private_cluster: Callable[..., EmbeddedPostgres], database_on: Callable[[EmbeddedPostgres], Database]
) -> Callable[..., Database]:
    """A shop in a cluster of the test's own: `private_shop(wal_sender_timeout="'2s'")`."""

    def make(**settings: str) -> Database:
        database = database_on(private_cluster(18, **settings))
        database.execute(SHOP)
        return database

    return make


@pytest.fixture
def role(shop: Database) -> Iterator[Callable[[str], str]]:
    """Makes a login role that may use the shop: `role("REPLICATION")` returns its name. Dropped with all it owns."""
    made: list[str] = []

    def make(attributes: str) -> str:
        name = f"r{uuid.uuid4().hex[:8]}"
        shop.execute(f"CREATE ROLE {name} LOGIN {attributes}")
        shop.execute(f'GRANT CREATE ON DATABASE "{shop.name}" TO {name}')
        made.append(name)
        return name

    yield make
    for name in made:
        with shop.connect() as connection:
            connection.execute(psycopg.sql.SQL("DROP OWNED BY {}").format(psycopg.sql.Identifier(name)))
            connection.execute(psycopg.sql.SQL("DROP ROLE {}").format(psycopg.sql.Identifier(name)))


@pytest.fixture
def armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose files arm failpoints of this process and of log readers that start."""
    folder = tmp_path / "failpoints"
    folder.mkdir()
    monkeypatch.setenv("PENSTOCK_FAILPOINTS_FOLDER", str(folder))
    watch(folder)
    yield folder
    for held in folder.glob("*.held"):
        held.unlink()
    watch(None)


def kill_reader(replica: BadDay) -> None:
    run = replica.pipeline.run
    assert run is not None
    pid = run.reader_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
