"""Principals are kept for a time, and never longer than their tokens are valid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.db import migrate
from server.db.database import Database
from server.security import principals, tokens
from server.security.principal import Role
from server.security.principals import KEPT_S, Principals


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    url = f"sqlite:///{tmp_path}/control.sqlite"
    migrate.upgrade(url)
    made = Database(url)
    yield made
    made.close()


@pytest.fixture
def kept(database: Database) -> Iterator[Principals]:
    with Principals.of(database) as found:
        yield found


def make(database: Database, name: str = "app", role: Role = Role.VIEWER) -> tuple[str, str]:
    """Id and text of a new token."""
    with database.write() as session:
        row, text = tokens.create_token(session, name, role)
        return row.id, text


def test_a_lookup_counts_for_a_time(database: Database, kept: Principals) -> None:
    _, token = make(database)
    assert kept.known(token, 0.0) is None
    found = kept.look_up(token, 0.0)
    assert found is not None
    assert (found.name, found.role) == ("app", Role.VIEWER)
    assert kept.known(token, KEPT_S - 0.1) == found
    assert kept.known(token, KEPT_S) is None


def test_an_unknown_token_is_not_kept(database: Database, kept: Principals) -> None:
    assert kept.look_up("pst_unknown", 0.0) is None
    assert kept.known("pst_unknown", 0.0) is None
    assert not kept._found


def test_a_revoked_token_is_forgotten_at_the_commit(database: Database, kept: Principals) -> None:
    token_id, token = make(database)
    kept.look_up(token, 0.0)
    with database.open_write() as session:
        tokens.revoke_token(session, token_id)
        session.rollback()
    assert kept.known(token, 0.0) is not None
    with database.write() as session:
        tokens.revoke_token(session, token_id)
        assert kept.known(token, 0.0) is not None
    assert kept.known(token, 0.0) is None


def test_a_preset_token_of_another_role_is_forgotten(database: Database, kept: Principals) -> None:
    with database.write() as session:
        tokens.preset_token(session, "preset", Role.VIEWER, "pst_same")
    kept.look_up("pst_same", 0.0)
    with database.write() as session:
        tokens.preset_token(session, "preset", Role.ADMIN, "pst_same")
    assert kept.known("pst_same", 0.0) is None


def test_a_lookup_that_a_revocation_overtakes_is_not_kept(
    database: Database, kept: Principals, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_id, token = make(database)
    real = tokens.find_principal

    def overtaken(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type]
        with database.write() as session:
            tokens.revoke_token(session, token_id)
        return found

    monkeypatch.setattr(principals.tokens, "find_principal", overtaken)
    assert kept.look_up(token, 0.0) is not None
    assert kept.known(token, 0.0) is None
