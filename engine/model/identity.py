"""Names and numbers that identify things. New types, so that one is never passed where another is meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

SubscriptionName = NewType("SubscriptionName", str)
TableId = NewType("TableId", str)
"""Identifies a table of a subscription for its whole life; `t` and hexadecimal digits. Safe in a file name and in SQL."""
RelationId = NewType("RelationId", int)
"""The source's own number for a table: PostgreSQL's pg_class.oid."""
Epoch = NewType("Epoch", int)
"""Rises each time an engine takes a subscription over; an older epoch may no longer write."""
BatchId = NewType("BatchId", int)
TicketId = NewType("TicketId", str)
"""Identifies a ticket; small letters and digits, at most 40."""
Ordinal = NewType("Ordinal", int)
"""Number of a raw record in a queue, counted over all its segments and sessions. Never reused within one queue."""


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's schema and name, unquoted, as the database's catalog stores them; any character may occur."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"
