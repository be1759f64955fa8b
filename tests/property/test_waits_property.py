"""Waits against a model of the target: engines die, lose their stream, take over while the one before still runs, and begin runs on older
targets; tables park, pause and are reloaded in the batches that move the position; what is declared is heard of later; and reports come
late, twice, in pieces, and from runs that have ended. A wait that is satisfied is true of the target at that moment, for each of its
tables, and one that is refused could not have been.

What the model leaves out: a target is replaced only once the server has recorded that its run ended, or that its engine is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.link.message import SubscriptionReport
from engine.link.messages import (
    PositionBundle,
    Progress,
    ReloadReport,
    Report,
    SubscriptionStateReport,
    Sync,
    TableStateReport,
)
from engine.model.fault import FaultKind
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.model.positions import single_mark
from engine.model.subscription_state import DesiredState
from engine.model.table_state import TableStateKind
from server.clock import SystemClock
from server.engines.channel import EngineChannel
from server.freshness import repository
from server.freshness.subscription_status import SubscriptionStatus
from server.freshness.tracker import FreshnessTracker
from server.freshness.wait_registry import Verdict, Wait
from server.gateway.hub import Hub
from server.gateway.long_running import UNENDED
from tests.property.waits_model import NAME, TABLES, ControlRows, Engine, ModelTarget


class Channel(EngineChannel):
    """The server's end of the channel, upon the model of its control database."""

    def __init__(self, rows: ControlRows, hub: Hub, freshness: FreshnessTracker) -> None:
        nothing = cast("Any", None)
        super().__init__(nothing, nothing, nothing, hub, freshness, ())
        self._rows = rows

    async def _write(self, engine_id: str, sequence: int, bundle: Sequence[Report]) -> list[Report]:
        rows = self._rows
        if sequence <= rows.sequences.get(engine_id, 0):
            return []
        rows.sequences[engine_id] = sequence
        counted: list[Report] = []
        for report in bundle:
            if not isinstance(report, SubscriptionReport) or engine_id != rows.owner:
                continue
            if report.epoch != rows.subscription.epoch:
                continue
            counted.append(report)
            self._write_one(report)
        return counted

    def _write_one(self, report: SubscriptionReport) -> None:
        rows, row = self._rows, self._rows.subscription
        if isinstance(report, Progress):
            row.applied_position = report.applied
        elif isinstance(report, SubscriptionStateReport):
            row.state, row.code, row.reason, row.remedy = report.state, report.code, report.reason, report.remedy
            row.state_at = SystemClock().now()
        elif isinstance(report, TableStateReport):
            table = rows.tables[TableId(report.table)]
            table.state, table.reason, table.remedy = report.state, report.reason, report.remedy
        elif isinstance(report, ReloadReport) and report.state not in UNENDED:
            rows.reloads.pop(report.request_id, None)


class Freshness(FreshnessTracker):
    """Its statuses come from the model of the control database."""

    def __init__(self, rows: ControlRows, hub: Hub) -> None:
        super().__init__(cast("Any", None), cast("Any", _Inline()), hub, SystemClock())
        self._rows = rows

    def _load(self, subscriptions: Sequence[str] | None) -> dict[str, SubscriptionStatus]:
        status = repository._status_of(self._rows.subscription)
        status.tables = {table: repository._table_of(row) for table, row in self._rows.tables.items()}
        for reload, table in self._rows.reloads.items():
            status.tables[table].reload = reload
        return {NAME: status}


class _Inline:
    async def run(self, work: Any) -> Any:
        return work()


ALL = 1_000_000
DELIVERED = st.sampled_from([0, 1, 2, 3, ALL, ALL, ALL])
"""How many of the reports that wait arrive at once."""


def _that_is(condition: Callable[[Engine], object]) -> Any:
    """A precondition on the newest engine, which has to be alive."""
    return precondition(lambda self: self.engine is not None and condition(self.engine))


