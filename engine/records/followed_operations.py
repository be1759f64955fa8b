"""Which operations can be followed of a table on a source. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from engine.model.schema import SourceType
from engine.model.subscription import TableSpec

_SPELLED_ONCE = frozenset(
    {
        *("bool", "int2", "int4", "int8", "oid", "text", "varchar", "bpchar", "name", "uuid", "bytea"),
        *("date", "time", "timestamp", "timestamptz"),
    }
)
"""Types whose equal values have equal texts, by what PostgreSQL and the targets take for equal. A `numeric` has them if its scale is fixed,
an enum type always."""


def operations_problem(spec: TableSpec, key: Iterable[SourceType]) -> str | None:
    """Why the declared operations cannot be followed of this table, as text; None if they can. `key`: the types of the key's columns; empty
    without a key."""
    types = list(key)
    if not spec.skipped - {"truncate"}:
        return None
    if not types and "delete" in spec.operations:
        return "operations: 'delete' without 'update' needs a key, as the target's rows have other values; add a primary key on the source"
    if "delete" not in spec.operations and not all(map(is_spelled_once, types)):
        return (
            "operations: without 'delete' a row that is inserted again replaces the one with its key, whose columns must be of types that"
            " have one text for each value, such as integers, text, uuid or timestamps; add 'delete' and 'truncate', or 'insert_only'"
        )
    return None


def is_spelled_once(kind: SourceType) -> bool:
    """Whether equal values of the type have equal texts."""
    if kind.name == "numeric":
        return kind.digits is not None
    return kind.category == "e" or kind.name in _SPELLED_ONCE
