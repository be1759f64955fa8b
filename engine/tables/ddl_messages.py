"""Tracks the source's DDL messages: the last one about each table, and the positions up to which some may be missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from engine.model.batch import PlacedMessage, RelationSeen
from engine.model.ddl import Capture, DdlMessage, DdlTable
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId
from engine.model.position import ZERO, Lsn
from engine.model.schema import Column, SourceType, TableSchema

Read = Callable[[bytes], DdlMessage]
Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CertifiedSchema:
    """When the source's catalog was read after `as_of`, it showed exactly this schema, and the DDL capture with this mark was in force."""

    schema: TableSchema
    mark: str
    as_of: Lsn


class DdlMessageTracker:
    """Tracks DDL messages, which it takes in commit order. Used by one thread.

    `unreadable` is called once, with the detail of the first message that cannot be read.
    """

    def __init__(self, read: Read, unreadable: Warn) -> None:
        self._read = read
        self._unreadable = unreadable
        self._warned = False
        self._tables: dict[RelationId, DdlTable] = {}
        self._rewritten: dict[RelationId, bool] = {}
        """Tables whose rewrite was announced, until the message with their new schema arrives; True if column values may have changed."""
        self._anchors: dict[RelationId, CertifiedSchema] = {}
        self._doubted: dict[RelationId, Lsn] = {}
        self._all_doubted = ZERO

    def anchor(self, anchors: Iterable[CertifiedSchema]) -> None:
        """Record schemas that the catalog confirms. Tables with missing messages since then are left out."""
        for anchor in anchors:
            relation = anchor.schema.relation
            if not self.uncertain_since(relation, anchor.as_of):
                self._anchors[relation] = anchor

    def certified_by(self, seen: RelationSeen, known: TableSchema | None) -> Capture | None:
        """What the DDL capture certifies about the record's table; None if nothing. `known`: our schema of the table. It counts as
        certified only if it is the same object as the anchor's schema; an equal one may be older."""
        anchor, message = self._anchors.get(seen.relation), self._tables.get(seen.relation)
        if anchor is not None and anchor.schema is known:
            last = message if message is not None and message.mark == anchor.mark else None
            return Capture(anchor.mark, known=True, void=seen.void, reported=last)
        return None if message is None else Capture(message.mark, void=seen.void, reported=message)

    def uncertain_since(self, relation: RelationId, position: Lsn) -> bool:
        """Whether the table may have changed after this position without a DDL message."""
        return max(self._doubted.get(relation, ZERO), self._all_doubted) > position

    def read_message(self, placed: PlacedMessage) -> tuple[DdlMessage, bool] | None:
        """Read a message. Returns it, and whether its table was rewritten with other values before; None if it was rolled back or is
        unreadable."""
        end = placed.end
        try:
            message = self._read(placed.message.payload)
        except EngineFault as fault:
            if fault.kind is not FaultKind.LOG_UNREADABLE:
                raise
            if not self._warned:
                self._unreadable(fault.detail)
            self._warned = True
            self._doubt(None, end)
            return None
        if message.writers & placed.message.aborted:
            return None
        self._doubt(message.unknown, end)
        for relation in message.rewritten:
            self._rewritten[relation] = message.values or self._rewritten.get(relation, False)
        if message.table is None:
            return message, False
        self._tables[message.table.relation] = message.table
        return message, self._rewritten.pop(message.table.relation, False)

    def _doubt(self, relations: frozenset[RelationId] | None, end: Lsn) -> None:
        if relations is None:
            self._tables.clear()
            self._anchors.clear()
            self._rewritten.clear()
            self._all_doubted = end
            return
        for relation in relations:
            self._tables.pop(relation, None)
            self._anchors.pop(relation, None)
            self._rewritten.pop(relation, None)
            self._doubted[relation] = end


def relabelled(schema: TableSchema, message: DdlMessage) -> TableSchema:
    """The schema with the current labels of an enum type; `schema` itself if no column has the type or the labels did not change."""
    if not any(_is_of(column.type, message) for column in schema.columns):
        return schema
    columns = tuple(_with_labels(column, message) for column in schema.columns)
    return schema if columns == schema.columns else replace(schema, columns=columns)


def _with_labels(column: Column, message: DdlMessage) -> Column:
    return replace(column, labels=message.labels) if _is_of(column.type, message) else column


def _is_of(kind: SourceType, message: DdlMessage) -> bool:
    return kind.oid in message.types
