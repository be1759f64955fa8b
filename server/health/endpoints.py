"""Liveness and readiness, for process monitors. They require no token."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from server.db.dependencies import database_of
from server.errors import FieldError, Problem, responses
from server.gateway.interface import gateway_of

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The server can work."""

    status: str = "ok"


class NotReady(Problem):
    status = 503
    code = "not_ready"
    title = "Not ready"
    default_remedy = "See errors; start an engine with 'penstock engine', or repair the control database."


@router.get("/livez", operation_id="health_live", summary="Liveness")
async def live() -> Health:
    """Checks only the process itself."""
    return Health()


@router.get("/readyz", operation_id="health_ready", summary="Readiness", responses=responses(NotReady))
async def ready(request: Request) -> Health:
    """Ready when the control database answers and an engine is connected. Users' databases are not checked."""
    wrong = []
    if not await run_in_threadpool(_database_answers, request):
        wrong.append(FieldError(pointer="/control_database", detail="The control database does not answer."))
    if not gateway_of(request).connected:
        wrong.append(FieldError(pointer="/engine", detail="No engine is connected."))
    if wrong:
        raise NotReady(" ".join(error.detail for error in wrong), errors=wrong)
    return Health()


def _database_answers(request: Request) -> bool:
    try:
        with database_of(request).read() as session:
            session.connection().execute(text("SELECT 1"))
    except SQLAlchemyError:
        return False
    return True
