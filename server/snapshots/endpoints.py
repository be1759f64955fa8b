"""Snapshots of a subscription's copy as files, and their schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response, status
from sqlmodel import col, select

from engine.model.position import Lsn
from server.db.dependencies import Reading, Writing
from server.db.models.snapshot import SnapshotRow
from server.errors import InvalidRequest, NotFound, responses
from server.freshness.endpoints import tracker_of, waits_of
from server.freshness.errors import FreshnessRefusedEarly, FreshnessTimeout, FreshnessUnavailable, FreshnessUnreachable
from server.freshness.schemas import Receipt, WaitRequest
from server.freshness.wait import parse_request
from server.gateway.interface import EngineTimeout
from server.idempotency import Idempotent
from server.lookup.subscriptions import SubscriptionDeleting, require_subscription
from server.paging import Page, PageTokenInvalid, Paging
from server.security.principal import Role
from server.security.require import needs
from server.snapshots import service
from server.snapshots.schemas import SnapshotRequest, SnapshotSchedule, SnapshotScheduleView, SnapshotView
from server.snapshots.service import SnapshotRunning
from server.verifications.service import SubscriptionNotRunning

router = APIRouter(prefix="/subscriptions/{name}", tags=["snapshots"], dependencies=[needs(Role.VIEWER)])


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose wait is over. `receipt`, `position`: of the wait, if there was one."""

    request: SnapshotRequest
    receipt: Receipt | None = None
    position: Lsn | None = None


async def _waited(request: Request, name: str, body: SnapshotRequest | None = None) -> Asked:
    """Waits for the required freshness, before the request takes a session."""
    asked = body or SnapshotRequest()
    fresh = asked.freshness
    if (fresh.position is not None) != (fresh.mode == "position"):
        raise InvalidRequest.at("/freshness/position", "A position belongs to mode 'position', and only there.")
    if fresh.mode == "any":
        return Asked(asked)
    wait = WaitRequest(
        position=fresh.position, tables=asked.tables, timeout_ms=fresh.timeout_ms, refuse_early=fresh.refuse_early
    )
    spec = await parse_request(tracker_of(request), name, wait, "/freshness/position")
    satisfied = await waits_of(request).run_wait_now(spec)
    form = (await tracker_of(request).current_registry(name)).status.form
    (mark,) = form.parse(satisfied.position)
    return Asked(asked, satisfied.receipt, mark.position)


@router.post(
    "/snapshots",
    operation_id="snapshots_create",
    status_code=status.HTTP_202_ACCEPTED,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(
        NotFound,
        SubscriptionDeleting,
        SubscriptionNotRunning,
        SnapshotRunning,
        FreshnessUnreachable,
        InvalidRequest,
        FreshnessUnavailable,
        FreshnessTimeout,
        FreshnessRefusedEarly,
        EngineTimeout,
    ),
)
def create_snapshot(
    request: Request,
    name: str,
    asked: Annotated[Asked, Depends(_waited)],
    session: Writing,
    idempotency: Idempotent,
) -> SnapshotView:
    """Write the copy, as it is at one batch boundary, to files on the engine's machine, while replication continues.

    The request waits for the required freshness; the snapshot is then written in the background.
    """
    row = service.begin_snapshot(session, name, asked.request, asked.receipt, asked.position)
    headers = {"Location": f"{request.url.path}/{row.id}"}
    return idempotency.answer(status.HTTP_202_ACCEPTED, service.snapshot_view(session, row), headers)


@router.get("/snapshots", operation_id="snapshots_list", responses=responses(NotFound, PageTokenInvalid))
def list_snapshots(session: Reading, name: str, paging: Paging) -> Page[SnapshotView]:
    """Snapshots of a subscription, the newest first."""
    subscription = require_subscription(session, name)
    query = select(SnapshotRow).where(SnapshotRow.subscription_id == subscription.id)
    order = col(SnapshotRow.created_at), col(SnapshotRow.id)
    return paging.read(session, query, lambda row: service.snapshot_view(session, row), *order, newest_first=True)


@router.get("/snapshots/{snapshot_id}", operation_id="snapshots_get", responses=responses(NotFound))
def get_snapshot(session: Reading, name: str, snapshot_id: str) -> SnapshotView:
    """State or result of a snapshot."""
    return service.snapshot_view(session, service.require_snapshot(session, name, snapshot_id))


@router.delete(
    "/snapshots/{snapshot_id}",
    operation_id="snapshots_delete",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(NotFound),
)
def delete_snapshot(session: Writing, name: str, snapshot_id: str) -> None:
    """Delete a snapshot and its files. One that has not ended is cancelled, and stays in the list.

    The engine deletes the files; until then the snapshot is `deleting`.
    """
    service.delete_snapshot(session, name, snapshot_id)


@router.get("/snapshot-schedule", operation_id="snapshot_schedule_get", responses=responses(NotFound))
def get_schedule(session: Reading, name: str) -> SnapshotScheduleView:
    """The schedule of snapshots."""
    return service.schedule_view(session, service.require_schedule(session, name))


@router.put(
    "/snapshot-schedule",
    operation_id="snapshot_schedule_put",
    dependencies=[needs(Role.OPERATOR)],
    responses={
        201: {"description": "Created", "model": SnapshotScheduleView},
        **responses(NotFound, SubscriptionDeleting, InvalidRequest),
    },
)
def put_schedule(session: Writing, response: Response, name: str, body: SnapshotSchedule) -> SnapshotScheduleView:
    """Create or replace the schedule. The first snapshot is taken at once; if the interval changes, the next one after the new interval."""
    row, created = service.set_schedule(session, name, body)
    if created:
        response.status_code = status.HTTP_201_CREATED
    session.flush()
    return service.schedule_view(session, row)


@router.delete(
    "/snapshot-schedule",
    operation_id="snapshot_schedule_delete",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(NotFound),
)
def delete_schedule(session: Writing, name: str) -> None:
    """Remove the schedule. Its snapshots stay until they are deleted."""
    service.remove_schedule(session, name)
