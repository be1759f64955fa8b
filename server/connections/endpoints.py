"""Connections: declare, check, list source tables."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sqlmodel import col, select

from engine.connectors import CONNECTIONS
from engine.kinds import ConnectionKind
from server.connections import repository, service
from server.connections.nodes import NodesFixed
from server.connections.opened import NotASource, NotWithThisCapture, opened, opened_source
from server.connections.schemas import (
    CheckRequest,
    ChecksView,
    ConnectionPatch,
    ConnectionPlan,
    ConnectionPut,
    ConnectionView,
    DdlCaptureView,
    FindingView,
    SourceTableView,
)
from server.connections.service import ConnectionInUse, ConnectionKindFixed
from server.db.dependencies import Reading, Writing, run_write
from server.db.models.connection import ConnectionRow
from server.declarations.shown_column import OwnTableUnfit, refuse_hidden_bodies
from server.declarations.table_body import preflight_specs
from server.declarations.table_declaration import IntoExistingUnsupported, refuse_existing_bodies
from server.errors import InvalidRequest, NotFound, PreconditionFailed, responses
from server.etags import IfMatch, IfNoneMatch, check_absent, set_etag
from server.gateway.interface import EngineTimeout, EngineUnavailable, ask_engine
from server.naming import NamePath
from server.paging import Page, PageTokenInvalid, Paging
from server.security.box import Box
from server.security.principal import Role
from server.security.require import needs
from server.security.secret_box import SecretBox, SecretsUnreadable

router = APIRouter(prefix="/connections", tags=["connections"], dependencies=[needs(Role.VIEWER)])


@router.get("", operation_id="connections_list", summary="List connections", responses=responses(PageTokenInvalid))
def list_connections(session: Reading, paging: Paging) -> Page[ConnectionView]:
    """All connections, by name."""
    return paging.read(session, select(ConnectionRow), ConnectionView.model_validate, col(ConnectionRow.name))


@router.get("/{name}", operation_id="connections_get", summary="Get a connection", responses=responses(NotFound))
def get_connection(session: Reading, response: Response, name: NamePath) -> ConnectionView:
    """Secrets are not shown, only which are set."""
    row = service.require_connection(session, name)
    set_etag(response, row)
    return ConnectionView.model_validate(row)


@router.put(
    "/{name}",
    operation_id="connections_put",
    summary="Create or replace a connection",
    dependencies=[needs(Role.OPERATOR)],
    responses={
        201: {"description": "Created", "model": ConnectionView},
        **responses(InvalidRequest, ConnectionKindFixed, NodesFixed, SecretsUnreadable, PreconditionFailed),
    },
)
def put_connection(
    session: Writing,
    box: Box,
    response: Response,
    name: NamePath,
    body: ConnectionPut,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> ConnectionView:
    """Safe to repeat. Secrets that are left out stay as they are. The database is not contacted; `checks` does that."""
    check_absent(if_none_match, name, repository.lock_connection(session, name))
    row, created = service.put_connection(session, box, name, body, if_match)
    if created:
        response.status_code = 201
    set_etag(response, row)
    return ConnectionView.model_validate(row)


@router.post(
    "/{name}/plans",
    operation_id="connections_plan",
    summary="See what a PUT of a connection would do",
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(InvalidRequest, ConnectionKindFixed, NodesFixed, SecretsUnreadable),
)
def plan_connection(session: Reading, box: Box, name: NamePath, body: ConnectionPut) -> ConnectionPlan:
    """Changes nothing. What the PUT would refuse is refused here in the same way."""
    return service.plan_connection_put(session, box, name, body)


@router.patch(
    "/{name}",
    operation_id="connections_patch",
    summary="Change a connection",
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(NotFound, InvalidRequest, NodesFixed, SecretsUnreadable, PreconditionFailed),
)
def patch_connection(
    session: Writing, box: Box, response: Response, name: NamePath, body: ConnectionPatch, if_match: IfMatch = None
) -> ConnectionView:
    """Changes the settings and secrets in the body; running subscriptions switch to the new values."""
    row = service.patch_connection(session, box, name, body, if_match)
    set_etag(response, row)
    return ConnectionView.model_validate(row)


@router.delete(
    "/{name}",
    operation_id="connections_delete",
    summary="Delete a connection",
    status_code=204,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(NotFound, ConnectionInUse, PreconditionFailed),
)
def delete_connection(session: Writing, name: NamePath, if_match: IfMatch = None) -> None:
    """Refused while a subscription uses it, and while it is a node of another connection. The database itself is not touched."""
    service.remove_connection(session, name, if_match)


@router.post(
    "/{name}/checks",
    operation_id="connections_check",
    summary="Check a connection",
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(
        NotFound,
        InvalidRequest,
        ConnectionKindFixed,
        NodesFixed,
        IntoExistingUnsupported,
        OwnTableUnfit,
        SecretsUnreadable,
        EngineUnavailable,
        EngineTimeout,
    ),
)
async def check_connection(request: Request, box: Box, name: NamePath, body: CheckRequest | None = None) -> ChecksView:
    """The engine connects and reports what would prevent a subscription from working. It only reads."""
    body = body or CheckRequest()
    connection = await opened(request, box, name, body.connection)
    kind = CONNECTIONS[connection["kind"]]
    role = body.role or ("source" if kind.source and (body.capture is not None or not kind.embedded) else "target")
    if not getattr(kind, role):
        raise InvalidRequest.at("/role", f"'{name}' is of the kind {kind.name}, which cannot be a {role}.")
    if role == "target":
        refuse_existing_bodies(body.tables, kind)
    payload = {
        "connection": connection,
        "role": role,
        "tables": preflight_specs(body.tables),
        **_capture_to_check(body, kind if role == "source" else None),
    }
    answer = await ask_engine(request, "preflight", payload)
    findings = [FindingView.model_validate(finding) for finding in answer.get("findings", [])]
    return ChecksView(ok=all(finding.severity != "error" for finding in findings), findings=findings)


def _capture_to_check(body: CheckRequest, source: ConnectionKind | None) -> dict[str, Any]:
    """The members of the command that describe the intended capture. `source`: the kind of a source, None for a target."""
    if body.capture is None:
        return {"origin": body.origin.value}
    kinds = source.captures if source is not None else ()
    if body.capture.kind not in kinds:
        detail = f"The connection is checked as {f'a {source.name}' if source is not None else 'a target'}"
        raise InvalidRequest.at("/capture", f"{detail}, which has no capture '{body.capture.kind}'.")
    if body.tables:
        refuse_hidden_bodies(body.capture, body.tables)
    assigned = body.capture.assigned()
    return {"origin": assigned.get("origin", body.origin.value), "capture": assigned["capture"]}


@router.get(
    "/{name}/tables",
    operation_id="connections_tables",
    summary="List the tables of a source",
    responses=responses(NotFound, InvalidRequest, NotASource, SecretsUnreadable, EngineUnavailable, EngineTimeout),
)
async def list_source_tables(
    request: Request,
    box: Box,
    name: NamePath,
    paging: Paging,
    capture: Annotated[
        str | None,
        Query(
            description="The intended kind of capture, by default the usual one of the source: `problems` are those with it. Of PostgreSQL,"
            " `query_diff` lists views too."
        ),
    ] = None,
) -> Page[SourceTableView]:
    """Tables that could be replicated, by schema and name, with keys, sizes and problems. Each page is read from the source."""
    connection = await opened_source(request, box, name)
    payload: dict[str, Any] = {"connection": connection}
    if capture is not None:
        kind = CONNECTIONS[connection["kind"]]
        if capture not in kind.captures:
            raise InvalidRequest.at(
                "/capture", f"'{name}' is of the kind {kind.name}, which has no capture '{capture}'."
            )
        payload["capture"] = {"kind": capture, "settings": {}}
    answer = await ask_engine(request, "discover", payload)
    tables = [SourceTableView.model_validate(table) for table in answer.get("tables", [])]
    tables.sort(key=lambda table: (table.schema_name, table.name))
    behind = paging.behind(str, str)
    if behind:
        tables = [table for table in tables if (table.schema_name, table.name) > behind]
    return paging.page(tables, lambda table: table, lambda table: (table.schema_name, table.name))


_DDL_CAPTURE = responses(NotFound, NotASource, SecretsUnreadable, EngineUnavailable, EngineTimeout)


@router.get(
    "/{name}/ddl-capture",
    operation_id="connections_ddl_capture_get",
    summary="Show whether a source reports DDL",
    responses=_DDL_CAPTURE,
)
async def get_ddl_capture(request: Request, box: Box, name: NamePath) -> DdlCaptureView:
    """The installed version, and the statements that would install and remove it. The engine connects and only reads."""
    return await _ddl_capture(request, box, name, "look")


@router.put(
    "/{name}/ddl-capture",
    operation_id="connections_ddl_capture_put",
    summary="Have a source report DDL",
    dependencies=[needs(Role.ADMIN)],
    responses=_DDL_CAPTURE | responses(NotWithThisCapture),
)
async def put_ddl_capture(request: Request, box: Box, name: NamePath) -> DdlCaptureView:
    """Installs the event triggers, or brings them up to date. Safe to repeat. The connection's user must be a superuser of the source, or
    a cloud provider's equivalent. Without the triggers, schema changes are detected from log and catalog."""
    return await _ddl_capture(request, box, name, "install")


@router.delete(
    "/{name}/ddl-capture",
    operation_id="connections_ddl_capture_delete",
    summary="Remove the DDL capture from a source",
    dependencies=[needs(Role.ADMIN)],
    responses=_DDL_CAPTURE,
)
async def delete_ddl_capture(request: Request, box: Box, name: NamePath) -> DdlCaptureView:
    """Removes the event triggers, their function and its schema. Safe to repeat; subscriptions continue."""
    return await _ddl_capture(request, box, name, "remove")


async def _ddl_capture(request: Request, box: SecretBox, name: str, action: str) -> DdlCaptureView:
    connection = await opened_source(request, box, name)
    answer = await ask_engine(request, "ddl_capture", {"connection": connection, "action": action})
    if action != "look":
        installed = action == "install"
        await run_write(request, lambda session: service.set_ddl_capture(session, name, installed=installed))
    return DdlCaptureView.model_validate(answer)
