"""The operations of a table that can be followed."""

from __future__ import annotations

from collections.abc import Collection

OPERATIONS = frozenset({"insert", "update", "delete", "truncate"})
"""Every operation that can be followed."""


def set_problem(operations: Collection[str]) -> str | None:
    """Why this set of operations cannot be followed of any table, as text; None if it can."""
    if "insert" not in operations:
        return "'insert' is not among them: later changes would be of rows that the target does not have"
    if "delete" in operations and "truncate" not in operations:
        return "'delete' is among them and 'truncate' is not, which deletes all rows"
    return None
