"""Rows that a target refused: list, retry and skip them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from engine.model.positions import PositionForm
from server.db.dependencies import run_read, run_write
from server.db.session import ReadSession
from server.errors import NotFound, responses
from server.gateway.interface import EngineTimeout, EngineUnavailable, ask_engine
from server.lookup.subscriptions import position_form, require_subscription
from server.lookup.tables import TableRemoved
from server.naming import NamePath
from server.paging import Page, PageTokenInvalid, Paging
from server.refused_rows import service
from server.refused_rows.schemas import RefusedRowsOutcome, RefusedRowView
from server.refused_rows.service import Action, TableNotComplete
from server.security.principal import Role
from server.security.require import Caller, needs
from server.tables.endpoints import TableIdPath

router = APIRouter(
    prefix="/subscriptions/{name}/tables/{table_id}/refused-rows",
    tags=["refused rows"],
    dependencies=[needs(Role.VIEWER)],
)
RowIdPath = Annotated[str, Path(max_length=64, description="The refused row's id.")]
_DEALT_WITH = responses(NotFound, TableNotComplete, TableRemoved, EngineUnavailable, EngineTimeout)


@router.get(
    "",
    operation_id="refused_rows_list",
    summary="List refused rows",
    responses=responses(NotFound, TableRemoved, PageTokenInvalid, EngineUnavailable, EngineTimeout),
)
async def list_refused(request: Request, paging: Paging, name: NamePath, table_id: TableIdPath) -> Page[RefusedRowView]:
    """Refused rows in the order in which they were refused. Their values are read from the target, where they are stored."""
    behind = paging.behind(int)
    start = behind[0] if behind else 0
    answer, form = await _request_engine(request, name, table_id, "list")
    found = service.refused_row_views(answer, form)[start:]
    return paging.page(found, lambda row: row, lambda _: [start + paging.size])


@router.post(
    "/retries",
    operation_id="refused_rows_retry",
    summary="Retry refused rows",
    dependencies=[needs(Role.OPERATOR)],
    responses=_DEALT_WITH,
)
async def retry_all(request: Request, name: NamePath, table_id: TableIdPath, caller: Caller) -> RefusedRowsOutcome:
    """Try to write all quarantined rows of the table to it, except skipped ones. Rows that are refused again remain in quarantine with
    their new cause."""
    return await _retry_or_skip(request, name, table_id, "retry", None, caller.name)


@router.post(
    "/skips",
    operation_id="refused_rows_skip",
    summary="Skip refused rows",
    dependencies=[needs(Role.OPERATOR)],
    responses=_DEALT_WITH,
)
async def skip_all(request: Request, name: NamePath, table_id: TableIdPath, caller: Caller) -> RefusedRowsOutcome:
    """Mark all quarantined rows of the table as skipped, with the user. They remain listed."""
    return await _retry_or_skip(request, name, table_id, "skip", None, caller.name)


@router.post(
    "/{row_id}/retries",
    operation_id="refused_row_retry",
    summary="Retry a refused row",
    dependencies=[needs(Role.OPERATOR)],
    responses=_DEALT_WITH,
)
async def retry_one(
    request: Request, name: NamePath, table_id: TableIdPath, row_id: RowIdPath, caller: Caller
) -> RefusedRowsOutcome:
    """Try to write the row to its table, even if it is skipped. If it is refused again, `done` is empty and the row has its new cause."""
    return await _retry_or_skip(request, name, table_id, "retry", row_id, caller.name)


@router.post(
    "/{row_id}/skips",
    operation_id="refused_row_skip",
    summary="Skip a refused row",
    dependencies=[needs(Role.OPERATOR)],
    responses=_DEALT_WITH,
)
async def skip_one(
    request: Request, name: NamePath, table_id: TableIdPath, row_id: RowIdPath, caller: Caller
) -> RefusedRowsOutcome:
    """Mark the row as skipped, with the user. It remains listed until a later change of it, or a reload."""
    return await _retry_or_skip(request, name, table_id, "skip", row_id, caller.name)


async def _retry_or_skip(
    request: Request, name: str, table_id: str, action: Action, row_id: str | None, by: str
) -> RefusedRowsOutcome:
    rows = None if row_id is None else [row_id]
    answer, _ = await _request_engine(request, name, table_id, action, rows, by)
    outcome = service.outcome_view(answer, row_id)
    await run_write(request, lambda session: service.record_outcome(session, name, table_id, action, by, outcome))
    return outcome


async def _request_engine(
    request: Request, name: str, table_id: str, action: Action, rows: list[str] | None = None, by: str = ""
) -> tuple[dict[str, object], PositionForm]:
    """The engine's answer, and the form of the positions of its source."""

    def question(session: ReadSession) -> tuple[dict[str, object], PositionForm]:
        payload = service.refused_rows_payload(session, name, table_id, action, rows, by)
        return payload, position_form(require_subscription(session, name))

    payload, form = await run_read(request, question)
    return await ask_engine(request, "refused_rows", payload), form
