"""Partitions of tables in messages."""

from __future__ import annotations

from typing import Literal

from engine.link.message import Message, Position
from engine.model.partitions import LoadReason


class Partitions(Message):
    """Which partitions a table has on the source, and when each was loaded last. May come twice."""

    kind: Literal["partitions"] = "partitions"
    request_id: str
    subscription: str
    table: str


class LoadedPartitionPart(Message):
    """A partition that a reload loads, by its name schema.name; `generation` of its last load that the target has."""

    name: str
    reason: LoadReason
    generation: int


class PartitionPart(Message):
    """`name`, `parent`: as schema.name. `bound`: as the source prints it. `obstacle`: why it cannot be reloaded by itself.

    `generation` goes up with each load; `reason`, `position` and `loaded_us` (Unix time of the target's clock, microseconds) of the
    last one are None where that was before anybody counted.
    """

    name: str
    parent: str
    leaf: bool
    bound: str
    obstacle: str | None = None
    generation: int
    reason: LoadReason | None = None
    position: Position | None = None
    loaded_us: int | None = None


class PartitionsBody(Message):
    """Body of the answer to `partitions`; none where the table is not partitioned."""

    partitions: tuple[PartitionPart, ...]
