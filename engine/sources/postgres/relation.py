"""Parses relation records and completes them from the catalog, which may already show a later state than the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.schema import Column, TableSchema, still_computed
from engine.model.soft_delete import DeleteMode
from engine.model.subscription import TableSpec
from engine.records.catalog_table import (
    CatalogColumn,
    CatalogTable,
    choose_key,
    computed_of,
    filter_of,
    is_scattered,
    key_of,
    mapped,
    named_key,
    selected,
    selection_problem,
)
from engine.records.relation import Announced, AnnouncedColumn
from engine.sources.postgres.types import TypeRow, source_type


def complete(
    announced: Announced,
    spec: TableSpec,
    known: TableSchema | None,
    table: CatalogTable | None,
    types: Mapping[int, TypeRow],
) -> TableSchema:
    """The schema that a record announces. `table`: from the current catalog, None if dropped; `types`: of the announced columns.

    Raises EngineFault: TABLE_STRUCTURE_CHANGED if a column's attribute number, or its value in older rows, is uncertain, or if a table
    without a key has one now; TABLE_NO_IDENTITY if updates and deletes cannot be replicated any more; TABLE_COLUMNS_UNFIT if the columns
    cannot be selected as declared.
    """
    if known is not None and known.relation != announced.relation:
        known = None
    known = known.as_on_source if known is not None else None
    if table is not None:
        problem = selection_problem(table, spec)
        if problem is not None:
            raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, str(announced.name), problem)
        conditions, table = filter_of(table, spec), selected(table, spec)
    else:
        conditions = known.row_filter if known is not None else None
    matcher = _Matcher(announced, spec, known, table, types)
    columns = tuple(matcher.columns())
    identity_columns = tuple(c.name for c in announced.columns if c.identity)
    fallback = _fallback(announced, known, table)
    choice = choose_key(
        spec, announced.identity, [c.name for c in columns], _ordered(identity_columns, known, table), fallback
    )
    if choice.problem is not None:
        if table is not None and key_of(table, spec).problem is None:
            detail = f"{choice.problem} at this position, and has got one since"
            raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(announced.name), detail)
        raise EngineFault(FaultKind.TABLE_NO_IDENTITY, str(announced.name), choice.problem)
    return TableSchema(
        name=announced.name,
        relation=announced.relation,
        columns=tuple(mapped(column, spec) for column in columns),
        key=named_key(choice.key, spec),
        mode=choice.mode,
        identity=announced.identity,
        relfilenode=_storage(known, table, as_now=matcher.as_now),
        inferred=not matcher.as_now,
        unsent=_unsent(announced, known, table, as_now=matcher.as_now),
        computed=_computed(columns, spec, known, table, as_now=matcher.as_now),
        row_filter=conditions,
        soft_delete=spec.deletes is DeleteMode.MARK,
        history=spec.history,
        staging=spec.staging,
        skipped=spec.skipped,
        scattered=is_scattered(table, spec) if table is not None else known is not None and known.scattered,
        last_number=_last_number(columns, known, table, as_now=matcher.as_now),
    )


def is_announced(known: TableSchema, announced: Announced, spec: TableSpec, types: Mapping[int, TypeRow]) -> bool:
    """Whether the record announces exactly this schema."""
    known = known.as_on_source
    columns = announced.columns
    if known.relation != announced.relation or known.identity is not announced.identity:
        return False
    if [c.name for c in columns] != [c.name for c in known.columns]:
        return False
    if not all(_is_type(c, one, types) for c, one in zip(known.columns, columns, strict=True)):
        return False
    identity = _ordered([c.name for c in columns if c.identity], known, None)
    choice = choose_key(spec, announced.identity, [c.name for c in columns], identity, known.key)
    return choice.problem is None and (choice.key, choice.mode) == (known.key, known.mode)


def _unsent(
    announced: Announced, known: TableSchema | None, table: CatalogTable | None, *, as_now: bool
) -> tuple[int, ...]:
    """Attribute numbers of generated columns that the log does not contain at this position; it may contain them later."""
    if table is None:
        return known.unsent if known is not None else ()
    if as_now:
        return tuple(table.unsent)
    names = {c.name for c in announced.columns}
    held_back = [c.column.attnum for c in table.columns if c.column.generated and c.column.name not in names]
    return tuple(sorted({*(known.unsent if known is not None else table.unsent), *held_back}))


def _computed(
    columns: Sequence[Column], spec: TableSpec, known: TableSchema | None, table: CatalogTable | None, *, as_now: bool
) -> tuple[Column, ...]:
    """Computed columns: from the catalog if it shows the announced schema (`as_now`), else from `known`. The log does not contain them."""
    if table is not None and (as_now or known is None):
        return computed_of(table, spec)
    left = still_computed(known.computed if known is not None else (), columns)
    return tuple(mapped(column, spec) for column in left)


def _storage(known: TableSchema | None, table: CatalogTable | None, *, as_now: bool) -> int:
    """The relfilenode: from the catalog only if it shows the announced schema; else `known`'s, so that a rewrite is noticed later."""
    if table is not None and (as_now or known is None):
        return table.relfilenode
    return known.relfilenode if known is not None else 0


def _last_number(
    columns: Sequence[Column], known: TableSchema | None, table: CatalogTable | None, *, as_now: bool
) -> int:
    """The highest attribute number: from the catalog only if it shows the announced schema; else columns added and dropped since would be
    missed."""
    if known is None or (as_now and table is not None):
        return table.last_number if table is not None else 0
    return max(known.last_number, *(c.attnum for c in columns)) if known.last_number else 0


