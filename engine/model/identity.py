"""Types of identifiers. Each is a NewType or a class, so that the type checker finds a confusion of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

SubscriptionName = NewType("SubscriptionName", str)
TableId = NewType("TableId", str)
"""Identifies a table of a subscription permanently; `t` and hexadecimal digits. Safe in file names and in SQL."""
RelationId = NewType("RelationId", int)
"""The source's identifier of a table: pg_class.oid in PostgreSQL."""
Epoch = NewType("Epoch", int)
"""Increases each time an engine takes over a subscription; an engine with an older epoch must not write."""
BatchId = NewType("BatchId", int)
TicketId = NewType("TicketId", str)
"""Identifies a ticket; small letters and digits, at most 40."""
Ordinal = NewType("Ordinal", int)
"""Number of a raw record in a queue, over all its segments and sessions. Never reused within a queue."""


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's schema and name, unquoted, as the database's catalog stores them; any character may occur."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"
