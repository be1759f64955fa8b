"""Numbers of tables and columns for databases that are only queried and number none themselves: they follow from names and structures, so
every process gets the same ones at any time, and nothing is stored on the source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName

_TABLE_BITS = 31
"""Of a table's number: relation records have 32, of which targets that store it as a signed number hold 31."""
_PLACE_BITS = 12
"""Low bits of a column's number, for its place: no table has more than 4,095 columns that are followed."""
_STRUCTURE_BITS = 31 - _PLACE_BITS


def relation_of(name: TableName) -> RelationId:
    """The number of the table of this name, never 0. A table that is dropped and created again keeps it: its rows are compared."""
    digest = hashlib.sha256(f"{name.schema}\0{name.name}".encode()).digest()
    return RelationId(int.from_bytes(digest[:4], "big") % ((1 << _TABLE_BITS) - 1) + 1)


def check_distinct(names: Iterable[TableName]) -> None:
    """Raises EngineFault(TABLE_NAME_COLLISION) if two of these tables have one number, for which the chance is 1 : 2**31 for each pair."""
    seen: dict[RelationId, TableName] = {}
    for name in sorted(names, key=str):
        other = seen.setdefault(relation_of(name), name)
        if other != name:
            detail = (
                f"its number, which follows from its name, is that of {other}; rename one of them, or leave one out"
            )
            raise EngineFault(FaultKind.TABLE_NAME_COLLISION, str(name), detail)


def column_base(structure: str) -> int:
    """What is added to places from 1 on, as numbers of the columns of a structure: other structures have other numbers, so that a table
    that was changed is copied again. A multiple of 4,096."""
    digest = hashlib.sha256(structure.encode()).digest()
    return int.from_bytes(digest[:4], "big") % (1 << _STRUCTURE_BITS) << _PLACE_BITS
