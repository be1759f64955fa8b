"""The partitions of a table, and when each was loaded."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from engine.model.positions import PositionForm
from server.db.dependencies import database_of
from server.errors import NotFound, responses
from server.gateway.interface import EngineTimeout, EngineUnavailable, gateway_of
from server.lookup.subscriptions import position_form, require_subscription
from server.naming import NamePath
from server.partitions import service
from server.partitions.schemas import PartitionsView
from server.security.principal import Role
from server.security.require import needs
from server.tables.endpoints import TableIdPath

router = APIRouter(prefix="/subscriptions/{name}/tables", tags=["tables"], dependencies=[needs(Role.VIEWER)])


@router.get(
    "/{table_id}/partitions",
    operation_id="table_partitions_list",
    summary="List a table's partitions",
    responses=responses(NotFound, EngineUnavailable, EngineTimeout),
)
async def list_partitions(request: Request, name: NamePath, table_id: TableIdPath) -> PartitionsView:
    """As the source has them now, each with its bound and its last load on the target."""

    def read_form() -> PositionForm:
        with database_of(request).read() as session:
            return position_form(require_subscription(session, name))

    answer = await request_partitions(request, name, table_id)
    return service.partitions_view(table_id, answer, await run_in_threadpool(read_form))


async def request_partitions(request: Request, name: str, table_id: str) -> dict[str, Any]:
    """Ask the engine for the partitions."""

    def question() -> dict[str, Any]:
        with database_of(request).read() as session:
            return service.partitions_payload(session, name, table_id)

    payload = await run_in_threadpool(question)
    return await gateway_of(request).request("partitions", payload, request.app.state.settings.engine_request_timeout_s)
