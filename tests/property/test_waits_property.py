"""Waits against a model of the target: engines die, lose their stream, take over, begin new runs on older targets, and their reports
come late, twice, and from runs that have ended. A wait that is satisfied is true of the target at that moment, for each of its tables.

What the model leaves out: a target is replaced only once the server has taken in that its run ended, or that its engine is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.link.client import ServerLink
from engine.link.messages import Progress, Report, SubscriptionReport, SubscriptionStateReport, Sync, TableStateReport
from engine.model.identity import Epoch, SubscriptionName, TableId, TableName
from engine.model.position import Lsn
from engine.model.subscription import ConnectionSpec, SubscriptionSpec, TableSpec
from engine.model.subscription_state import Reason, SubscriptionState
from engine.model.table_state import TableState
from engine.runtime.clock import SystemClock
from engine.runtime.reporting import Reporter
from engine.runtime.table_book import TableEntry
from server.clock import SystemClock as ServerClock
from server.engines.channel import EngineChannel
from server.engines.hub import CommandStream, Hub
from server.freshness.picture import Picture, TableView
from server.freshness.service import FreshnessService
from server.freshness.waits import Verdict, Wait

NAME = "s"
TABLES = (TableId("t1"), TableId("t2"))


@dataclass
class Target:
    """Up to where the target has the source's changes, and which of its tables do not follow. Only a living run writes to it."""

    at: int = 10
    parked: frozenset[TableId] = frozenset()


@dataclass
class ControlDatabase:
    """What survives a restart of the server."""

    epoch: int = 0
    owner: str = ""
    sequences: dict[str, int] = field(default_factory=dict)
    state: SubscriptionState = SubscriptionState.CREATED
    tables: dict[str, TableState] = field(default_factory=lambda: dict.fromkeys(TABLES, TableState.REGISTERED))
    applied: Lsn | None = None


class Channel(EngineChannel):
    """The server's end of the channel, upon the model of its control database."""

    def __init__(self, rows: ControlDatabase, hub: Hub, freshness: FreshnessService) -> None:
        nothing = cast("Any", None)
        recorder = cast("Any", _Silent())
        super().__init__(nothing, nothing, nothing, hub, freshness, recorder, recorder)
        self._rows = rows

    async def _write(self, engine_id: str, sequence: int, bundle: Sequence[Report]) -> list[Report]:
        if sequence <= self._rows.sequences.get(engine_id, 0):
            return []
        self._rows.sequences[engine_id] = sequence
        counted: list[Report] = []
        for report in bundle:
            if not isinstance(report, SubscriptionReport) or engine_id != self._rows.owner:
                continue
            if report.epoch != self._rows.epoch:
                continue
            counted.append(report)
            if isinstance(report, Progress):
                self._rows.applied = report.applied
            elif isinstance(report, SubscriptionStateReport):
                self._rows.state = SubscriptionState(report.state)
            elif isinstance(report, TableStateReport):
                self._rows.tables[report.table] = TableState(report.state)
        return counted


class Freshness(FreshnessService):
    """Its pictures come from the model of the control database."""

    def __init__(self, rows: ControlDatabase, hub: Hub) -> None:
        super().__init__(cast("Any", None), cast("Any", _Inline()), hub, ServerClock())
        self._rows = rows

    def _load(self, subscriptions: Sequence[str] | None) -> dict[str, Picture]:
        rows = self._rows
        tables = {t: TableView(t, "public", t, state) for t, state in rows.tables.items()}
        return {NAME: Picture(NAME, rows.epoch, rows.state, tables=tables, applied=rows.applied)}


class _Inline:
    async def run(self, work: Any) -> Any:
        return work()


class _Silent:
    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


