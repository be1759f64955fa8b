"""The structure of a source table at a position: columns, types, key and replica identity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from engine.model.identity import RelationId, TableName
from engine.model.position import Lsn


class ReplicaIdentity(StrEnum):
    """What the source logs of a row's old image."""

    DEFAULT = "default"
    INDEX = "index"
    FULL = "full"
    NOTHING = "nothing"


class KeyMode(StrEnum):
    """How changes of a table find their row on the target."""

    KEYED = "keyed"
    """By key columns: primary key, replica identity index, or a key the user declared."""
    BAG = "bag"
    """REPLICA IDENTITY FULL without a key: equal rows are interchangeable."""
    APPEND = "append"
    """Insert-only, without identity."""


@dataclass(frozen=True, slots=True)
class SourceType:
    """A column type with domains resolved to their base type.

    `name` is PostgreSQL's internal type name (`int4`, `numeric`, `timestamptz`, `_int4` for an array of int4);
    `modifier` is atttypmod (-1 where there is none). `category` is pg_type.typtype of the base type (`b`, `e`, `c`, `r`, `m` …).
    `element` is the element type of an array, else None.
    """

    name: str
    modifier: int = -1
    category: str = "b"
    element: SourceType | None = None
    oid: int = 0
    """The oid as the log announces it (a domain's own oid where the column is of a domain)."""
    delimiter: str = field(default=",", compare=False)
    """What parts elements of this type in an array's text (pg_type.typdelim). It goes with the type and tells none apart."""


@dataclass(frozen=True, slots=True)
class Input:
    """A column that an expression reads: under which name, and of which type in SQL."""

    attnum: int
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Expression:
    """How the source computes a column from others of the row. `mark`: another one whenever it computes it otherwise."""

    sql: str
    mark: str
    inputs: tuple[Input, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `attnum` never changes and is never reused, so it identifies the column over renames."""

    name: str
    type: SourceType
    attnum: int
    nullable: bool = True
    fill: str | None = None
    """Text of the value that rows written before this column existed hold (pg_attribute.attmissingval); None = NULL."""
    map_as: str | None = None
    """`text`: PostgreSQL's text form on the target, as the user asked for. `source`: that form on the way, the source's type on it."""
    edition: int = 0
    """Another one whenever the column's definition was changed (xmin of its row in the catalog); 0 = unknown."""
    labels: tuple[str, ...] = ()
    """Of an enum type, or arrays and domains of one: its labels in the order in which they came. A renamed one changes rows that are
    there.

    Of a composite type or a range, or arrays and domains of one: each composite type in it, however deep, as `NUMBER: PARTS` with the
    numbers of its parts, which rows that are there have from then on; and each label of each enum type in it as `NUMBER= LABEL`.
    """
    label_editions: tuple[int, ...] = ()
    """Of each of those another one whenever it was named (xmin of its row in the catalog); 0, or none = unknown."""
    generated: bool = False
    """The source computes it from the row's other columns."""
    expression: Expression | None = None
    """The log does not carry it: the source is asked to compute it."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table's structure. `columns` are in the order in which the log sends their values."""

    name: TableName
    relation: RelationId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """Names of the key columns in key order; empty for BAG and APPEND."""
    mode: KeyMode
    identity: ReplicaIdentity
    relfilenode: int = 0
    """Changes when the source rewrites the table; 0 = unknown (partitioned root)."""
    unsent: tuple[int, ...] = ()
    """Attribute numbers of generated columns that the log does not carry."""
    computed: tuple[Column, ...] = ()
    """Columns that the log does not carry and the target has: the source is asked to compute them. Empty in the form that `whole` gives."""
    last_number: int = field(default=0, compare=False)
    """The highest attribute number that any column had, dropped ones included, when this was learnt; 0 = unknown."""
    told_at: Lsn | None = field(default=None, compare=False)
    """The source's DDL capture told it: end of the transaction that made it so."""
    void: bool = False
    """It stands for another structure, of a relation record whose subtransaction was rolled back: no row may follow it."""
    inferred: bool = field(default=False, compare=False)
    """The catalog was further on when this was read: columns were matched with the structure known before by name and type."""

    def column(self, name: str) -> Column:
        """The column of this name; KeyError where there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def whole(self) -> TableSchema:
        """As the target has the table, and queries of the source read it: computed columns among the others."""
        if not self.computed:
            return self
        columns = sorted((*self.columns, *self.computed), key=lambda column: column.attnum)
        return replace(self, columns=tuple(columns), computed=())

    @property
    def logged(self) -> TableSchema:
        """As the log has the table: the other way round."""
        computed = tuple(column for column in self.columns if column.expression is not None)
        if not computed:
            return self
        columns = tuple(column for column in self.columns if column.expression is None)
        return replace(self, columns=columns, computed=computed)

    @property
    def key_numbers(self) -> tuple[int, ...]:
        """Attribute numbers of the key columns, in key order: a renamed column is still the same key."""
        return tuple(column.attnum for column in self.key_columns)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self.column(name) for name in self.key)


def still_computed(computed: Sequence[Column], columns: Sequence[Column]) -> tuple[Column, ...]:
    """Those that are not among `columns` themselves, and whose inputs all are."""
    there = {column.attnum for column in columns}
    return tuple(
        column
        for column in computed
        if column.expression is not None
        and column.attnum not in there
        and all(one.attnum in there for one in column.expression.inputs)
    )
