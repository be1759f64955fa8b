"""Subscriptions: declare, show, pause, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlmodel import col, select

from engine.model.subscription_state import SubscriptionState
from server.connections.repository import connections_by_id
from server.connections.service import connection_with_secrets
from server.db.dependencies import Reading, Writing, run_read
from server.db.models.subscription import SubscriptionRow
from server.db.session import ReadSession
from server.declarations.shown_column import OwnTableUnfit
from server.declarations.table_body import TableBody
from server.declarations.table_declaration import IntoExistingUnsupported, PatternMatchesNothing, SharedTableConflict
from server.errors import NotFound, PreconditionFailed, responses
from server.etags import IfMatch, IfNoneMatch, check_absent, set_etag
from server.gateway.interface import EngineTimeout, EngineUnavailable, ask_engine, gateway_of
from server.lookup.subscriptions import SubscriptionDeleting, lock_subscription, require_subscription
from server.naming import NamePath
from server.paging import Page, PageTokenInvalid, Paging
from server.security.box import Box
from server.security.principal import Role
from server.security.require import needs
from server.security.secret_box import SecretBox, SecretsUnreadable
from server.subscriptions import service
from server.subscriptions.plans import SubscriptionPlan, plan_subscription_put
from server.subscriptions.schemas import SubscriptionPatch, SubscriptionPut, SubscriptionView
from server.subscriptions.service import (
    ApplyModeUnsupported,
    CaptureSettingFixed,
    CaptureUnsupported,
    SubscriptionEndpointFixed,
)
from server.subscriptions.views import subscription_views
from server.tables.service import TableTargetFixed, TransitionRefused

KeepTables = Annotated[bool, Query(description="Keep tables and patterns that the body leaves out.")]

router = APIRouter(prefix="/subscriptions", tags=["subscriptions"], dependencies=[needs(Role.VIEWER)])

_CHANGE = responses(
    SubscriptionEndpointFixed,
    SubscriptionDeleting,
    TableTargetFixed,
    TransitionRefused,
    SecretsUnreadable,
    PreconditionFailed,
    PatternMatchesNothing,
    ApplyModeUnsupported,
    CaptureUnsupported,
    CaptureSettingFixed,
    OwnTableUnfit,
    IntoExistingUnsupported,
    SharedTableConflict,
    EngineUnavailable,
    EngineTimeout,
)


def _shown(request: Request, session: ReadSession, row: SubscriptionRow) -> SubscriptionView:
    return subscription_views(session, [row], request.app.state.clock.now(), gateway_of(request).connected_s)[0]


@router.get("", operation_id="subscriptions_list", summary="List subscriptions", responses=responses(PageTokenInvalid))
def list_subscriptions(
    request: Request,
    session: Reading,
    paging: Paging,
    state: Annotated[SubscriptionState | None, Query(description="Only those in this state.")] = None,
) -> Page[SubscriptionView]:
    """All subscriptions, by name."""
    query = select(SubscriptionRow)
    if state is not None:
        query = query.where(SubscriptionRow.state == state.value)
    page = paging.read(session, query, lambda row: row, col(SubscriptionRow.name))
    views = subscription_views(session, page.items, request.app.state.clock.now(), gateway_of(request).connected_s)
    return Page(items=views, next_page_token=page.next_page_token)


@router.get("/{name}", operation_id="subscriptions_get", summary="Get a subscription", responses=responses(NotFound))
def get_subscription(request: Request, session: Reading, response: Response, name: NamePath) -> SubscriptionView:
    """The declaration, state, positions and lag. The ETag depends on the declaration only."""
    row = require_subscription(session, name)
    set_etag(response, row)
    return _shown(request, session, row)


@router.put(
    "/{name}",
    operation_id="subscriptions_put",
    summary="Create or replace a subscription",
    dependencies=[needs(Role.OPERATOR)],
    responses={201: {"description": "Created", "model": SubscriptionView}, **_CHANGE},
)
async def put_subscription(
    request: Request,
    session: Writing,
    box: Box,
    response: Response,
    name: NamePath,
    body: SubscriptionPut,
    keep_tables: KeepTables = False,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> SubscriptionView:
    """Safe to repeat. Tables that the body leaves out are removed, new ones are copied, the others are not affected.

    Patterns are expanded by reading the source's tables through the engine. `POST …/plans` shows what a PUT would do.
    """
    discovered = await _discover_for(request, box, body)

    def work() -> SubscriptionView:
        check_absent(if_none_match, name, lock_subscription(session, name))
        row, created = service.put_subscription(session, name, body, discovered, if_match, keep_tables=keep_tables)
        session.flush()
        if created:
            response.status_code = 201
        set_etag(response, row)
        return _shown(request, session, row)

    return await run_in_threadpool(work)


@router.post(
    "/{name}/plans",
    operation_id="subscriptions_plan",
    summary="See what a PUT of a subscription would do",
    dependencies=[needs(Role.OPERATOR)],
    responses=_CHANGE,
)
async def plan_subscription(
    request: Request,
    session: Writing,
    box: Box,
    name: NamePath,
    body: SubscriptionPut,
    keep_tables: KeepTables = False,
) -> SubscriptionPlan:
    """Changes nothing. What the PUT would refuse is refused here in the same way."""
    discovered = await _discover_for(request, box, body)
    return await run_in_threadpool(
        lambda: plan_subscription_put(session, name, body, discovered, keep_tables=keep_tables)
    )


@router.patch(
    "/{name}",
    operation_id="subscriptions_patch",
    summary="Change a subscription",
    dependencies=[needs(Role.OPERATOR)],
    responses={**responses(NotFound), **_CHANGE},
)
async def patch_subscription(
    request: Request,
    session: Writing,
    box: Box,
    response: Response,
    name: NamePath,
    body: SubscriptionPatch,
    if_match: IfMatch = None,
) -> SubscriptionView:
    """`desired_state` pauses, stops and starts the subscription, and retries a failed one."""

    def source_of(reading: ReadSession) -> dict[str, Any] | None:
        row = require_subscription(reading, name)
        source = connections_by_id(reading, [row.source_id])[row.source_id]
        return connection_with_secrets(reading, source, box) if _has_pattern(body.tables or []) else None

    discovered = await _discover(request, source_of)

    def work() -> SubscriptionView:
        row = service.patch_subscription(session, name, body, discovered, if_match)
        session.flush()
        set_etag(response, row)
        return _shown(request, session, row)

    return await run_in_threadpool(work)


@router.delete(
    "/{name}",
    operation_id="subscriptions_delete",
    summary="Delete a subscription",
    status_code=202,
    response_model=None,
    dependencies=[needs(Role.OPERATOR)],
    responses={
        202: {"description": "The engine stops it and drops its slot and publications", "model": SubscriptionView},
        204: {"description": "Deleted"},
        **responses(NotFound, PreconditionFailed),
    },
)
def delete_subscription(
    request: Request,
    session: Writing,
    response: Response,
    name: NamePath,
    if_match: IfMatch = None,
    force: Annotated[
        bool, Query(description="Do not wait for the engine; an event names what may remain on the source.")
    ] = False,
) -> SubscriptionView | Response:
    """The target's tables stay. A GET returns 404 once the subscription is deleted; an event names what could not be removed."""
    row = service.remove_subscription(session, name, if_match, force=force)
    if row is None:
        return Response(status_code=204)
    session.flush()
    set_etag(response, row)
    return _shown(request, session, row)


def _has_pattern(tables: Sequence[TableBody]) -> bool:
    return any(table.is_pattern for table in tables)


async def _discover_for(request: Request, box: SecretBox, body: SubscriptionPut) -> list[dict[str, Any]]:
    def source_of(reading: ReadSession) -> dict[str, Any] | None:
        connection = service.check_before_discovery(reading, body)
        return connection_with_secrets(reading, connection, box) if _has_pattern(body.tables) else None

    return await _discover(request, source_of)


async def _discover(
    request: Request, source_of: Callable[[ReadSession], dict[str, Any] | None]
) -> list[dict[str, Any]]:
    """The source's tables, if `source_of` names a connection to ask; else none."""
    connection = await run_read(request, source_of)
    if connection is None:
        return []
    answer = await ask_engine(request, "discover", {"connection": connection})
    return list(answer.get("tables", []))
