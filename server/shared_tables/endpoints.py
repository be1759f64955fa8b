"""Shared tables of a target."""

from __future__ import annotations

from fastapi import APIRouter

from server.connections import service as connections
from server.db.dependencies import Reading
from server.errors import NotFound, responses
from server.naming import NamePath
from server.paging import Page, PageTokenInvalid, Paging
from server.security.principal import Role
from server.security.require import needs
from server.shared_tables import service
from server.shared_tables.schemas import SharedTableView

router = APIRouter(prefix="/connections/{name}/shared-tables", tags=["connections"], dependencies=[needs(Role.VIEWER)])


@router.get(
    "",
    operation_id="connections_shared_tables",
    summary="List the shared tables of a target",
    responses=responses(NotFound, PageTokenInvalid),
)
def list_shared_tables(session: Reading, paging: Paging, name: NamePath) -> Page[SharedTableView]:
    """Shared tables that tables of this target declare with `shared_into`, by schema and name, each with its members. The target is not
    contacted."""
    found = service.shared_tables(session, connections.require_connection(session, name))
    behind = paging.behind(str, str)
    if behind:
        found = [table for table in found if (table.schema_name, table.name) > behind]
    return paging.page(found, lambda table: table, lambda table: (table.schema_name, table.name))
