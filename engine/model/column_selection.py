"""Which columns of a table leave the source, and which of them masked, by the names of the columns. Pure; the log reader and the source
judge alike."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.model.identity import RelationId, TableName
from engine.model.masks import Mask
from engine.model.patterns import ANY, matches


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """The columns that match one of `include`, or all if it is empty, but for those that match one of `exclude`; `masks` by column.

    An entry without `*` is a column's name. As long as the table has no such column, the column may have been renamed, and which of the
    table's columns it is now is not known.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    masks: tuple[tuple[str, Mask], ...] = ()

    def __bool__(self) -> bool:
        """Whether it may leave out or mask a column."""
        return bool(self.include or self.exclude or self.masks)

    def mask(self, column: str) -> Mask | None:
        return dict(self.masks).get(column)

    def takes(self, column: str) -> bool:
        """Whether the column is replicated."""
        taken = not self.include or any(matches(each, column) for each in self.include)
        return taken and not any(matches(each, column) for each in self.exclude)

    def missing(self, columns: Collection[str]) -> list[str]:
        """The names that it contains and `columns` does not, in order."""
        names = {each for each in (*self.include, *self.exclude) if ANY not in each} | {name for name, _ in self.masks}
        return sorted(names.difference(columns))


@dataclass(frozen=True, slots=True)
class TableSelection:
    """What the log reader needs to select the columns of a table.

    `relations`: the numbers under which the table is known; another one is recognized by `name`. `known`: columns that may be written
    while a name of the selection is missing.
    """

    name: TableName
    relations: frozenset[RelationId]
    columns: ColumnSelection
    known: frozenset[str] = frozenset()

    def takes(self, announced: Collection[str]) -> list[bool]:
        """For each column of a relation record, whether it is written to the queue."""
        if not self.columns.missing(announced):
            return [self.columns.takes(name) for name in announced]
        return [name in self.known and self.columns.takes(name) for name in announced]
