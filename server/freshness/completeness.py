"""Whether a table on the target has everything that was committed up to a position or a time.

Times of commits do not follow the order of the log, so no position of an applied transaction proves anything about a time. A reading of
the source's current position does: it is at or after every commit that was acknowledged before the reading began. Recent readings are kept;
once the position of one is applied, all commits that were acknowledged before it began are visible.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime

from engine.model.position import ZERO
from engine.model.positions import Marks, first_uncovered, single_mark
from engine.model.table_state import TableStateKind
from server.clock import Clock
from server.errors import InvalidRequest, NotFound
from server.freshness.readings import Reading, earliest_since, latest_reached
from server.freshness.schemas import Completeness, CompleteTo, ReceiptException
from server.freshness.subscription_status import SubscriptionStatus, TableView
from server.freshness.tracker import FreshnessTracker
from server.freshness.wait import exceptions_of, parse_position
from server.freshness.wait_registry import Unreachable, Wait, WaitRegistry
from server.gateway.hub import AnswerError, EngineAwayError, EngineSilentError

_READING_S = 10.0
_TIME = re.compile(r"\d{4}-\d\d-\d\d([Tt ]|$)")


def parse_until(text: str, status: SubscriptionStatus) -> datetime | Marks:
    """A time with its offset from UTC, or a position.

    Raises:
        InvalidRequest: it is neither.
    """
    if _TIME.match(text) is None:
        marks = parse_position(text, "/until", status)
        return single_mark(ZERO) if marks is None else marks
    remedy = "Write a time like 2026-01-31T06:00:00Z, or with %2B01:00 in place of Z."
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest.at("/until", f"{text!r} is not a time.", remedy) from None
    if moment.tzinfo is None:
        raise InvalidRequest.at("/until", f"{text!r} has no offset from UTC.", remedy)
    return moment.astimezone(UTC)


async def assess(tracker: FreshnessTracker, clock: Clock, subscription: str, table: str, until: str) -> Completeness:
    """Whether the table has everything that was committed up to `until`.

    Raises:
        NotFound: unknown subscription or table.
        InvalidRequest: `until` is neither a position nor a time.
    """
    registry = await tracker.current_registry(subscription)
    view = registry.status.tables.get(table)
    if view is None or view.state is TableStateKind.REMOVED:
        raise NotFound(f"There is no table '{table}'.", f"GET /api/v1/subscriptions/{subscription}/tables lists them.")
    return await _Assessment(tracker, clock, registry, view).of(until)


class _Assessment:
    def __init__(self, tracker: FreshnessTracker, clock: Clock, registry: WaitRegistry, view: TableView) -> None:
        self._tracker = tracker
        self._clock = clock
        self._registry = registry
        self._status = registry.status
        self._view = view

    async def of(self, until: str) -> Completeness:
        wanted = parse_until(until, self._status)
        if not isinstance(wanted, datetime):
            return self._judged(until, wanted)
        if wanted > self._clock.now():
            return self._answer(until, None, "the time is still to come, by the server's clock")
        blocked = self._registry.unreachable_reason(self._wait(single_mark(ZERO)))
        reading = self._reading_since(wanted)
        if reading is None and blocked is None:
            reason = await self._read_now()
            reading = self._reading_since(wanted)
            if reading is None:
                return self._answer(until, None, reason or self._not_live())
        if reading is None:
            return self._answer(until, None, None, blocked)
        return self._judged(until, reading.marks)

    def _reading_since(self, moment: datetime) -> Reading | None:
        readings = self._tracker.readings(self._status.name)
        return earliest_since(readings, moment, self._status, self._view.id)

    async def _read_now(self) -> str | None:
        """Read the source's current position; returns why that failed."""
        try:
            async with asyncio.timeout(_READING_S):
                await self._tracker.read_now(self._status.name)
        except AnswerError as error:
            return f"the source's current position could not be read: {error.problem.detail}"
        except (EngineAwayError, EngineSilentError, TimeoutError):
            return "the source's current position could not be read: the engine did not answer"
        return None

    def _judged(self, until: str, marks: Marks) -> Completeness:
        satisfied, blocked = self._registry.judge(self._wait(marks))
        return self._answer(until, marks, None if satisfied else self._why_pending(marks), blocked, reached=satisfied)

    def _wait(self, marks: Marks) -> Wait:
        return Wait(marks=marks, tables={self._view.id}, named=True, ended=lambda _: None)

    def _why_pending(self, marks: Marks) -> str:
        status = self._status
        if status.confirmed_position is None:
            return "the position of the target is not known at the moment"
        if first_uncovered(status.confirmed_marks, marks) is not None:
            return f"{status.text(status.confirmed_position)} is applied, not yet {status.form.text(marks)}"
        return self._not_live()

    def _not_live(self) -> str:
        return f"the table is {self._view.state.value}"

    def _answer(
        self,
        until: str,
        marks: Marks | None,
        reason: str | None,
        blocked: Unreachable | None = None,
        *,
        reached: bool = False,
    ) -> Completeness:
        missing = self._view.set_aside if reached else 0
        if missing:
            reason = f"{missing} rows are quarantined"
        if blocked is not None:
            reason = blocked.detail
        status = self._status
        return Completeness(
            complete=reached and not missing,
            until=until,
            until_position=None if marks is None else status.form.text(marks),
            complete_to=self._complete_to(),
            estimate_ms=None if marks is None or reached or blocked is not None else status.estimate_ms(marks),
            blocked=blocked is not None or missing > 0,
            reason=reason,
            remedy=blocked.remedy if blocked is not None else _SET_ASIDE if missing else None,
            exceptions=self._exceptions(),
        )

    def _complete_to(self) -> CompleteTo:
        """Nothing is promised of a table that does not follow, or of which rows are missing."""
        status, view = self._status, self._view
        if view.state is not TableStateKind.LIVE or view.left_out or view.set_aside:
            return CompleteTo()
        moment = latest_reached(self._tracker.readings(status.name), status.confirmed_marks, status, view.id)
        return CompleteTo(position=status.text(status.confirmed_position), time=moment)

    def _exceptions(self) -> list[ReceiptException]:
        return exceptions_of([self._view])


_SET_ASIDE = "GET the table's refused-rows, correct the cause and retry them, or skip them."
