"""Patterns that match tables of a schema, including future ones. Pure; shared by server and engine so that both match equally."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.identity import TableName

ANY = "*"
"""Matches any sequence of characters, including the empty one."""


@dataclass(frozen=True, slots=True)
class TablePattern:
    """Tables of one schema whose names match `name`, but for those that match one of `exclude`."""

    schema: str
    name: str = ANY
    exclude: tuple[str, ...] = ()

    def takes(self, table: TableName) -> bool:
        return (
            table.schema == self.schema
            and matches(self.name, table.name)
            and not any(matches(each, table.name) for each in self.exclude)
        )


def matches(pattern: str, name: str) -> bool:
    """Whether the name matches; all characters except `*` are literal. Takes time in proportion to the product of the lengths at most."""
    first, *inner = pattern.split(ANY)
    if not inner:
        return pattern == name
    last = inner.pop()
    end = len(name) - len(last)
    if len(first) > end or not name.startswith(first) or not name.endswith(last):
        return False
    at = len(first)
    for part in inner:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
