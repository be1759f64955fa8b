"""The schema of a source table at a position: columns, types, key and replica identity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from engine.model.identity import RelationId, TableName
from engine.model.masks import Mask
from engine.model.position import Lsn
from engine.model.row_filter import RowFilter


class ReplicaIdentity(StrEnum):
    """REPLICA IDENTITY of a table: which columns of the old row the source logs."""

    DEFAULT = "default"
    INDEX = "index"
    FULL = "full"
    NOTHING = "nothing"


class KeyMode(StrEnum):
    """How the changes of a table identify their row on the target."""

    KEYED = "keyed"
    """By key columns: primary key, replica identity index, or a key that the user declared."""
    BAG = "bag"
    """REPLICA IDENTITY FULL without a key: equal rows are interchangeable."""
    APPEND = "append"
    """Insert-only, without identity."""


@dataclass(frozen=True, slots=True)
class SourceType:
    """A column type with domains resolved to their base type.

    `name` is PostgreSQL's internal type name (`int4`, `numeric`, `timestamptz`, `_int4` for an array of int4);
    `modifier` is atttypmod (-1 = none). `category` is pg_type.typtype of the base type (`b`, `e`, `c`, `r`, `m` …).
    `element` is the element type of an array, else None.
    """

    name: str
    modifier: int = -1
    category: str = "b"
    element: SourceType | None = None
    oid: int = 0
    """The OID in relation records (for a column of a domain type, the domain's OID)."""
    delimiter: str = field(default=",", compare=False)
    """Separator of elements of this type in an array's text (pg_type.typdelim). Determined by the type, so not compared."""

    @property
    def digits(self) -> tuple[int, int] | None:
        """Precision and scale of a `numeric`, which may be negative; None if it has no limit."""
        packed = self.modifier - 4
        # The lower 11 bits are a signed number.
        return None if packed < 0 else (packed >> 16 & 0xFFFF, (packed & 0x7FF ^ 0x400) - 0x400)


@dataclass(frozen=True, slots=True)
class Input:
    """A column that an expression reads: its name in the expression, and its SQL type."""

    attnum: int
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Expression:
    """Expression with which the source computes a column from others of the row. `mark`: changes whenever the computation changes."""

    sql: str
    mark: str
    inputs: tuple[Input, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `attnum` never changes and is never reused, so it identifies the column across renames."""

    name: str
    type: SourceType
    attnum: int
    nullable: bool = True
    fill: str | None = None
    """Text of the value for rows written before the column existed (pg_attribute.attmissingval); None = NULL."""
    map_as: str | None = None
    """Type override. `text`: the target stores PostgreSQL's text form, by the user's request. `source`: the value is passed on as text, and
    the target column has the source's type."""
    edition: int = 0
    """Changes with every change of the column's definition (xmin of its catalog row); 0 = unknown."""
    labels: tuple[str, ...] = ()
    """For an enum type, and arrays and domains over one: its labels in order of creation. A renamed label changes existing rows.

    For a composite or range type, and arrays and domains over one: each composite type that it contains, at any depth, as
    `NUMBER: PARTS` with the numbers of its parts, whose changes affect existing rows; and each label of each enum type that it contains
    as `NUMBER= LABEL`.
    """
    label_editions: tuple[int, ...] = ()
    """For each entry of `labels`, the xmin of its catalog row, which changes when it is renamed; 0, or an empty tuple = unknown."""
    generated: bool = False
    """A generated column: the source computes it from the row's other columns."""
    expression: Expression | None = None
    """Set if the log does not contain the column and the source computes it on request."""
    mask: Mask | None = None
    """What is in place of its values; `type` is that of the masked values."""
    mask_mark: str | None = None
    """Mark of the key with which they are hashed."""
    source_name: str | None = None
    """Its name on the source, if the user gave it another one on the target."""

    @property
    def on_source(self) -> str:
        return self.source_name or self.name


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table's schema. `columns` are in the order of their values in the log."""

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
    """Attribute numbers of generated columns that the log does not contain."""
    computed: tuple[Column, ...] = ()
    """Columns that the target has and the log does not contain; the source computes them on request. Empty in the result of `whole`."""
    row_filter: RowFilter | None = None
    """Only rows that satisfy it are replicated."""
    soft_delete: bool = False
    """The target's table keeps deleted rows, and has the column DELETED_AT besides `columns`. Only for KEYED."""
    history: bool = False
    """The versions of its rows are kept in a history table. Only for KEYED."""
    staging: bool = False
    """Its changes are kept in a CD table."""
    skipped: frozenset[str] = frozenset()
    """Operations that are not followed. Not for tables with `soft_delete`, `history` or `staging`."""
    scattered: bool = False
    """Several nodes have it. If an application moves a row between them by two transactions, the log may have the insert before the delete,
    so a row that comes to a key replaces the one that has it. Only for KEYED."""
    last_number: int = field(default=0, compare=False)
    """The highest attribute number of any column, dropped ones included, when the schema was read; 0 = unknown."""
    told_at: Lsn | None = field(default=None, compare=False)
    """Set if a DDL message contained this schema: the end of the transaction that changed the table."""
    void: bool = False
    """Placeholder for the schema of a relation record whose subtransaction was rolled back: no row may use it."""
    inferred: bool = field(default=False, compare=False)
    """The catalog already showed a later schema when this was read: columns were matched to the known schema by name and type."""

    @property
    def keeps_rows(self) -> bool:
        """Whether deletes are not followed, so that the target may have a row with the key of one that is inserted."""
        return "delete" in self.skipped and self.mode is KeyMode.KEYED

    def column(self, name: str) -> Column:
        """The column with this name. Raises KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def whole(self) -> TableSchema:
        """The schema of the target's table and of queries on the source: `computed` columns are included in `columns`."""
        if not self.computed:
            return self
        columns = sorted((*self.columns, *self.computed), key=lambda column: column.attnum)
        return replace(self, columns=tuple(columns), computed=())

    @property
    def logged(self) -> TableSchema:
        """The schema of the table in the log: the inverse of `whole`."""
        computed = tuple(column for column in self.columns if column.expression is not None)
        if not computed:
            return self
        columns = tuple(column for column in self.columns if column.expression is None)
        return replace(self, columns=columns, computed=computed)

    @property
    def as_on_source(self) -> TableSchema:
        """The schema with the columns' names on the source, as its log and catalog have them."""
        if all(column.source_name is None for column in (*self.columns, *self.computed)):
            return self
        names = {column.name: column.on_source for column in (*self.columns, *self.computed)}

        def named(columns: Sequence[Column]) -> tuple[Column, ...]:
            return tuple(replace(column, name=column.on_source, source_name=None) for column in columns)

        key = tuple(names[name] for name in self.key)
        return replace(self, columns=named(self.columns), computed=named(self.computed), key=key)

    @property
    def key_numbers(self) -> tuple[int, ...]:
        """Attribute numbers of the key columns in key order, which do not change when a column is renamed."""
        return tuple(column.attnum for column in self.key_columns)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self.column(name) for name in self.key)


def still_computed(computed: Sequence[Column], columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of `computed` that are not in `columns` and whose inputs all are."""
    there = {column.attnum for column in columns}
    return tuple(
        column
        for column in computed
        if column.expression is not None
        and column.attnum not in there
        and all(one.attnum in there for one in column.expression.inputs)
    )
