"""Relation records: the structure that a log announces before a table's first row."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.schema import ReplicaIdentity

_IDENTITIES = {
    "d": ReplicaIdentity.DEFAULT,
    "i": ReplicaIdentity.INDEX,
    "f": ReplicaIdentity.FULL,
    "n": ReplicaIdentity.NOTHING,
}
_LETTERS = {identity: letter for letter, identity in _IDENTITIES.items()}
MASKED_TYPES = {"bytea": 17, "text": 25}
"""OIDs of the types of masked columns in relation records."""
_NOT_BUILT_IN = 10_000
"""FirstGenbkiObjectId of PostgreSQL: the log describes the types of columns from this number on."""


@dataclass(frozen=True, slots=True)
class AnnouncedColumn:
    """A column of a relation record. `identity`: it is part of the replica identity."""

    name: str
    identity: bool
    type_oid: int
    modifier: int


@dataclass(frozen=True, slots=True)
class Announced:
    """A relation record."""

    relation: RelationId
    name: TableName
    identity: ReplicaIdentity
    columns: tuple[AnnouncedColumn, ...]


def parse_relation(payload: bytes) -> Announced:
    """Parse a relation record. `payload`: without the transaction id that it carries inside a streamed transaction.

    Raises EngineFault(LOG_UNREADABLE) if it is not a relation record.
    """
    try:
        return _parse(payload)
    except (struct.error, ValueError, KeyError, IndexError) as error:
        raise EngineFault(FaultKind.LOG_UNREADABLE, "relation record", "it has an unexpected form") from error


def named_below(payload: bytes, distance: int) -> TableName | None:
    """The table's name if its record, `distance` records after the previous relation record, is a partition's that follows its root's.

    pgoutput sends the root's record before each record of a partition, with only type records between them, one per column whose type is
    not built in. Between records of two unrelated tables there are changes of the first, unless one TRUNCATE names both.
    """
    name, types = _name_and_types(payload)
    return name if distance == types + 1 else None


def apart(payload: bytes) -> int:
    """How many records between this relation record and the one before it keep `named_below` from taking it for a partition's."""
    return _name_and_types(payload)[1] + 1


@lru_cache(maxsize=1024)
def _name_and_types(payload: bytes) -> tuple[TableName, int]:
    announced = parse_relation(payload)
    return announced.name, sum(column.type_oid >= _NOT_BUILT_IN for column in announced.columns)


def _parse(payload: bytes) -> Announced:
    if payload[:1] != b"R":
        raise ValueError("not a relation record")
    (oid,) = struct.unpack_from(">I", payload, 1)
    schema, at = _text(payload, 5)
    name, at = _text(payload, at)
    identity = identity_of(chr(payload[at]))
    (count,) = struct.unpack_from(">H", payload, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = payload[at]
        column, at = _text(payload, at + 1)
        type_oid, modifier = struct.unpack_from(">Ii", payload, at)
        at += 8
        columns.append(AnnouncedColumn(column, bool(flags & 1), type_oid, modifier))
    if at != len(payload):
        raise ValueError("additional bytes")
    # pgoutput sends an empty schema name for pg_catalog.
    return Announced(RelationId(oid), TableName(schema or "pg_catalog", name), identity, tuple(columns))


def _text(payload: bytes, at: int) -> tuple[str, int]:
    end = payload.index(b"\0", at)
    return payload[at:end].decode("utf-8"), end + 1


def identity_of(letter: str) -> ReplicaIdentity:
    """The replica identity of a letter of pg_class.relreplident. Raises KeyError for any other letter."""
    return _IDENTITIES[letter]


def relation_record(announced: Announced) -> bytes:
    """The record that announces a table, as outside a streamed transaction; `parse_relation` reads it back."""
    head = (
        struct.pack(">cI", b"R", announced.relation)
        + _terminated(announced.name.schema)
        + _terminated(announced.name.name)
    )
    columns = b"".join(
        bytes([column.identity]) + _terminated(column.name) + struct.pack(">Ii", column.type_oid, column.modifier)
        for column in announced.columns
    )
    return head + _LETTERS[announced.identity].encode() + struct.pack(">H", len(announced.columns)) + columns


def _terminated(text: str) -> bytes:
    """Raises EngineFault(LOG_UNREADABLE) for a name with a NUL character, which the form cannot hold."""
    if "\0" in text:
        raise EngineFault(FaultKind.LOG_UNREADABLE, "relation record", "a name holds the character NUL")
    return text.encode("utf-8") + b"\0"
