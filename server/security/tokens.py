"""Bearer tokens: creation, lookup and revocation. Only their hashes and SCRAM verifiers are stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

from sqlmodel import col, select

from engine.model.run_time_parameters import ParameterError, assigned, known_parameter
from engine.platform.scram import Verifier
from server.db.models.token import TokenRow
from server.db.session import ReadSession, WriteSession
from server.errors import Conflict, InvalidRequest, NotFound
from server.security.principal import Principal, Role
from server.security.schemas import MOST_SETTINGS

PREFIX = "pst_"


class TokenNameTaken(Conflict):
    code = "token_name_taken"
    title = "A token of this name exists"
    default_remedy = "Choose another name, or revoke that token first."


class LastAdminToken(Conflict):
    code = "last_admin_token"
    title = "The last administrator's token"
    default_remedy = "Make another administrator's token first."


def token_digest(token: str) -> str:
    """The hash that is stored in place of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def create_token(
    session: WriteSession, name: str, role: Role, token: str | None = None, settings: Mapping[str, str] | None = None
) -> tuple[TokenRow, str]:
    """Create a token and return it with its row; it cannot be read again. `token` presets its text; `settings`: run-time parameters of its
    sessions.

    Raises:
        TokenNameTaken: a token of this name exists.
        InvalidRequest: a setting is invalid.
    """
    checked = _checked_settings(role, settings or {})
    if session.exec(select(TokenRow).where(TokenRow.name == name)).first() is not None:
        raise TokenNameTaken(f"A token named '{name}' exists already.")
    text = token or PREFIX + secrets.token_urlsafe(32)
    row = TokenRow(
        id=secrets.token_hex(6),
        name=name,
        role=role.value,
        digest=token_digest(text),
        scram=str(Verifier.of(text)),
        settings=checked,
        created_at=session.now(),
    )
    session.add(row)
    session.flush()
    return row, text


def change_settings(session: WriteSession, token_id: str, given: Mapping[str, str | None]) -> TokenRow:
    """Set the named run-time parameters of a token's sessions; None removes one.

    Raises:
        NotFound: there is no such token.
        InvalidRequest: a setting is invalid.
    """
    row = _token(session, token_id)
    added = _checked_settings(Role(row.role), {name: value for name, value in given.items() if value is not None})
    removed = {_removed(name) for name, value in given.items() if value is None}
    if twice := removed & added.keys():
        raise InvalidRequest.at("/settings", f'parameter "{min(twice)}" is named twice')
    kept = {name: value for name, value in row.settings.items() if name not in removed}
    settings = kept | added
    if len(settings) > MOST_SETTINGS:
        raise InvalidRequest.at("/settings", f"A token has at most {MOST_SETTINGS} settings.", "Remove some.")
    row.settings = settings
    session.add(row)
    return row


def _checked_settings(role: Role, given: Mapping[str, str]) -> dict[str, str]:
    """The settings as they are stored, checked as SET checks them."""
    if given and role is Role.ENGINE:
        detail = "The token of an engine does not log in to SQL endpoints."
        raise InvalidRequest.at("/settings", detail, "Leave the settings out, or choose another role.")
    found: dict[str, str] = {}
    for name, value in given.items():
        try:
            known, checked = assigned(name, value)
        except ParameterError as error:
            raise InvalidRequest.at(f"/settings/{name}", error.message, error.hint) from None
        if known in found:
            raise InvalidRequest.at(f"/settings/{name}", f'parameter "{known}" is named twice')
        found[known] = checked
    return found


def _removed(name: str) -> str:
    """The stored name of a setting to remove. One that this version does not know can be removed too."""
    try:
        return known_parameter(name)
    except ParameterError:
        return name


def find_principal(session: ReadSession, token: str) -> Principal | None:
    """The principal of this token."""
    row = find_by_digest(session, token_digest(token))
    return None if row is None else Principal(id=row.id, name=row.name, role=Role(row.role))


def find_by_digest(session: ReadSession, digest: str) -> TokenRow | None:
    """The token with this `token_digest`."""
    return session.exec(select(TokenRow).where(TokenRow.digest == digest)).first()


def find_login(session: ReadSession, user: str) -> TokenRow | None:
    """The token of this name, which is the user name of logins with it."""
    return session.exec(select(TokenRow).where(TokenRow.name == user)).first()


def list_all(session: ReadSession) -> list[TokenRow]:
    return list(session.exec(select(TokenRow).order_by(col(TokenRow.name))))


def revoke_token(session: WriteSession, token_id: str) -> None:
    """Revoke a token.

    Raises:
        NotFound: there is no such token.
        LastAdminToken: it is the last token that can administer the server.
    """
    row = _token(session, token_id)
    admins = session.exec(select(TokenRow).where(TokenRow.role == Role.ADMIN.value)).all()
    if row.role == Role.ADMIN.value and len(admins) == 1:
        raise LastAdminToken(f"'{row.name}' is the last token with the role admin.")
    session.delete(row)
    session.revoke()


def _token(session: WriteSession, token_id: str) -> TokenRow:
    row = session.get(TokenRow, token_id, with_for_update=True)
    if row is None:
        raise NotFound(f"There is no token with the id '{token_id}'.", "GET /api/v1/tokens lists them.")
    return row


def preset_token(session: WriteSession, name: str, role: Role, token: str) -> None:
    """Make exactly `token` valid under `name`, in place of the previous preset of that name, whose settings it keeps."""
    wanted = token_digest(token)
    same_text = session.exec(select(TokenRow).where(TokenRow.digest == wanted)).first()
    named = session.exec(select(TokenRow).where(TokenRow.name == name)).first()
    if same_text is not None and same_text.role == role.value:
        if same_text.scram is None:
            same_text.scram = str(Verifier.of(token))
            session.add(same_text)
        return
    settings = named.settings if named is not None and named.role == role.value else {}
    for row in (same_text, named):
        if row is not None:
            session.delete(row)
            session.revoke()
    session.flush()
    created, _ = create_token(session, name, role, token)
    created.settings = settings


def has_admin(session: ReadSession) -> bool:
    return session.exec(select(TokenRow).where(TokenRow.role == Role.ADMIN.value)).first() is not None
