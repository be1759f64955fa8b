"""Messages and parts about the partitions of tables."""

from __future__ import annotations

from typing import Literal

from engine.link.message import Message, Position, Question
from engine.model.partitions import LoadReason


class Partitions(Question):
    """List a table's partitions on the source, with the last load of each. May be sent twice."""

    kind: Literal["partitions"] = "partitions"
    subscription: str
    table: str


class LoadedPartitionPart(Message):
    """A partition that a reload loads, by name (schema.name); `generation`: of its last load that the target recorded."""

    name: str
    reason: LoadReason
    generation: int


class PartitionPart(Message):
    """`name`, `parent`: as schema.name. `bound`: as the source prints it. `obstacle`: why it cannot be reloaded alone.

    `generation` increases with each load. `reason`, `position` and `loaded_us` (microseconds since 1970 UTC, target's clock) are those of
    the last load; None if that was before loads were recorded.
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
    """Body of the answer to `partitions`; empty if the table is not partitioned."""

    partitions: tuple[PartitionPart, ...]
