"""Reads column types from the catalog: domains are resolved to their base type, arrays include their element type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from engine.model.schema import SourceType
from engine.postgres.sessions import PostgresConnection

TYPE_FACTS = """t.oid, t.typname, n.nspname, t.typtype::text, t.typbasetype, t.typtypmod, t.typelem,
       t.typelem <> 0 AND e.typarray = t.oid, t.typdelim::text"""
TYPES = """pg_type t
JOIN pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_type e ON e.oid = t.typelem"""
_QUERY = f"""
SELECT {TYPE_FACTS}
FROM {TYPES}
WHERE t.oid = ANY(%s::oid[])
"""


@dataclass(frozen=True, slots=True)
class TypeRow:
    """One row of pg_type. `is_array`: a true array type, not a type with elements such as int2vector.

    `delimiter`: pg_type.typdelim, which separates elements of this type in an array's text.
    """

    name: str
    schema: str
    category: str
    base: int
    base_modifier: int
    element: int
    is_array: bool
    delimiter: str = ","


def load_types(connection: PostgresConnection, oids: Iterable[int]) -> dict[int, TypeRow]:
    """These types and all types that they consist of; missing ones are left out."""
    found: dict[int, TypeRow] = {}
    wanted = set(oids)
    while wanted:
        rows = connection.execute(_QUERY, [list(wanted)]).fetchall()
        fresh = {row[0]: TypeRow(*row[1:]) for row in rows}
        found.update(fresh)
        inner = {t.base for t in fresh.values() if t.category == "d"} | {
            t.element for t in fresh.values() if t.is_array
        }
        wanted = inner - found.keys()
    return found


def source_type(types: Mapping[int, TypeRow], oid: int, modifier: int) -> SourceType | None:
    """The type of a column; its `oid` is the column's own, also for a domain. None if the type is not in `types`."""
    resolved = _resolve(types, oid, modifier)
    if resolved is None:
        return None
    return replace(resolved, oid=oid)


def _resolve(types: Mapping[int, TypeRow], oid: int, modifier: int) -> SourceType | None:
    row = types.get(oid)
    if row is None:
        return None
    if row.category == "d":
        return _resolve(types, row.base, row.base_modifier)
    element = None
    if row.is_array:
        element = _resolve(types, row.element, modifier)
        if element is None:
            return None
    return SourceType(_name(row), modifier, row.category, element, oid, row.delimiter)


def _name(row: TypeRow) -> str:
    """The type's name, qualified unless it is in pg_catalog: a user's type with a built-in name must not be taken for the built-in type."""
    return row.name if row.schema == "pg_catalog" else f"{row.schema}.{row.name}"
