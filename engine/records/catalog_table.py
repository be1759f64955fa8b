"""Tables of a source as its catalog describes them, and what of them is replicated as declared: key, columns, rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from engine.model.history import HISTORY_COLUMNS
from engine.model.identity import RelationId, TableName
from engine.model.masks import MASK_KEY, SHORTEST_KEY, Mask, MaskMethod
from engine.model.row_filter import RowFilter, UnfitFilterError, row_filter, strings_of
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.soft_delete import DELETED_AT, DeleteMode
from engine.model.subscription import TableSpec
from engine.records.followed_operations import is_spelled_once, operations_problem
from engine.records.relation import MASKED_TYPES

FILTER_VERSION = 150000
"""PostgreSQL 15, the first version whose publications can have row filters."""
_SMALL_TYPES = frozenset(
    {"bool", "char", "date", "float4", "float8", "int2", "int4", "int8", "interval", "money", "name", "oid"}
    | {"time", "timestamp", "timestamptz", "timetz", "uuid"}
)
"""Types of fixed length, whose values are always in the row."""
_TIME_TYPES = frozenset({"date", "time", "timetz", "timestamp", "timestamptz"})
_MOVING_TIMES = frozenset({"now", "today", "tomorrow", "yesterday"})
"""Texts that are another time whenever PostgreSQL reads them."""


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column that the log contains. `has_default`: rows written before the column was added may hold another value than NULL."""

    column: Column
    type_oid: int
    modifier: int
    has_default: bool
    has_missing: bool


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index without expressions and without a predicate."""

    primary: bool
    replica_identity: bool
    immediate: bool
    columns: tuple[str, ...]
    not_null: bool


@dataclass(slots=True)
class CatalogTable:
    """One table of the source. `leaves`: for a partitioned root, the partitions that store its rows."""

    oid: int
    name: TableName
    kind: str
    persistence: str
    identity: ReplicaIdentity
    relfilenode: int
    rows: float
    columns: list[CatalogColumn] = field(default_factory=list)
    generated: list[str] = field(default_factory=list)
    """Generated columns that the log does not contain: virtual ones, and before PostgreSQL 18 stored ones."""
    unsent: list[int] = field(default_factory=list)
    """Attribute numbers of `generated`."""
    computed: list[Column] = field(default_factory=list)
    """The columns of `generated` that the source can compute from the other values of the row."""
    dropped: dict[int, int] = field(default_factory=dict)
    """Type modifier by attribute number of each dropped column. The catalog keeps nothing else of a dropped column."""
    stored_sent: bool = False
    """Whether the log contains stored generated columns. Such a server rejects changes of rows whose replica identity contains an
    unpublished column."""
    has_filters: bool = True
    """Whether the source's changes can have row filters; with publications that depends on the server's version."""
    whole_rows: bool = False
    """Whether whole rows are recorded of each change, so that a row filter may read any column."""
    indexes: list[UniqueIndex] = field(default_factory=list)
    leaves: list[CatalogTable] = field(default_factory=list)
    nodes: int = 1
    """Number of nodes that have the table."""

    @property
    def partitioned(self) -> bool:
        return self.kind == "p"

    @property
    def last_number(self) -> int:
        """The highest attribute number that any column has or had."""
        return max((*(c.column.attnum for c in self.columns), *self.unsent, *self.dropped), default=0)

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.column.name for c in self.columns)

    @property
    def identity_columns(self) -> tuple[str, ...]:
        """Columns that the log contains of an old row; empty if updates and deletes cannot be replicated."""
        if self.identity is ReplicaIdentity.FULL:
            return self.column_names
        for index in self.indexes:
            if index.replica_identity and self.identity is ReplicaIdentity.INDEX:
                return index.columns
            # PostgreSQL does not use a deferrable primary key as replica identity.
            if index.primary and index.immediate and self.identity is ReplicaIdentity.DEFAULT:
                return index.columns
        return ()

    @property
    def unsent_identity(self) -> list[str]:
        """Unpublished generated columns in the replica identity. They prevent updates and deletes from being replicated."""
        if self.identity is ReplicaIdentity.FULL:
            return self.generated if self.stored_sent else []
        return [name for name in self.identity_columns if name in self.generated]

    @property
    def fallback_key(self) -> tuple[str, ...]:
        """Key for REPLICA IDENTITY FULL: the primary key, else a unique index without NULLs; empty if the table has neither."""
        usable = [i for i in self.indexes if i.immediate and i.not_null and set(i.columns) <= set(self.column_names)]
        usable.sort(key=lambda i: not i.primary)
        return usable[0].columns if usable else ()


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """How rows of a table are identified. `problem` is set if updates and deletes cannot be replicated."""

    key: tuple[str, ...]
    mode: KeyMode
    problem: str | None = None


def choose_key(
    spec: TableSpec,
    identity: ReplicaIdentity,
    columns: Sequence[str],
    identity_columns: Sequence[str],
    fallback_key: Sequence[str],
) -> KeyChoice:
    """The declared key, else the replica identity's columns; for FULL `fallback_key`, else the whole row. Insert-only needs none."""
    if spec.insert_only:
        return KeyChoice((), KeyMode.APPEND)
    if not identity_columns:
        return KeyChoice((), KeyMode.APPEND, "the table has no primary key and no other replica identity")
    if spec.key:
        missing = [name for name in spec.key if name not in columns]
        if missing:
            return KeyChoice((), KeyMode.APPEND, f"the declared key names no column of the table: {', '.join(missing)}")
        if not set(spec.key) <= set(identity_columns):
            detail = f"the declared key is not part of the table's replica identity ({', '.join(identity_columns)})"
            return KeyChoice((), KeyMode.APPEND, detail)
        return KeyChoice(tuple(spec.key), KeyMode.KEYED)
    if identity is not ReplicaIdentity.FULL:
        return KeyChoice(tuple(identity_columns), KeyMode.KEYED)
    if fallback_key:
        return KeyChoice(tuple(fallback_key), KeyMode.KEYED)
    return KeyChoice((), KeyMode.BAG)


