"""Connection kinds: what can be connected, and how changes are read from it."""

from __future__ import annotations

from fastapi import APIRouter

from engine.connectors import CONNECTIONS
from server.connection_kinds.schemas import ConnectionKindView, kind_view
from server.paging import Page
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/connection-kinds", tags=["connections"], dependencies=[needs(Role.VIEWER)])


@router.get("", operation_id="connection_kinds_list", summary="List the kinds of connections")
async def list_connection_kinds() -> Page[ConnectionKindView]:
    """Each with the JSON schemas of its settings and captures, from which a program can draw a form; all on one page."""
    return Page(items=[kind_view(kind) for kind in CONNECTIONS.values()])
