"""Migrations make exactly what the models describe, on SQLite, and can be undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import inspect

from server.db import migrate
from server.db.database import Database
from server.settings import SettingsError


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'control.db'}"


def check_migrations(url: str) -> None:
    migrate.upgrade(url)
    migrate.upgrade(url)
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            assert migrate.differences(connection) == []
            assert migrate.is_current(connection)
        migrate.downgrade(url, "base")
        with database.engine.connect() as connection:
            assert set(inspect(connection).get_table_names()) == {"alembic_version"}
        with pytest.raises(SettingsError, match="penstock db upgrade"):
            migrate.require_current(database)
        migrate.upgrade(url)
        migrate.require_current(database)
    finally:
        database.close()


def test_sqlite(sqlite_url: str) -> None:
    check_migrations(sqlite_url)


def test_sqlite_is_in_wal_mode_with_foreign_keys(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    database.close()
