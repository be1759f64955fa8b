"""The gateway to connected engines: turns requests into commands and answers into bodies or problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from engine.link.change_triggers import ChangeTriggersBody
from engine.link.cycles import BegunCycleBody, CyclesBody
from engine.link.message import Message
from engine.link.messages import (
    COMMANDS,
    Answer,
    DdlCaptureBody,
    DiscoverBody,
    NowBody,
    PreflightBody,
    SequencesBody,
)
from engine.link.partitions import PartitionsBody
from engine.link.quarantine import RefusedRowsBody
from engine.link.queries import DeliveredBody
from engine.link.read_points import ReadPointsBody
from server.errors import ReportedProblem
from server.gateway.hub import AnswerError, AnswerStream, EngineAwayError, EngineSilentError, Hub, QueryResult, Reply
from server.gateway.interface import EngineTimeout, EngineUnavailable

_BODIES: dict[str, type[Message]] = {
    "refused_rows": RefusedRowsBody,
    "preflight": PreflightBody,
    "discover": DiscoverBody,
    "ddl_capture": DdlCaptureBody,
    "change_triggers": ChangeTriggersBody,
    "now": NowBody,
    "partitions": PartitionsBody,
    "cycles": CyclesBody,
    "begin_cycle": BegunCycleBody,
    "sequences": SequencesBody,
    "read_points": ReadPointsBody,
    "query": DeliveredBody,
}


class HubGateway:
    """Sends requests to the engine that runs the payload's subscription, else to the one that has been connected longest."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    @property
    def connected(self) -> bool:
        return bool(self._hub.engines)

    def connected_s(self, engine_id: str | None) -> float | None:
        return None if engine_id is None else self._hub.connected_s(engine_id)

    async def request(self, kind: str, payload: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        reply = await self._ask(kind, payload, timeout_s)
        return _validated_body(kind, reply.body if isinstance(reply, Answer) else {})

    async def query(self, payload: Mapping[str, Any], timeout_s: float) -> QueryResult:
        """Run a query on the target of the subscription in `payload`; raises as `request` does."""
        reply = await self._ask("query", payload, timeout_s)
        if isinstance(reply, QueryResult):
            return reply
        if "endpoint" in payload:
            return _delivered(reply)
        raise EngineUnavailable("The engine ended the query without sending its rows.", "Try again.")

    async def _ask(self, kind: str, payload: Mapping[str, Any], timeout_s: float) -> Reply:
        engine_id = self._engine(payload)
        if engine_id is None:
            raise EngineUnavailable(f"The command '{kind}' needs an engine, and none is connected.")
        try:
            return await self._hub.request(
                engine_id,
                lambda request_id: COMMANDS.validate_python({**payload, "kind": kind, "request_id": request_id}),
                timeout_s,
            )
        except EngineAwayError:
            raise EngineUnavailable(f"The engine went away before it answered '{kind}'.") from None
        except EngineSilentError:
            raise EngineTimeout(f"The engine did not answer '{kind}' within {timeout_s:g} s.") from None
        except AnswerError as error:
            said = error.problem
            extra = {"tables": list(said.tables)} if said.tables else None
            raise ReportedProblem(said.status, said.code, said.detail, said.remedy, extra) from None

    def _engine(self, payload: Mapping[str, Any]) -> str | None:
        subscription = payload.get("subscription")
        if isinstance(subscription, str):
            return self._hub.owner(subscription)
        engines = self._hub.engines
        return engines[0] if engines else None


def _delivered(reply: Answer) -> QueryResult:
    """The result of a query whose rows the engine passes to its SQL endpoint."""
    body = DeliveredBody.model_validate(_validated_body("query", reply.body))
    tables, not_following = frozenset(body.tables), frozenset(body.not_following)
    return QueryResult(
        body.position, AnswerStream(), tables, not_following, body.ran_on, reply.request_id, body.read_point
    )


def _validated_body(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """The body with every field that an answer of this kind has."""
    shape = _BODIES.get(kind)
    if shape is None:
        return body
    try:
        return shape.model_validate(body).model_dump(mode="json")
    except ValidationError:
        raise ReportedProblem(
            502,
            "engine_answer_malformed",
            f"The engine's answer to '{kind}' is invalid.",
            "Run one release of both.",
        ) from None
