"""A record in place of a table's structure: from here on the source could not be read of the table.

Captures that read tables themselves send it. It has the form of a relation record, so it passes every stage in its place among the changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.fault import FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.schema import ReplicaIdentity
from engine.records.relation import Announced, AnnouncedColumn, parse_relation, relation_record

_MARK = "penstock unread "
"""Begins the name of the record's only column."""
_NO_TYPE = 0
"""OID of the column's type, which no column of a table has."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Why a table could not be read."""

    kind: FaultKind
    detail: str


def unread_record(relation: RelationId, name: TableName, why: Unread) -> bytes:
    text = f"{_MARK}{why.kind.value} {why.detail}".replace("\0", " ")
    column = AnnouncedColumn(text, False, _NO_TYPE, -1)
    return relation_record(Announced(relation, name, ReplicaIdentity.DEFAULT, (column,)))


def unread_in(payload: bytes) -> Unread | None:
    """What the record says; None if it is another relation record."""
    return why_unread(parse_relation(payload)) if _MARK.encode() in payload else None


def why_unread(announced: Announced) -> Unread | None:
    """As `unread_in`, of a record that was parsed."""
    if len(announced.columns) != 1 or announced.columns[0].type_oid != _NO_TYPE:
        return None
    name = announced.columns[0].name
    if not name.startswith(_MARK):
        return None
    kind, _, detail = name.removeprefix(_MARK).partition(" ")
    return Unread(FaultKind(kind), detail)
