"""Retries of parked tables."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response, status
from fastapi.concurrency import run_in_threadpool

from server.connections.schemas import FindingView
from server.db.dependencies import Writing, run_read
from server.errors import NotFound, responses
from server.gateway.interface import EngineTimeout, EngineUnavailable, ask_engine
from server.lookup.subscriptions import SubscriptionDeleting
from server.lookup.tables import TableRemoved
from server.naming import NamePath
from server.reloads import service as reloads
from server.reloads.schemas import ReloadView
from server.reloads.service import ReloadRunning
from server.retries import service
from server.retries.service import CauseRemains, NothingToRetry
from server.security.box import Box
from server.security.principal import Role
from server.security.require import needs
from server.security.secret_box import SecretsUnreadable
from server.tables.endpoints import TableIdPath
from server.verifications.service import SubscriptionNotRunning

router = APIRouter(prefix="/subscriptions/{name}/tables", tags=["tables"], dependencies=[needs(Role.VIEWER)])


@router.post(
    "/{table_id}/retries",
    operation_id="table_retries_create",
    summary="Retry a parked table",
    status_code=status.HTTP_202_ACCEPTED,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(
        NotFound,
        NothingToRetry,
        CauseRemains,
        ReloadRunning,
        TableRemoved,
        SubscriptionDeleting,
        SubscriptionNotRunning,
        SecretsUnreadable,
        EngineUnavailable,
        EngineTimeout,
    ),
)
async def create_retry(
    request: Request, response: Response, session: Writing, box: Box, name: NamePath, table_id: TableIdPath
) -> ReloadView:
    """Use this after the cause of the parking was corrected. If the engine finds that the table would park again, the answer is
    `cause_remains` with the finding. Otherwise the table is copied again, because no log is kept for a parked table; its old rows stay
    readable. The answer is that reload."""
    findings: list[FindingView] = []
    for payload in await run_read(request, lambda reading: service.preflight_payloads(reading, box, name, table_id)):
        answer = await ask_engine(request, "preflight", payload)
        findings += [FindingView.model_validate(finding) for finding in answer.get("findings", [])]

    def work() -> ReloadView:
        row = service.begin_retry(session, name, table_id, findings)
        session.flush()
        response.headers["Location"] = f"/api/v1/subscriptions/{name}/tables/{table_id}/reloads/{row.id}"
        return reloads.reload_view(session, row)

    return await run_in_threadpool(work)
