"""What is asked of an engine about queries."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.link.message import Message


class Query(Message):
    """Run one read on the target. Its rows are uploaded in frames; a refusal before the first of them is an `answer` with a problem."""

    kind: Literal["query"] = "query"
    request_id: str
    subscription: str
    sql: str = Field(repr=False)
    max_rows: int | None = None
    max_bytes: int | None = None
    """A larger answer ends with `query_too_large`."""
    timeout_ms: int
    following: bool = False
    """Refuse the query where a table of the statement does not follow its source: with `freshness_unreachable`, or with
    `table_not_ready` where it is about to."""