def key_of(table: CatalogTable, spec: TableSpec) -> KeyChoice:
    """The key choice for a table of the catalog. The log must contain the key for each leaf too: leaves have their own replica identity."""
    choice = choose_key(spec, table.identity, table.column_names, table.identity_columns, table.fallback_key)
    if choice.problem is not None or spec.insert_only:
        return choice
    if table.identity is ReplicaIdentity.INDEX and any(i.replica_identity and not i.not_null for i in table.indexes):
        detail = (
            "older rows may be NULL where its replica identity is NOT NULL for new ones only, until that is validated"
        )
        return KeyChoice((), KeyMode.APPEND, detail)
    for one in (table, *table.leaves):
        if one.unsent_identity:
            detail = f"generated columns are in the replica identity of {one.name}: {', '.join(one.unsent_identity)}"
            return KeyChoice((), KeyMode.APPEND, detail)
    for leaf in table.leaves:
        enough = leaf.identity is ReplicaIdentity.FULL
        if choice.mode is KeyMode.KEYED:
            enough = enough or set(choice.key) <= set(leaf.identity_columns)
        if not enough:
            return KeyChoice(
                (), KeyMode.APPEND, f"the replica identity of partition {leaf.name} does not include the table's key"
            )
    return choice


def not_logged(table: CatalogTable) -> str | None:
    """Names the table or partition whose changes are not logged, as text; None if all are logged."""
    for one in (table, *table.leaves):
        kinds = {"r": "", "p": "", "f": "is a foreign table"}
        reason = kinds.get(one.kind, "is not a table") or {"u": "is unlogged", "t": "is temporary"}.get(one.persistence)
        if reason:
            return f"{one.name} {reason}: its changes are not in the log"
    return None


def schema_of(table: CatalogTable, spec: TableSpec) -> TableSchema | None:
    """The table's schema; None if some of its changes are not logged, or if updates and deletes cannot be replicated and the user did not
    consent to `insert_only`."""
    choice = key_of(table, spec)
    if choice.problem is not None or not_logged(table) is not None or selection_problem(table, spec) is not None:
        return None
    filtered, table = table, selected(table, spec)
    return TableSchema(
        name=table.name,
        relation=RelationId(table.oid),
        columns=tuple(mapped(c.column, spec) for c in table.columns),
        key=named_key(choice.key, spec),
        mode=choice.mode,
        identity=table.identity,
        relfilenode=table.relfilenode,
        unsent=tuple(table.unsent),
        computed=computed_of(table, spec),
        row_filter=filter_of(filtered, spec),
        soft_delete=spec.deletes is DeleteMode.MARK,
        history=spec.history,
        staging=spec.staging,
        skipped=spec.skipped,
        scattered=is_scattered(table, spec),
        last_number=table.last_number,
    )


