"""What the log reader needs to select columns, from the tables of a run and the source's catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.model.column_selection import ColumnSelection, TableSelection
from engine.model.identity import TableId
from engine.model.source import Source
from engine.model.subscription import TableSpec
from engine.tables.registry import TableEntry


def table_selections(source: Source, entries: Iterable[TableEntry]) -> tuple[TableSelection, ...]:
    """The selections of all tables; empty if none of them has one.

    A table that the source cannot describe as declared has no `known` columns, so that no value of it is written while a name of its
    selection is missing. Raises EngineFault if the source cannot be read.
    """
    tables = list(entries)
    if not any(entry.spec.selection for entry in tables):
        return ()
    described = source.describe([entry.spec for entry in tables])
    found = []
    for entry in tables:
        now = described.get(entry.spec.source)
        schemas = (entry.schema, entry.copy.schema if entry.copy is not None else None, now)
        relations = frozenset(schema.relation for schema in schemas if schema is not None)
        known = frozenset(column.on_source for column in now.columns) if now is not None else frozenset()
        found.append(TableSelection(entry.spec.source, relations, entry.spec.selection, known))
    return tuple(found)


def needs_new_run(before: Mapping[TableId, TableSpec], after: Mapping[TableId, TableSpec]) -> bool:
    """Whether the current run does not serve the tables as declared now.

    Its log reader would not select and mask their columns as declared: a selection or the key of hashes changed, or a table was added while
    there are selections. Or a table belongs in the other publication: `insert_only` changed.
    """
    added = after.keys() - before.keys()
    return (bool(added) and any(table.selection for table in (*before.values(), *after.values()))) or any(
        _fixed(before[table]) != _fixed(after[table]) for table in before.keys() & after.keys()
    )


def _fixed(table: TableSpec) -> tuple[ColumnSelection, str | None, bool]:
    """What a run takes at its start."""
    return table.selection, table.mask_mark, table.insert_only
