"""Approving schema changes, for subscriptions with the policy `ask`."""

from __future__ import annotations

from fastapi import APIRouter, Request, status
from fastapi.concurrency import run_in_threadpool

from server.approvals import service
from server.approvals.schemas import ApprovalBody
from server.approvals.service import ApprovalOutdated, NothingToApprove
from server.db.dependencies import Writing
from server.errors import InvalidRequest, NotFound, responses
from server.etags import etag_of
from server.gateway.interface import EngineUnavailable, gateway_of
from server.idempotency import IdempotencyKeyReused, Idempotent
from server.lookup.subscriptions import SubscriptionDeleting
from server.lookup.tables import TableRemoved
from server.naming import NamePath
from server.security.principal import Role
from server.security.require import needs
from server.tables.endpoints import TableIdPath, shown_table
from server.tables.schemas import TableView
from server.verifications.service import SubscriptionNotRunning

router = APIRouter(prefix="/subscriptions/{name}/tables", tags=["tables"], dependencies=[needs(Role.VIEWER)])


@router.post(
    "/{table_id}/approvals",
    operation_id="table_approvals_create",
    summary="Approve a change of structure",
    status_code=status.HTTP_202_ACCEPTED,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(
        NotFound,
        NothingToApprove,
        ApprovalOutdated,
        TableRemoved,
        SubscriptionDeleting,
        SubscriptionNotRunning,
        IdempotencyKeyReused,
        InvalidRequest,
        EngineUnavailable,
    ),
)
async def create_approval(
    request: Request,
    session: Writing,
    idempotency: Idempotent,
    name: NamePath,
    table_id: TableIdPath,
    body: ApprovalBody | None = None,
) -> TableView:
    """Apply the schema change of a table that is parked with the code `schema_change_waiting` (policy `ask` of `schema_changes`). The
    engine applies it at once; the table's state shows the result. Send the table's `reason` to approve exactly that change."""
    connected = gateway_of(request).connected

    def work() -> TableView:
        row = service.approve_change(session, name, table_id, body.reason if body else None)
        if not connected:
            raise EngineUnavailable(f"No engine is connected to apply the approved change of '{row.full_name}'.")
        headers = {"Location": f"/api/v1/subscriptions/{name}/tables/{row.id}", "ETag": etag_of(row)}
        return idempotency.answer(status.HTTP_202_ACCEPTED, shown_table(request, session, name, row), headers)

    return await run_in_threadpool(work)
