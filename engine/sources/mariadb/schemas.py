"""Schemas of tables, as declared, with the structures that relation records announce."""

from __future__ import annotations

from collections.abc import Iterable

from engine.model.fault import EngineFault, FaultKind
from engine.model.schema import TableSchema
from engine.model.subscription import TableSpec
from engine.records.catalog_table import key_of, schema_of
from engine.records.relation import parse_relation
from engine.sources.mariadb.catalog import Structure


def resolved(payload: bytes, spec: TableSpec, structures: Iterable[Structure]) -> TableSchema:
    """The schema that a relation record announces, which only has the selected columns, masked.

    Raises EngineFault: TABLE_STRUCTURE_CHANGED if it is of none of these structures, TABLE_NO_IDENTITY, TABLE_COLUMNS_UNFIT.
    """
    announced = parse_relation(payload)
    columns = [(column.name, column.type_oid, column.modifier) for column in announced.columns]
    key = {column.name for column in announced.columns if column.identity}
    unfit = None
    for structure in structures:
        if structure.relation != announced.relation or set(structure.key) != key:
            continue
        schema = schema_of(structure.table(), spec)
        if schema is None:
            unfit = unfit or structure
        elif [(c.on_source, c.type.oid, c.type.modifier) for c in schema.columns] == columns:
            return schema
    subject = str(announced.name)
    problem = key_of(unfit.table(), spec).problem if unfit is not None else None
    if problem is not None:
        raise EngineFault(FaultKind.TABLE_NO_IDENTITY, subject, problem)
    if unfit is not None:
        raise EngineFault(FaultKind.TABLE_COLUMNS_UNFIT, subject, "its columns cannot be selected as declared")
    detail = "the table was changed on the source, and these rows are of another structure, or changes may be missing"
    raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, subject, detail)
