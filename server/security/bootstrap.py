"""Prepares the first request: creates the administrator's and the engine's token, and seals secrets with the first key."""

from __future__ import annotations

import sys

from sqlmodel import col, select

from server.db.database import Database
from server.db.models.alert import AlertChannelRow
from server.db.models.connection import ConnectionRow
from server.logs import get_logger
from server.security import tokens
from server.security.principal import PRESET_ADMIN, Role
from server.security.secret_box import SecretBox, SecretsUnreadable
from server.settings import Settings

_log = get_logger(__name__)
_PRESET_ENGINE = "preset-engine"
_FIRST_ADMIN = "first-admin"


def ensure_tokens(database: Database, settings: Settings) -> None:
    """Store preset tokens; if no administrator's token exists, create one and print it once on stderr."""
    first: str | None = None
    with database.write() as session:
        if settings.admin_token is not None:
            tokens.preset_token(session, PRESET_ADMIN, Role.ADMIN, settings.admin_token.get_secret_value())
        if settings.engine_token is not None:
            tokens.preset_token(session, _PRESET_ENGINE, Role.ENGINE, settings.engine_token.get_secret_value())
        if not settings.insecure_no_auth and not tokens.has_admin(session):
            _, first = tokens.create_token(session, _FIRST_ADMIN, Role.ADMIN)
    if first is not None:
        # Not a log record: logs are collected and stored.
        sys.stderr.write(f"\nFirst administrator token (shown once, keep it): {first}\n\n")
        sys.stderr.flush()


def renew_seals(database: Database, box: SecretBox) -> None:
    """Seal secrets of older keys with the first key, so that the older keys can be removed."""
    with database.write() as session:
        connections = select(ConnectionRow).where(col(ConnectionRow.secrets_sealed).is_not(None))
        channels = select(AlertChannelRow).where(col(AlertChannelRow.secrets_sealed).is_not(None))
        for row in (*session.exec(connections), *session.exec(channels)):
            try:
                sealed = box.renewed(row.secrets_sealed or "")
            except SecretsUnreadable:
                _log.warning("secrets_unreadable", of=row.__tablename__, name=row.name)
                continue
            if sealed is not None:
                row.secrets_sealed = sealed
                session.add(row)