class Engine:
    """An engine process: its own reporter and link, of which nothing is sent but by the test."""

    def __init__(self, number: int, epoch: int) -> None:
        self.id = f"e{number}"
        self.alive = True
        self.stream: CommandStream | None = None
        connection = ConnectionSpec("c", "none", {})
        specs = tuple(TableSpec(t, TableName("public", t), TableName("public", t)) for t in TABLES)
        self._specs = {spec.table: spec for spec in specs}
        spec = SubscriptionSpec(SubscriptionName(NAME), Epoch(epoch), connection, connection, specs, "slot")
        self.link = ServerLink(
            "http://127.0.0.1:1", "", instance=self.id, name="e", version="", on_command=lambda _: None
        )
        self.reporter = Reporter(spec, self.link.report, SystemClock())
        self.applied: int | None = None
        """Of its living run; None while there is none."""
        self.ended: list[tuple[int, int]] = []
        """Runs that have ended, and where they were: a thread of theirs may still report it."""
        self.sequence = 0
        self.in_flight: tuple[int, list[Report]] | None = None

    def tell_tables(self, target: Target) -> None:
        for table in TABLES:
            self.tell_table(table, parked=table in target.parked)

    def tell_table(self, table: TableId, *, parked: bool) -> None:
        state = TableState.PARKED if parked else TableState.LIVE
        reason = Reason("row_refused", "a row", "reload") if parked else None
        self.reporter.table(TableEntry(self._specs[table], state, reason=reason), None)

    def tell_position(self, run: int, applied: int) -> None:
        self.reporter.progress(
            run=run, applied=Lsn(applied), captured=None, source=None, lag_seconds=0.0, retained=None, times=None
        )

    def take(self) -> tuple[int, list[Report]] | None:
        """The bundle that is on its way, or the next one."""
        if self.in_flight is None:
            outgoing = self.link._outgoing
            if not len(outgoing):
                return None
            self.sequence += 1
            self.in_flight = self.sequence, outgoing.take(3)
        return self.in_flight


