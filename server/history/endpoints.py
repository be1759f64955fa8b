"""The history of a subscription: lag, log, throughput and waits over time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, cast

from fastapi import APIRouter, Query, Request

from engine.model.position import Lsn
from engine.model.positions import PositionForm
from server.errors import NotFound, responses
from server.history.figures import Figures
from server.history.recorder import LONGEST, History, Point, Recorder
from server.history.schemas import HistoryPoint, HistoryView, LogRates, WaitTimes
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/subscriptions/{name}", tags=["history"], dependencies=[needs(Role.VIEWER)])

Hours = Annotated[
    float,
    Query(
        gt=0,
        le=LONGEST / timedelta(hours=1),
        description="Length of the period up to now. Steps are 10 seconds for up to 1 hour, a minute for up to 12 hours, else 10"
        " minutes.",
    ),
]


@router.get("/history", operation_id="history_get", responses=responses(NotFound))
async def get_history(request: Request, name: str, hours: Hours = 1) -> HistoryView:
    """Lag, log, throughput and waits over time, by the time of the reports; kept for a week."""
    recorder = cast("Recorder", request.app.state.recorder)
    history = await recorder.read(name, timedelta(hours=hours))
    return HistoryView(step_seconds=history.resolution.seconds, points=_shown(history, request.app.state.clock.now()))


def _shown(history: History, now: datetime) -> list[HistoryPoint]:
    points = history.points
    return [
        _point(
            point,
            points[number - 1] if number else None,
            min(point.step_s, (now - point.at).total_seconds()),
            history.form,
        )
        for number, point in enumerate(points)
    ]


def _point(point: Point, before: Point | None, seconds: float, form: PositionForm) -> HistoryPoint:
    figures = point.figures
    return HistoryPoint(
        at=point.at,
        seconds=seconds,
        lag_seconds=figures.lag_seconds,
        lag_bytes=figures.lag_bytes,
        retained_bytes=figures.retained_bytes,
        unread_bytes=_between(figures.captured, figures.source, form),
        unapplied_bytes=_between(figures.applied, figures.captured, form),
        log_bytes_per_second=_rates(point, before, seconds, form),
        batches=figures.batches,
        transactions=figures.transactions,
        rows=figures.rows,
        net_rows=figures.net_rows,
        log_bytes=figures.log_bytes,
        stage_seconds={stage: round(spent / figures.batches, 6) for stage, spent in figures.seconds.items()},
        waits=_waits(figures),
    )


def _between(low: int | None, high: int | None, form: PositionForm) -> int | None:
    return None if low is None or high is None else form.lag(Lsn(high), Lsn(low))


def _rates(point: Point, before: Point | None, seconds: float, form: PositionForm) -> LogRates:
    """Rates from the positions at the ends of steps; a step without a report has no change."""
    if before is None:
        return LogRates(source=None, captured=None, applied=None)
    elapsed = point.begins + seconds - (before.begins + before.step_s)
    rates = {}
    for name in ("source", "captured", "applied"):
        low, high = getattr(before.figures, name), getattr(point.figures, name)
        backwards = low is None or high is None or high < low
        moved = None if backwards or elapsed <= 0 else _between(low, high, form)
        rates[name] = None if moved is None else moved / elapsed
    return LogRates(**rates)


def _waits(figures: Figures) -> WaitTimes | None:
    ended = sum(figures.waits.values())
    if not ended:
        return None
    return WaitTimes(
        ended=ended,
        timed_out=figures.timed_out,
        p50_ms=figures.wait_ms(0.5) or 0.0,
        p95_ms=figures.wait_ms(0.95) or 0.0,
        p99_ms=figures.wait_ms(0.99) or 0.0,
    )
