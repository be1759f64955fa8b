"""Answers the server's requests (preflight, discovery, "now", queries, sequences, refused rows, verification) in pool threads."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import structlog

from engine.connectors import is_unyielding, open_source, open_target
from engine.control.change_triggers import answer_change_triggers
from engine.control.cycles import begun_cycle, listed_cycles
from engine.control.handlers import Handlers
from engine.control.lag import measured_lag
from engine.control.partitions import listed_partitions
from engine.control.problem import problem_of
from engine.control.quarantine import answer_refused
from engine.control.query_admission import QueryAdmission, QueryTurn
from engine.control.read_points import EXISTS, LIMIT, REMEDY, UNKNOWN, PointReads, ReadPointRegistry, visible_position
from engine.control.read_tables import NOT_FOLLOWING, NOT_READY, Follows, ReadTables, absent_table
from engine.control.sequences import bring_forward, refusal
from engine.control.snapshots import SnapshotDesk
from engine.control.supervisor import SubscriptionSupervisor
from engine.control.table_repairs import TableRepairs
from engine.control.verification import Comparing, VerificationReport, verify_at_cuts
from engine.link.answer_frames import AnswerEnd, end_frame, rows_frame
from engine.link.change_triggers import ChangeTriggers
from engine.link.client import ServerLink
from engine.link.cycles import BeginCycle, Cycles
from engine.link.lag import Lag
from engine.link.message import Message, Problem, Question
from engine.link.messages import (
    Answer,
    Command,
    DdlCapture,
    DdlCaptureBody,
    Discover,
    DiscoverBody,
    DiscoveredColumn,
    DiscoveredTablePart,
    Now,
    NowBody,
    Preflight,
    PreflightBody,
    RowsSetAside,
    Sequences,
)
from engine.link.partitions import Partitions
from engine.link.quarantine import RefusedRows
from engine.link.queries import DeliveredBody, Query
from engine.link.read_points import ReadPoints
from engine.link.snapshots import DeleteSnapshot, Snapshot
from engine.link.tickets import Ticket
from engine.link.verifications import Verify
from engine.model.fault import EngineFault, FaultKind
from engine.model.history import history_of
from engine.model.identity import SubscriptionName, TableId, TicketId
from engine.model.sequences import SequencesRefused
from engine.model.source import DiscoveredTable, Finding, Severity
from engine.model.subscription import SchemaPolicy
from engine.model.subscription_state import DesiredState
from engine.model.target import (
    CHANGED,
    ENDED,
    Cancellation,
    QueryAnswer,
    QueryLimits,
    QueryRefused,
    SqlClient,
    TableRead,
    Target,
)
from engine.model.verification import RepairMode
from engine.pipeline.run import ReplicationRun
from engine.platform.clock import Clock
from engine.platform.fault_policy import policy
from engine.platform.settings import EngineSettings
from engine.sql_endpoint.launcher import EndpointGoneError, SqlEndpoint, send_frames
from engine.tables.registry import TableEntry
from engine.tables.reporter import wall_time
from engine.verify.compare import VerifyLimits
from engine.verify.sampling import Sampling

WORKERS = 16
"""Requests that are handled at once. Queries have fewer places, by settings; the other threads mostly wait for databases. Not measured."""
_LATE_S = 5.0
"""Seconds after its time limit during which the result of a query may still be uploaded, including the frame that ends it."""

log = structlog.get_logger(__name__)


HANDLERS: Handlers[RequestHandler] = Handlers()
"""The commands that `RequestHandler` answers."""

C = TypeVar("C", bound=Question)
B = TypeVar("B", bound=Message)


def _answers(command: type[C]) -> Callable[[Callable[[RequestHandler, C], B]], Callable[[RequestHandler, C], B]]:
    """A decorator: the method is called in a pool thread with each command of this class, and returns the body of the answer."""

    def register(method: Callable[[RequestHandler, C], B]) -> Callable[[RequestHandler, C], B]:
        @HANDLERS.handles(command)
        def _handle_command(self: RequestHandler, command: C) -> None:
            self.answer(command, lambda: method(self, command))

        return method

    return register


class RequestHandler:
    """Answers requests concurrently with the runs. A fault becomes a refusal of the request with the fault's problem."""

    def __init__(
        self,
        settings: EngineSettings,
        find: Callable[[str], SubscriptionSupervisor | None],
        clock: Clock,
        endpoint: SqlEndpoint | None = None,
    ) -> None:
        self._settings = settings
        self._find = find
        self._endpoint = endpoint
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="request")
        self._queries = QueryAdmission(settings.query_places, settings.unyielding_places)
        self.snapshots = SnapshotDesk(settings, find)
        self._clock = clock
        self._points = ReadPointRegistry(settings, clock, find)
        self._cancels: dict[str, threading.Event] = {}
        self._cancellations: dict[str, Cancellation] = {}
        """Of queries that run or wait for a place, by request."""
        self._link: ServerLink | None = None

    def connect(self, link: ServerLink) -> None:
        """Set the link that sends the answers. Call it once, before the first command."""
        self._link = link
        self.snapshots.connect(link)

    def handle_command(self, command: Command) -> None:
        """Begin to answer a command; commands without a handler here are ignored. Returns at once."""
        handle = HANDLERS.find(command)
        if handle is not None:
            handle(self, command)

    def answer(self, command: Question, body: Callable[[], Message]) -> None:
        """Send what `body` returns as the answer, or refuse the request with what it raises. `body` is called in a pool thread."""

        def answer() -> None:
            found = body().model_dump(mode="json")
            self._out.answer(Answer(request_id=command.request_id, ok=True, body=found))

        self._pool.submit(self._answered, command, answer)

    def cancel(self, request: str) -> None:
        """Cancel a verification, a snapshot or a query; other requests, and unknown ones, are not affected. Returns at once."""
        self.snapshots.cancel(request)
        event = self._cancels.get(request)
        if event is not None:
            event.set()
        cancellation = self._cancellations.get(request)
        if cancellation is not None:
            cancellation.cancel()

    def close(self) -> None:
        """Cancel verifications and snapshots, end read points, and start no more requests. Does not wait for those that run."""
        self.snapshots.close()
        for event in list(self._cancels.values()):
            event.set()
        self._queries.close()
        self._points.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def _out(self) -> ServerLink:
        if self._link is None:
            raise EngineFault(FaultKind.INTERNAL, "requests", "not connected to a server")
        return self._link

    @HANDLERS.handles(Query)
    def _take_query(self, command: Query) -> None:
        self._queries.submit_query(self._turn(command))

    def _turn(self, command: Query) -> QueryTurn:
        limit_s = command.timeout_ms / 1000
        pipeline = self._find(command.subscription)
        unyielding = pipeline is not None and is_unyielding(pipeline.spec.target)
        problem = self._no_place(limit_s, self._queries.most(unyielding=unyielding))
        cancellation = self._cancellations[command.request_id] = Cancellation()

        def run(left_s: float) -> None:
            limits = QueryLimits(left_s, command.max_rows, command.max_bytes, cancellation, unread=command.pipe)
            try:
                self._answered(command, lambda: self._query(command, limits))
            finally:
                del self._cancellations[command.request_id]

        def refuse() -> None:
            del self._cancellations[command.request_id]
            self._answered(command, lambda: self._out.refuse(command.request_id, problem))

        return QueryTurn(limit_s, run, refuse, unyielding)

    @staticmethod
    def _no_place(limit_s: float, most: int) -> Problem:
        queries = "1 query" if most == 1 else f"{most} queries"
        return Problem(
            status=503,
            code="query_unavailable",
            detail=f"{queries} of such a target may run on this engine at once, and no place came free within {limit_s:g} s",
            remedy="Ask again when others have ended, with a longer timeout_ms, or raise PENSTOCK_QUERIES_AT_ONCE of the engine.",
        )

    def _answered(self, command: Question, answer: Callable[[], None]) -> None:
        """Call `answer`. If it raises, refuse the request with the corresponding problem."""
        request = command.request_id
        try:
            answer()
        except EngineFault as fault:
            self._out.refuse(request, problem_of(fault))
        except QueryRefused as refused:
            self._out.refuse(request, _refusal(refused))
        except SequencesRefused as refused:
            self._out.refuse(request, refusal(refused))
        except Exception as error:  # An unanswered request would last until its deadline.
            log.exception("request_failed", kind=command.kind, error=type(error).__name__)
            self._out.refuse(request, problem_of(EngineFault(FaultKind.INTERNAL, command.kind, type(error).__name__)))

    @_answers(Partitions)
    def _partitions(self, command: Partitions) -> Message:
        return listed_partitions(self._pipeline(command.subscription), TableId(command.table))

    @_answers(Cycles)
    def _cycles(self, command: Cycles) -> Message:
        return listed_cycles(self._pipeline(command.subscription), command)

    @_answers(BeginCycle)
    def _begin_cycle(self, command: BeginCycle) -> Message:
        return begun_cycle(self._pipeline(command.subscription))

    @_answers(Lag)
    def _lag(self, command: Lag) -> Message:
        return measured_lag(self._pipeline(command.subscription))

    @_answers(Sequences)
    def _sequences(self, command: Sequences) -> Message:
        return bring_forward(self._pipeline(command.subscription), command)

    @_answers(ReadPoints)
    def _read_points(self, command: ReadPoints) -> Message:
        pipeline = self._pipeline(command.subscription)
        subscription, found = pipeline.spec.name, True
        if command.action == "hold":
            applied = pipeline.run.applied if pipeline.run is not None else None
            target = self._open_target(pipeline)
            self._points.hold(pipeline, target, subscription, command.name, command.id, command.ttl_ms / 1000, applied)
        elif command.action == "release":
            found = self._points.release(subscription, command.name)
        return self._points.listed(subscription, found=found)

    @HANDLERS.handles(Now)
    def _take_now(self, command: Now) -> None:
        self._pool.submit(self._answered, command, lambda: self._now(command))

    def _now(self, command: Now) -> None:
        run = self._pipeline(command.subscription).run
        if run is None:
            # This fault's status is 503, with which the server repeats the request until the wait's time limit.
            raise EngineFault(FaultKind.TARGET_UNAVAILABLE, command.subscription, "the subscription is starting")
        now = run.nows.read_now()
        body = NowBody(position=now.position, structure=now.structure, structure_at=wall_time(now.seen_us))
        answer = Answer(request_id=command.request_id, ok=True, body=body.model_dump(mode="json"))
        if now.held:
            # Sent in order with the reports: the server must receive what the check found before it receives the position.
            self._out.report(answer)
        else:
            self._out.answer(answer)

    @_answers(RefusedRows)
    def _refused_rows(self, command: RefusedRows) -> Message:
        pipeline = self._pipeline(command.subscription)
        body = answer_refused(pipeline, command)
        if command.action != "list":
            epoch, counts = int(pipeline.spec.epoch), {command.table: body.left}
            self._out.report(RowsSetAside(subscription=command.subscription, epoch=epoch, counts=counts))
        return body

    @_answers(Preflight)
    def _preflight(self, command: Preflight) -> PreflightBody:
        try:
            if command.role == "target":
                return PreflightBody(findings=self._preflight_target(command))
            source = open_source(replace(command.connection, capture=command.capture))
            try:
                return PreflightBody(findings=tuple(source.preflight(command.tables, None, command.origin)))
            finally:
                source.close()
        except EngineFault as fault:
            remedy = policy(fault.kind).remedy
            return PreflightBody(findings=(Finding(Severity.ERROR, fault.kind.value, fault.detail, remedy),))

    def _preflight_target(self, command: Preflight) -> tuple[Finding, ...]:
        target = open_target(command.connection, self._settings)
        try:
            existing = {table.target for table in command.tables if table.into_existing}
            shared = {table.target: table.shared for table in command.tables if table.shared is not None}
            histories = [history_of(table.target) for table in command.tables if table.history]
            found = target.check([*(table.target for table in command.tables), *histories], existing, shared)
        finally:
            target.close()
        return tuple(Finding(Severity(severity), code, what, remedy) for severity, code, what, remedy in found)

    @_answers(Discover)
    def _discover(self, command: Discover) -> Message:
        source = open_source(replace(command.connection, capture=command.capture))
        try:
            return DiscoverBody(tables=tuple(_discovered(table) for table in source.discover()))
        finally:
            source.close()

    @_answers(DdlCapture)
    def _ddl_capture(self, command: DdlCapture) -> Message:
        source = open_source(command.connection)
        try:
            actions = {"install": source.ddl.install, "remove": source.ddl.uninstall}
            found = actions.get(command.action, source.ddl.status)()
        finally:
            source.close()
        return DdlCaptureBody(
            installed=found.installed,
            version=found.version,
            current=found.current,
            install_sql=found.install_sql,
            remove_sql=found.remove_sql,
        )

    @_answers(ChangeTriggers)
    def _change_triggers(self, command: ChangeTriggers) -> Message:
        return answer_change_triggers(command)

    def _query(self, command: Query, limits: QueryLimits) -> None:
        if command.read_point is not None:
            self._query_point(command, command.read_point, limits)
        elif command.on_source:
            self._query_source(command, limits)
        else:
            self._query_target(command, limits)

    def _query_point(self, command: Query, name: str, limits: QueryLimits) -> None:
        subscription = self._pipeline(command.subscription).spec.name
        point = self._points.find(subscription, name)
        reads = PointReads(subscription, available=command.available)
        with point.held.query(command.sql, limits, reads.judge, command.parameters, _client(command)) as answer:
            first = list(islice(answer.batches, 1)) if answer.pipe is None else []
            found = DeliveredBody(
                position=point.position,
                tables=tuple(reads.tables),
                not_following=tuple(reads.not_following),
                read_point=name,
            )
            self._send_answer(command, limits, found, _frames(answer, first), answer.pipe)

    def _query_source(self, command: Query, limits: QueryLimits) -> None:
        from engine.control.source_query import query_source  # noqa: PLC0415 - imports sqlglot; the engine starts sooner without it

        reads: list[TableRead] = []
        pipeline = self._pipeline(command.subscription)
        with query_source(pipeline, command.sql, limits, reads.extend, command.parameters) as answer:
            first = list(islice(answer.batches, 1))
            tables = [read.table for read in reads]
            self._send_answer(
                command,
                limits,
                DeliveredBody(position=answer.position, tables=tuple(tables), ran_on="source"),
                _frames(answer, first),
            )

    def _query_target(self, command: Query, limits: QueryLimits) -> None:
        pipeline = self._pipeline(command.subscription)
        target = self._open_target(pipeline)
        run = pipeline.run
        before = run.applied if run is not None else None
        wanted = {"demanded": command.following, "available": command.available}
        reads = ReadTables(self._entry, pipeline.spec.name, self._follows, **wanted)
        with (
            _named_absences(pipeline, target, command.sql),
            target.query(
                command.sql, limits, pipeline.spec.name, reads.judge, command.parameters, _client(command)
            ) as answer,
        ):
            position = visible_position(before, answer.position)
            # A failure before the first rows refuses the request; after them, it is stated in the last frame of the answer.
            first = list(islice(answer.batches, 1)) if answer.pipe is None else []
            found = DeliveredBody(
                position=position, tables=tuple(reads.tables), not_following=tuple(reads.not_following)
            )
            self._send_answer(command, limits, found, _frames(answer, first), answer.pipe)

    @staticmethod
    def _open_target(pipeline: SubscriptionSupervisor) -> Target:
        target = pipeline.target
        if target is None:
            raise QueryRefused(
                "query_unavailable", "the subscription is stopped or has not started; its target is closed"
            )
        return target

    def _send_answer(
        self,
        command: Query,
        limits: QueryLimits,
        found: DeliveredBody,
        frames: Iterator[bytes],
        pipe: int | None = None,
    ) -> None:
        if command.endpoint is not None:
            sink = self._sink(command.endpoint, command.request_id, pipe)
            self._out.answer(Answer(request_id=command.request_id, ok=True, body=found.model_dump(mode="json")))
            send_frames(sink, frames, limits)
            return
        self._out.upload_result(
            command.request_id,
            found.position,
            frames,
            limits.timeout_s + _LATE_S,
            tables=found.tables,
            not_following=found.not_following,
            ran_on=found.ran_on,
            read_point=found.read_point,
        )

    def _sink(self, endpoint: str, request_id: str, pipe: int | None) -> socket.socket:
        """Where the SQL endpoint receives the rows of this request."""
        own = self._endpoint
        if own is None or own.id != endpoint:
            name = self._settings.engine_name
            detail = f"the subscription runs on the engine {name!r}, which this endpoint does not belong to"
            raise QueryRefused("query_unavailable", detail, "Connect to the SQL endpoint of that engine.")
        try:
            return own.deliver(request_id, pipe)
        except EndpointGoneError:
            raise QueryRefused("query_unavailable", "the SQL endpoint is being started again; ask again") from None

    def _entry(self, subscription: SubscriptionName, table: TableId) -> TableEntry | None:
        pipeline = self._find(subscription)
        return None if pipeline is None else pipeline.book.get(table)

    def _follows(self, subscription: SubscriptionName) -> Follows:
        """One that this engine does not know may be another engine's."""
        pipeline = self._find(subscription)
        if pipeline is None or pipeline.run is not None:
            return Follows.YES
        return Follows.SOON if pipeline.spec.desired == DesiredState.RUNNING.value else Follows.NOT

    def _pipeline(self, subscription: str) -> SubscriptionSupervisor:
        pipeline = self._find(subscription)
        if pipeline is None:
            raise EngineFault(FaultKind.TARGET_UNAVAILABLE, subscription, "this engine does not run the subscription")
        return pipeline

    @HANDLERS.handles(Ticket)
    def _ticket(self, command: Ticket) -> None:
        """Register the ticket at once, so that a run that begins now knows it before it reads its marker; write the marker in a thread."""
        pipeline, ticket = self._find(command.subscription), TicketId(command.ticket_id)
        if pipeline is not None:
            pipeline.tickets.ask(ticket, command.until)
            self._pool.submit(pipeline.send_ticket, ticket)

    @HANDLERS.handles(Snapshot)
    def _take_snapshot(self, command: Snapshot) -> None:
        self.snapshots.take(command)

    @HANDLERS.handles(DeleteSnapshot)
    def _delete_snapshot(self, command: DeleteSnapshot) -> None:
        self.snapshots.delete(command)

    @HANDLERS.handles(Verify)
    def _take_verify(self, command: Verify) -> None:
        self._pool.submit(self._verify, command)

    def _verify(self, command: Verify) -> None:
        if command.verification_id in self._cancels:
            return
        pipeline = self._find(command.subscription)
        if pipeline is None:
            return
        cancelled = self._cancels[command.verification_id] = threading.Event()
        run = pipeline.run
        report = VerificationReport(self._out, command, int(pipeline.spec.epoch), self._clock)
        try:
            if run is None:
                raise EngineFault(FaultKind.SOURCE_UNREACHABLE, command.subscription, "the subscription does not run")
            self._verify_run(run, pipeline, command, cancelled, report)
        except EngineFault as fault:
            report.end("failed", problem=problem_of(fault))
        except Exception as error:  # A verification without an end would be shown as running forever.
            log.exception("verification_failed", error=type(error).__name__)
            report.end(
                "failed", problem=problem_of(EngineFault(FaultKind.INTERNAL, "verification", type(error).__name__))
            )
        finally:
            del self._cancels[command.verification_id]

    def _verify_run(
        self,
        run: ReplicationRun,
        pipeline: SubscriptionSupervisor,
        command: Verify,
        cancelled: threading.Event,
        report: VerificationReport,
    ) -> None:
        wanted = None if command.tables is None else [TableId(table) for table in command.tables]
        specs = {entry.table: entry.spec for entry in pipeline.book.all()}
        source = open_source(pipeline.spec.source)
        try:
            sampling = Sampling(command.sample, command.verification_id) if command.sample < 1 else None
            shared_only = pipeline.spec.schema_changes is SchemaPolicy.IGNORE
            how = Comparing(command.method, sampling, shared_only, VerifyLimits(budget=command.budget))
            if command.repair is RepairMode.NONE:
                verify_at_cuts(run.cuts, source, specs, wanted, report, cancelled, how)
            else:
                repair = TableRepairs(run.cuts, source, specs, report, cancelled, how)
                repair.run(command.verification_id, wanted, apply=command.repair is RepairMode.APPLY)
        finally:
            source.close()
        report.end("cancelled" if cancelled.is_set() else "succeeded")


