"""Assesses a subscription from its rows: the inputs of its health, its copies, and the health of each table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property

from fastapi import Request

from engine.model.subscription_state import DesiredState, SubscriptionState
from engine.model.table_state import TableStateKind
from server.assessment.copy_progress import copy_progress, copy_totals, describe_copies
from server.assessment.health import AspectName, Fault, Health, HealthInputs, HealthStatus, assess_health
from server.assessment.schemas import Copied, CopyTotals, LastFault, TableHealth
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.declarations.captures import read_capture
from server.declarations.freshness_goals import freshness_policy
from server.gateway.interface import gateway_of

_REPORTS_EVERY_S = 15.0

_SETTLED = frozenset({SubscriptionState.RUNNING, SubscriptionState.PAUSED, SubscriptionState.STOPPED})

ConnectedFor = Callable[[str | None], float | None]
"""Seconds for which the engine with this id has been connected; None if it is not."""


def assess_subscription(request: Request, row: SubscriptionRow) -> Assessment:
    """The part of a subscription's assessment that determines the health of its tables."""
    return Assessment(row, (), request.app.state.clock.now(), gateway_of(request).connected_s(row.engine_id))


class Assessment:
    """A subscription at `now`. `connected_s`: seconds for which its engine has been connected; None if it is not."""

    def __init__(
        self, row: SubscriptionRow, tables: Sequence[TableRow], now: datetime, connected_s: float | None
    ) -> None:
        self._row = row
        self._tables = tables
        self._now = now
        self._connected_s = connected_s

    @cached_property
    def health(self) -> Health:
        return assess_health(self.inputs)

    @cached_property
    def inputs(self) -> HealthInputs:
        row, tables = self._row, self._tables
        fault = self.last_fault
        capture = read_capture(row.capture)
        budget_bytes, warn_share = capture.log_budget()
        states = Counter(TableStateKind(table.state) for table in tables)
        return HealthInputs(
            state=SubscriptionState(row.state),
            desired=DesiredState(row.desired_state),
            deleting=row.deleting,
            engine=self._connected_s is not None,
            reason=row.reason,
            remedy=row.remedy,
            tables=states,
            copying=describe_copies(self.copying) if self.copying is not None else "",
            set_aside=sum(table.rows_set_aside for table in tables),
            different=sum(table.differs for table in tables),
            lag_seconds=self._lag_seconds() if states[TableStateKind.LIVE] else None,
            goal_seconds=freshness_policy(row).goal_seconds,
            reported_s=self._silent_for_s(),
            nodes_away=row.nodes_away,
            retained_bytes=row.retained_bytes,
            budget_bytes=budget_bytes,
            warn_share=warn_share,
            fault=None if fault is None else Fault(self._age_s(fault.at), fault.detail, fault.over),
        )

    @cached_property
    def last_fault(self) -> LastFault | None:
        found = self._row.last_fault
        return None if found is None else LastFault.model_validate({**found, "over": self._is_over(found.get("table"))})

    def _is_over(self, table_id: str | None) -> bool:
        if table_id is None:
            return self._row.state in _SETTLED and self._row.reason is None
        table = next((table for table in self._tables if table.id == table_id), None)
        # Tables copied because of it are incomplete until they are live.
        return table is None or table.state in {TableStateKind.LIVE, TableStateKind.PAUSED}

    def _silent_for_s(self) -> float | None:
        """Seconds since the last report; at most the time for which the state is known, or the engine connected."""
        if self._connected_s is None:
            return None
        last = max(filter(None, (self._row.progress_at, self._row.state_at)))
        return min(self._age_s(last), self._connected_s)

    def _lag_seconds(self) -> float | None:
        """The reported lag plus the age of the report if the engine is gone or the report is old."""
        row = self._row
        if row.lag_seconds is None or row.progress_at is None:
            return None
        age = self._age_s(row.progress_at)
        fresh = self._connected_s is not None and age <= _REPORTS_EVERY_S
        return row.lag_seconds if fresh else round(row.lag_seconds + age, 3)

    def _age_s(self, then: datetime) -> float:
        return max(0.0, (self._now - then).total_seconds())

    @cached_property
    def copying(self) -> CopyTotals | None:
        return copy_totals(self._tables, self._now, going=self._going)

    def table_copy(self, row: TableRow) -> Copied:
        """Progress of the copy of one of its tables."""
        return copy_progress(row, self._now, going=self._going)

    @property
    def _going(self) -> bool:
        running = self._row.state == SubscriptionState.RUNNING and self._row.reason is None
        return running and self._connected_s is not None

    def table_health(self, row: TableRow) -> TableHealth:
        """The condition of one of its tables: what stops the subscription also stops each table that would otherwise follow."""
        state = TableStateKind(row.state)
        if state is TableStateKind.PARKED:
            return TableHealth(status=HealthStatus.FAILED, reason=row.reason, remedy=row.remedy)
        if state in {TableStateKind.PAUSED, TableStateKind.REMOVED}:
            return TableHealth(status=HealthStatus.RESTING, reason=row.reason, remedy=row.remedy)
        if not self.health.following:
            applying = next(aspect for aspect in self.health.aspects if aspect.name is AspectName.APPLYING)
            failed = applying.status is HealthStatus.FAILED
            return TableHealth(
                status=HealthStatus.ATTENTION if failed else applying.status,
                reason=f"Nothing is applied to it: {applying.reason}",
                remedy=self.health.remedy,
            )
        if state is not TableStateKind.LIVE:
            return TableHealth(status=HealthStatus.MOVING, reason=row.reason, remedy=row.remedy)
        if row.differs:
            reason = "A verification found it different from the source."
            return TableHealth(
                status=HealthStatus.ATTENTION,
                reason=reason,
                remedy="Reload it, or verify it again as a whole.",
                following=True,
            )
        return TableHealth(status=HealthStatus.RUNNING, following=True)
