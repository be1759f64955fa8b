"""What a source that captures its own DDL tells of it in the log, and what it takes to have it do so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.model.identity import RelationId
from engine.model.schema import TableSchema
from engine.model.subscription import TableSpec


@dataclass(frozen=True, slots=True)
class DdlCapture:
    """What is installed in a source for it. `version`: None where nothing is, or nothing that says it.

    `current`: whole, switched on, and as this release makes it. The statements are exactly those that installing and removing run,
    in this order and in one transaction.
    """

    installed: bool
    version: int | None
    current: bool
    install_sql: tuple[str, ...]
    remove_sql: tuple[str, ...]


class DdlTable(Protocol):
    """A table as it was behind one command."""

    @property
    def relation(self) -> RelationId: ...

    @property
    def mark(self) -> str:
        """Which trigger told it."""
        ...

    def schema(self, spec: TableSpec) -> TableSchema:
        """Its structure. Raises EngineFault: TABLE_NO_IDENTITY where its updates and deletes cannot be followed as declared,
        TABLE_NOT_LOGGED where its changes are not in the log."""
        ...


@dataclass(frozen=True, slots=True)
class Capture:
    """What the DDL capture of this `mark` vouches for, as long as it is in force: that the structure known of a table is the table's,
    where `known`, and what it `told` of the table last. `void`: the record in question tells of what was rolled back."""

    mark: str
    known: bool = False
    void: bool = False
    told: DdlTable | None = None


@dataclass(frozen=True, slots=True)
class DdlMessage:
    """One message. Most say one thing; what they do not speak of is empty."""

    tag: str
    writers: frozenset[int] = frozenset()
    """(Sub)transactions whose work it tells of, as far as that is visible; others that are long over may be among them."""
    table: DdlTable | None = None
    rewritten: frozenset[RelationId] = frozenset()
    """The command goes on to write these tables anew, and `values`: columns may hold something else afterwards."""
    values: bool = False
    unknown: frozenset[RelationId] | None = frozenset()
    """Tables that may have changed in ways that nobody tells; None = any."""
    types: frozenset[int] = frozenset()
    """Numbers of an enum type and of the arrays and domains of it, in turn, which has these `labels` now."""
    labels: tuple[str, ...] = ()
    partition: RelationId | None = None
    """Was made as a partition `below` these roots."""
    below: frozenset[RelationId] = frozenset()