_QUERY_STATUS = {
    "query_role_missing": 409,
    "query_role_unfit": 409,
    "query_role_unusable": 409,
    "query_unavailable": 503,
    "query_timeout": 504,
    "query_cancelled": 409,
    "table_not_live": 409,
    NOT_FOLLOWING: 409,
    NOT_READY: 409,
    ENDED: 409,
    CHANGED: 409,
    UNKNOWN: 404,
    EXISTS: 409,
    LIMIT: 409,
}
_QUERY_REMEDIES = {
    NOT_READY: "Wait until the table is live, then ask again.",
    ENDED: REMEDY,
    "read_point_unsupported": "Query without a read point, or use a DuckDB or PostgreSQL target.",
    "query_unavailable": "Start the subscription where it does not run, then ask again.",
    "query_timeout": "Give the query more time (timeout_ms), or ask for less.",
    "query_too_large": "Ask for less: fewer columns, a condition, or a total in place of the rows.",
    "table_not_live": "Do what the table's remedy says, or wait until it is live.",
}


@contextmanager
def _named_absences(pipeline: SubscriptionSupervisor, target: Target, sql: str) -> Iterator[None]:
    """Where the statement is invalid and names a table that is not on the target yet, that is the refusal."""
    try:
        yield
    except QueryRefused as refused:
        absent = None
        if refused.code == "query_invalid":
            absent = absent_table(sql, pipeline.book.all(), target.progress(pipeline.spec.name))
        raise absent or refused from None