class Waits(RuleBasedStateMachine):
    """One subscription, its target, its engines, and a server."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.target = Target()
        self.rows = ControlDatabase()
        self.engines: list[Engine] = []
        self.late: list[tuple[str, int, list[Report]]] = []
        """Bundles whose first sending is still on its way."""
        self.wrong: list[str] = []

    def teardown(self) -> None:
        for engine in self.engines:
            engine.link.close()
        self.loop.close()

    @initialize()
    def begin(self) -> None:
        self.begin_server()

    def begin_server(self) -> None:
        async def begin() -> None:
            self.hub = Hub()
            self.freshness = Freshness(self.rows, self.hub)
            self.channel = Channel(self.rows, self.hub, self.freshness)
            await self.freshness.refresh()

        self.loop.run_until_complete(begin())
        for engine in self.engines:
            engine.stream = None

    @property
    def engine(self) -> Engine | None:
        """The newest engine, if it is alive."""
        return self.engines[-1] if self.engines and self.engines[-1].alive else None

    # Engines

    @precondition(lambda self: self.engine is None)
    @rule()
    def an_engine_takes_over(self) -> None:
        self.rows.epoch += 1
        engine = Engine(len(self.engines), self.rows.epoch)
        self.rows.owner = engine.id
        self.engines.append(engine)
        self.connects()

    @precondition(lambda self: self.engine is not None and self.engine.stream is None)
    @rule()
    def connects(self) -> None:
        engine = self.engine
        assert engine is not None

        async def connect() -> CommandStream:
            stream = self.hub.open(engine.id)
            self.hub.own(NAME, engine.id)
            await self.freshness.refresh([NAME])
            return stream

        engine.stream = self.loop.run_until_complete(connect())
        engine.link._dispatch(Sync(subscriptions={NAME: self.rows.epoch}, stream=engine.stream.name))
        if engine.applied is not None:
            engine.tell_tables(self.target)
            engine.reporter.state(SubscriptionState.RUNNING)
            engine.tell_position(engine.reporter.run, engine.applied)

    @precondition(lambda self: self.engine is not None and self.engine.stream is not None)
    @rule()
    def loses_its_stream(self) -> None:
        engine = self.engine
        assert engine is not None
        assert engine.stream is not None
        self.hub.close(engine.stream)
        engine.stream = None

    @precondition(lambda self: self.engine is not None)
    @rule()
    def is_killed(self) -> None:
        engine = self.engine
        assert engine is not None
        if engine.stream is not None:
            self.hub.close(engine.stream)
            engine.stream = None
        if engine.in_flight is not None:
            self.late.append((engine.id, *engine.in_flight))
        engine.alive, engine.applied = False, None

    @rule()
    def the_server_restarts(self) -> None:
        self.begin_server()

    # Runs

    @precondition(lambda self: self.engine is not None and self.engine.applied is None)
    @rule()
    def a_run_begins(self) -> None:
        engine = self.engine
        assert engine is not None
        engine.applied = self.target.at
        engine.tell_tables(self.target)
        engine.reporter.state(SubscriptionState.RUNNING)
        engine.tell_position(engine.reporter.run, engine.applied)

    @precondition(lambda self: self.engine is not None and self.engine.applied is not None)
    @rule(more=st.integers(1, 5), parks=st.sampled_from([None, None, None, *TABLES]))
    def a_batch_is_committed(self, more: int, parks: TableId | None) -> None:
        engine = self.engine
        assert engine is not None
        self.target.at += more
        engine.applied = self.target.at
        if parks is not None:
            self.target.parked |= {parks}
            engine.tell_table(parks, parked=True)
        engine.tell_position(engine.reporter.run, engine.applied)

    @precondition(lambda self: self.engine is not None and self.engine.applied is not None)
    @rule()
    def a_run_ends_with_a_fault(self) -> None:
        engine = self.engine
        assert engine is not None
        assert engine.applied is not None
        engine.ended.append((engine.reporter.run, engine.applied))
        engine.applied = None
        engine.reporter.end_run()
        engine.reporter.state(SubscriptionState.STARTING)

    @precondition(lambda self: self.engine is not None and self.engine.ended)
    @rule()
    def a_thread_of_an_ended_run_reports(self) -> None:
        engine = self.engine
        assert engine is not None
        engine.tell_position(*engine.ended[-1])

    def _end_is_known(self) -> bool:
        engine = self.engine
        if engine is None or engine.stream is None:
            return True
        if engine.applied is not None:
            return False
        return engine.in_flight is None and not len(engine.link._outgoing)

    @precondition(_end_is_known)
    @rule(less=st.integers(1, 8), whole=st.booleans())
    def the_target_is_replaced_by_an_older_copy(self, less: int, whole: bool) -> None:
        engine = self.engine
        if engine is not None and engine.applied is not None:
            return  # It holds the file.
        self.target = Target(max(1, self.target.at - less), frozenset() if whole else self.target.parked)

    # The channel

    def take_in(self, engine: str, sequence: int, reports: list[Report]) -> None:
        self.loop.run_until_complete(self.channel.take_in(engine, sequence, reports))

    @precondition(lambda self: self.engine is not None)
    @rule(fate=st.sampled_from(["arrives", "arrives", "answer lost", "late"]))
    def a_bundle_is_sent(self, fate: str) -> None:
        engine = self.engine
        assert engine is not None
        bundle = engine.take()
        if bundle is None:
            return
        if fate == "late":
            self.late.append((engine.id, *bundle))
            return
        self.take_in(engine.id, *bundle)
        if fate == "arrives":
            engine.in_flight = None

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 20))
    def a_late_bundle_arrives(self, which: int) -> None:
        self.take_in(*self.late.pop(which % len(self.late)))

    # Waits

    @rule(ahead=st.integers(-6, 6), tables=st.sets(st.sampled_from(TABLES), min_size=1))
    def somebody_waits(self, ahead: int, tables: set[TableId]) -> None:
        position = max(1, self.target.at + ahead)

        def ended(verdict: Verdict) -> None:
            if verdict is not None:
                return
            if position > self.target.at or tables & self.target.parked:
                self.wrong.append(f"satisfied for {position} and {sorted(tables)}, and the target is {self.target}")

        async def wait() -> None:
            (await self.freshness.book(NAME)).add(Wait(Lsn(position), set(tables), True, ended))

        self.loop.run_until_complete(wait())

    @invariant()
    def what_was_satisfied_was_true(self) -> None:
        assert not self.wrong

    @precondition(lambda self: self.engine is not None and self.engine.applied is not None and self.engine.stream)
    @rule()
    def once_all_has_arrived_what_is_true_is_satisfied(self) -> None:
        engine = self.engine
        assert engine is not None
        while (bundle := engine.take()) is not None:
            self.take_in(engine.id, *bundle)
            engine.in_flight = None
        good: list[Verdict] = []
        live = set(TABLES) - self.target.parked

        async def wait() -> None:
            (await self.freshness.book(NAME)).add(Wait(Lsn(self.target.at), set(live), True, good.append))

        if live:
            self.loop.run_until_complete(wait())
            assert good == [None]


Waits.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestWaits = Waits.TestCase
