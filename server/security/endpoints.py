"""Tokens: create, list and revoke; and the role of the caller's own token."""

from __future__ import annotations

from fastapi import APIRouter

from server.db.dependencies import Reading, Writing
from server.db.models.token import TokenRow
from server.errors import InvalidRequest, NotFound, responses
from server.paging import Page
from server.security import tokens
from server.security.principal import Role
from server.security.require import Caller, needs
from server.security.schemas import CallerView, TokenCreate, TokenCreated, TokenPatch, TokenView
from server.security.tokens import LastAdminToken, TokenNameTaken

router = APIRouter(prefix="/tokens", tags=["tokens"], dependencies=[needs(Role.ADMIN)])
caller_router = APIRouter(prefix="/caller", tags=["tokens"])


def _view(row: TokenRow) -> TokenView:
    return TokenView(id=row.id, name=row.name, role=Role(row.role), settings=row.settings, created_at=row.created_at)


@router.get("", operation_id="tokens_list", summary="List tokens")
def list_tokens(session: Reading) -> Page[TokenView]:
    """All tokens, without their texts, on one page."""
    return Page(items=[_view(row) for row in tokens.list_all(session)])


@router.post(
    "",
    operation_id="tokens_create",
    summary="Create a token",
    status_code=201,
    responses=responses(TokenNameTaken, InvalidRequest),
)
def create_token(session: Writing, body: TokenCreate) -> TokenCreated:
    """The token's text is shown in this answer only."""
    row, text = tokens.create_token(session, body.name, body.role, settings=body.settings)
    return TokenCreated(**_view(row).model_dump(), token=text)


@router.patch(
    "/{token_id}",
    operation_id="tokens_patch",
    summary="Change a token",
    responses=responses(NotFound, InvalidRequest),
)
def patch_token(session: Writing, token_id: str, body: TokenPatch) -> TokenView:
    """Sessions that begin from now on have the new settings; calls of Arrow Flight SQL have them after at most five seconds."""
    return _view(tokens.change_settings(session, token_id, body.settings))


@router.delete(
    "/{token_id}",
    operation_id="tokens_revoke",
    summary="Revoke a token",
    status_code=204,
    responses=responses(NotFound, LastAdminToken),
)
def revoke_token(session: Writing, token_id: str) -> None:
    """Requests with it are refused from now on."""
    tokens.revoke_token(session, token_id)


@caller_router.get("", operation_id="caller_get", summary="Show the caller")
def get_caller(caller: Caller) -> CallerView:
    """Name and role of the request's token, so that a client can offer only permitted actions."""
    return CallerView(name=caller.name, role=caller.role)