def _ordered(names: Sequence[str], known: TableSchema | None, table: CatalogTable | None) -> tuple[str, ...]:
    """The identity's columns in key order, which the record does not contain."""
    for order in (known.key if known is not None else (), table.identity_columns if table is not None else ()):
        if set(order) == set(names):
            return tuple(order)
    return tuple(names)


def _fallback(announced: Announced, known: TableSchema | None, table: CatalogTable | None) -> tuple[str, ...]:
    names = {c.name for c in announced.columns}
    for key in (
        table.fallback_key if table is not None else (),
        known.key if table is None and known is not None else (),
    ):
        if key and set(key) <= names:
            return tuple(key)
    return ()


class _Matcher:
    """Finds the attribute number, type and value in older rows (fill) of each announced column."""

    def __init__(
        self,
        announced: Announced,
        spec: TableSpec,
        known: TableSchema | None,
        table: CatalogTable | None,
        types: Mapping[int, TypeRow],
    ) -> None:
        self._announced = announced
        self._spec = spec
        self._table = table
        self._types = types
        self._in_catalog = {c.column.name: c for c in table.columns} if table is not None else {}
        self._known = {c.name: c for c in known.columns} if known is not None else {}
        self._known_attnums = {c.attnum: c for c in known.columns} if known is not None else {}
        self._rewritten = known is not None and table is not None and known.relfilenode != table.relfilenode
        self._unsent = frozenset(known.unsent if known is not None else ())
        self._last_number = known.last_number if known is not None else 0

    @property
    def as_now(self) -> bool:
        """Whether the announced columns are exactly those of the catalog."""
        announced = [(c.name, c.type_oid, c.modifier) for c in self._announced.columns]
        return self._table is not None and announced == [
            (c.column.name, c.type_oid, c.modifier) for c in self._table.columns
        ]

    def columns(self) -> list[Column]:
        found = [self._column(c) for c in self._announced.columns]
        numbers = [c.attnum for c in found]
        if sorted(set(numbers)) != numbers:
            raise _changed(self._announced, "its columns cannot be distinguished any more")
        return found

    def _column(self, announced: AnnouncedColumn) -> Column:
        now = self._in_catalog.get(announced.name)
        before = self._known.get(announced.name)
        same_before = before is not None and _is_type(before, announced, self._types)
        if now is not None and (now.type_oid, now.modifier) == (announced.type_oid, announced.modifier):
            if before is not None and same_before and before.attnum != now.column.attnum:
                raise _changed(self._announced, f"column {announced.name} was dropped and added again")
            return self._current(announced, now)
        if before is not None and same_before:
            return before
        if before is not None and now is not None and before.attnum == now.column.attnum:
            return self._of_number(announced, before)
        raise _changed(self._announced, f"column {announced.name} has changed again since")

    def _current(self, announced: AnnouncedColumn, now: CatalogColumn) -> Column:
        column = now.column
        before = self._known_attnums.get(column.attnum)
        if before is not None:
            fill = column.fill if before.fill is None else before.fill
            # The catalog's definition may be later than this record, so it must not be recorded as known.
            definition = column if self.as_now else before
            return replace(column, fill=fill, edition=definition.edition, generated=definition.generated)
        if self._may_be_another(now):
            detail = f"column {announced.name} was added after another one was, which may have had its name and is gone"
            raise _changed(self._announced, detail)
        if self._may_be_dropped_since(announced):
            raise _changed(self._announced, f"column {announced.name} was dropped, or another one that had its name")
        if self._known and not now.has_missing and self._may_hold_values(now):
            raise _changed(
                self._announced, f"column {announced.name} was added with values that the log does not carry"
            )
        return column

    def _may_be_dropped_since(self, announced: AnnouncedColumn) -> bool:
        """Whether the record may refer to an older column that had this name, which a newer column has now.

        True only if a name moved between columns. A new column with the name of a dropped one is an ordinary case.
        """
        there = {c.column.attnum for c in self._in_catalog.values()}
        dropped = [c for number, c in self._known_attnums.items() if number not in there]
        return announced.name in self._known and any(_is_type(c, announced, self._types) for c in dropped)

    def _may_be_another(self, now: CatalogColumn) -> bool:
        """Whether the record may refer to a column that was added after `known` and dropped since; its values were different ones."""
        if self._table is None or not self._last_number:
            return False
        return any(
            self._last_number < number < now.column.attnum and modifier == now.modifier
            for number, modifier in self._table.dropped.items()
        )

    def _may_hold_values(self, now: CatalogColumn) -> bool:
        """Whether rows older than the column may hold values of it that neither the catalog nor the log shows.

        Possible if the table was rewritten since, with or without a current default, and if the column is or was generated.
        """
        if now.column.generated or now.column.attnum in self._unsent:
            return True
        if self._table is not None and self._table.partitioned:
            return now.has_default or not now.column.nullable
        return self._rewritten

    def _of_number(self, announced: AnnouncedColumn, before: Column) -> Column:
        """The same column with the announced type, which it had between `known` and the catalog's state."""
        kind = source_type(self._types, announced.type_oid, announced.modifier)
        if kind is None:
            raise _changed(self._announced, f"the type of column {announced.name} exists no more")
        return replace(before, name=announced.name, type=kind, map_as=None)


def _is_type(column: Column, announced: AnnouncedColumn, types: Mapping[int, TypeRow]) -> bool:
    if column.type.oid != announced.type_oid:
        return False
    kind = source_type(types, announced.type_oid, announced.modifier)
    return kind is None or kind == column.type


def _changed(announced: Announced, detail: str) -> EngineFault:
    return EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(announced.name), detail)
