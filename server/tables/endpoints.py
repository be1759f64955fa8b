"""Tables of a subscription: add, list, show, change, pause and remove."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from sqlmodel import col

from engine.connectors import CONNECTIONS
from engine.kinds import ConnectionKind
from engine.model.table_state import TableStateKind
from server.assessment.assess import assess_subscription
from server.connections.repository import connections_by_id
from server.db.dependencies import Reading, Writing
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.session import ReadSession
from server.declarations.shown_column import OwnTableUnfit
from server.declarations.table_body import TableBody
from server.declarations.table_declaration import IntoExistingUnsupported, SharedTableConflict, declare_table
from server.errors import InvalidRequest, NotFound, PreconditionFailed, responses
from server.etags import IfMatch, etag_of, set_etag
from server.idempotency import IdempotencyKeyReused, Idempotent
from server.lookup.subscriptions import SubscriptionDeleting, require_subscription
from server.lookup.tables import TableRemoved, require_table
from server.naming import NamePath
from server.paging import Page, PageTokenInvalid, Paging
from server.security.principal import Role
from server.security.require import needs
from server.tables import repository, service, verified
from server.tables.plans import TablePlan, plan_table_patch
from server.tables.schemas import OnRemoval, TablePatch, TableView
from server.tables.service import TableExists, TargetTableOfOwner, TransitionRefused

router = APIRouter(prefix="/subscriptions/{name}/tables", tags=["tables"], dependencies=[needs(Role.VIEWER)])
TableIdPath = Annotated[str, Path(max_length=64, description="The table's id.")]


@router.get("", operation_id="tables_list", summary="List tables", responses=responses(NotFound, PageTokenInvalid))
def list_tables(
    request: Request,
    session: Reading,
    paging: Paging,
    name: NamePath,
    schema_name: Annotated[str | None, Query(alias="schema", description="Only those of this source schema.")] = None,
    table_name: Annotated[str | None, Query(alias="name", description="Only those of this source name.")] = None,
    state: Annotated[
        TableStateKind | None, Query(description="Only those in this state; removed tables are listed only on request.")
    ] = None,
) -> Page[TableView]:
    """Tables by schema and name."""
    subscription = require_subscription(session, name)
    query = repository.select_tables(subscription.id or 0, schema=schema_name, name=table_name, state=state)
    return paging.read(
        session,
        query,
        _viewer(request, subscription),
        *(col(TableRow.schema_name), col(TableRow.name), col(TableRow.id)),
    )


@router.post(
    "",
    operation_id="tables_add",
    summary="Add a table",
    status_code=201,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(
        NotFound,
        TableExists,
        SubscriptionDeleting,
        IdempotencyKeyReused,
        InvalidRequest,
        IntoExistingUnsupported,
        SharedTableConflict,
    ),
)
def add_table(
    request: Request, session: Writing, idempotency: Idempotent, name: NamePath, body: TableBody
) -> TableView:
    """It is copied while the other tables are replicated. To add a pattern, change the subscription."""
    if body.is_pattern:
        remedy = 'PATCH the subscription\'s tables with the pattern; or give "exact": true if a table has this name.'
        raise InvalidRequest.at("/name", "A pattern cannot be added.", remedy)
    row = service.add_table(session, name, declare_table(body, "", name), _target_kind(session, name))
    headers = {"Location": f"/api/v1/subscriptions/{name}/tables/{row.id}", "ETag": etag_of(row)}
    return idempotency.answer(201, shown_table(request, session, name, row), headers)


@router.get("/{table_id}", operation_id="tables_get", summary="Get a table", responses=responses(NotFound))
def get_table(
    request: Request, session: Reading, response: Response, name: NamePath, table_id: TableIdPath
) -> TableView:
    """Its declaration, state and copy progress."""
    row = require_table(session, name, table_id)
    set_etag(response, row)
    return shown_table(request, session, name, row)


_PATCH_REFUSALS = (
    NotFound,
    TransitionRefused,
    TableRemoved,
    SubscriptionDeleting,
    InvalidRequest,
    IntoExistingUnsupported,
    OwnTableUnfit,
)


@router.patch(
    "/{table_id}",
    operation_id="tables_patch",
    summary="Change, pause or resume a table",
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(*_PATCH_REFUSALS, PreconditionFailed),
)
def patch_table(
    request: Request,
    session: Writing,
    response: Response,
    name: NamePath,
    table_id: TableIdPath,
    body: TablePatch,
    if_match: IfMatch = None,
) -> TableView:
    """`desired_state` pauses and resumes. A changed key, condition, mapping, mask, `deletes` or `history` means a new copy, which begins
    automatically if the subscription's `schema_changes` policy is `apply`; `into_existing` takes effect with the next reload.
    `POST …/plans` shows it before."""
    row = service.patch_table(session, name, table_id, body, _target_kind(session, name), if_match)
    set_etag(response, row)
    return shown_table(request, session, name, row)


@router.post(
    "/{table_id}/plans",
    operation_id="tables_plan",
    summary="See what a change of a table would do",
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(*_PATCH_REFUSALS),
)
def plan_table(session: Writing, name: NamePath, table_id: TableIdPath, body: TablePatch) -> TablePlan:
    """Changes nothing. What the PATCH would refuse is refused here in the same way."""
    return plan_table_patch(session, name, table_id, body, _target_kind(session, name))


@router.delete(
    "/{table_id}",
    operation_id="tables_remove",
    summary="Remove a table",
    status_code=204,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(
        NotFound, TableRemoved, TargetTableOfOwner, OwnTableUnfit, SubscriptionDeleting, PreconditionFailed
    ),
)
def remove_table(
    session: Writing,
    name: NamePath,
    table_id: TableIdPath,
    if_match: IfMatch = None,
    target_table: Annotated[
        OnRemoval,
        Query(
            description="`drop`: the target's table is dropped too, unless it was not created by Penstock or other objects depend on"
            " it."
        ),
    ] = OnRemoval.KEEP,
) -> None:
    """It is no longer replicated. Its table on the target stays or is dropped; its history stays readable.

    No pattern includes it again until it is added by name. The engine drops the target's table; the result is in `target_table` of the
    removed table and in an event.
    """
    service.remove_table(session, name, table_id, if_match, target_table)


def shown_table(request: Request, session: ReadSession, name: str, row: TableRow) -> TableView:
    """A table of the subscription `name`, with its health and its copy now."""
    return _viewer(request, require_subscription(session, name))(row)


def _viewer(request: Request, subscription: SubscriptionRow) -> Callable[[TableRow], TableView]:
    """Shows tables of the subscription as they are now."""
    assessment = assess_subscription(request, subscription)
    schedule = verified.schedule_of(subscription, request.app.state.clock.now())
    return lambda row: service.table_view(
        subscription.name, row, assessment.table_health(row), assessment.table_copy(row), schedule
    )


def _target_kind(session: ReadSession, name: str) -> ConnectionKind:
    target = connections_by_id(session, [require_subscription(session, name).target_id])
    return CONNECTIONS[next(iter(target.values())).kind]
