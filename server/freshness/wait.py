"""One freshness wait, from its request to its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from engine.model.position import ZERO, Lsn, MalformedPosition
from engine.model.positions import ONLY_LOG, Mark, Marks, Reached, first_uncovered, single_mark
from engine.model.table_state import TableStateKind
from server.errors import FieldError, InvalidRequest, Problem, ReportedProblem
from server.freshness.errors import FreshnessRefusedEarly, FreshnessTimeout, FreshnessUnavailable, FreshnessUnreachable
from server.freshness.node_progress import late_nodes_phrase
from server.freshness.schemas import LeftOutTable, Receipt, ReceiptException, ReceiptTable, Staleness, WaitRequest
from server.freshness.subscription_status import SubscriptionStatus, TableView
from server.freshness.tracker import FreshnessTracker
from server.freshness.wait_registry import Unreachable, Verdict, Wait, WaitRegistry, WaitStatus, why_left_out
from server.gateway.hub import AnswerError, EngineAwayError, EngineSilentError
from server.remedies import LATE_NODE_REMEDY
from server.wording import format_seconds

_STARTING_PAUSE_S = 0.2
_FLUSH_AFTER_S = 0.1
"""Time in seconds after which a wait for a given position makes the source flush its log. A usual commit is visible earlier."""
_FLUSH_MOST_PAUSE_S = 5.0
_SERVICE_UNAVAILABLE = 503
_MOST_NAMED = 3
_BEYOND = "Check that it is a position of this source: {origin}. One of another server, or from before a restore, may never come."


@dataclass(frozen=True, slots=True)
class WaitSpec:
    """A wait as requested. `marks` None: the source's current position. `tables`: ids; `named`: the request listed them.

    `named` with no tables: for the marks alone. `patient`: it continues to wait while engine or source are
    unavailable.
    """

    subscription: str
    marks: Marks | None
    tables: frozenset[str]
    named: bool
    timeout_s: float
    patient: bool = False
    stale: bool = False
    """At the deadline, say how far the target is behind."""
    refuse_early: bool = False
    """End at once where the estimate exceeds the deadline."""


@dataclass(frozen=True, slots=True)
class WaitOutcome:
    """The end of a wait. `SATISFIED` and `STALE` have a receipt and no problem; every other status has a problem and no receipt.

    `waited_ms` is in milliseconds. `position` is None if the current position was not read; `applied`: the last applied
    position known then; both as text.
    """

    status: WaitStatus
    waited_ms: float
    position: str | None
    applied: str | None
    receipt: Receipt | None = None
    problem: Problem | None = None
    stale: Staleness | None = None
    reported_s: float | None = None
    """When the server had received the report that satisfied the wait, by the clock's `monotonic`. None if the wait was not open then,
    or something else ended it."""


async def parse_request(
    tracker: FreshnessTracker, subscription: str, request: WaitRequest, pointer: str = "/position"
) -> WaitSpec:
    """The wait of a request, validated against the declaration of the subscription. `pointer`: the JSON pointer of the position.

    Raises:
        NotFound: unknown subscription.
        InvalidRequest: malformed position or unknown table.
        FreshnessUnreachable: no table is named and none follows the source.
    """
    registry = await tracker.current_registry(subscription)
    marks = parse_position(request.position, pointer, registry.status)
    asked = WaitSpec(
        subscription,
        marks,
        frozenset(),
        named=bool(request.tables),
        timeout_s=request.timeout_ms / 1000,
        patient=request.on_unreachable == "wait",
        stale=request.on_timeout == "stale",
        refuse_early=request.refuse_early,
    )
    if not request.tables:
        following = frozenset(view.id for view in registry.status.tables.values() if not view.left_out)
        return replace(asked, tables=following)
    named = [(ref.schema_name, ref.name) for ref in request.tables]
    if not set(named) <= set(_names(registry.status)):
        # A table added just now may not be in the status yet.
        await tracker.refresh([subscription])
        registry = await tracker.current_registry(subscription)
    return replace(asked, tables=_ids(registry.status, named))


def parse_position(text: str | None, pointer: str, status: SubscriptionStatus) -> Marks | None:
    """A position of a request, in the form of the subscription's capture.

    Raises:
        InvalidRequest: it is malformed, or names a log that the source does not have.
    """
    form, known = status.form, status.applied_marks
    try:
        marks = None if text is None else form.parse(text)
    except MalformedPosition as error:
        remedy = f"Send a position of the source, like {form.example}: {form.origin}."
        raise InvalidRequest.at(pointer, f"{error}.", remedy) from None
    # Before the engine has reported positions of nodes, as after a start of the server, their names are not known here.
    logs = known.keys() - {ONLY_LOG}
    unknown = [mark.log for mark in marks or () if logs and mark.log not in known]
    if unknown:
        detail = f"The source of '{status.name}' has no node {', '.join(unknown)}."
        raise InvalidRequest.at(pointer, detail, f"Name nodes of the source: {', '.join(sorted(logs))}.")
    return marks


def _names(status: SubscriptionStatus) -> dict[tuple[str, str], str]:
    return {(view.schema, view.name): view.id for view in status.tables.values() if view.state != "removed"}


def _ids(status: SubscriptionStatus, named: list[tuple[str, str]]) -> frozenset[str]:
    known = _names(status)
    wrong = [
        FieldError(pointer=f"/tables/{i}", detail=f"Subscription '{status.name}' has no table {schema}.{name}.")
        for i, (schema, name) in enumerate(named)
        if (schema, name) not in known
    ]
    if wrong:
        remedy = f"GET /api/v1/subscriptions/{status.name}/tables lists its tables."
        raise InvalidRequest(wrong[0].detail, remedy, errors=wrong)
    return frozenset(known[name] for name in named)


async def run_wait(tracker: FreshnessTracker, spec: WaitSpec) -> WaitOutcome:
    """Run a wait until it is satisfied, is unreachable, or its deadline passes. The last two are outcomes, not errors.

    On the event loop. If cancelled, the wait is removed from its registry.

    Raises:
        NotFound: there is no such subscription.
    """
    return await _Run(tracker, spec, await tracker.current_registry(spec.subscription)).run()


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a wait ended, under which run, and `WaitOutcome.reported_s`."""

    verdict: Verdict
    run: tuple[int, int]
    reported_s: float | None


