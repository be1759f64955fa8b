"""The triggers that record a source's changes: show, plan, install, remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request

from server.connections import service
from server.connections.opened import NotASource, NotWithThisCapture, opened_source
from server.connections.schemas import ChangeTriggersPlan, ChangeTriggersRequest, ChangeTriggersView
from server.db.dependencies import run_read, run_write
from server.errors import Conflict, NotFound, ReportedProblem, responses
from server.gateway.interface import EngineTimeout, EngineUnavailable, ask_engine
from server.naming import NamePath, QualifiedName
from server.security.box import Box
from server.security.principal import Role
from server.security.require import needs
from server.security.secret_box import SecretBox, SecretsUnreadable

router = APIRouter(prefix="/connections", tags=["connections"], dependencies=[needs(Role.VIEWER)])


class ChangeTriggersInUse(Conflict):
    code = "change_triggers_in_use"
    title = "A subscription reads what the triggers record"
    default_remedy = "Delete the subscriptions that read the recorded changes, then remove the triggers."


_PROBLEMS = (NotFound, NotASource, NotWithThisCapture, SecretsUnreadable, EngineUnavailable, EngineTimeout)


@router.get(
    "/{name}/change-triggers",
    operation_id="connections_change_triggers_get",
    summary="Show the triggers that record a source's changes",
    responses=responses(*_PROBLEMS),
)
async def get_change_triggers(request: Request, box: Box, name: NamePath) -> ChangeTriggersView:
    """The tables with triggers, and the statements that would bring them up to date and remove them. The engine only reads."""
    return _view(await _asked(request, box, name, "look"))


@router.put(
    "/{name}/change-triggers",
    operation_id="connections_change_triggers_put",
    summary="Install triggers that record a source's changes",
    dependencies=[needs(Role.ADMIN)],
    responses=responses(*_PROBLEMS),
)
async def put_change_triggers(
    request: Request, box: Box, name: NamePath, body: ChangeTriggersRequest
) -> ChangeTriggersView:
    """Runs the statements that `plans` shows for the same body. Safe to repeat; other tables keep their triggers. Without tables it brings
    what is there up to date. A subscription installs triggers itself unless its `capture.install` is false. Changes are recorded from then
    on, until a subscription has read them."""
    answer = await _asked(request, box, name, "install", body.tables)
    await run_write(request, lambda session: service.set_change_triggers(session, name, installed=True))
    return _view(answer)


@router.delete(
    "/{name}/change-triggers",
    operation_id="connections_change_triggers_delete",
    summary="Remove the triggers that record a source's changes",
    dependencies=[needs(Role.ADMIN)],
    responses=responses(*_PROBLEMS, ChangeTriggersInUse),
)
async def delete_change_triggers(request: Request, box: Box, name: NamePath) -> ChangeTriggersView:
    """Removes all triggers, the recorded changes and all else that holds them. Safe to repeat. Refused while a subscription reads the
    changes, of this server or of another one."""
    try:
        answer = await _asked(request, box, name, "remove")
    except ReportedProblem as problem:
        if problem.code != ChangeTriggersInUse.code:
            raise
        said = problem.detail
        detail = await run_read(request, lambda session: service.with_subscriptions(session, name, said))
        raise ChangeTriggersInUse(detail) from problem
    await run_write(request, lambda session: service.set_change_triggers(session, name, installed=False))
    return _view(answer)


@router.post(
    "/{name}/change-triggers/plans",
    operation_id="connections_change_triggers_plan",
    summary="See what a PUT of change triggers would run",
    dependencies=[needs(Role.OPERATOR)],
    responses=responses(*_PROBLEMS),
)
async def plan_change_triggers(
    request: Request, box: Box, name: NamePath, body: ChangeTriggersRequest
) -> ChangeTriggersPlan:
    """The statements, with the locks that each takes and what it costs. Nothing is run."""
    answer = await _asked(request, box, name, "plan", body.tables)
    return ChangeTriggersPlan.model_validate({"statements": answer["plan"], "grants": answer["grants"]})


async def _asked(
    request: Request, box: SecretBox, name: str, action: str, tables: Sequence[QualifiedName] = ()
) -> dict[str, Any]:
    connection = await opened_source(request, box, name)
    named = [{"schema": table.schema_name, "name": table.name} for table in tables]
    return await ask_engine(request, "change_triggers", {"connection": connection, "action": action, "tables": named})


def _view(answer: dict[str, Any]) -> ChangeTriggersView:
    tables = [{**t["table"], "variant": t["variant"], "current": t["current"]} for t in answer["tables"]]
    return ChangeTriggersView.model_validate({**answer, "tables": tables})
