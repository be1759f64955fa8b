"""Cycles of a subscription: list them, show one, begin one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response, status

from server.cycles import service
from server.cycles.schemas import CyclePage, CycleRequestedView, CycleView
from server.cycles.service import CyclesUnsupported
from server.db.dependencies import run_read
from server.errors import NotFound, responses
from server.gateway.interface import EngineTimeout, EngineUnavailable, ask_engine
from server.naming import NamePath
from server.paging import PageTokenInvalid, Paging
from server.security.principal import Role
from server.security.require import needs
from server.verifications.service import SubscriptionNotRunning

router = APIRouter(prefix="/subscriptions/{name}/cycles", tags=["cycles"], dependencies=[needs(Role.VIEWER)])
NumberPath = Annotated[int, Path(ge=1, le=2**53, description="Number of the cycle.")]


@router.get(
    "",
    operation_id="cycles_list",
    responses=responses(NotFound, CyclesUnsupported, PageTokenInvalid, EngineUnavailable, EngineTimeout),
)
async def list_cycles(request: Request, name: NamePath, paging: Paging) -> CyclePage:
    """Cycles of a subscription, the newest first, with those that have not ended. About the last 200 are kept."""
    form = await run_read(request, lambda session: service.require_cycles(session, name))
    after = paging.behind(int)
    upto = None if after is None else after[0] - 1
    asked = {"subscription": name, "most": paging.limit, "upto": upto}
    return service.cycle_page(await ask_engine(request, "cycles", asked), form, paging)


@router.get(
    "/{number}",
    operation_id="cycles_get",
    responses=responses(NotFound, CyclesUnsupported, EngineUnavailable, EngineTimeout),
)
async def get_cycle(request: Request, name: NamePath, number: NumberPath) -> CycleView:
    """One cycle."""
    form = await run_read(request, lambda session: service.require_cycles(session, name))
    asked = {"subscription": name, "most": 1, "upto": number}
    return service.require_cycle(await ask_engine(request, "cycles", asked), form, number)


@router.post(
    "",
    operation_id="cycles_create",
    status_code=status.HTTP_202_ACCEPTED,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(NotFound, CyclesUnsupported, SubscriptionNotRunning, EngineUnavailable, EngineTimeout),
)
async def begin_cycle(request: Request, response: Response, name: NamePath) -> CycleRequestedView:
    """Begin a cycle as soon as no other one runs. Requests that arrive before it begins get the same number."""
    form = await run_read(request, lambda session: service.require_running_cycles(session, name))
    found = service.requested_view(await ask_engine(request, "begin_cycle", {"subscription": name}), form)
    response.headers["Location"] = f"{request.url.path}/{found.number}"
    return found
