"""How schemas are read from a log: relation records and DDL messages."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from engine.model.ddl import DdlMessage
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.schema import TableSchema
from engine.model.source import Resolve
from engine.tables.ddl_messages import Read, Warn
from engine.tables.registry import TableEntry

Explain = Callable[[TableEntry, TableSchema, TableSchema], str]
"""Returns the statements with which the target would change from one schema to another, as text."""
Resolver = Callable[[Collection[bytes]], Resolve]
"""Returns a `Resolve` for these relation records that reads the source's catalog once for all of them."""
NameOf = Callable[[bytes], TableName]


def _none_read(payload: bytes) -> DdlMessage:
    raise EngineFault(
        FaultKind.LOG_UNREADABLE, "message", f"no reader for DDL messages is set up ({len(payload)} bytes)"
    )


def _not_warned(detail: str) -> None:
    del detail


def _unexplained(entry: TableEntry, old: TableSchema, new: TableSchema) -> str:
    del entry, old, new
    return ""


@dataclass(frozen=True, slots=True)
class SchemaReading:
    """How the planner reads schemas from the log. `unreadable` is called with the detail of a DDL message that cannot be read."""

    resolver: Resolver
    name_of: NameOf
    explain: Explain = _unexplained
    read_message: Read = _none_read
    unreadable: Warn = _not_warned
