"""Alembic's entry point. Uses the connection that `server.db.migrate` passes, else PENSTOCK_DATABASE_URL or the home's file."""

from __future__ import annotations

from typing import Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Connection
from sqlmodel.sql.sqltypes import AutoString

import server.db.models  # noqa: F401  so that metadata knows every table
from server.db.base import metadata
from server.db.database import Database
from server.settings import load_settings


def _render(kind: str, item: object, autogen: AutogenContext) -> str | Literal[False]:
    """Render SQLModel's string type as a plain String in migrations."""
    if kind == "type" and isinstance(item, AutoString):
        return f"sa.String(length={item.length})" if item.length else "sa.String()"
    return False


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        compare_type=True,
        render_item=_render,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


_given: Connection | None = context.config.attributes.get("connection")
if _given is not None:
    _run(_given)
else:
    _database = Database(load_settings().control_database)
    with _database.engine.begin() as _connection:
        _run(_connection)
    _database.close()
