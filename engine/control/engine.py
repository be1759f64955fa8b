"""The engine process: receives commands from the server, runs one supervisor per subscription, and closes all of them at the end."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version

import structlog

from engine.connectors import open_source, open_target, terms_of
from engine.control.handlers import Handlers
from engine.control.request_handlers import RequestHandler
from engine.control.supervisor import EngineContext, SubscriptionSupervisor
from engine.control.target_registry import TargetRegistry
from engine.copy.reload_requests import PartitionChoice
from engine.link.client import ServerLink
from engine.link.messages import (
    Approve,
    Assign,
    Cancel,
    Command,
    Demand,
    Desire,
    Forget,
    Forgotten,
    Registration,
    Reload,
    Sync,
    Table,
)
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.positions import ONLY_LOG
from engine.model.subscription import SubscriptionSpec
from engine.model.subscription_state import DesiredState
from engine.model.tasks import TaskRunner
from engine.platform.clock import Clock
from engine.platform.settings import EngineSettings
from engine.sql_endpoint.launcher import SqlEndpoint
from engine.sql_endpoint.settings import EndpointSettings
from engine.tables.reporter import Reporter

log = structlog.get_logger(__name__)


HANDLERS: Handlers[Engine] = Handlers()
"""The commands that change a subscription. `RequestHandler` takes the rest: requests, which are answered."""


class Engine:
    """One engine process. The link's thread delivers commands, one after another."""

    def __init__(self, settings: EngineSettings, runner: TaskRunner, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._runner = runner
        self._targets = TargetRegistry(lambda connection: open_target(connection, settings))
        self._parts = EngineContext(open_source, self._targets, runner, settings, clock)
        self._pipelines: dict[str, SubscriptionSupervisor] = {}
        self._lock = threading.Lock()
        self._closed = False
        """No subscription is taken any more."""
        self._closing: list[threading.Thread] = []
        self._changes = ThreadPoolExecutor(1, thread_name_prefix="changes")
        self._demands = ThreadPoolExecutor(1, thread_name_prefix="demands")
        """One thread, so that changes take effect in the order in which they were declared."""
        self.sql_endpoint = _sql_endpoint(settings)
        """None where no port is set for it."""
        self._requests = RequestHandler(settings, self._find, clock, self.sql_endpoint)
        self._link = ServerLink(
            settings.url,
            settings.engine_token.get_secret_value(),
            Registration(instance=uuid.uuid4().hex, name=settings.engine_name, version=version("penstock")),
            self._handle_command,
        )
        self._requests.connect(self._link)

    def start(self) -> None:
        """Start Spark and the link. Returns at once: Spark starts while the server's first assignments arrive."""
        self._runner.start()
        self._link.start()
        if self.sql_endpoint is not None:
            self.sql_endpoint.start()

    def spark_lost(self, detail: str) -> None:
        """Report an event in every subscription: Spark has ended, with `detail` as the cause. From any thread."""
        with self._lock:
            pipelines = list(self._pipelines.values())
        for each in pipelines:
            each.event("warning", FaultKind.SPARK_FAILED.value, "spark", detail)

    def close(self) -> None:
        """Stop every subscription at a batch boundary, then close the targets, the link and Spark.

        Blocks until all have ended, but at most 20 s for each subscription and 1 s for reports that have not been sent.
        """
        if self.sql_endpoint is not None:
            self.sql_endpoint.close()
        self._requests.close()
        self._changes.shutdown(wait=False, cancel_futures=True)
        self._demands.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            pipelines = list(self._pipelines.values())
            self._pipelines.clear()
        closers = [threading.Thread(target=pipeline.close, daemon=True) for pipeline in pipelines]
        for closer in closers:
            closer.start()
        for closer in [*closers, *self._closing]:
            closer.join(20.0)
        self._targets.close_all()
        self._link.flush(1.0)
        self._link.close()
        self._runner.stop()

    def _find(self, subscription: str) -> SubscriptionSupervisor | None:
        with self._lock:
            return self._pipelines.get(subscription)

    def _handle_command(self, command: Command) -> None:
        handle = HANDLERS.find(command)
        if handle is not None:
            handle(self, command)
        else:
            self._requests.handle_command(command)

    @HANDLERS.handles(Cancel)
    def _cancel(self, command: Cancel) -> None:
        self._requests.cancel(command.request_id)
        with self._lock:
            pipelines = list(self._pipelines.values())
        for each in pipelines:
            table = command.table if command.subscription == each.spec.name else None
            each.cancel_reload(command.request_id, None if table is None else TableId(table))

    @HANDLERS.handles(Demand)
    def _demand(self, command: Demand) -> None:
        pipeline = self._find(command.subscription)
        if pipeline is not None:
            if command.log == ONLY_LOG:
                pipeline.demand(command.position)
            else:
                # The number of a position in one of several logs is not known before it is read: everything until now is demanded.
                self._demands.submit(_logged, pipeline.demand_current)

    @HANDLERS.handles(Desire)
    def _desire(self, command: Desire) -> None:
        self._change(command.subscription, lambda pipeline: pipeline.desire(DesiredState(command.desired)))

    @HANDLERS.handles(Reload)
    def _reload(self, command: Reload) -> None:
        tables = None if command.tables is None else [TableId(table) for table in command.tables]
        self._change(
            command.subscription, lambda pipeline: pipeline.reload(command.request_id, tables, _chosen(command))
        )

    @HANDLERS.handles(Approve)
    def _approve(self, command: Approve) -> None:
        self._change(command.subscription, lambda pipeline: pipeline.approve(TableId(command.table), command.reason))

    @HANDLERS.handles(Table)
    def _table(self, command: Table) -> None:
        self._change(command.subscription, lambda pipeline: pipeline.update(_with_table(pipeline.spec, command)))

    def _change(self, subscription: str, change: Callable[[SubscriptionSupervisor], None]) -> None:
        """Queue a change for the thread that makes them, in the order of their commands. Ignored if the subscription does not run here."""
        pipeline = self._find(subscription)
        if pipeline is not None:
            self._changes.submit(_logged, lambda: change(pipeline))

    @HANDLERS.handles(Assign)
    def _assign(self, command: Assign) -> None:
        spec = command.to_spec()
        running = self._find(str(spec.name))
        if running is not None and running.spec.epoch == spec.epoch:
            self._changes.submit(_logged, lambda: running.update(spec))
            return
        if running is not None and running.spec.epoch > spec.epoch:
            log.info("past_assignment", subscription=spec.name, epoch=spec.epoch)
            return
        if running is not None:
            self._let_go(str(spec.name))
        pipeline = self._supervisor(spec)
        with self._lock:
            if self._closed:
                return
            self._pipelines[str(spec.name)] = pipeline
        log.info("subscription_taken", subscription=spec.name, epoch=spec.epoch)
        self._requests.snapshots.clean(str(spec.name))
        pipeline.start()

    def _supervisor(self, spec: SubscriptionSpec) -> SubscriptionSupervisor:
        form = terms_of(spec.source).form
        return SubscriptionSupervisor(spec, self._parts, Reporter(spec, self._link.report, self._clock, form))

    @HANDLERS.handles(Sync)
    def _sync(self, command: Sync) -> None:
        """Close subscriptions that are not assigned to this engine any more: another engine may already wait for them."""
        with self._lock:
            strange = [n for n, p in self._pipelines.items() if command.subscriptions.get(n) != int(p.spec.epoch)]
        for name in strange:
            log.info("subscription_let_go", subscription=name)
            self._let_go(name)

    def _let_go(self, name: str) -> None:
        with self._lock:
            pipeline = self._pipelines.pop(name, None)
        if pipeline is not None:
            pipeline.close()

    @HANDLERS.handles(Forget)
    def _forget(self, command: Forget) -> None:
        with self._lock:
            pipeline = self._pipelines.pop(command.subscription, None)
        if pipeline is None and command.assignment is not None:
            pipeline = self._supervisor(command.assignment.to_spec())

        def forget() -> None:
            left = pipeline.forget() if pipeline is not None else []
            self._link.report(Forgotten(subscription=command.subscription, left=tuple(left)))

        self._in_background(forget)

    def _in_background(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._closing = [t for t in self._closing if t.is_alive()]
        self._closing.append(thread)
        thread.start()


def _logged(change: Callable[[], None]) -> None:
    try:
        change()
    except EngineFault as fault:
        log.warning("change_refused", code=fault.kind.value, subject=fault.subject, detail=fault.detail)
    except Exception as error:  # The result of the future is never read, so a defect has to be logged here.
        log.exception("change_failed", error=type(error).__name__)


def _chosen(command: Reload) -> PartitionChoice | None:
    if command.partitions is None:
        return None
    return PartitionChoice(None if command.partitions == "changed" else command.partitions)


def _with_table(spec: SubscriptionSpec, command: Table) -> SubscriptionSpec:
    others = tuple(t for t in spec.tables if t.table != command.table)
    changed = () if command.removed or command.spec is None else (command.spec,)
    dropped = spec.dropped | {TableId(command.table)} if command.drop else spec.dropped
    return replace(spec, tables=(*others, *changed), dropped=dropped)


def _sql_endpoint(settings: EngineSettings) -> SqlEndpoint | None:
    if settings.sql_port is None and settings.flight_port is None:
        return None
    return SqlEndpoint(
        EndpointSettings(
            url=settings.url,
            engine_token=settings.engine_token.get_secret_value(),
            host=settings.sql_host,
            port=settings.sql_port,
            flight_port=settings.flight_port,
            tls_certificate=settings.sql_tls_certificate,
            tls_key=settings.sql_tls_key,
            sessions=settings.sql_sessions,
        )
    )
