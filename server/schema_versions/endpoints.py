"""The versioned history of a table."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from sqlmodel import col, select

from server.db.dependencies import Reading
from server.db.models.schema_version import SchemaVersionRow
from server.errors import NotFound, responses
from server.lookup.subscriptions import position_form, require_subscription
from server.lookup.tables import require_table
from server.naming import NamePath
from server.paging import Page, PageTokenInvalid, Paging
from server.schema_versions import service
from server.schema_versions.schemas import VersionView
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/subscriptions/{name}/tables", tags=["tables"], dependencies=[needs(Role.VIEWER)])


@router.get(
    "/{table_id}/versions",
    operation_id="schema_versions_list",
    summary="List a table's history",
    responses=responses(NotFound, PageTokenInvalid),
)
def list_versions(
    session: Reading, paging: Paging, name: NamePath, table_id: Annotated[str, Path(max_length=64)]
) -> Page[VersionView]:
    """Every change of schema or state, oldest first, also of a removed table. A schema change says what changed and how it was
    detected."""
    table = require_table(session, name, table_id)
    form = position_form(require_subscription(session, name))
    query = select(SchemaVersionRow).where(SchemaVersionRow.table_id == table.id)
    return paging.read(session, query, lambda row: service.version_view(row, form), col(SchemaVersionRow.id))
