"""Base of all messages of the control channel, and the encoding of positions and secrets in them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, SerializationInfo

from engine.model.position import Lsn

_WIRE = {"wire": True}


def _parse_position(value: object) -> object:
    return Lsn.parse(value) if isinstance(value, str) else value


Position = Annotated[Lsn, BeforeValidator(_parse_position), PlainSerializer(str, return_type=str)]


class Message(BaseModel):
    """Base of all messages and their parts."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )


class Question(Message):
    """Base of the commands that end with one answer, which names the same `request_id`."""

    kind: str
    request_id: str


def is_wire(info: SerializationInfo) -> bool:
    """Whether `encode` is writing, so that secrets are included."""
    return bool(info.context == _WIRE)


def encode(message: Message) -> bytes:
    """A message as one line of JSON without line end. It contains secrets: for the wire only."""
    return message.model_dump_json(context=_WIRE).encode()


class Problem(Message):
    """Why a request failed, in the text shown to the user."""

    status: int
    code: str
    detail: str
    remedy: str
    tables: tuple[str, ...] = ()
    """Ids of the tables that caused it."""


class SubscriptionReport(Message):
    """Base of reports on a subscription. The server ignores reports of an older epoch."""

    subscription: str
    epoch: int
