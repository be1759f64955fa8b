"""Tables by structure, for sources that number none of their columns: their schemas as the engine knows them, and the relation records that
announce their structures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from engine.model.fault import EngineFault, FaultKind
from engine.model.history import HISTORY_COLUMNS
from engine.model.identity import RelationId, TableName
from engine.model.masks import MASK_KEY, SHORTEST_KEY, MaskMethod
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.soft_delete import DELETED_AT, DeleteMode
from engine.model.subscription import TableSpec
from engine.records.followed_operations import operations_problem
from engine.records.relation import MASKED_TYPES, Announced, AnnouncedColumn, relation_record

_UNREADABLE = SourceType("unreadable")
"""No type, with the OID 0: a column announced with it matches none, so the table is copied again."""


class StructureColumn(Protocol):
    """A column. `fill`: the field that rows show which were written before it was added; None: NULL."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> SourceType: ...

    @property
    def nullable(self) -> bool: ...

    @property
    def fill(self) -> str | None: ...


class Structure(Protocol):
    """What rows of a table are read or recorded with. `key`: the columns that identify a row; empty if there are none."""

    @property
    def table_name(self) -> TableName: ...

    @property
    def columns(self) -> Sequence[StructureColumn]: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def key(self) -> tuple[str, ...]: ...

    @property
    def identity(self) -> ReplicaIdentity: ...


Read = TypeVar("Read", bound=Structure)


def record_of(relation: int, structure: Structure) -> bytes:
    """The relation record of rows with this structure."""
    return _announced(relation, structure, [(c.name, c.name in structure.key, c.type) for c in structure.columns])


def unreadable_record(relation: int, structure: Structure) -> bytes:
    """A relation record that matches no structure."""
    return _announced(relation, structure, [(structure.names[0], False, _UNREADABLE)])


def _announced(relation: int, structure: Structure, columns: Iterable[tuple[str, bool, SourceType]]) -> bytes:
    listed = tuple(AnnouncedColumn(name, key, kind.oid, kind.modifier) for name, key, kind in columns)
    return relation_record(Announced(RelationId(relation), structure.table_name, structure.identity, listed))


def key_problem(structure: Structure, spec: TableSpec) -> str | None:
    """Why updates and deletes cannot be followed, as text; None if they can, or need not be."""
    if spec.insert_only:
        return None
    if not structure.key:
        return "the table has no primary key, and no unique index over columns that are NOT NULL"
    if spec.key and not set(spec.key) <= set(structure.key):
        return f"the declared key is not part of the table's own key ({', '.join(structure.key)})"
    return None


def selection_problem(structure: Structure, spec: TableSpec) -> str | None:
    """Why the table's columns and rows cannot be selected as declared, as text; None if they can."""
    if spec.where is not None:
        return "where is not possible: every row is followed"
    keyed = bool(_key(structure, spec))
    names = [spec.rename.get(name, name) for name in structure.names if spec.selection.takes(name)]
    lower = [name.lower() for name in names]
    if spec.deletes is DeleteMode.MARK and (not keyed or DELETED_AT in lower):
        return f"deletes: 'mark' needs a key, and adds the column {DELETED_AT}, which the table must not have"
    if spec.history and (not keyed or any(name in lower for name in HISTORY_COLUMNS)):
        return f"history needs a key, and its table has the columns {', '.join(HISTORY_COLUMNS)} of its own"
    problem = operations_problem(spec, [c.type for c in structure.columns if c.name in _key(structure, spec)])
    if problem is not None:
        return problem
    selection = spec.selection
    missing = selection.missing(list(structure.names))
    if missing:
        return f"include_columns or exclude_columns name columns that the table does not have: {', '.join(missing)}"
    key = _key(structure, spec)
    without = [name for name in key if not selection.takes(name)]
    if without:
        return f"key columns cannot be left out: {', '.join(without)}"
    masks = {name: selection.mask(name) for name in key}
    wrong = [name for name, mask in masks.items() if mask is not None and mask.method is not MaskMethod.HASH]
    if wrong:
        return f"key columns can only be masked by a hash: {', '.join(wrong)}"
    if spec.mask_mark is None and any(mask.method is MaskMethod.HASH for _, mask in selection.masks):
        return f"hashes need the secret {MASK_KEY} of the source's connection, with {SHORTEST_KEY} characters or more"
    if not names:
        return "include_columns and exclude_columns leave it without a column"
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"several columns would have one name on the target: {', '.join(twice)}" if twice else None


