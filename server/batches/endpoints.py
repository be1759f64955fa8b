"""The batches of a subscription."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query, Response
from sqlmodel import col, select

from server.batches.schemas import BatchView, LedgerAnswer, LedgerLine
from server.db.dependencies import Reading
from server.db.models.batch import BatchRow
from server.errors import NotFound, responses
from server.lookup.subscriptions import require_subscription
from server.paging import Page, PageTokenInvalid, Paging
from server.security.principal import Role
from server.security.require import needs

router = APIRouter(prefix="/subscriptions/{name}", tags=["batches"], dependencies=[needs(Role.VIEWER)])


@router.get("/batches", operation_id="batches_list", responses=responses(NotFound, PageTokenInvalid))
def list_batches(session: Reading, name: str, paging: Paging) -> Page[BatchView]:
    """Batches that were committed on the target, the newest first."""
    subscription = require_subscription(session, name)
    query = select(BatchRow).where(BatchRow.subscription_id == subscription.id)
    return paging.read(session, query, BatchView.model_validate, col(BatchRow.id), newest_first=True)


class LedgerFormat(StrEnum):
    """Form of the ledger."""

    JSON = "json"
    CSV = "csv"


@router.get(
    "/ledger",
    operation_id="ledger_get",
    response_model=LedgerAnswer,
    responses={**responses(NotFound), 200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def get_ledger(
    session: Reading,
    name: str,
    batches: Annotated[int, Query(ge=1, le=10_000, description="Number of last batches.")] = 100,
    form: Annotated[LedgerFormat, Query(alias="format")] = LedgerFormat.JSON,
) -> Response | LedgerAnswer:
    """The outcome of each captured change, by batch and table, the newest batch first. CSV: RFC 4180 with a header line."""
    subscription = require_subscription(session, name)
    query = select(BatchRow).where(BatchRow.subscription_id == subscription.id).order_by(col(BatchRow.id).desc())
    lines = [line for row in session.exec(query.limit(batches)) for line in _lines(row)]
    if form is LedgerFormat.JSON:
        return LedgerAnswer(lines=lines)
    return Response(_as_csv(lines), media_type="text/csv")


def _lines(row: BatchRow) -> list[LedgerLine]:
    tables = row.ledger["tables"] if row.ledger is not None else {}
    return [
        LedgerLine(
            batch=row.number, epoch=row.epoch, end=str(row.end), committed_at=row.committed_at, table_id=table, **counts
        )
        for table, counts in tables.items()
    ]


def _as_csv(lines: Sequence[LedgerLine]) -> str:
    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(LedgerLine.model_fields))
    writer.writeheader()
    writer.writerows(line.model_dump(mode="json") for line in lines)
    return sink.getvalue()