class Waits(RuleBasedStateMachine):
    """One subscription, its target, its engines, and a server."""

    def __init__(self) -> None:
        super().__init__()
        # Hypothesis calls the rules of a state machine as plain functions, so pytest-asyncio cannot await them.
        self.runner = asyncio.Runner()
        self.target = ModelTarget()
        self.rows = ControlRows()
        self.engines: list[Engine] = []
        self.late: list[tuple[str, int, list[Report]]] = []
        """Bundles whose first sending is still on its way."""
        self.late_positions: list[tuple[str, PositionBundle]] = []
        self.wrong: list[str] = []

    def teardown(self) -> None:
        for engine in self.engines:
            engine.link.close()
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        self.begin_server()
        self.an_engine_takes_over()
        self.begins(self.newest)
        self.deliver(ALL)

    def begin_server(self) -> None:
        async def begin() -> None:
            self.hub = Hub()
            self.freshness = Freshness(self.rows, self.hub)
            self.channel = Channel(self.rows, self.hub, self.freshness)
            await self.freshness.refresh()

        self.run(begin())
        for engine in self.engines:
            engine.stream = None

    @property
    def engine(self) -> Engine | None:
        """The newest engine, if it is alive."""
        return self.engines[-1] if self.engines and self.engines[-1].alive else None

    @property
    def newest(self) -> Engine:
        assert self.engine is not None
        return self.engine

    # Engines

    def an_engine_takes_over(self) -> None:
        """The one before may continue without a connection; the target fences it off once the new one begins."""
        if self.engines and self.engines[-1].stream is not None:
            return  # The server knows of no end of it.
        self.rows.subscription.epoch += 1
        engine = Engine(len(self.engines), self.rows.subscription.epoch, self.rows)
        self.rows.owner = engine.id
        self.engines.append(engine)
        self.connects(engine)

    def connects(self, engine: Engine) -> None:
        async def connect() -> None:
            engine.stream = self.hub.open_stream(engine.id)
            self.hub.assign_owner(NAME, engine.id)
            await self.freshness.refresh([NAME])

        self.run(connect())
        assert engine.stream is not None
        engine.link._dispatch(Sync(subscriptions={NAME: engine.epoch}, stream=engine.stream.name))
        engine.tell_all()
        engine.hear(self.rows)

    def hears(self, engine: Engine) -> None:
        self.run(self.freshness.refresh([NAME]))
        engine.hear(self.rows)

    def begins(self, engine: Engine) -> None:
        for other in self.engines[:-1]:
            other.holds = other.holds and other.run is not None
        engine.begin(self.target)

    @rule(delivered=DELIVERED, in_place_of_one_that_goes_on=st.booleans())
    def what_is_amiss_gets_better_by_one_step(self, delivered: int, in_place_of_one_that_goes_on: bool) -> None:
        engine = self.engine
        if engine is None or (engine.stream is None and in_place_of_one_that_goes_on):
            self.the_server_notices()
            self.an_engine_takes_over()
        elif engine.stream is None:
            self.connects(engine)
        elif engine.run is None and engine.is_to_run:
            self.begins(engine)
        else:
            for table in TABLES:
                if self.rows.tables[table].state == TableStateKind.PARKED:
                    self.rows.reload(table)
            self.freshness.mark_outdated([NAME])
            self.hears(engine)
            if engine.run is not None:
                for table in TABLES:
                    engine.run.copy(table)
                engine.commit(1, None, rows=True)
        self.deliver(delivered)

    @rule(
        what=st.sampled_from(["stream lost", "killed", "killed unseen", "lease over", "server restarted"]),
        which=st.sampled_from([-1, -1, -1, 0, 1]),
    )
    def a_process_or_a_connection_ends(self, what: str, which: int) -> None:
        engine = self.engines[which % len(self.engines)]
        if what == "stream lost" and engine.stream is not None:
            self.hub.close_stream(engine.stream)
            engine.stream = None
        elif what.startswith("killed") and engine.alive:
            if engine.in_flight is not None:
                self.late.append((engine.id, *engine.in_flight))
            engine.alive, engine.run, engine.holds = False, None, False
            if what == "killed":
                self.the_server_notices()
        elif what == "lease over" and self.engines[-1].stream is None:
            self.rows.lose_engine()
            self.run(self.freshness.refresh([NAME]))
        elif what == "server restarted":
            self.begin_server()

    @rule()
    def the_server_notices(self) -> None:
        for engine in self.engines:
            if not engine.alive and engine.stream is not None:
                self.hub.close_stream(engine.stream)
                engine.stream = None

    # Runs

    @precondition(lambda self: any(e.alive and e.run is not None for e in self.engines))
    @rule(
        which=st.integers(0, 20),
        more=st.integers(1, 5),
        parks=st.sampled_from([None, None, None, *TABLES]),
        rows=st.booleans(),
        meanwhile=st.sampled_from(["nothing", "told", "told and delivered", "told and delivered"]),
        awaited=st.sets(st.sampled_from(TABLES)),
        overtakes=st.booleans(),
        delivered=DELIVERED,
    )
    def a_batch_is_committed(
        self,
        which: int,
        more: int,
        parks: TableId | None,
        rows: bool,
        meanwhile: str,
        awaited: set[TableId],
        overtakes: bool,
        delivered: int,
    ) -> None:
        """Of the newest engine, mostly; an older one that still runs may be the one that has the target.

        Other threads of its run tell the position at any time, and it may arrive at once: `meanwhile` is between the commit and each report
        of what it did to a table. `awaited`: tables whose changes in the batch a client waits for. `overtakes`: the server still writes the
        bundle before when the batch's position is known.
        """
        able = [engine for engine in self.engines if engine.alive and engine.run is not None]
        engine = able[-1] if which > 3 else able[which % len(able)]
        assert engine.run is not None
        run = engine.run
        if awaited:
            self.somebody_waits_for(run.end + more, awaited)

        def report_position() -> None:
            run.report_position()
            if meanwhile.endswith("delivered"):
                self.deliver(ALL)

        run.meanwhile = report_position if meanwhile.startswith("told") else lambda: None
        if overtakes:
            run.report_position()
            bundle = engine.take(ALL)
            assert bundle is not None
            self.take_in(engine.id, *bundle)
        engine.commit(more, parks, rows=rows or parks is not None)
        run.meanwhile = lambda: None
        if overtakes:
            self.overtake(engine, "arrives")
        self.deliver(delivered)

    @_that_is(lambda engine: engine.run is not None)
    @rule(table=st.sampled_from(TABLES), more=st.integers(1, 3))
    def a_copy_is_put_into_place(self, table: TableId, more: int) -> None:
        assert self.newest.run is not None
        self.newest.run.copy(table)
        self.newest.commit(more, None, rows=True)

    @_that_is(lambda engine: engine.run is not None)
    @rule(
        fault=st.sampled_from([FaultKind.SOURCE_UNREACHABLE, FaultKind.SOURCE_UNREACHABLE, FaultKind.LOG_GAP]),
        delivered=DELIVERED,
    )
    def a_run_ends_with_a_fault(self, fault: FaultKind, delivered: int) -> None:
        self.newest.end(fault)
        self.deliver(delivered)

    @_that_is(lambda engine: engine.ended)
    @rule()
    def a_thread_of_an_ended_run_reports(self) -> None:
        self.newest.ended[-1].report_position()

    @rule(copy=st.integers(0, 50))
    def the_target_is_replaced_by_an_older_copy(self, copy: int) -> None:
        for engine in self.engines:
            unheard = engine.in_flight is not None or len(engine.link._outgoing)
            if engine.alive and (engine.run is not None or engine.holds or (engine.stream is not None and unheard)):
                return  # It holds the file, or the server has not heard yet that it does not.
            if engine.stream is not None and not engine.alive:
                return
        self.target.set_back(copy)

    # What is declared

    @rule(
        what=st.sampled_from(["run", "run", "pause", "stop", "pause table", "resume table", "reload", "reload"]),
        then=st.sampled_from(["", "", "", "run", "pause"]),
        table=st.sampled_from(TABLES),
        heard=st.booleans(),
        delivered=DELIVERED,
    )
    def a_user_declares_something_and_waits(
        self, what: str, then: str, table: TableId, heard: bool, delivered: int
    ) -> None:
        """`then`: and something else, before the engine's reports of the one have arrived. The wait is for what is not there yet."""
        self.declare(what, table)
        if heard and self.engine is not None and self.engine.stream is not None:
            self.hears(self.engine)
        if then:
            self.declare(then, table)
        self.deliver(delivered)
        self.somebody_waits_for(self.target.tables[table].at + 1, {table})

    def declare(self, what: str, table: TableId) -> None:
        if what == "reload":
            self.rows.reload(table)
        elif what.endswith("table"):
            self.rows.pause(table, paused=what.startswith("pause"))
        else:
            desired = {"run": DesiredState.RUNNING, "pause": DesiredState.PAUSED, "stop": DesiredState.STOPPED}
            self.rows.desire(desired[what])
        self.freshness.mark_outdated([NAME])

    # The channel

    def take_in(self, engine: str, sequence: int, reports: list[Report]) -> None:
        self.run(self.channel.apply_reports(engine, sequence, reports))

    def deliver(self, most: int) -> None:
        """Up to so many reports of the newest engine arrive."""
        engine = self.engine
        while most > 0 and engine is not None and (bundle := engine.take(most)) is not None:
            self.take_in(engine.id, *bundle)
            engine.taken_in()
            most -= len(bundle[1])

    @precondition(lambda self: any(engine.alive for engine in self.engines))
    @rule(fate=st.sampled_from(["arrives", "answer lost", "late"]), which=st.integers(0, 20), most=st.integers(1, 4))
    def a_bundle_is_sent(self, fate: str, which: int, most: int) -> None:
        able = [engine for engine in self.engines if engine.alive]
        engine = able[-1] if which > 3 else able[which % len(able)]
        bundle = engine.take(most)
        if bundle is None:
            return
        if fate == "late":
            self.late.append((engine.id, *bundle))
            return
        self.take_in(engine.id, *bundle)
        if fate == "arrives":
            engine.taken_in()

    @precondition(lambda self: any(engine.alive and engine.in_flight is not None for engine in self.engines))
    @rule(
        which=st.integers(0, 20),
        fate=st.sampled_from(["arrives", "arrives", "answer lost", "late"]),
        taken_in=st.booleans(),
    )
    def positions_overtake_a_bundle(self, which: int, fate: str, taken_in: bool) -> None:
        """`taken_in`: the server has the bundle, and its answer is on the way."""
        able = [engine for engine in self.engines if engine.alive and engine.in_flight is not None]
        engine = able[-1] if which > 3 else able[which % len(able)]
        assert engine.in_flight is not None
        if taken_in:
            self.take_in(engine.id, *engine.in_flight)
        self.overtake(engine, fate)

    def overtake(self, engine: Engine, fate: str) -> None:
        """Positions that may overtake the bundle on its way are sent."""
        positions = engine.take_positions()
        if positions is None:
            return
        if fate == "late":
            self.late_positions.append((engine.id, positions))
        else:
            self.take_in_positions(engine.id, positions)
        if fate != "arrives":
            engine.link._positions_failed(positions)

    @precondition(lambda self: self.late_positions)
    @rule(which=st.integers(0, 20))
    def late_positions_arrive(self, which: int) -> None:
        self.take_in_positions(*self.late_positions.pop(which % len(self.late_positions)))

    def take_in_positions(self, engine: str, bundle: PositionBundle) -> None:
        async def apply() -> None:
            self.channel.apply_positions(engine, bundle.after, bundle.positions)

        self.run(apply())

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 20))
    def a_late_bundle_arrives(self, which: int) -> None:
        self.take_in(*self.late.pop(which % len(self.late)))

    # Waits

    @rule(
        ahead=st.sampled_from([-6, -3, -1, 0, 0, 0, 1, 1, 2, 3, 6]), tables=st.sets(st.sampled_from(TABLES), min_size=1)
    )
    def somebody_waits(self, ahead: int, tables: set[TableId]) -> None:
        self.somebody_waits_for(max(1, max(table.at for table in self.target.tables.values()) + ahead), tables)

    def somebody_waits_for(self, position: int, tables: set[TableId]) -> None:
        verdicts: list[Verdict] = []

        def ended(verdict: Verdict) -> None:
            verdicts.append(verdict)
            if verdict is None:
                self.judge_satisfied(position, tables)

        self.run(self.wait(position, tables, ended))
        self.judge_at_once(verdicts, tables)

    async def wait(self, position: int, tables: set[TableId], ended: Callable[[Verdict], None]) -> None:
        (await self.freshness.current_registry(NAME)).add(Wait(single_mark(Lsn(position)), set(tables), True, ended))

    def judge_satisfied(self, position: int, tables: set[TableId]) -> None:
        on_target = {table: self.target.tables[table] for table in tables}
        if any(position > table.at for table in on_target.values()):
            self.wrong.append(f"satisfied for {position}, and the target is {on_target}")
        owner = self.engines[-1] if self.engines else None
        if owner is None or owner.stream is None:
            self.wrong.append(f"satisfied for {position}, and no engine is connected")

    def judge_at_once(self, verdicts: list[Verdict], tables: set[TableId]) -> None:
        """What was declared decides at once, and nothing else refuses a wait."""
        rows, row = self.rows, self.rows.subscription
        refused = bool(verdicts) and verdicts[0] is not None
        resting = row.desired_state != "running"
        paused = bool(tables & rows.paused)
        if resting and not verdicts:
            self.wrong.append(f"waits, and the subscription is to be {row.desired_state}")
        if paused and not refused:
            self.wrong.append("waits for a table that is to be paused, or found it there")
        parked = {t for t in tables if rows.tables[t].state == "parked" and t not in rows.reloads.values()}
        if refused and not (resting or paused or parked or row.state == "failed"):
            self.wrong.append(f"refused, and it goes on: {verdicts}")

    @invariant()
    def no_verdict_was_wrong(self) -> None:
        assert not self.wrong

    @_that_is(lambda engine: engine.run is not None and engine.stream is not None)
    @rule()
    def once_all_has_arrived_what_is_true_is_satisfied(self) -> None:
        engine = self.newest
        self.hears(engine)
        self.deliver(ALL)
        if engine.run is None or self.target.epoch > engine.epoch:
            return
        good: list[Verdict] = []
        live = {e.table for e in engine.run.book.all().in_state(TableStateKind.LIVE)} - self.rows.paused
        if live:
            self.run(self.wait(engine.run.stage.applied.visible.value, live, good.append))
            assert good == [None]


Waits.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestWaits = Waits.TestCase
