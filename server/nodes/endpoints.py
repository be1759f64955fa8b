"""The nodes of a subscription's source: how far each is read and applied, and which one delays the others."""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter, Request

from engine.model.position import Lsn
from server.connections.repository import connections_by_id
from server.db.dependencies import run_read
from server.db.models.connection import nodes_in
from server.db.session import ReadSession
from server.errors import NotFound, responses
from server.freshness.node_progress import node_progress, vector
from server.freshness.tracker import FreshnessTracker
from server.lookup.subscriptions import require_subscription
from server.naming import NamePath
from server.nodes.schemas import NodeAway, NodePage, NodeView
from server.paging import PageTokenInvalid, Paging
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/subscriptions/{name}/nodes", tags=["subscriptions"], dependencies=[needs(Role.VIEWER)])


@router.get(
    "", operation_id="nodes_list", summary="List the nodes of a source", responses=responses(NotFound, PageTokenInvalid)
)
async def list_nodes(request: Request, name: NamePath, paging: Paging) -> NodePage:
    """The nodes of a subscription's source, in the order of the connection: how far the log of each is read and applied, and which ones
    delay the others. The list is empty if the source is one database."""
    names = await run_read(request, lambda session: _names(session, name))
    status = (await cast("FreshnessTracker", request.app.state.freshness).current_registry(name)).status
    logs = node_progress(status, names)
    at = None if status.progress is None else status.progress.at
    after = paging.behind(int)
    begin = 0 if after is None else max(0, after[0] + 1)
    views = [
        NodeView(
            name=each.name,
            applied=_text(each.applied),
            read=_text(each.read),
            source_end=_text(each.end),
            lag_bytes=each.lag_bytes,
            late=each.late,
            away=None if each.away is None else NodeAway(**each.away.model_dump()),
            at=None if each.applied is None else at,
        )
        for each in logs[begin : begin + paging.limit]
    ]
    page = paging.page(list(enumerate(views, begin)), lambda numbered: numbered[1], lambda numbered: [numbered[0]])
    return NodePage(
        items=page.items,
        next_page_token=page.next_page_token,
        applied=vector(status.form, {each.name: each.applied for each in logs}),
        source_end=vector(status.form, {each.name: each.end for each in logs}),
    )


def _names(session: ReadSession, name: str) -> list[str]:
    source = require_subscription(session, name).source_id
    return list(nodes_in(connections_by_id(session, [source])[source].settings))


def _text(position: Lsn | None) -> str | None:
    return None if position is None else str(position)
