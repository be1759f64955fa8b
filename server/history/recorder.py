"""Records the history of subscriptions: collects reports and outcomes of waits on the event loop, and stores each step.

Coarser steps are merged from finer ones, so that days can be shown as well as the last hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col, delete, select

from engine.link.messages import BatchReport, Progress, Report
from engine.model.positions import PositionForm
from server.clock import Clock
from server.db.database import Database
from server.db.models.history import HistoryRow
from server.db.models.subscription import SubscriptionRow
from server.db.session import ReadSession, WriteSession
from server.freshness.wait import WaitOutcome
from server.freshness.wait_registry import WaitStatus
from server.gateway.threads import EngineThreads
from server.history.figures import Figures
from server.logs import get_logger
from server.lookup.subscriptions import position_form, require_subscription

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Resolution:
    """The length of a step, and for how long such steps are kept."""

    seconds: int
    kept: timedelta

    def begin(self, moment_s: int) -> int:
        """The start of the step that contains a moment; both in seconds since 1970."""
        return moment_s - moment_s % self.seconds


RESOLUTIONS = (
    Resolution(10, timedelta(hours=1)),
    Resolution(60, timedelta(hours=12)),
    Resolution(600, timedelta(days=7)),
)
"""From fine to coarse; each step consists of whole steps of the previous resolution."""
LONGEST = RESOLUTIONS[-1].kept
_FINEST = RESOLUTIONS[0]
_MOST_UNWRITTEN = 10_000


@dataclass(frozen=True, slots=True)
class Point:
    """One step of a subscription; `begins` in seconds since 1970."""

    subscription: str
    step_s: int
    begins: int
    figures: Figures

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.begins, UTC)


@dataclass(frozen=True, slots=True)
class History:
    """Steps of a subscription in one resolution, the oldest first; `form`: of the positions in them."""

    resolution: Resolution
    points: Sequence[Point]
    form: PositionForm


class Recorder:
    """Called on the event loop only; the control database is accessed in threads. Times are those at which reports arrived."""

    def __init__(self, database: Database, threads: EngineThreads, clock: Clock) -> None:
        self._database = database
        self._threads = threads
        self._clock = clock
        self._open: dict[tuple[str, int], Point] = {}
        self._over: list[Point] = []

    # Input

    def record_report(self, report: Report) -> None:
        """Add a report that was accepted; most kinds have no figures for the history."""
        if isinstance(report, Progress):
            self._open_figures(report.subscription).add_progress(report)
        elif isinstance(report, BatchReport):
            self._open_figures(report.subscription).add_batch(report)

    def record_wait(self, subscription: str, outcome: WaitOutcome) -> None:
        """Count a freshness wait that was satisfied or timed out; other outcomes are not part of the history."""
        if outcome.status in (WaitStatus.SATISFIED, WaitStatus.TIMED_OUT):
            self._open_figures(subscription).add_wait(outcome.waited_ms, late=outcome.status is WaitStatus.TIMED_OUT)

    def _open_figures(self, subscription: str) -> Figures:
        begins = _FINEST.begin(self._now_s())
        point = self._open.get((subscription, _FINEST.seconds))
        if point is None or point.begins != begins:
            if point is not None:
                self._close_step(point)
            point = self._open[subscription, _FINEST.seconds] = Point(subscription, _FINEST.seconds, begins, Figures())
        return point.figures

    def _close_step(self, point: Point) -> None:
        """End a step of the finest resolution: it is to be written, and is added to the coarser ones."""
        self._over.append(point)
        for resolution in RESOLUTIONS[1:]:
            key = point.subscription, resolution.seconds
            begins = resolution.begin(point.begins)
            whole = self._open.get(key)
            if whole is not None and whole.begins != begins:
                self._over.append(whole)
                whole = None
            if whole is None:
                whole = self._open[key] = Point(point.subscription, resolution.seconds, begins, Figures())
            whole.figures.add_figures(point.figures)

    def _now_s(self) -> int:
        return int(self._clock.now().timestamp())

    # Storage

    async def keep_writing(self) -> None:
        """Write finished steps, until cancelled."""
        while True:
            await asyncio.sleep(_FINEST.seconds)
            await self.write()

    async def write(self, *, everything: bool = False) -> None:
        """Write the finished steps; `everything`: at the end, the unfinished ones too."""
        now = self._now_s()
        # Finest first: they are merged into the coarser ones.
        for resolution in RESOLUTIONS:
            for key, point in list(self._open.items()):
                if point.step_s == resolution.seconds and (everything or point.begins + point.step_s <= now):
                    del self._open[key]
                    if resolution is _FINEST:
                        self._close_step(point)
                    else:
                        self._over.append(point)
        points, self._over = self._over, []
        if not points:
            return
        try:
            gone = await self._threads.run(partial(self._write, points))
        except SQLAlchemyError:
            log.exception("history_not_written", points=len(points))
            self._over = (points + self._over)[-_MOST_UNWRITTEN:]
            return
        self._open = {key: point for key, point in self._open.items() if point.subscription not in gone}

    def _write(self, points: Sequence[Point]) -> set[str]:
        """Write the steps; returns the subscriptions that no longer exist."""
        names = {point.subscription for point in points}
        with self._database.write() as session:
            query = select(SubscriptionRow.name, SubscriptionRow.id).where(col(SubscriptionRow.name).in_(names))
            ids = dict(session.exec(query).all())
            for point in points:
                key = ids.get(point.subscription)
                if key is not None:
                    _merge_step(session, key, point)
        return names - ids.keys()

    # Output

    async def read(self, subscription: str, span: timedelta) -> History:
        """The last `span`, in the finest steps that are kept for that long.

        Raises:
            NotFound: there is no such subscription.
        """
        resolution = next((one for one in RESOLUTIONS if one.kept >= span), RESOLUTIONS[-1])
        since = self._clock.now() - span

        def work() -> tuple[PositionForm, list[Point]]:
            with self._database.read() as session:
                row = require_subscription(session, subscription)
                return position_form(row), _read_steps(session, row, resolution, since)

        form, stored = await self._threads.run(work)
        found = {point.begins: point for point in stored}
        for point in self._unwritten(subscription, resolution):
            known = found.get(point.begins)
            whole = Figures() if known is None else known.figures.copy()
            whole.add_figures(point.figures)
            found[point.begins] = Point(subscription, resolution.seconds, point.begins, whole)
        return History(resolution, [found[begins] for begins in sorted(found)], form)

    def _unwritten(self, subscription: str, resolution: Resolution) -> list[Point]:
        """The steps of this resolution that are in memory and not yet stored."""
        step = resolution.seconds
        mine = [point for point in self._over if (point.subscription, point.step_s) == (subscription, step)]
        mine += [point for key, point in self._open.items() if key == (subscription, step)]
        newest = self._open.get((subscription, _FINEST.seconds))
        if newest is not None and resolution is not _FINEST:
            mine.append(Point(subscription, step, resolution.begin(newest.begins), newest.figures))
        return mine


def _merge_step(session: WriteSession, subscription_id: int, point: Point) -> None:
    """Store a step. A step that began before a restart of the server is merged with the stored one."""
    row = session.get(HistoryRow, (subscription_id, point.step_s, point.at))
    if row is None:
        row = HistoryRow(subscription_id=subscription_id, step_seconds=point.step_s, at=point.at)
        row.figures = point.figures.to_document()
    else:
        whole = Figures.from_document(row.figures).copy()
        whole.add_figures(point.figures)
        row.figures = whole.to_document()
    session.add(row)


def _read_steps(session: ReadSession, row: SubscriptionRow, resolution: Resolution, since: datetime) -> list[Point]:
    query = select(HistoryRow).where(
        HistoryRow.subscription_id == row.id, HistoryRow.step_seconds == resolution.seconds, HistoryRow.at >= since
    )
    return [
        Point(row.name, resolution.seconds, int(found.at.timestamp()), Figures.from_document(found.figures))
        for found in session.exec(query)
    ]


def delete_old_steps(session: WriteSession) -> None:
    """Delete steps that are older than their resolution is kept."""
    for resolution in RESOLUTIONS:
        old = col(HistoryRow.at) < session.now() - resolution.kept
        session.exec(delete(HistoryRow).where(col(HistoryRow.step_seconds) == resolution.seconds, old))
