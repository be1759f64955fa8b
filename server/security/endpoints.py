"""Tokens: create, list and revoke; and the role of the caller's own token."""

from __future__ import annotations

from fastapi import APIRouter

from server.db.dependencies import Reading, Writing
from server.db.models.token import TokenRow
from server.errors import NotFound, responses
from server.paging import Page
from server.security import tokens
from server.security.principal import Role
from server.security.require import Caller, needs
from server.security.schemas import CallerView, TokenCreate, TokenCreated, TokenView
from server.security.tokens import LastAdminToken, TokenNameTaken

router = APIRouter(prefix="/tokens", tags=["tokens"], dependencies=[needs(Role.ADMIN)])
caller_router = APIRouter(prefix="/caller", tags=["tokens"])


def _view(row: TokenRow) -> TokenView:
    return TokenView(id=row.id, name=row.name, role=Role(row.role), created_at=row.created_at)


@router.get("", operation_id="tokens_list", summary="List tokens")
def list_tokens(session: Reading) -> Page[TokenView]:
    """All tokens, without their texts, on one page."""
    return Page(items=[_view(row) for row in tokens.list_all(session)])


@router.post(
    "", operation_id="tokens_create", summary="Make a token", status_code=201, responses=responses(TokenNameTaken)
)
def create_token(session: Writing, body: TokenCreate) -> TokenCreated:
    """The answer is the only place where the token's text is ever shown."""
    row, text = tokens.create_token(session, body.name, body.role)
    return TokenCreated(**_view(row).model_dump(), token=text)


@router.delete(
    "/{token_id}",
    operation_id="tokens_revoke",
    summary="Revoke a token",
    status_code=204,
    responses=responses(NotFound, LastAdminToken),
)
def revoke_token(session: Writing, token_id: str) -> None:
    """It is refused from the next request on."""
    tokens.revoke_token(session, token_id)


@caller_router.get("", operation_id="caller_get", summary="Who the request is from")
def get_caller(caller: Caller) -> CallerView:
    """What the request's own token is called and which role it has, so that programs offer only what they may do."""
    return CallerView(name=caller.name, role=caller.role)