def selection_problem(table: CatalogTable, spec: TableSpec) -> str | None:
    """Why the table's columns and rows cannot be selected as declared, as text; None if they can."""
    problem = filter_problem(table, spec) or deletes_problem(table, spec) or history_problem(table, spec)
    key = key_of(table, spec).key
    problem = problem or operations_problem(spec, [c.column.type for c in table.columns if c.column.name in key])
    problem = problem or nodes_problem(table, spec)
    if problem is not None:
        return problem
    selection = spec.selection
    missing = selection.missing([*table.column_names, *table.generated])
    if missing:
        return f"include_columns or exclude_columns name columns that the table does not have: {', '.join(missing)}"
    without = [name for name in key_of(table, spec).key if not selection.takes(name)]
    if without:
        return f"key columns cannot be left out: {', '.join(without)}"
    wrong = [name for name in key_of(table, spec).key if _is_levelled(selection.mask(name))]
    if wrong:
        return f"key columns can only be masked by a hash: {', '.join(wrong)}"
    unlogged = [name for name in table.generated if selection.mask(name) is not None and selection.takes(name)]
    if unlogged:
        return f"the source computes generated columns on request, so they cannot be masked; leave them out: {', '.join(unlogged)}"
    if spec.mask_mark is None and any(mask.method is MaskMethod.HASH for _, mask in selection.masks):
        return f"hashes need the secret {MASK_KEY} of the source's connection, with {SHORTEST_KEY} characters or more"
    if not any(selection.takes(name) for name in table.column_names):
        return "include_columns and exclude_columns leave it without a column"
    names = [spec.rename.get(name, name) for name in (*table.column_names, *table.generated) if selection.takes(name)]
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"several columns would have one name on the target: {', '.join(twice)}" if twice else None


def is_scattered(table: CatalogTable, spec: TableSpec) -> bool:
    """As `TableSchema.scattered`."""
    return table.nodes > 1 and key_of(table, spec).mode is KeyMode.KEYED


def nodes_problem(table: CatalogTable, spec: TableSpec) -> str | None:
    """Why it cannot be recognized that a row of one node has the key of another node's row, as text; None if it can, or need not be."""
    if not is_scattered(table, spec):
        return None
    if spec.key and not any(index.immediate and set(index.columns) <= set(spec.key) for index in table.indexes):
        return (
            "several nodes have the table, so no two rows of a node may have the same key at any time: the declared key"
            f" ({', '.join(spec.key)}) needs a unique index that is not deferrable"
        )
    key = key_of(table, spec).key
    unfit = [c.column.name for c in table.columns if c.column.name in key and not is_spelled_once(c.column.type)]
    if unfit:
        return (
            "several nodes have the table, so columns of its key must be of types that have one text for each value, such as integers,"
            f" text, uuid or timestamps; change those of {', '.join(unfit)}, or declare 'insert_only' if no row is updated or deleted"
        )
    return None


def filter_problem(table: CatalogTable, spec: TableSpec) -> str | None:
    """Why the table must not be published with its row filter, as text; None if it may be.

    The source refuses updates and deletes of a table whose filter reads columns outside the replica identity. For rows that begin to
    satisfy the filter the log lacks unchanged values of large columns, unless the replica identity is FULL.
    """
    if spec.where is None:
        return None
    if not table.has_filters:
        return f"where needs PostgreSQL {FILTER_VERSION // 10000} or newer as the source"
    if table.partitioned:
        return "where is not possible for a partitioned table: its partitions have replica identities of their own"
    try:
        read = {name for _, name in _row_filter(table, spec.where).columns}
    except UnfitFilterError as error:
        return f"where: {error}"
    if table.whole_rows:
        return moving_literal(table, spec.where)
    if spec.insert_only or table.identity is ReplicaIdentity.FULL:
        return None
    outside = sorted(read.difference(table.identity_columns))
    if outside:
        return (
            f"where reads columns outside the replica identity, for which the source would refuse updates: {', '.join(outside)};"
            " set REPLICA IDENTITY FULL, or an index that includes them"
        )
    large = [c.column.name for c in table.columns if c.column.name not in table.identity_columns and _may_be_large(c)]
    if large:
        return (
            "the log would lack unchanged large values of rows that begin to satisfy where; set REPLICA IDENTITY FULL, or leave it out:"
            f" {', '.join(large)}"
        )
    return None


def moving_literal(table: CatalogTable, condition: str) -> str | None:
    """Why the condition is another one whenever it is evaluated, as text; None if it is not."""
    read = {name for _, name in _row_filter(table, condition).columns}
    times = [c.column.name for c in table.columns if c.column.name in read and c.column.type.name in _TIME_TYPES]
    moving = sorted(each for each in strings_of(condition) if each.strip().lower() in _MOVING_TIMES)
    if not times or not moving:
        return None
    return f"where compares {', '.join(times)} with '{moving[0]}', which is another time whenever it is read"


