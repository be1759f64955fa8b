"""Compares findings with the causes of which channels were notified, and puts the notices that are due into the outbox.

A cause and its notice are stored in one transaction, so a restart of the server neither repeats a notice nor forgets a recovery.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlmodel import col, func, select

from server.alerts.findings import SETTLE_S, Finding, Verdict, find_causes, judged_tables, one_live_table
from server.alerts.schemas import AlertCause
from server.assessment.assess import Assessment, ConnectedFor
from server.db.models.alert import AlertChannelRow, AlertDeliveryRow, AlertRow
from server.db.models.subscription import SubscriptionRow
from server.db.session import ReadSession, WriteSession

CALM_S = 60.0
"""A cause that comes back within this time did not end: a lag about its goal gives one notice, not many."""
MOST_PENDING = 1000
"""Undelivered notices of a channel. Beyond them, causes are compared again once there is room."""
_REPORTS_EVERY_S = 15.0

Key = tuple[str, str, str]


class NoticeStatus(StrEnum):
    """Why a notice is sent."""

    FIRING = "firing"
    WORSE = "worse"
    REPEATED = "repeated"
    RECOVERED = "recovered"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Step:
    """What is due for one cause on one channel. `status` None: no notice. `finding` None: there is no such cause any more."""

    alert: AlertRow | None
    finding: Finding | None
    status: NoticeStatus | None = None
    over_since: datetime | None = None
    forget: bool = False


def plan_steps(
    channel: AlertChannelRow, alerts: Iterable[AlertRow], findings: Mapping[Key, Finding], now: datetime
) -> list[Step]:
    """The steps that are due for a channel. Pure."""
    steps = []
    known = set()
    for alert in alerts:
        known.add((alert.cause, alert.subscription, alert.subject))
        step = _step_of(channel, alert, findings.get((alert.cause, alert.subscription, alert.subject)), now)
        if step is not None:
            steps.append(step)
    for key, finding in findings.items():
        if key not in known and finding.verdict is Verdict.LASTS and _selects(channel, key):
            steps.append(Step(None, finding, NoticeStatus.FIRING))
    return steps


def _step_of(channel: AlertChannelRow, alert: AlertRow, finding: Finding | None, now: datetime) -> Step | None:
    if not _selects(channel, (alert.cause, alert.subscription, alert.subject)):
        return Step(alert, finding, forget=True)
    if finding is not None and finding.verdict is Verdict.UNKNOWN:
        return None
    if finding is not None and finding.verdict is Verdict.LASTS:
        if finding.level > alert.level:
            return Step(alert, finding, NoticeStatus.WORSE)
        if now - alert.notified_at >= timedelta(seconds=channel.repeat_seconds):
            return Step(alert, finding, NoticeStatus.REPEATED)
        return Step(alert, finding) if alert.over_since is not None else None
    if alert.over_since is None:
        return Step(alert, finding, over_since=now)
    if now - alert.over_since >= timedelta(seconds=CALM_S):
        return Step(alert, finding, NoticeStatus.RECOVERED, forget=True)
    return None


def _selects(channel: AlertChannelRow, key: Key) -> bool:
    cause, subscription, _ = key
    chosen = not channel.causes or cause in channel.causes
    return chosen and (not channel.subscriptions or subscription in channel.subscriptions)


def read_findings(session: ReadSession, connected_s: ConnectedFor, now: datetime, up_s: float) -> dict[Key, Finding]:
    """All findings on all subscriptions. `up_s`: seconds since the start of the server."""
    known: dict[str, list[str]] = {}
    for name, subject in session.exec(select(AlertRow.subscription, AlertRow.subject).where(AlertRow.subject != "")):
        known.setdefault(name, []).append(subject)
    found: dict[Key, Finding] = {}
    for row in session.exec(select(SubscriptionRow).order_by(col(SubscriptionRow.id))):
        connected = connected_s(row.engine_id)
        assessment = Assessment(row, one_live_table(session, row.id or 0), now, connected)
        tables = judged_tables(session, row.id or 0, known.get(row.name, []))
        settled = _is_settled(row, now, connected, up_s)
        for finding in find_causes(session, row, assessment, tables, settled=settled):
            found[finding.key] = finding
    return found


def _is_settled(row: SubscriptionRow, now: datetime, connected_s: float | None, up_s: float) -> bool:
    if connected_s is None:
        return up_s >= SETTLE_S
    current = row.progress_at is not None and (now - row.progress_at).total_seconds() <= _REPORTS_EVERY_S
    return current or connected_s >= SETTLE_S


def due_steps(
    session: ReadSession, connected_s: ConnectedFor, now: datetime, up_s: float
) -> list[tuple[AlertChannelRow, list[Step]]]:
    """The steps that are due, by channel; nothing is read but the channels where there is none."""
    channels = session.exec(select(AlertChannelRow).order_by(col(AlertChannelRow.id))).all()
    if not channels:
        return []
    findings = read_findings(session, connected_s, now, up_s)
    due = []
    for channel in channels:
        alerts = session.exec(select(AlertRow).where(AlertRow.channel_id == channel.id).order_by(col(AlertRow.id)))
        steps = plan_steps(channel, alerts.all(), findings, now)
        if steps:
            due.append((channel, steps))
    return due


def store_steps(session: WriteSession, channel: AlertChannelRow, steps: Sequence[Step]) -> None:
    """Store the steps with their notices; those without room in the outbox are left for later."""
    pending = select(func.count(col(AlertDeliveryRow.id))).where(AlertDeliveryRow.channel_id == channel.id)
    room = MOST_PENDING - session.exec(pending).one()
    for step in steps:
        if step.status is not None:
            if room <= 0:
                continue
            room -= 1
        _store_step(session, channel, step)


def _store_step(session: WriteSession, channel: AlertChannelRow, step: Step) -> None:
    now, alert, finding = session.now(), step.alert, step.finding
    if alert is None:
        if finding is None:
            return
        alert = AlertRow(
            id=f"a{uuid.uuid4().hex}",
            channel_id=channel.id or 0,
            cause=finding.cause.value,
            subscription=finding.subscription,
            subject=finding.subject,
            table_name=finding.table_name,
            level=finding.level,
            since=now,
            notified_at=now,
        )
    if step.status is not None:
        notice = _notice(alert, finding, step.status, now)
        session.add(AlertDeliveryRow(channel_id=channel.id or 0, notice=notice, due_at=now, created_at=now))
    if step.forget:
        session.delete(alert)
        return
    alert.over_since = step.over_since
    if step.status is not None and finding is not None:
        alert.notified_at, alert.level = now, finding.level
        alert.table_name = finding.table_name
    session.add(alert)


def _notice(alert: AlertRow, finding: Finding | None, status: NoticeStatus, now: datetime) -> dict[str, Any]:
    """The notice as a document, the body of a webhook. Without row values and secrets."""
    over = status is NoticeStatus.RECOVERED
    return {
        "id": f"n{uuid.uuid4().hex}",
        "alert": alert.id,
        "status": status.value,
        "cause": AlertCause(alert.cause).value,
        "subscription": alert.subscription,
        "table": alert.table_name,
        "detail": "It does not exist any more." if finding is None else finding.detail,
        "remedy": None if over or finding is None else finding.remedy,
        "since": alert.since.isoformat(),
        "at": now.isoformat(),
    }


def example_notice(now: datetime) -> dict[str, Any]:
    """The notice of a test."""
    return {
        "id": f"n{uuid.uuid4().hex}",
        "alert": None,
        "status": NoticeStatus.TEST.value,
        "cause": None,
        "subscription": None,
        "table": None,
        "detail": "This is a test of the alert channel.",
        "remedy": None,
        "since": now.isoformat(),
        "at": now.isoformat(),
    }
