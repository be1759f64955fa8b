"""Patterns that stand for the tables of a schema, also for those that are yet to come. Pure; server and engine match alike."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.identity import TableName

ANY = "*"
"""Stands for any characters of a name, or none."""


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
    """Whether a name is what the pattern says; all characters but `*` stand for themselves. Takes time by the lengths, not by powers."""
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
