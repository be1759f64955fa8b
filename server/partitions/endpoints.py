"""The partitions of a table, and when each was loaded."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from server.db.dependencies import run_read
from server.errors import NotFound, responses
from server.gateway.interface import EngineTimeout, EngineUnavailable, ask_engine
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
    answer = await request_partitions(request, name, table_id)
    form = await run_read(request, lambda session: position_form(require_subscription(session, name)))
    return service.partitions_view(table_id, answer, form)


async def request_partitions(request: Request, name: str, table_id: str) -> dict[str, Any]:
    """Ask the engine for the partitions."""
    payload = await run_read(request, lambda session: service.partitions_payload(session, name, table_id))
    return await ask_engine(request, "partitions", payload)
