"""What the source's DDL capture told so far: the last word on each table, and where its word does not hold."""

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
    """Behind `as_of` the source's catalog showed just this structure of a table, while the DDL capture of this mark was in force."""

    schema: TableSchema
    mark: str
    as_of: Lsn


class DdlMessageTracker:
    """Takes messages in the order in which they were committed. Used by one thread.

    `unreadable` is called with what is wrong, once.
    """

    def __init__(self, read: Read, unreadable: Warn) -> None:
        self._read = read
        self._unreadable = unreadable
        self._warned = False
        self._tables: dict[RelationId, DdlTable] = {}
        self._rewritten: dict[RelationId, bool] = {}
        """Tables whose rewrite was told and not yet what came of it; whether values changed."""
        self._anchors: dict[RelationId, CertifiedSchema] = {}
        self._doubted: dict[RelationId, Lsn] = {}
        self._all_doubted = ZERO

    def anchor(self, anchors: Iterable[CertifiedSchema]) -> None:
        """These structures are known to be those of their tables."""
        for anchor in anchors:
            relation = anchor.schema.relation
            if not self.doubted_since(relation, anchor.as_of):
                self._anchors[relation] = anchor

    def vouches(self, seen: RelationSeen, known: TableSchema | None) -> Capture | None:
        """What the capture vouches for of the record's table, of which `known` is known here; that very one, not an equal one."""
        anchor, told = self._anchors.get(seen.relation), self._tables.get(seen.relation)
        if anchor is not None and anchor.schema is known:
            last = told if told is not None and told.mark == anchor.mark else None
            return Capture(anchor.mark, known=True, void=seen.void, told=last)
        return None if told is None else Capture(told.mark, void=seen.void, told=told)

    def doubted_since(self, relation: RelationId, position: Lsn) -> bool:
        """Whether behind this position something may have happened to the table that no message tells."""
        return max(self._doubted.get(relation, ZERO), self._all_doubted) > position

    def take(self, placed: PlacedMessage) -> tuple[DdlMessage, bool] | None:
        """What a message says, and whether its table's rows were given other values before; None where that is void or no sense."""
        end = placed.end
        try:
            told = self._read(placed.message.payload)
        except EngineFault as fault:
            if fault.kind is not FaultKind.LOG_UNREADABLE:
                raise
            if not self._warned:
                self._unreadable(fault.detail)
            self._warned = True
            self._doubt(None, end)
            return None
        if told.writers & placed.message.aborted:
            return None
        self._doubt(told.unknown, end)
        for relation in told.rewritten:
            self._rewritten[relation] = told.values or self._rewritten.get(relation, False)
        if told.table is None:
            return told, False
        self._tables[told.table.relation] = told.table
        return told, self._rewritten.pop(told.table.relation, False)

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


def relabelled(schema: TableSchema, told: DdlMessage) -> TableSchema:
    """The structure with the labels that an enum type has now; itself where it has no column of it."""
    if not any(_is_of(column.type, told) for column in schema.columns):
        return schema
    columns = tuple(_with_labels(column, told) for column in schema.columns)
    return schema if columns == schema.columns else replace(schema, columns=columns)


def _with_labels(column: Column, told: DdlMessage) -> Column:
    return replace(column, labels=told.labels) if _is_of(column.type, told) else column


def _is_of(kind: SourceType, told: DdlMessage) -> bool:
    return kind.oid in told.types
