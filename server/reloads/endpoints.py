"""Reloading tables: one, some of its partitions, or all of a subscription."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, status
from fastapi.concurrency import run_in_threadpool
from sqlmodel import col, select

from server.db.dependencies import Reading, Writing
from server.db.models.reload import ReloadRow
from server.db.session import ReadSession, WriteSession
from server.errors import InvalidRequest, NotFound, responses
from server.gateway.interface import EngineTimeout, EngineUnavailable
from server.idempotency import Idempotency, Idempotent
from server.lookup.subscriptions import require_subscription
from server.lookup.tables import require_table
from server.paging import Page, PageRequest, PageTokenInvalid, Paging
from server.partitions import service as partitions
from server.partitions.endpoints import request_partitions
from server.partitions.service import PartitionNotComparable, PartitionUnknown, TableNotPartitioned
from server.reloads import service
from server.reloads.schemas import ReloadRequest, ReloadView
from server.reloads.service import ReloadHasEnded, ReloadNotCancellable, ReloadRunning, TableNotReloadable
from server.security.principal import Role
from server.security.require import needs
from server.verifications.service import SubscriptionNotRunning

router = APIRouter(prefix="/subscriptions/{name}", tags=["reloads"], dependencies=[needs(Role.VIEWER)])

_OPERATOR = [needs(Role.OPERATOR)]
_REFUSALS = responses(NotFound, SubscriptionNotRunning, ReloadRunning, TableNotReloadable, InvalidRequest)
_ACCEPTED = status.HTTP_202_ACCEPTED


async def _with_chosen_partitions(
    request: Request, name: str, table_id: str, body: ReloadRequest | None = None
) -> ReloadRequest:
    """The request, after a check that the source has its partitions. Runs before any transaction, as it waits for the engine."""
    wanted = body or ReloadRequest()
    if wanted.partitions is not None:
        names = None if wanted.partitions == "changed" else wanted.partitions
        partitions.refuse_unloadable(await request_partitions(request, name, table_id), names)
    return wanted


Chosen = Annotated[ReloadRequest, Depends(_with_chosen_partitions)]


@router.post(
    "/reloads",
    operation_id="reloads_create",
    status_code=_ACCEPTED,
    dependencies=_OPERATOR,
    responses=_REFUSALS,
)
def create_reload(request: Request, session: Writing, idempotency: Idempotent, name: str) -> ReloadView:
    """Copy all tables again, with a new slot if necessary.

    Old rows stay readable until the new ones replace them.
    """
    return _begin(request, session, idempotency, name, None)


@router.post(
    "/tables/{table_id}/reloads",
    operation_id="table_reloads_create",
    status_code=_ACCEPTED,
    dependencies=_OPERATOR,
    responses=responses(
        NotFound,
        SubscriptionNotRunning,
        ReloadRunning,
        TableNotReloadable,
        TableNotPartitioned,
        PartitionNotComparable,
        PartitionUnknown,
        InvalidRequest,
        EngineUnavailable,
        EngineTimeout,
    ),
)
async def create_table_reload(
    request: Request, chosen: Chosen, session: Writing, idempotency: Idempotent, name: str, table_id: str
) -> ReloadView:
    """Copy a table, or some of its partitions, again; its old rows stay readable until the new ones replace them.

    If partitions are named, the table stays live and only their rows are read. The source is first asked which partitions exist.
    """
    return await run_in_threadpool(_begin, request, session, idempotency, name, table_id, chosen.partitions)


def _begin(
    request: Request,
    session: WriteSession,
    idempotency: Idempotency,
    name: str,
    table_id: str | None,
    partitions: list[str] | Literal["changed"] | None = None,
) -> ReloadView:
    row = service.request_reload(session, name, table_id, partitions)
    headers = {"Location": f"{request.url.path}/{row.id}"}
    return idempotency.answer(_ACCEPTED, service.reload_view(session, row), headers)


@router.get("/reloads", operation_id="reloads_list", responses=responses(NotFound, PageTokenInvalid))
def list_reloads(session: Reading, name: str, paging: Paging) -> Page[ReloadView]:
    """Reloads of a subscription and of its tables, the newest first."""
    return _page(session, name, None, paging)


@router.get(
    "/tables/{table_id}/reloads", operation_id="table_reloads_list", responses=responses(NotFound, PageTokenInvalid)
)
def list_table_reloads(session: Reading, name: str, table_id: str, paging: Paging) -> Page[ReloadView]:
    """Reloads of one table, the newest first."""
    require_table(session, name, table_id)
    return _page(session, name, table_id, paging)


def _page(session: ReadSession, name: str, table_id: str | None, paging: PageRequest) -> Page[ReloadView]:
    subscription = require_subscription(session, name)
    query = select(ReloadRow).where(ReloadRow.subscription_id == subscription.id)
    if table_id is not None:
        query = query.where(ReloadRow.table_id == table_id)
    order = col(ReloadRow.created_at), col(ReloadRow.id)
    return paging.read(session, query, lambda row: service.reload_view(session, row), *order, newest_first=True)


@router.get("/reloads/{reload_id}", operation_id="reloads_get", responses=responses(NotFound))
def get_reload(session: Reading, name: str, reload_id: str) -> ReloadView:
    """Progress or result of a reload."""
    return service.reload_view(session, service.require_reload(session, name, reload_id))


@router.get("/tables/{table_id}/reloads/{reload_id}", operation_id="table_reloads_get", responses=responses(NotFound))
def get_table_reload(session: Reading, name: str, table_id: str, reload_id: str) -> ReloadView:
    """Progress or result of a table's reload."""
    return service.reload_view(session, service.require_reload(session, name, reload_id, table_id))


@router.delete(
    "/reloads/{reload_id}",
    operation_id="reloads_cancel",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=_OPERATOR,
    responses=responses(NotFound, ReloadHasEnded, ReloadNotCancellable),
)
def cancel_reload(session: Writing, name: str, reload_id: str) -> None:
    """Cancel a table's reload, like `DELETE …/tables/{table_id}/reloads/{reload_id}`.

    A reload of all tables cannot be cancelled: its tables can follow their source again only after it.
    """
    service.cancel_reload(session, name, reload_id)


@router.delete(
    "/tables/{table_id}/reloads/{reload_id}",
    operation_id="table_reloads_cancel",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=_OPERATOR,
    responses=responses(NotFound, ReloadHasEnded),
)
def cancel_table_reload(session: Writing, name: str, table_id: str, reload_id: str) -> None:
    """Cancel a table's reload; the old rows stay readable.

    A table whose partitions are being reloaded stays live. A table that is being copied as a whole parks with `table_copy_cancelled`,
    because changes since the start of the reload were not applied to its old rows.
    """
    service.cancel_reload(session, name, reload_id, table_id)
