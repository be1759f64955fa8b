"""Alert channels: declare, list, test, delete."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from sqlmodel import col, select

from server.alerts import service
from server.alerts.notices import example_notice
from server.alerts.schemas import AlertChannelPlan, AlertChannelPut, AlertChannelView, AlertTestView
from server.alerts.senders import NotDelivered, Receiver, send_in_thread
from server.alerts.service import AlertKindFixed, TooManyAlertChannels
from server.db.dependencies import Reading, Writing, run_read
from server.db.models.alert import AlertChannelRow
from server.errors import NotFound, PreconditionFailed, responses
from server.etags import IfMatch, IfNoneMatch, check_absent, set_etag
from server.naming import NamePath
from server.paging import Page, PageTokenInvalid, Paging
from server.security.box import Box
from server.security.principal import Role
from server.security.require import needs
from server.security.secret_box import SecretsUnreadable

router = APIRouter(prefix="/alert-channels", tags=["alert channels"], dependencies=[needs(Role.VIEWER)])
_TESTED_S = 30.0


@router.get(
    "", operation_id="alert_channels_list", summary="List alert channels", responses=responses(PageTokenInvalid)
)
def list_alert_channels(session: Reading, paging: Paging) -> Page[AlertChannelView]:
    """All alert channels, by name."""
    return paging.read(session, select(AlertChannelRow), AlertChannelView.model_validate, col(AlertChannelRow.name))


@router.get("/{name}", operation_id="alert_channels_get", summary="Get an alert channel", responses=responses(NotFound))
def get_alert_channel(session: Reading, response: Response, name: NamePath) -> AlertChannelView:
    """Secrets are not shown, only which are set."""
    row = service.require_channel(session, name)
    set_etag(response, row)
    return AlertChannelView.model_validate(row)


@router.put(
    "/{name}",
    operation_id="alert_channels_put",
    summary="Create or replace an alert channel",
    dependencies=[needs(Role.OPERATOR)],
    responses={
        201: {"description": "Created", "model": AlertChannelView},
        **responses(AlertKindFixed, TooManyAlertChannels, SecretsUnreadable, PreconditionFailed),
    },
)
def put_alert_channel(
    session: Writing,
    box: Box,
    response: Response,
    name: NamePath,
    body: AlertChannelPut,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> AlertChannelView:
    """Safe to repeat. Secrets that are left out stay as they are. The receiver is not contacted; `test` does that."""
    check_absent(if_none_match, name, service.lock_channel(session, name))
    row, created = service.put_channel(session, box, name, body, if_match)
    if created:
        response.status_code = 201
    set_etag(response, row)
    return AlertChannelView.model_validate(row)


@router.post(
    "/{name}/plans",
    operation_id="alert_channels_plan",
    summary="See what a PUT of an alert channel would do",
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(AlertKindFixed, TooManyAlertChannels, SecretsUnreadable),
)
def plan_alert_channel(session: Reading, box: Box, name: NamePath, body: AlertChannelPut) -> AlertChannelPlan:
    """Changes nothing. What the PUT would refuse is refused here in the same way."""
    return service.plan_channel_put(session, box, name, body)


@router.delete(
    "/{name}",
    operation_id="alert_channels_delete",
    summary="Delete an alert channel",
    status_code=204,
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(NotFound),
)
def delete_alert_channel(session: Writing, name: NamePath) -> None:
    """Its notices that are not delivered yet are deleted with it."""
    service.remove_channel(session, name)


@router.post(
    "/{name}/test",
    operation_id="alert_channels_test",
    summary="Test an alert channel",
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(NotFound, SecretsUnreadable),
)
async def test_alert_channel(request: Request, box: Box, name: NamePath) -> AlertTestView:
    """Sends a test notice once, at once, and answers whether the receiver accepted it."""
    receiver = await run_read(request, lambda session: Receiver.of(service.require_channel(session, name), box))
    now = request.app.state.clock.now()
    try:
        detail = await asyncio.wait_for(send_in_thread(receiver, example_notice(now), now), _TESTED_S)
    except TimeoutError:
        return AlertTestView(delivered=False, detail=f"There was no complete answer within {_TESTED_S:g} s.")
    except NotDelivered as error:
        return AlertTestView(delivered=False, detail=str(error))
    return AlertTestView(delivered=True, detail=detail)