def _client(command: Query) -> SqlClient | None:
    asked = command.client
    return None if asked is None else SqlClient(command.subscription, asked.user, asked.process, asked.settings)


def _frames(answer: QueryAnswer, first: Sequence[Any]) -> Iterator[bytes]:
    """The answer's frames. The last one states whether the answer was truncated, and the problem that ended it early, if any."""
    problem = None
    if answer.pipe is None:
        yield rows_frame(answer.schema, first)
    try:
        for batch in answer.batches:
            yield rows_frame(answer.schema, [batch])
    except QueryRefused as refused:
        problem = _refusal(refused)
    except EngineFault as fault:
        problem = problem_of(fault)
    yield end_frame(AnswerEnd(truncated=answer.truncated and problem is None, problem=problem))


def _refusal(refused: QueryRefused) -> Problem:
    remedy = refused.remedy or _QUERY_REMEDIES.get(refused.code, "Send exactly one SELECT over the replicated tables.")
    status = _QUERY_STATUS.get(refused.code, 422)
    return Problem(status=status, code=refused.code, detail=refused.detail, remedy=remedy, tables=refused.tables)


def _discovered(table: DiscoveredTable) -> DiscoveredTablePart:
    return DiscoveredTablePart(
        schema=table.name.schema,
        name=table.name.name,
        key=table.key,
        identity=table.identity,
        partitioned=table.partitioned,
        rows_estimate=table.rows_estimate,
        bytes=table.bytes,
        columns=tuple(DiscoveredColumn(name=c["name"], type=c["type"]) for c in table.columns),
        problems=table.problems,
    )
