"""Rows of the relations of information_schema. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.postgres.wire_types import TypeOid
from engine.targets.duckdb.pg_catalog.catalog_rows import Row
from engine.targets.duckdb.pg_catalog.definitions import builtin_types
from engine.targets.duckdb.pg_catalog.objects import Attribute, Objects, Relation

_BASE_TABLE = "BASE TABLE"
_NO_LENGTH = 1 << 30
"""character_octet_length of strings without a limit."""
_RADIX = {21: (16, 2, 0), 23: (32, 2, 0), 20: (64, 2, 0), 700: (24, 2, None), 701: (53, 2, None)}
"""Precision, radix and scale of numbers."""
_TIMES = (TypeOid.TIME, TypeOid.TIMESTAMP, TypeOid.TIMESTAMPTZ, TypeOid.TIMETZ, TypeOid.INTERVAL)


def _schemata(objects: Objects) -> Iterable[Row]:
    for name in objects.schemas:
        shared = {"catalog_name": objects.described.database, "schema_owner": objects.described.user}
        yield {**shared, "schema_name": name}


def _place(objects: Objects, one: Relation, prefix: str = "table") -> Row:
    return {f"{prefix}_catalog": objects.described.database, f"{prefix}_schema": one.schema, f"{prefix}_name": one.name}


def _shown(objects: Objects) -> list[Relation]:
    return [one for one in objects.everything if one.kind in "rv"]


def _tables(objects: Objects) -> Iterable[Row]:
    for one in _shown(objects):
        kind = _BASE_TABLE if one.kind == "r" else "VIEW"
        yield {**_place(objects, one), "table_type": kind, "is_insertable_into": "NO", "is_typed": "NO"}


def _columns(objects: Objects) -> Iterable[Row]:
    for one in _shown(objects):
        place = _place(objects, one)
        for attribute in one.attributes:
            yield {**place, **_column(objects, attribute)}


def _column(objects: Objects, one: Attribute) -> Row:
    array = one.type.name.startswith("_")
    return {
        "column_name": one.name,
        "ordinal_position": one.number,
        "is_nullable": "NO" if one.required else "YES",
        "data_type": "ARRAY" if array else one.type.shown,
        "udt_catalog": objects.described.database,
        "udt_schema": "pg_catalog",
        "udt_name": one.type.name,
        "dtd_identifier": str(one.number),
        "is_self_referencing": "NO",
        "is_identity": "NO",
        "identity_cycle": "NO",
        "is_generated": "NEVER",
        "is_updatable": "NO",
        **({} if array else _measures(one)),
    }


def _measures(one: Attribute) -> dict[str, Any]:
    if one.type.oid in _RADIX:
        precision, radix, scale = _RADIX[one.type.oid]
        return {"numeric_precision": precision, "numeric_precision_radix": radix, "numeric_scale": scale}
    if one.type.oid == TypeOid.NUMERIC:
        packed = one.modifier - 4
        limits = {} if packed < 0 else {"numeric_precision": packed >> 16, "numeric_scale": packed & 0x7FF}
        return {"numeric_precision_radix": 10, **limits}
    if one.type.oid in {TypeOid.TEXT, TypeOid.VARCHAR}:
        return {"character_octet_length": _NO_LENGTH}
    if one.type.oid == TypeOid.DATE:
        return {"datetime_precision": 0}
    return {"datetime_precision": 6} if one.type.oid in _TIMES else {}


def _element_types(objects: Objects) -> Iterable[Row]:
    types = {one.oid: one for one in builtin_types()}
    for relation in _shown(objects):
        kind = "TABLE" if relation.kind == "r" else "VIEW"
        for one in relation.attributes:
            element = types.get(one.type.element)
            if element is not None and one.type.category == "A":
                yield {
                    **_place(objects, relation, "object"),
                    "object_type": kind,
                    "collection_type_identifier": str(one.number),
                    "data_type": element.shown,
                    "udt_catalog": objects.described.database,
                    "udt_schema": "pg_catalog",
                    "udt_name": element.name,
                    "dtd_identifier": f"a{one.number}",
                }


def _views(objects: Objects) -> Iterable[Row]:
    no = dict.fromkeys(("is_updatable", "is_insertable_into", "is_trigger_updatable", "is_trigger_deletable"), "NO")
    for one in objects.everything:
        if one.kind == "v":
            definition = one.described.definition if one.described else None
            shared = {"check_option": "NONE", "is_trigger_insertable_into": "NO", **no}
            yield {**_place(objects, one), "view_definition": definition, **shared}


def _constraint(objects: Objects, schema: str, name: str) -> Row:
    catalog = objects.described.database
    return {"constraint_catalog": catalog, "constraint_schema": schema, "constraint_name": name}


def _required(objects: Objects) -> Iterable[tuple[Relation, Attribute, str]]:
    for one in objects.own:
        for attribute in one.attributes:
            if attribute.required:
                yield one, attribute, f"{objects.schemas[one.schema]}_{one.oid}_{attribute.number}_not_null"


def _table_constraints(objects: Objects) -> Iterable[Row]:
    shared = {"is_deferrable": "NO", "initially_deferred": "NO", "enforced": "YES"}
    for key in objects.keys:
        names = _constraint(objects, key.table.schema, key.index.name)
        row = {**names, **_place(objects, key.table), **shared, "constraint_type": "PRIMARY KEY"}
        yield {**row, "nulls_distinct": "YES"}
    for one, _, name in _required(objects):
        names = _constraint(objects, one.schema, name)
        yield {**names, **_place(objects, one), **shared, "constraint_type": "CHECK"}


def _check_constraints(objects: Objects) -> Iterable[Row]:
    for one, attribute, name in _required(objects):
        yield {**_constraint(objects, one.schema, name), "check_clause": f"{attribute.name} IS NOT NULL"}


def _key_columns(objects: Objects) -> Iterable[Row]:
    for key in objects.keys:
        place = {**_constraint(objects, key.table.schema, key.index.name), **_place(objects, key.table)}
        for attribute in key.index.attributes:
            yield {**place, "column_name": attribute.name, "ordinal_position": attribute.number}


def _constrained_tables(objects: Objects) -> Iterable[Row]:
    for key in objects.keys:
        yield {**_constraint(objects, key.table.schema, key.index.name), **_place(objects, key.table)}


def _privileges(objects: Objects) -> Iterable[Row]:
    user = objects.described.user
    for one in objects.own:
        granted = {"grantor": user, "grantee": user, "privilege_type": "SELECT", "is_grantable": "NO"}
        yield {**granted, **_place(objects, one), "with_hierarchy": "YES"}


def _column_privileges(objects: Objects) -> Iterable[Row]:
    by_name = {(one.schema, one.name): one for one in objects.own}
    for row in _privileges(objects):
        for attribute in by_name[row["table_schema"], row["table_name"]].attributes:
            yield {**row, "column_name": attribute.name}


def _catalog_name(objects: Objects) -> Iterable[Row]:
    return ({"catalog_name": objects.described.database},)


def _enabled_roles(objects: Objects) -> Iterable[Row]:
    return ({"role_name": objects.described.user},)


def _character_sets(objects: Objects) -> Iterable[Row]:
    yield {
        "character_set_name": "UTF8",
        "character_repertoire": "UCS",
        "form_of_use": "UTF8",
        "default_collate_catalog": objects.described.database,
        "default_collate_schema": "pg_catalog",
        "default_collate_name": "C",
    }


ROWS: dict[str, Callable[[Objects], Iterable[Row]]] = {
    "character_sets": _character_sets,
    "check_constraints": _check_constraints,
    "column_privileges": _column_privileges,
    "columns": _columns,
    "constraint_column_usage": _key_columns,
    "constraint_table_usage": _constrained_tables,
    "element_types": _element_types,
    "enabled_roles": _enabled_roles,
    "information_schema_catalog_name": _catalog_name,
    "key_column_usage": _key_columns,
    "role_column_grants": _column_privileges,
    "role_table_grants": _privileges,
    "schemata": _schemata,
    "table_constraints": _table_constraints,
    "table_privileges": _privileges,
    "tables": _tables,
    "views": _views,
}
"""Relations with rows. A value without a column in the relation is ignored."""
