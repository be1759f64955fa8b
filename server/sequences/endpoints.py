"""Setting the target's sequences to the values of the source's."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from engine.model.sequences import SequenceOutcome
from server.db.dependencies import database_of
from server.errors import InvalidRequest, NotFound, responses
from server.gateway.interface import EngineTimeout, EngineUnavailable, gateway_of
from server.naming import NamePath
from server.security.principal import Role
from server.security.require import needs
from server.sequences import service
from server.sequences.schemas import SequencesRequest, SequencesView
from server.sequences.service import SequencePrivilege, SequencesUnsupported
from server.verifications.service import SubscriptionNotRunning

router = APIRouter(prefix="/subscriptions/{name}/sequences", tags=["sequences"], dependencies=[needs(Role.OPERATOR)])


@router.post(
    "",
    operation_id="sequences_advance",
    summary="Bring sequences forward",
    responses=responses(
        NotFound,
        SubscriptionNotRunning,
        InvalidRequest,
        SequencesUnsupported,
        EngineUnavailable,
        SequencePrivilege,
        EngineTimeout,
    ),
)
async def advance_sequences(request: Request, name: NamePath, body: SequencesRequest | None = None) -> SequencesView:
    """Before a cut-over: sequences of the target's columns are set to where the source's stand now, never back. Safe to repeat."""
    payload = await run_in_threadpool(_read_payload, request, name, body or SequencesRequest())
    timeout_s = request.app.state.settings.engine_request_timeout_s
    answer = service.sequences_view(await gateway_of(request).request("sequences", payload, timeout_s))
    if any(one.outcome is SequenceOutcome.ADVANCED for one in answer.sequences):
        await run_in_threadpool(_record_in_database, request, name, answer)
    return answer


def _read_payload(request: Request, name: str, body: SequencesRequest) -> dict[str, Any]:
    with database_of(request).read() as session:
        return service.sequences_payload(session, name, body)


def _record_in_database(request: Request, name: str, answer: SequencesView) -> None:
    with database_of(request).write() as session:
        service.record_advance(session, name, answer)