def deletes_problem(table: CatalogTable, spec: TableSpec) -> str | None:
    """Why deleted rows of the table cannot be marked as declared, as text; None if they can, or need not be."""
    if spec.deletes is DeleteMode.DELETE:
        return None
    if _lacks_key(table, spec):
        return (
            "deletes: 'mark' needs a key, by which a row that is inserted again is recognized; add a primary key on the source, or"
            " declare 'key'"
        )
    if _takes_name(table, spec, [DELETED_AT]) is not None:
        return (
            f"deletes: 'mark' adds the column {DELETED_AT}, which the table has; give that another name with 'rename'"
        )
    return None


def history_problem(table: CatalogTable, spec: TableSpec) -> str | None:
    """Why versions of the table's rows cannot be kept as declared, as text; None if they can, or need not be."""
    if not spec.history:
        return None
    if _lacks_key(table, spec):
        return "history needs a key, by which versions of one row are recognized; add a primary key on the source, or declare 'key'"
    name = _takes_name(table, spec, HISTORY_COLUMNS)
    if name is not None:
        return f"the history table has a column {name} of its own, and the table has one too; give that another name with 'rename'"
    return None


def _lacks_key(table: CatalogTable, spec: TableSpec) -> bool:
    """Whether the table can be followed, but not by a key."""
    choice = key_of(table, spec)
    return choice.problem is None and choice.mode is not KeyMode.KEYED


def _takes_name(table: CatalogTable, spec: TableSpec, names: Sequence[str]) -> str | None:
    """The first of these names that a column of the table has on the target."""
    taken = {spec.rename.get(c, c).lower() for c in (*table.column_names, *table.generated) if spec.selection.takes(c)}
    return next((name for name in names if name in taken), None)


def _may_be_large(column: CatalogColumn) -> bool:
    """Whether the source may store values of the column outside the row (TOAST)."""
    kind = column.column.type
    return kind.category != "e" and kind.name not in _SMALL_TYPES


def filter_of(table: CatalogTable, spec: TableSpec) -> RowFilter | None:
    """The row filter of a table without `filter_problem`."""
    return _row_filter(table, spec.where) if spec.where is not None else None


def _row_filter(table: CatalogTable, condition: str) -> RowFilter:
    return row_filter(condition, {c.column.name: c.column.attnum for c in table.columns})


def _is_levelled(mask: Mask | None) -> bool:
    """Whether the mask gives all rows the same value."""
    return mask is not None and mask.method is not MaskMethod.HASH


def selected(table: CatalogTable, spec: TableSpec) -> CatalogTable:
    """The table as the queue holds it: without the columns that are left out, with masked columns, and without those that the source would
    compute from either."""
    selection = spec.selection
    if not selection:
        return table
    taken = [_masked(c, spec) for c in table.columns if selection.takes(c.column.name)]
    left = {c.column.attnum for c in table.columns}.difference(c.column.attnum for c in taken)
    unfit = left | {c.column.attnum for c in taken if c.column.mask is not None}
    computed = [
        column
        for column in table.computed
        if selection.takes(column.name)
        and column.expression is not None
        and all(one.attnum not in unfit for one in column.expression.inputs)
    ]
    return replace(table, columns=taken, unsent=sorted({*table.unsent, *left}), computed=computed)


def _masked(column: CatalogColumn, spec: TableSpec) -> CatalogColumn:
    """The column with the type of its masked values. Its value for older rows is in no schema: they come with a copy."""
    mask = spec.mask.get(column.column.name)
    if mask is None:
        return column
    oid = MASKED_TYPES.get(mask.type_name or "")
    plain = column.column
    found = replace(plain, fill=None, mask=mask, mask_mark=spec.mask_mark if mask.method is MaskMethod.HASH else None)
    found = replace(found, nullable=plain.nullable or mask.method is MaskMethod.NULL)
    if oid is None:
        return replace(column, column=found, has_missing=False)
    found = replace(found, type=SourceType(str(mask.type_name), oid=oid), labels=(), label_editions=())
    return CatalogColumn(found, oid, -1, column.has_default, has_missing=False)


def computed_of(table: CatalogTable, spec: TableSpec) -> tuple[Column, ...]:
    """The columns that the log does not contain and that the source computes on request."""
    return tuple(mapped(column, spec) for column in table.computed if column.expression is not None)


def mapped(column: Column, spec: TableSpec) -> Column:
    """The column of the source with its type override from the user or the target, and its name on the target."""
    wanted = spec.map_as.get(column.name, spec.map_others_as)
    name = spec.rename.get(column.name, column.name)
    if wanted == column.map_as and name == column.name:
        return column
    return replace(column, map_as=wanted, name=name, source_name=column.name if name != column.name else None)


def named_key(key: Sequence[str], spec: TableSpec) -> tuple[str, ...]:
    """The key columns' names on the target."""
    return tuple(spec.rename.get(name, name) for name in key)
