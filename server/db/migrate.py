"""Migrates a control database to the newest schema, and checks its version."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

import migrations
import server.db.models  # noqa: F401  so that metadata knows every table
from server.db.base import metadata
from server.db.database import Database
from server.settings import SettingsError


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def upgrade(url: str, revision: str = "head") -> None:
    """Run all missing migrations in one transaction. Safe to repeat, also concurrently in several processes.

    Raises:
        SettingsError: a newer version has migrated the database further; the remedy is in its text.
    """
    database = Database(url)
    try:
        with database.engine.execution_options(sqlite_begin="BEGIN IMMEDIATE").begin() as connection:
            _lock(connection)
            _require_known(connection)
            if revision != "head" or not is_current(connection):
                command.upgrade(_config(connection), revision)
    finally:
        database.close()


def downgrade(url: str, revision: str) -> None:
    """Revert migrations down to `revision`, or `base`."""
    database = Database(url)
    try:
        with database.engine.begin() as connection:
            command.downgrade(_config(connection), revision)
    finally:
        database.close()


def is_current(connection: Connection) -> bool:
    """Whether the newest migration has been applied."""
    return MigrationContext.configure(connection).get_current_revision() == _own_revisions()[0]


def require_usable(url: str) -> None:
    """Check, before anything is started, that this version can work with the control database.

    A local SQLite file that is missing or older is accepted: the start creates or upgrades it.

    Raises:
        SettingsError: it cannot be opened, or has another schema; the remedy is in its text.
    """
    parsed = _parsed(url)
    own = parsed.get_backend_name() == "sqlite"
    if own and not (parsed.database and Path(parsed.database).is_file()):
        return
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            _require_known(connection)
        if not own:
            require_current(database)
    except DBAPIError as error:
        where = parsed.render_as_string(hide_password=True)
        detail = (
            f"the control database {where} cannot be opened ({type(error.orig).__name__}); check PENSTOCK_DATABASE_URL"
        )
        raise SettingsError(detail) from error
    finally:
        database.close()


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # neither may be shown: they contain the part that may be the password
        raise SettingsError(
            "PENSTOCK_DATABASE_URL cannot be read; write postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE, "
            "with special characters of the password as %XX"
        ) from None
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or Path(parsed.database).is_dir():
            raise SettingsError("PENSTOCK_DATABASE_URL names no file; write sqlite:///PATH")
        return parsed
    for name in ("sslrootcert", "sslcert", "sslkey"):
        file = parsed.query.get(name)
        if isinstance(file, str) and file != "system" and not os.access(file, os.R_OK):
            raise SettingsError(f"the file {file}, {name} of PENSTOCK_DATABASE_URL, cannot be read; correct its path")
    return parsed


def _require_known(connection: Connection) -> None:
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is not None and revision not in _own_revisions():
        raise SettingsError(
            f"the control database has the schema '{revision}' of a newer version of Penstock; "
            "run that version, or name another database or data folder"
        )


def require_current(database: Database) -> None:
    """Check that the schema of the database is the newest.

    Raises:
        SettingsError: the remedy is in its text.
    """
    with database.engine.connect() as connection:
        if not is_current(connection):
            raise SettingsError("the control database has another schema than this version; run 'penstock db upgrade'")


def schema_differences(connection: Connection) -> list[object]:
    """Differences between the database and the models; empty if migrations and models agree."""
    context = MigrationContext.configure(connection, opts={"compare_type": True, "target_metadata": metadata})
    return list(compare_metadata(context, metadata))


@cache
def _own_revisions() -> tuple[str, ...]:
    """The revisions of this version, the newest first. Reading them loads every migration."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(1347702347)")