class _Run:
    """One running wait."""

    def __init__(self, tracker: FreshnessTracker, spec: WaitSpec, registry: WaitRegistry) -> None:
        self._tracker = tracker
        self._spec = spec
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._deadline = self._began + spec.timeout_s
        self._marks = spec.marks
        self._now_ms: float | None = None
        self._on_arrival = False

    async def run(self) -> WaitOutcome:
        try:
            async with asyncio.timeout_at(self._deadline):
                while True:
                    all_live, run = self._all_live(), self._registry.status.current_run
                    marks = self._spec.marks or await self._resolve_now()
                    if isinstance(marks, WaitOutcome):
                        return marks
                    self._marks = marks
                    late_ms = self._estimate_beyond_deadline(marks)
                    if late_ms is not None:
                        return self._stale() or self._refused_early(marks, late_ms)
                    ending = await self._wait_until_visible(marks)
                    # For a table that became live later, in a run that started since and perhaps on an older target, it
                    # is not known up to which position its structure is that of the catalog.
                    if ending.verdict is not None or self._spec.marks is not None or (all_live and ending.run == run):
                        break
        except TimeoutError:
            return self._stale() or self._timed_out()
        if ending.verdict is not None:
            return self._unreachable(ending.verdict)
        return replace(self._satisfied(marks), reported_s=ending.reported_s)

    def _estimate_beyond_deadline(self, marks: Marks) -> int | None:
        """The estimate in milliseconds, if the wait is to be refused for it; None if it may be satisfied in time, or that is unknown."""
        status = self._registry.status
        if not self._spec.refuse_early or self._is_applied(marks) or status.is_beyond_log(marks):
            return None
        if self._registry.unreachable_reason(self._wait_for(marks, lambda _: None)) is not None:
            return None
        estimate = status.estimate_ms(marks)
        left_ms = (self._deadline - self._loop.time()) * 1000
        return estimate if estimate is not None and estimate > left_ms else None

    def _all_live(self) -> bool:
        tables = self._registry.status.tables
        return all(tables[table].state is TableStateKind.LIVE for table in self._spec.tables if table in tables)

    async def _resolve_now(self) -> Marks | WaitOutcome:
        """Read the source's current position, again after each disconnection of the engine; an outcome if that cannot help."""
        while True:
            trouble = self._registry.unreachable_reason(self._wait_for(single_mark(ZERO), lambda _: None))
            if trouble is not None:
                return self._unreachable(trouble)
            try:
                marks = await self._tracker.read_now(self._spec.subscription)
            except EngineAwayError:
                await self._tracker.wait_for_change()
            except EngineSilentError:
                continue
            except AnswerError as error:
                if error.problem.status != _SERVICE_UNAVAILABLE and not self._spec.patient:
                    return self._failed(error)
                await asyncio.sleep(_STARTING_PAUSE_S)
            else:
                self._now_ms = self._elapsed_ms()
                return marks

    async def _wait_until_visible(self, marks: Marks) -> _Ending:
        registry = self._registry
        opened_s = self._tracker.clock.monotonic()
        future: asyncio.Future[_Ending] = self._loop.create_future()

        def end(verdict: Verdict) -> None:
            received_s = registry.report_received_s
            reported_s = received_s if received_s is not None and opened_s <= received_s else None
            future.set_result(_Ending(verdict, registry.status.current_run, reported_s))

        wait = self._wait_for(marks, end)
        self._on_arrival = not registry.add(wait)
        if self._on_arrival:
            return await future
        self._tracker.schedule_demand(self._spec.subscription)
        flush = None if self._spec.marks is None else asyncio.ensure_future(self._flush_log())
        try:
            return await future
        finally:
            registry.remove(wait)
            if flush is not None:
                flush.cancel()

    async def _flush_log(self) -> None:
        """Make the source's log end, flushed, after the given position, if it is not visible soon.

        A client reads the end of the log as inserted. It may be after a page header or after records of transactions that
        are still open; an idle source sends neither until its next record is flushed, up to 15 s later on PostgreSQL.
        Reading "now" writes such a record.
        """
        pause = _FLUSH_AFTER_S
        while True:
            await asyncio.sleep(pause)
            try:
                await self._tracker.read_now(self._spec.subscription)
            except (EngineAwayError, EngineSilentError, AnswerError):
                pause = min(2 * pause, _FLUSH_MOST_PAUSE_S)
            else:
                return

    def _wait_for(self, marks: Marks, ended: Any) -> Wait:
        spec = self._spec
        return Wait(marks=marks, tables=set(spec.tables), named=spec.named, ended=ended, patient=spec.patient)

    def _satisfied(self, marks: Marks) -> WaitOutcome:
        status = self._registry.status
        position = status.form.text(marks)
        receipt = _receipt(status, self._spec, position, self._now_ms, on_arrival=self._on_arrival)
        return WaitOutcome(WaitStatus.SATISFIED, self._elapsed_ms(), position, status.text(status.applied), receipt)

    def _unreachable(self, why: Unreachable) -> WaitOutcome:
        if why.cause is None:
            return self._outcome_with(
                WaitStatus.UNREACHABLE, FreshnessUnreachable(why.detail, why.remedy, extra=self._progress_fields())
            )
        known = {**self._progress_fields(), "cause": why.cause}
        return self._outcome_with(WaitStatus.UNREACHABLE, FreshnessUnavailable(why.detail, why.remedy, extra=known))

    def _stale(self) -> WaitOutcome | None:
        """The outcome with what is visible, if the wait asked for that and it is known."""
        status = self._registry.status
        if not self._spec.stale or status.confirmed_position is None:
            return None
        shown = str(status.text(status.confirmed_position))
        wanted = None if self._marks is None else status.form.text(self._marks)
        stale = Staleness(wanted=wanted, position=shown, seconds_behind=status.seconds_behind())
        receipt = _receipt(status, self._spec, shown, self._now_ms, on_arrival=False)
        return WaitOutcome(WaitStatus.STALE, self._elapsed_ms(), shown, shown, receipt, stale=stale)

    def _refused_early(self, marks: Marks, estimate_ms: int) -> WaitOutcome:
        name, position = self._spec.subscription, self._registry.status.form.text(marks)
        detail = (
            f"'{name}' will have applied {position} in about {format_seconds(estimate_ms / 1000)} at its recent rate, after the deadline of"
            f" {self._spec.timeout_s * 1000:.0f} ms."
        )
        known = {**self._progress_fields(), "estimate_ms": estimate_ms, "beyond_source": False}
        return self._outcome_with(WaitStatus.TIMED_OUT, FreshnessRefusedEarly(detail, extra=known))

    def _timed_out(self) -> WaitOutcome:
        status, marks = self._registry.status, self._marks
        beyond = self._beyond_log
        absence = status.absence()
        estimate = None
        if marks is not None and not beyond and absence is None and not self._is_applied(marks):
            estimate = status.estimate_ms(marks)
        known = {**self._progress_fields(), "estimate_ms": estimate, "beyond_source": beyond}
        if absence is not None:
            known["cause"] = absence.cause
        remedy = None
        if absence is not None:
            remedy = absence.remedy
        elif beyond:
            remedy = _BEYOND.format(origin=status.form.origin)
        elif late_nodes_phrase(status) is not None:
            remedy = LATE_NODE_REMEDY
        if marks is not None and self._is_applied(marks):
            name = self._spec.subscription
            remedy = (
                f"Wait again, with a longer timeout_ms; 'copying' of GET /subscriptions/{name} shows how far it is."
            )
        return self._outcome_with(WaitStatus.TIMED_OUT, FreshnessTimeout(self._why_late(), remedy, extra=known))

    def _why_late(self) -> str:
        """The position reached at the deadline, and what delayed the wait."""
        status, marks, name = self._registry.status, self._marks, self._spec.subscription
        waited = f"after {self._spec.timeout_s * 1000:.0f} ms"
        absence = status.absence()
        because = None if absence is None else absence.detail
        if marks is None:
            silent = "the engine has not answered, or is processing changes of the source's catalog"
            return f"'Now' could not be read on the source of '{name}' {waited}: {because or silent}."
        if status.confirmed_position is None:
            known = f"; the last that is known is {status.text(status.applied)}" if status.applied is not None else ""
            return f"Where the target of '{name}' is was not known {waited}: {because or 'its run is about to begin'}{known}."
        if self._is_applied(marks):
            position = status.form.text(marks)
            return f"'{name}' had applied {position}, but not all tables were live {waited}: {self._not_live()}."
        return f"'{name}' had applied {self._how_far(marks, waited)}."

    def _how_far(self, marks: Marks, waited: str) -> str:
        """In the logs that delay the wait: the position that is reached in each, the wanted one, and the nodes that others wait for."""
        status = self._registry.status
        reached = status.confirmed_marks
        marks = tuple(mark for mark in marks if first_uncovered(reached, (mark,)) is not None)
        applied = _place(status, marks, reached, status.confirmed_position)
        end = _place(status, marks, status.highest_marks, status.source)
        ends = f", which lies beyond {end}, the last known end of the source's log" if self._beyond_log else ""
        late = late_nodes_phrase(status)
        return f"{applied} {waited}, not yet {status.form.text(marks)}{ends}{'' if late is None else f'; {late}'}"

    @property
    def _beyond_log(self) -> bool:
        """Whether the position of the request is after the last known end of the log. One that was read as "now" is in it."""
        return self._spec.marks is not None and self._registry.status.is_beyond_log(self._spec.marks)

    def _is_applied(self, marks: Marks) -> bool:
        """Whether the marks are applied and only tables delay the wait."""
        return first_uncovered(self._registry.status.confirmed_marks, marks) is None

    def _not_live(self) -> str:
        tables = self._registry.status.tables
        views = [tables[table] for table in self._spec.tables if table in tables]
        found = sorted(f"{v.schema}.{v.name} is {v.state.value}" for v in views if v.state is not TableStateKind.LIVE)
        more = len(found) - _MOST_NAMED
        return ", ".join(found[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")

    def _failed(self, error: AnswerError) -> WaitOutcome:
        said = error.problem
        return self._outcome_with(WaitStatus.FAILED, ReportedProblem(said.status, said.code, said.detail, said.remedy))

    def _outcome_with(self, status: WaitStatus, problem: Problem) -> WaitOutcome:
        known = self._progress_fields()
        return WaitOutcome(status, known["waited_ms"], known["position"], known["applied"], problem=problem)

    def _progress_fields(self) -> dict[str, Any]:
        status = self._registry.status
        return {
            "position": None if self._marks is None else status.form.text(self._marks),
            "applied": status.text(status.applied),
            "waited_ms": self._elapsed_ms(),
        }

    def _elapsed_ms(self) -> float:
        return round((self._loop.time() - self._began) * 1000, 3)


def _place(status: SubscriptionStatus, marks: Marks, reached: Reached, merged: Lsn | None) -> str:
    """Up to where the logs are reached that the marks name. `merged`: the same for the only log, or the merged one."""
    named = tuple(Mark(mark.log, reached[mark.log]) for mark in marks if mark.log in reached)
    return str(status.text(merged)) if marks[0].log == ONLY_LOG or not named else status.form.text(named)


def _receipt(
    status: SubscriptionStatus, spec: WaitSpec, position: str, now_ms: float | None, *, on_arrival: bool
) -> Receipt:
    covered = [status.tables[table] for table in spec.tables if table in status.tables]
    covered = sorted((view for view in covered if not view.left_out), key=lambda view: (view.schema, view.name))
    passed_over = [] if spec.named else [v for v in status.tables.values() if v.left_out and v.state != "removed"]
    known = status.progress
    return Receipt(
        tables=[_receipt_table(v.schema, v.name, v.state.value) for v in covered],
        left_out=[
            LeftOutTable(schema_name=v.schema, name=v.name, state=v.state.value, reason=why_left_out(v))
            for v in passed_over
        ],
        exceptions=exceptions_of(covered),
        position=position,
        applied=str(status.text(status.applied)),
        now_ms=now_ms,
        on_arrival=on_arrival,
        sealed_at=known.sealed_at if known else None,
        committed_at=known.committed_at if known else None,
        structure=status.text(status.structure),
        structure_at=status.structure_at,
        consistency=status.consistency,
    )


def exceptions_of(views: Sequence[TableView]) -> list[ReceiptException]:
    """The ways in which these tables do not fully follow their source, as declared."""
    inserts = [ReceiptException(schema_name=v.schema, name=v.name, kind="insert_only") for v in views if v.insert_only]
    parts = [ReceiptException(schema_name=v.schema, name=v.name, kind="operations") for v in views if v.skips]
    return [
        *inserts,
        *parts,
        *(
            ReceiptException(schema_name=v.schema, name=v.name, kind="rows_set_aside", rows=v.set_aside)
            for v in views
            if v.set_aside
        ),
    ]


def receipt_for_tables(
    status: SubscriptionStatus, receipt: Receipt, tables: Collection[str], left: Collection[str]
) -> Receipt:
    """The receipt of a wait for the position alone, for these tables; `left`: those of them that do not follow."""
    spec = WaitSpec(status.name, None, frozenset(tables) - frozenset(left), named=True, timeout_s=0)
    made = _receipt(status, spec, receipt.position, receipt.now_ms, on_arrival=receipt.on_arrival)
    update = {"tables": made.tables, "exceptions": made.exceptions, "left_out": left_out_tables(status, left)}
    return receipt.model_copy(update=update)


def receipt_of_source(status: SubscriptionStatus, position: str, tables: Collection[str]) -> Receipt:
    """The receipt of a query over these tables that ran on the source, and whose rows contain everything up to `position`."""
    views = sorted(
        (status.tables[table] for table in tables if table in status.tables), key=lambda view: (view.schema, view.name)
    )
    return Receipt(
        answered_by="source",
        tables=[_receipt_table(view.schema, view.name, view.state.value) for view in views],
        left_out=[],
        exceptions=[],
        position=position,
        applied=str(status.text(status.applied)),
        now_ms=None,
        on_arrival=False,
        sealed_at=None,
        committed_at=None,
    )


def receipt_of_point(
    status: SubscriptionStatus, position: str, tables: Collection[str], left: Collection[str]
) -> Receipt:
    """The receipt of a query over these tables at a read point; `left`: those that were not complete there."""
    views = [status.tables[table] for table in tables if table in status.tables and table not in left]
    views.sort(key=lambda view: (view.schema, view.name))
    return Receipt(
        tables=[_receipt_table(view.schema, view.name, view.state.value) for view in views],
        left_out=left_out_tables(status, left),
        exceptions=exceptions_of(views),
        position=position,
        applied=position,
        now_ms=None,
        on_arrival=True,
        sealed_at=None,
        committed_at=None,
        consistency=status.consistency,
    )


def left_out_tables(status: SubscriptionStatus, tables: Collection[str]) -> list[LeftOutTable]:
    """These tables as a receipt lists them, by name; unknown ones are omitted."""
    views = [status.tables[table] for table in tables if table in status.tables]
    return [
        LeftOutTable(schema_name=v.schema, name=v.name, state=v.state.value, reason=v.reason)
        for v in sorted(views, key=lambda view: (view.schema, view.name))
    ]


@lru_cache(maxsize=100_000)
def _receipt_table(schema: str, name: str, state: str) -> ReceiptTable:
    """A table of a receipt. Cached, since thousands of kept receipts contain the same tables."""
    return ReceiptTable(schema_name=schema, name=name, state=state)


def problem_fields(problem: Problem) -> dict[str, Any]:
    """A problem as stored with a wait whose answer is fetched later."""
    return {
        **problem.extra,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        "remedy": problem.remedy,
    }
