"""DDL capture: the DDL messages that a source writes into its log, and the state of its installation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.model.identity import RelationId
from engine.model.schema import TableSchema
from engine.model.subscription import TableSpec


@dataclass(frozen=True, slots=True)
class DdlCapture:
    """State of the DDL capture on a source. `version`: None if it is not installed, or the installed function does not name it.

    `current`: complete, enabled, and of this release's version. The statements are exactly those that `install` and `remove` execute, in
    this order and in one transaction.
    """

    installed: bool
    version: int | None
    current: bool
    install_sql: tuple[str, ...]
    remove_sql: tuple[str, ...]


class DdlTable(Protocol):
    """A table as it was after one DDL command."""

    @property
    def relation(self) -> RelationId: ...

    @property
    def mark(self) -> str:
        """Mark of the trigger that wrote the DDL message."""
        ...

    def schema(self, spec: TableSpec) -> TableSchema:
        """The table's schema. Raises EngineFault: TABLE_NO_IDENTITY if its updates and deletes cannot be replicated as declared,
        TABLE_NOT_LOGGED if its changes are not logged."""
        ...


@dataclass(frozen=True, slots=True)
class Capture:
    """What trigger version `mark` certifies while it stays installed. `known`: our schema of the table is current. `reported`: the last DDL
    message about the table. `void`: the relation record in question belongs to a subtransaction that was rolled back."""

    mark: str
    known: bool = False
    void: bool = False
    reported: DdlTable | None = None


@dataclass(frozen=True, slots=True)
class DdlMessage:
    """One parsed DDL message. Most messages set one field; the others are empty."""

    tag: str
    writers: frozenset[int] = frozenset()
    """(Sub)transactions (xmin) whose catalog changes the message describes; may include others that ended long before."""
    table: DdlTable | None = None
    rewritten: frozenset[RelationId] = frozenset()
    """Tables that the command will rewrite. `values`: their columns may hold other values afterwards."""
    values: bool = False
    unknown: frozenset[RelationId] | None = frozenset()
    """Tables that may have changed without a description in a message; None = any table."""
    types: frozenset[int] = frozenset()
    """OIDs of an enum type and of arrays and domains over it; `labels` are the type's current labels."""
    labels: tuple[str, ...] = ()
    partition: RelationId | None = None
    """A table that was created as a partition of the roots `below`."""
    below: frozenset[RelationId] = frozenset()
