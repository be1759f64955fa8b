"""The sample source: show, start and remove it."""

from __future__ import annotations

from fastapi import APIRouter, Request

from server.connections.service import ConnectionInUse
from server.db.dependencies import database_of
from server.errors import responses
from server.sample_source import service
from server.sample_source.schemas import SampleSourceView
from server.sample_source.service import SampleNameTaken, SampleUnavailable
from server.security.box import Box
from server.security.principal import Role
from server.security.require import needs
from server.security.secret_box import SecretsUnreadable

router = APIRouter(prefix="/sample-source", tags=["sample source"], dependencies=[needs(Role.VIEWER)])


def _shown(request: Request) -> SampleSourceView:
    state = request.app.state
    return service.sample_source_view(state.sample, state.settings.home)


@router.get("", operation_id="sample_source_get", summary="Show the sample source")
def get_sample_source(request: Request) -> SampleSourceView:
    """A small PostgreSQL under a light load on the server's machine, for a first subscription."""
    return _shown(request)


@router.put(
    "",
    operation_id="sample_source_put",
    summary="Start the sample source",
    status_code=202,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(SampleUnavailable, SampleNameTaken, SecretsUnreadable),
)
def put_sample_source(request: Request, box: Box) -> SampleSourceView:
    """Its connection exists at once; a GET shows when the database runs, which takes some seconds the first time. Safe to repeat; a
    failed start is retried. It restarts with the server until it is removed. Only an engine on the server's machine can reach it."""
    service.start_sample_source(database_of(request), box, request.app.state.sample)
    return _shown(request)


@router.delete(
    "",
    operation_id="sample_source_delete",
    summary="Remove the sample source",
    status_code=204,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(ConnectionInUse),
)
def delete_sample_source(request: Request) -> None:
    """Stops it, and deletes its database and its connection. Refused while a subscription uses it. Safe to repeat."""
    service.remove_sample_source(database_of(request), request.app.state.sample)
