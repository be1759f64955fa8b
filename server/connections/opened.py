"""Connections with their secrets in clear, for questions to the engine."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from engine.connectors import CONNECTIONS
from server.connections import service
from server.connections.schemas import ConnectionPut
from server.db.dependencies import run_read
from server.db.session import ReadSession
from server.errors import Conflict, InvalidRequest
from server.security.secret_box import SecretBox


class NotASource(Conflict):
    code = "not_a_source"
    title = "This connection is not a source"
    default_remedy = "Ask a connection whose kind can be a source, such as postgres."


class NotWithThisCapture(InvalidRequest):
    code = "not_with_this_capture"
    title = "The source does not have this"
    default_remedy = "Ask a connection of another kind; GET /connection-kinds lists the captures of each kind."


async def opened(request: Request, box: SecretBox, name: str, given: ConnectionPut | None = None) -> dict[str, Any]:
    """The connection of this name, or the result of applying `given` to it."""

    def read(session: ReadSession) -> dict[str, Any]:
        if given is not None:
            return service.proposed_connection(session, box, name, given)
        return service.connection_with_secrets(session, service.require_connection(session, name), box)

    return await run_read(request, read)


async def opened_source(request: Request, box: SecretBox, name: str) -> dict[str, Any]:
    """The connection of this name. Raises NotASource where it cannot be a source."""
    connection = await opened(request, box, name)
    if not CONNECTIONS[connection["kind"]].source:
        raise NotASource(f"'{name}' is of the kind {connection['kind']}, which cannot be a source.")
    return connection
