"""Statements of clients and their answers, for every protocol of the endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from engine.sql_endpoint.deliveries import AnswerProblemError, BrokenOffError, Deliveries, Delivery
from engine.sql_endpoint.server_api import ProblemError, ServerApi

_NO_WAIT = {"mode": "any", "timeout_ms": 0}
_DESCRIBE_MS = 30_000
"""Limit for finding the columns of a statement, which reads no rows."""
_BROKEN_OFF = {"code": "query_unavailable", "detail": "the engine broke the answer off", "remedy": "Ask again."}


class AnswerError(Exception):
    """A statement has failed. `problem`: a problem document (code, detail, remedy, and what is known of the wait)."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(str(problem.get("code")))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks. `user`, `process` and `settings` are shown by PostgreSQL's catalog, to clients of its protocol (`user` is set)."""

    subscription: str
    user: str | None = None
    process: int = 0
    settings: Callable[[], dict[str, str]] = dict
    """Run-time parameters that differ from their defaults, by names in lower case."""


@dataclass(slots=True)
class Answer:
    """The answer to a statement. `close` it in any case."""

    position: str
    receipt: dict[str, Any] | None
    answered_by: str
    """`target`, `source` or, for what concerns only the session, `endpoint`."""
    stale: dict[str, Any] | None
    rows: Delivery | Any
    """A Delivery, or one pyarrow.Table."""
    left_out: list[dict[str, Any]] = field(default_factory=list)
    """The statement's tables whose rows are older than the position."""

    @classmethod
    def of_one(cls, name: str, value: str) -> Answer:
        """One row with one text."""
        return cls("", None, "endpoint", None, pa.table({name: pa.array([value], pa.string())}))

    async def tables(self) -> AsyncIterator[Any]:
        """The rows as pyarrow.Table objects of one schema, at least one. Raises AnswerError."""
        if not isinstance(self.rows, Delivery):
            yield self.rows
            return
        try:
            async for table in self.rows.tables():
                yield table
        except AnswerProblemError as error:
            raise AnswerError(error.problem.model_dump(mode="json")) from None
        except BrokenOffError:
            raise AnswerError(_BROKEN_OFF) from None

    def close(self) -> None:
        if isinstance(self.rows, Delivery):
            self.rows.close()


class Answers:
    """Asks the server for answers, whose rows come from the engine."""

    def __init__(self, server: ServerApi, deliveries: Deliveries) -> None:
        self._server = server
        self._deliveries = deliveries

    async def ask(
        self,
        client: Client,
        sql: str,
        parameters: Sequence[str | None],
        requirement: Mapping[str, Any],
        timeout_ms: int,
        *,
        pipe: bool = False,
    ) -> Answer:
        """Run a statement. If cancelled, it ends on the target too. Raises AnswerError.

        `requirement`: the `freshness` of its rows, and perhaps a `read_point`, as in a query request.
        `pipe`: the caller reads `Delivery.pipe`, if there is one.
        """
        request = {"sql": sql, "parameters": [*parameters], "timeout_ms": timeout_ms, **requirement}
        return await self._started(client, request | {"pipe": pipe})

    async def describe(self, client: Client, sql: str, parameters: int, requirement: Mapping[str, Any]) -> Answer:
        """The columns of a statement with so many parameters, without its rows; of `requirement`, only a read point counts. Raises
        AnswerError."""
        request = {"sql": sql, "parameters": [None] * parameters, "timeout_ms": _DESCRIBE_MS, "describe": True}
        return await self._started(client, {**request, **requirement, "freshness": _NO_WAIT})

    async def _started(self, client: Client, request: dict[str, Any]) -> Answer:
        asked = {"subscription": client.subscription, **request}
        if client.user is not None:
            asked["client"] = {"user": client.user, "process": client.process, "settings": client.settings()}
        try:
            started = await self._server.start(asked)
        except ProblemError as error:
            raise AnswerError(error.problem) from None
        try:
            rows = await self._deliveries.claim(started.request_id)
        except BrokenOffError:
            raise AnswerError(_BROKEN_OFF) from None
        return Answer(started.position, started.receipt, started.ran_on, started.stale, rows, started.left_out)
