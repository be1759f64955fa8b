"""Tables that DuckDB reads: their structures, and what prevents them from being compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from engine.model.fault import EngineFault
from engine.model.identity import RelationId, TableId, TableName
from engine.model.schema import ReplicaIdentity, SourceType, TableSchema
from engine.model.source import Finding
from engine.model.subscription import TableSpec
from engine.records.table_structure import key_problem, record_of, schema_of, selection_problem, unreadable_record
from engine.sources.duckdb.types import ColumnKind
from engine.sources.query_diff.database import ComparedTable
from engine.sources.query_diff.derived_numbers import column_base, relation_of

_MOST_PARTS = 1_024
"""Most parts of one table. Not measured."""


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column whose values can be read."""

    name: str
    kind: ColumnKind
    nullable: bool = True
    fill: str | None = None

    @property
    def type(self) -> SourceType:
        return self.kind.type


@dataclass(frozen=True, slots=True)
class ReadStructure:
    """What rows of a table are read with. `declared`: the user declared the key, and nothing but the rows says that it is one."""

    table_name: TableName
    columns: tuple[ReadColumn, ...]
    key: tuple[str, ...]
    declared: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def identity(self) -> ReplicaIdentity:
        return ReplicaIdentity.DEFAULT if self.key else ReplicaIdentity.NOTHING

    @property
    def number(self) -> RelationId:
        return relation_of(self.table_name)

    @property
    def facts(self) -> str:
        """What rows of the table are read with, as text."""
        return repr(([(c.name, c.kind.declared, c.kind.pattern, c.nullable) for c in self.columns], self.key))

    @property
    def numbered(self) -> frozenset[tuple[int, str]]:
        """The columns by number."""
        return frozenset(enumerate(self.names, first_number(self)))


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A table as it is now. `unreadable`: columns whose values cannot be read, with their types; `problem`: why no row can be read."""

    structure: ReadStructure
    rows: int
    bytes: int
    unreadable: tuple[tuple[str, str], ...] = ()
    problem: str | None = None


def first_number(structure: ReadStructure) -> int:
    """The number of the first column."""
    return column_base(structure.facts) + 1


def row_ranges(table: LiveTable, most: int) -> list[str]:
    """Parts of a table that DuckDB has, as of `Place.parts_of`: ranges of row numbers, of which the first and the last one have no end."""
    if "rowid" in {name.lower() for name in (*table.structure.names, *(name for name, _ in table.unreadable))}:
        return [""]
    count = max(1, min(most, _MOST_PARTS, table.rows))
    cuts = [table.rows * part // count for part in range(1, count)]
    lows, highs = [None, *cuts], [*cuts, None]
    return [
        " AND ".join(
            [*([] if low is None else [f"t.rowid >= {low}"]), *([] if high is None else [f"t.rowid < {high}"])]
        )
        for low, high in zip(lows, highs, strict=True)
    ]


def keyed(
    name: TableName,
    columns: Sequence[tuple[str, str, ColumnKind | None, bool]],
    own: Sequence[str],
    declared: Sequence[str],
) -> tuple[ReadStructure, tuple[tuple[str, str], ...]]:
    """A structure, and the columns that cannot be read. `columns`: name, type, kind and whether it may be NULL; `own`: the key that the
    database enforces; `declared`: the one that the user declared."""
    key = tuple(declared) or tuple(own)
    readable = tuple(ReadColumn(c, kind, null and c not in key) for c, _, kind, null in columns if kind is not None)
    unreadable = tuple((c, declared_as) for c, declared_as, kind, _ in columns if kind is None)
    enforced = bool(own) and set(own) <= set(key)
    missing = not set(key) <= {column.name for column in readable}
    return ReadStructure(name, readable, () if missing else key, bool(key) and not enforced), unreadable


def identity_problem(table: LiveTable, spec: TableSpec, declared: Sequence[str]) -> str | None:
    """Why rows cannot be compared, as text; None if they can."""
    structure = table.structure
    if structure.key:
        return key_problem(structure, spec)
    if declared:
        return f"capture.tables names columns as its key that it does not have, or that cannot be read: {', '.join(declared)}"
    return "nothing says which columns identify a row"


def unread_problem(table: LiveTable, spec: TableSpec) -> str | None:
    """Which columns that the declaration takes cannot be read, as text; None if all can."""
    taken = [f"{name} ({kind})" for name, kind in table.unreadable if spec.selection.takes(name)]
    return f"values of these columns cannot be replicated: {', '.join(taken)}" if taken else None


def readable(table: LiveTable, spec: TableSpec) -> TableSpec:
    """The declaration without the names of columns that cannot be read and are left out: the structure is without them."""
    unreadable = {name for name, _ in table.unreadable}
    return replace(spec, exclude_columns=tuple(name for name in spec.exclude_columns if name not in unreadable))


def described(table: LiveTable, spec: TableSpec) -> TableSchema | None:
    """The table's schema; None if it cannot be compared as declared."""
    structure = table.structure
    if table.problem or identity_problem(table, spec, ()) or unread_problem(table, spec):
        return None
    declared = readable(table, spec)
    if selection_problem(structure, declared) is not None:
        return None
    return schema_of(structure.number, structure, declared, first_number(structure))


def compared(table: LiveTable) -> ComparedTable | None:
    """The table with all columns that can be read; None if its rows cannot be compared."""
    structure, number = table.structure, table.structure.number
    if table.problem or not structure.key:
        return None
    spec = TableSpec(TableId("t0"), structure.table_name, structure.table_name)
    schema = schema_of(number, structure, spec, first_number(structure))
    return ComparedTable(schema, spec, record_of(number, structure), unreadable_record(number, structure))


class HeldTables(Protocol):
    """Tables as they were at one moment, while they are held."""

    @property
    def connection(self) -> Any:
        """Of DuckDB; used by one thread at a time."""
        ...

    def table(self, name: TableName) -> LiveTable | None:
        """None if it is not there."""
        ...

    def provide(self, table: LiveTable) -> None:
        """Make its rows available by the name of `Place.rows_of`."""
        ...

    def check(self, table: LiveTable, subject: str) -> None:
        """Raise EngineFault(COPY_LOST) if what was read of the table may be of another moment."""
        ...

    def fault(self, error: BaseException, subject: str) -> EngineFault:
        """The fault for an error of a read."""
        ...

    def interrupt(self) -> None:
        """End a read that runs. May be called from any thread; nothing is read afterwards."""
        ...


class Place(Protocol):
    """Where tables are that DuckDB reads. Methods may be called from any thread, and raise EngineFault."""

    name: str
    """Of the connection."""
    remedies: Mapping[str, str]
    """What to do about findings by their codes."""

    def secret(self, name: str) -> str | None: ...

    def check(self) -> None:
        """Raise EngineFault(SOURCE_UNREACHABLE) if it is not there."""
        ...

    def declared_key(self, table: TableName) -> Sequence[str]:
        """The columns that the user declared as the table's key; empty if there are none."""
        ...

    def tables(self, names: Collection[TableName] | None = None) -> dict[TableName, LiveTable]:
        """These tables, or all, as they are now."""
        ...

    def hold(self) -> AbstractContextManager[HeldTables]:
        """All tables as they are at one moment."""
        ...

    def rows_of(self, structure: ReadStructure) -> str:
        """The name of the table in SQL."""
        ...

    def parts_of(self, table: LiveTable, most: int) -> list[str]:
        """Up to so many conditions on the table `t`, of which each row satisfies exactly one, whatever rows there will be. An empty one is
        true."""
        ...

    def findings(self) -> list[Finding]:
        """About the place as a whole."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...
