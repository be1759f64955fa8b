"""Setting the target's sequences to the values of the source's."""

from __future__ import annotations

from fastapi import APIRouter, Request

from engine.model.sequences import SequenceOutcome
from server.db.dependencies import run_read, run_write
from server.errors import InvalidRequest, NotFound, responses
from server.gateway.interface import EngineTimeout, EngineUnavailable, ask_engine
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
    summary="Advance sequences",
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
    """Before a cut-over, set the sequences of the target's columns to the current values of the source's; never backwards. Safe to
    repeat."""
    wanted = body or SequencesRequest()
    payload = await run_read(request, lambda session: service.sequences_payload(session, name, wanted))
    answer = service.sequences_view(await ask_engine(request, "sequences", payload))
    if any(one.outcome is SequenceOutcome.ADVANCED for one in answer.sequences):
        await run_write(request, lambda session: service.record_advance(session, name, answer))
    return answer
