"""Commands to an engine about queries, and what it answers."""

from __future__ import annotations

from operator import not_
from typing import Literal

from pydantic import Field

from engine.link.message import Message, Position, Question

RanOn = Literal["target", "source"]
"""Where a query was executed."""


class SqlClientPart(Message):
    """A client of PostgreSQL's protocol: what the catalog shows of its session."""

    user: str
    process: int = 0
    settings: dict[str, str] = Field(default_factory=dict)


class Query(Question):
    """Execute one read on the target or source. Its rows are uploaded in frames; an error before the first frame is an
    `answer` with a problem."""

    kind: Literal["query"] = "query"
    subscription: str
    sql: str = Field(repr=False)
    parameters: tuple[str | None, ...] = Field(default=(), repr=False, exclude_if=not_)
    """One value for each of $1, $2, …"""
    max_rows: int | None = None
    max_bytes: int | None = None
    """Most bytes of the answer; a larger one ends with `query_too_large`."""
    timeout_ms: int
    following: bool = False
    """Reject the query if a table of the statement does not follow its source now: with `freshness_unreachable`, or with
    `table_not_ready` if it soon will."""
    available: bool = Field(default=False, exclude_if=not_)
    """Reject the query with `freshness_unreachable` if a table of the statement will not follow its source until a user acts. Tables that
    soon will are read as they are."""
    on_source: bool = Field(default=False, exclude_if=not_)
    """Execute it on the source, translated from the target's SQL. The answer then says that it ran there; without that, it did not."""
    read_point: str | None = Field(default=None, exclude_if=not_)
    """Execute it at the read point of this name, whatever `following` says. The answer repeats the name; without that, it did not."""
    client: SqlClientPart | None = Field(default=None, exclude_if=not_)
    """The client of PostgreSQL's protocol that asks; PostgreSQL's catalog is answered too then."""
    endpoint: str | None = Field(default=None, exclude_if=not_)
    """Id of the SQL endpoint of this engine that receives the rows, under the id of the request. The answer is a `DeliveredBody` then."""
    pipe: bool = Field(default=False, exclude_if=not_)
    """The endpoint accepts the rows as a pipe of the process that computes them; the frames only say how the answer ended."""


class DeliveredBody(Message):
    """A query whose rows go to the engine's SQL endpoint."""

    position: Position
    """Position that the rows show."""
    tables: tuple[str, ...] = ()
    """Ids of the subscription's tables that the statement reads."""
    not_following: tuple[str, ...] = ()
    """Those of `tables` that do not follow their source now."""
    ran_on: RanOn = "target"
    read_point: str | None = None
