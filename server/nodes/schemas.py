"""Bodies of nodes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from server.paging import Page

_EXAMPLE: dict[str, Any] = {
    "name": "n1",
    "applied": "0/16B3748",
    "read": "0/16B3780",
    "source_end": "0/16B3780",
    "lag_bytes": 56,
    "late": False,
    "away": None,
    "at": "2026-05-04T10:00:00.120Z",
}


class NodeAway(BaseModel):
    """Why a node cannot be read."""

    since: datetime = Field(description="Since when its log cannot be read.")
    code: str = Field(description="Fault code of the last attempt.")
    reason: str = Field(description="What the last attempt said.")


class NodeView(BaseModel):
    """One node of a subscription's source, by the last report of the engine. Positions are of the node's own log; null: not known."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    name: str = Field(description="Its name in `nodes` of the source's connection.")
    applied: str | None = Field(description="Every transaction that the node committed before it is on the target.")
    read: str | None = Field(description="Its log is read up to here.")
    source_end: str | None = Field(description="The end of its log, which is looked up every few seconds.")
    lag_bytes: int | None = Field(description="Its log from `applied` to `source_end`.")
    late: bool = Field(
        description="Others wait for it: transactions in its log may come before theirs, or it cannot be reached."
    )
    away: NodeAway | None = Field(
        default=None, description="Why it cannot be read, while the others are; null: it is read, or nothing is."
    )
    at: datetime | None = Field(description="When the engine reported it.")


class NodePage(Page[NodeView]):
    """A page of nodes, in the order of the source's connection."""

    applied: str | None = Field(
        default=None,
        description="`applied` of all nodes as one position, which waits accept; null: it is not known of every node, or there is none.",
    )
    source_end: str | None = Field(default=None, description="`source_end` of all nodes, likewise.")
