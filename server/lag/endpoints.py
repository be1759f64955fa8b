"""Why a subscription lags."""

from __future__ import annotations

from fastapi import APIRouter, Request

from engine.link.lag import LagBody
from server.db.dependencies import run_read
from server.errors import NotFound, responses
from server.gateway.interface import EngineTimeout, EngineUnavailable, ask_engine
from server.lag.explain import explained
from server.lag.schemas import LagExplanation
from server.lookup.subscriptions import require_subscription
from server.naming import NamePath
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/subscriptions/{name}/lag", tags=["subscriptions"], dependencies=[needs(Role.VIEWER)])


@router.get(
    "/explanation",
    operation_id="lag_explain",
    summary="Explain the lag",
    responses=responses(NotFound, EngineUnavailable, EngineTimeout),
)
async def explain_lag(request: Request, name: NamePath) -> LagExplanation:
    """The causes of the current lag with their shares, evidence and remedies. The engine measures at the time of the request."""
    await run_read(request, lambda session: require_subscription(session, name).id)
    return explained(LagBody.model_validate(await ask_engine(request, "lag", {"subscription": name})))