def schema_of(relation: int, structure: Structure, spec: TableSpec, first: int = 1) -> TableSchema:
    """The schema of a table that can be followed as declared. `first`: the number of its first column."""
    key = _key(structure, spec)
    left = tuple(n for n, c in enumerate(structure.columns, first) if not spec.selection.takes(c.name))
    return TableSchema(
        name=structure.table_name,
        relation=RelationId(relation),
        columns=tuple(
            _column(number, column, column.name in key, spec)
            for number, column in enumerate(structure.columns, first)
            if number not in left
        ),
        key=tuple(spec.rename.get(name, name) for name in key),
        mode=KeyMode.APPEND if spec.insert_only else KeyMode.KEYED,
        identity=structure.identity,
        relfilenode=relation,
        unsent=left,
        soft_delete=spec.deletes is DeleteMode.MARK,
        history=spec.history,
        staging=spec.staging,
        skipped=spec.skipped,
        last_number=first + len(structure.columns) - 1,
    )


def _key(structure: Structure, spec: TableSpec) -> tuple[str, ...]:
    return () if spec.insert_only else tuple(spec.key) or structure.key


def _column(number: int, column: StructureColumn, key: bool, spec: TableSpec) -> Column:
    name = spec.rename.get(column.name, column.name)
    found = Column(
        name,
        column.type,
        number,
        nullable=column.nullable and not key,
        fill=column.fill,
        map_as=spec.map_as.get(column.name, spec.map_others_as),
        source_name=column.name if name != column.name else None,
    )
    mask = spec.mask.get(column.name)
    if mask is None:
        return found
    found = replace(found, fill=None, mask=mask, mask_mark=spec.mask_mark if mask.method is MaskMethod.HASH else None)
    found = replace(found, nullable=found.nullable or mask.method is MaskMethod.NULL)
    oid = MASKED_TYPES.get(mask.type_name or "")
    return found if oid is None else replace(found, type=SourceType(str(mask.type_name), oid=oid))


def resolved(
    announced: Announced,
    spec: TableSpec,
    structures: Iterable[Read],
    first: Callable[[Read], int] = lambda _: 1,
) -> TableSchema:
    """The schema that a relation record announces, which only has the selected columns, masked. `first`: as in `schema_of`.

    Raises EngineFault: TABLE_STRUCTURE_CHANGED if it is of no recorded structure, TABLE_NO_IDENTITY, TABLE_COLUMNS_UNFIT.
    """
    subject = str(announced.name)
    columns = [(c.name, c.type_oid, c.modifier) for c in announced.columns]
    key = {c.name for c in announced.columns if c.identity}
    for structure in structures:
        if set(structure.key) != key:
            continue
        if key_problem(structure, spec) is not None:
            raise EngineFault(FaultKind.TABLE_NO_IDENTITY, subject, str(key_problem(structure, spec)))
        problem = selection_problem(structure, spec)
        if problem is not None:
            raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, subject, problem)
        schema = schema_of(announced.relation, structure, spec, first(structure))
        if [(c.on_source, c.type.oid, c.type.modifier) for c in schema.columns] == columns:
            return replace(schema, name=announced.name)
    raise EngineFault(
        FaultKind.TABLE_STRUCTURE_CHANGED,
        subject,
        "its rows were read or recorded with another structure than the present one",
    )
