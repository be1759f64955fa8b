"""Messages and parts about read points."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.link.message import Message, Position, Question


class ReadPoints(Question):
    """Create the read point `name` (`hold`), end it (`release`), or only list. The answer is a `ReadPointsBody`."""

    kind: Literal["read_points"] = "read_points"
    subscription: str
    action: Literal["hold", "release", "list"] = "list"
    name: str = ""
    id: str = ""
    """With `hold`: of the new read point."""
    ttl_ms: int = 0
    """With `hold`: time after which it ends."""


class ReadPointTablePart(Message):
    """A table as of a read point. `complete`: its rows include every change up to the position."""

    table: str
    schema_name: str = Field(alias="schema")
    name: str
    complete: bool


class ReadPointPart(Message):
    """A read point that the engine keeps. Times in microseconds since 1970 UTC; `committed_us`: by the source's clock."""

    id: str
    name: str
    position: Position
    committed_us: int | None
    created_us: int
    expires_us: int
    tables: tuple[ReadPointTablePart, ...]


class EndedReadPointPart(Message):
    """A read point that this engine process kept, and why it ended."""

    id: str
    name: str
    reason: str


class ReadPointsBody(Message):
    """The subscription's read points on this engine after the action. `found`: `release` found the read point."""

    points: tuple[ReadPointPart, ...] = ()
    ended: tuple[EndedReadPointPart, ...] = ()
    found: bool = True
