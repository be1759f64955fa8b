"""Clients of a Penstock server: waits for commits, and queries whose rows contain them.

Importing this needs httpx only. pyarrow, pandas and polars are imported when rows are read; a database driver never, except
by the program that passes one of its connections.
"""

from penstock.client.answers import Result
from penstock.client.async_client import AsyncClient
from penstock.client.commit_position import TransactionOpen, position_after, position_after_async
from penstock.client.errors import (
    AccessDenied,
    AnswerBrokenOff,
    AnswerCut,
    FreshnessTimeout,
    FreshnessUnreachable,
    NotPenstock,
    PenstockError,
    ProblemError,
    QueryRefused,
    QueryTimeout,
    ServerUnreachable,
    Unavailable,
)
from penstock.client.receipts import Receipt, TableException, TableState
from penstock.client.sync_client import Client

__all__ = [
    "AccessDenied",
    "AnswerBrokenOff",
    "AnswerCut",
    "AsyncClient",
    "Client",
    "FreshnessTimeout",
    "FreshnessUnreachable",
    "NotPenstock",
    "PenstockError",
    "ProblemError",
    "QueryRefused",
    "QueryTimeout",
    "Receipt",
    "Result",
    "ServerUnreachable",
    "TableException",
    "TableState",
    "TransactionOpen",
    "Unavailable",
    "position_after",
    "position_after_async",
]
