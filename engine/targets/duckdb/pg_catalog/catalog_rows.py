"""Rows of the relations of pg_catalog. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.targets.duckdb.pg_catalog.definitions import (
    INFORMATION_SCHEMA,
    PG_CATALOG,
    BuiltinType,
    builtin_types,
    value_functions,
)
from engine.targets.duckdb.pg_catalog.objects import OWNER, Attribute, Objects, Relation
from engine.targets.duckdb.pg_catalog.settings import SPELLING, settings_of
from engine.targets.identifiers import quoted

Row = dict[str, Any]
"""Values by column; a column that is absent is NULL, or zero, false or empty where PostgreSQL has no NULL."""

# OIDs of catalog relations and access methods, which are the same in every PostgreSQL.
PG_CLASS = 1259
PG_CONSTRAINT = 2606
PG_NAMESPACE = 2615
_HEAP = 2
_BTREE = 403
_SYSTEM = (PG_CATALOG, INFORMATION_SCHEMA)


def _pg_namespace(objects: Objects) -> Iterable[Row]:
    for name, oid in objects.schemas.items():
        yield {"oid": oid, "nspname": name, "nspowner": OWNER}


def _pg_class(objects: Objects) -> Iterable[Row]:
    keyed = {key.table.oid for key in objects.keys}
    for one in objects.everything:
        stored = one.kind in "ri"
        described = one.described
        yield {
            "oid": one.oid,
            "relname": one.name,
            "relnamespace": objects.schemas[one.schema],
            "reltype": one.row_type,
            "relowner": OWNER,
            "relam": {"r": _HEAP, "i": _BTREE}.get(one.kind, 0),
            "relfilenode": one.oid if stored else 0,
            "reltuples": -1.0 if described is None or described.rows is None else float(described.rows),
            "relhasindex": one.oid in keyed,
            "relpersistence": "p",
            "relkind": one.kind,
            "relnatts": len(one.attributes),
            "relhasrules": one.kind == "v",
            "relispopulated": True,
            "relreplident": "d" if described is not None and one.kind == "r" else "n",
        }


def _pg_attribute(objects: Objects) -> Iterable[Row]:
    for relation in objects.everything:
        for one in relation.attributes:
            yield _attribute(relation, one)


def _attribute(relation: Relation, one: Attribute) -> Row:
    return {
        "attrelid": relation.oid,
        "attname": one.name,
        "atttypid": one.type.oid,
        "attstattarget": -1,
        "attlen": one.type.length,
        "attnum": one.number,
        "attndims": 1 if one.type.name.startswith("_") else 0,
        "attcacheoff": -1,
        "atttypmod": one.modifier,
        "attbyval": one.type.by_value,
        "attalign": one.type.alignment,
        "attstorage": one.type.storage,
        "attnotnull": one.required,
        "attislocal": True,
        "attcollation": one.type.collation,
    }


def _pg_type(objects: Objects) -> Iterable[Row]:
    for one in builtin_types():
        yield _builtin(one)
    for relation in objects.own:
        name = (relation.schema, relation.name)
        shared = {"typnamespace": objects.schemas[relation.schema], **_TYPE}
        array = objects.oids["array", *name]
        row: Row = {**_functions("record_in"), "typtype": "c", "typcategory": "C", "typrelid": relation.oid}
        yield {**shared, **row, "oid": relation.row_type, "typname": relation.name, "typarray": array}
        row = {**_functions("array_in"), "typtype": "b", "typcategory": "A", "typelem": relation.row_type}
        yield {**shared, **row, "oid": array, "typname": "_" + relation.name}


_TYPE: Row = {
    "typowner": OWNER,
    "typlen": -1,
    "typisdefined": True,
    "typdelim": ",",
    "typmodin": "-",
    "typmodout": "-",
    "typanalyze": "-",
    "typalign": "d",
    "typstorage": "x",
    "typtypmod": -1,
    "typsubscript": "-",
}


def _builtin(one: BuiltinType) -> Row:
    return {
        **_TYPE,
        **_functions(one.input),
        "oid": one.oid,
        "typname": one.name,
        "typnamespace": 11,
        "typlen": one.length,
        "typbyval": one.by_value,
        "typtype": one.typtype,
        "typcategory": one.category,
        "typispreferred": one.preferred,
        "typdelim": one.delimiter,
        "typelem": one.element,
        "typarray": one.array,
        "typalign": one.alignment,
        "typstorage": one.storage,
        "typcollation": one.collation,
        "typsubscript": _subscript(one),
    }


def _subscript(one: BuiltinType) -> str:
    if not one.element:
        return "jsonb_subscript_handler" if one.name == "jsonb" else "-"
    return "array_subscript_handler" if one.category == "A" else "raw_array_subscript_handler"


_TEXT_ONLY = frozenset({"aclitemin", "gtsvectorin"})
"""Input functions of types that have no binary form."""


def _functions(input_function: str) -> Row:
    stem = input_function.removesuffix("in")
    binary = input_function not in _TEXT_ONLY
    return {
        "typinput": input_function,
        "typoutput": stem + "out",
        "typreceive": stem + "recv" if binary else "-",
        "typsend": stem + "send" if binary else "-",
    }


def _pg_proc(_: Objects) -> Iterable[Row]:
    for one in value_functions():
        yield {
            "oid": one.oid,
            "proname": one.name,
            "pronamespace": 11,
            "proowner": OWNER,
            "prolang": 12,
            "procost": 1.0,
            "prosupport": "-",
            "prokind": "f",
            "proisstrict": one.strict,
            "provolatile": one.volatility,
            "proparallel": "s",
            "pronargs": len(one.arguments),
            "prorettype": one.result,
            "proargtypes": list(one.arguments),
            "prosrc": one.name,
        }


def _pg_index(objects: Objects) -> Iterable[Row]:
    for key in objects.keys:
        count = len(key.numbers)
        yield {
            "indexrelid": key.index.oid,
            "indrelid": key.table.oid,
            "indnatts": count,
            "indnkeyatts": count,
            "indisunique": True,
            "indisprimary": True,
            "indimmediate": True,
            "indisvalid": True,
            "indisready": True,
            "indislive": True,
            "indkey": list(key.numbers),
            "indcollation": [one.type.collation for one in key.index.attributes],
            "indclass": [0] * count,
            "indoption": [0] * count,
        }


def _pg_constraint(objects: Objects) -> Iterable[Row]:
    for key in objects.keys:
        yield {
            "oid": key.constraint,
            "conname": key.index.name,
            "connamespace": objects.schemas[key.table.schema],
            "contype": "p",
            "convalidated": True,
            "conrelid": key.table.oid,
            "conindid": key.index.oid,
            "confupdtype": " ",
            "confdeltype": " ",
            "confmatchtype": " ",
            "conislocal": True,
            "connoinherit": True,
            "conkey": list(key.numbers),
        }


def _pg_description(objects: Objects) -> Iterable[Row]:
    for relation in objects.own:
        described = relation.described
        comments = [(0, described.comment)] if described else []
        comments += [(i, column.comment) for i, column in enumerate(described.columns, 1)] if described else []
        for number, text in comments:
            if text is not None:
                yield {"objoid": relation.oid, "classoid": PG_CLASS, "objsubid": number, "description": text}
    for name, text in objects.described.schema_comments.items():
        if name in objects.schemas:
            yield {"objoid": objects.schemas[name], "classoid": PG_NAMESPACE, "objsubid": 0, "description": text}


def _pg_database(objects: Objects) -> Iterable[Row]:
    yield {
        "oid": objects.oids["database", objects.described.database],
        "datname": objects.described.database,
        "datdba": OWNER,
        "encoding": 6,
        "datlocprovider": "c",
        "datallowconn": True,
        "datconnlimit": -1,
        "dattablespace": 1663,
        "datcollate": "C",
        "datctype": "C",
    }


_RIGHTS = (
    *("rolsuper", "rolcreaterole", "rolcreatedb", "rolreplication", "rolbypassrls"),
    *("usesuper", "usecreatedb", "userepl", "usebypassrls"),
)


def _role(objects: Objects) -> Row:
    return {
        **dict.fromkeys(_RIGHTS, False),
        "rolpassword": "********",
        "passwd": "********",
        "oid": OWNER,
        "rolname": objects.described.user,
        "rolinherit": True,
        "rolcanlogin": True,
        "rolconnlimit": -1,
        "usename": objects.described.user,
        "usesysid": OWNER,
    }


def _pg_settings(objects: Objects) -> Iterable[Row]:
    for name, value in sorted(settings_of(objects.described).items()):
        yield {
            "name": SPELLING.get(name, name),
            "setting": value,
            "category": "Preset Options",
            "context": "user",
            "vartype": "string",
            "source": "default",
            "boot_val": value,
            "reset_val": value,
            "pending_restart": False,
        }


def _tables(objects: Objects) -> Iterable[Row]:
    keyed = {key.table.oid for key in objects.keys}
    for one in objects.everything:
        if one.kind == "r":
            yield {
                "schemaname": one.schema,
                "tablename": one.name,
                "tableowner": objects.described.user,
                "hasindexes": one.oid in keyed,
                "hasrules": False,
                "hastriggers": False,
                "rowsecurity": False,
            }


def _views(objects: Objects) -> Iterable[Row]:
    for one in objects.everything:
        if one.kind == "v":
            shared = {"schemaname": one.schema, "viewname": one.name, "viewowner": objects.described.user}
            yield {**shared, "definition": one.described.definition if one.described else None}


def _pg_rewrite(objects: Objects) -> Iterable[Row]:
    for one in objects.own:
        if one.kind == "v":
            oid = objects.oids["rule", one.schema, one.name]
            shared = {"rulename": "_RETURN", "ev_type": "1", "ev_enabled": "O", "is_instead": True}
            yield {**shared, "oid": oid, "ev_class": one.oid}


def _pg_depend(objects: Objects) -> Iterable[Row]:
    for key in objects.keys:
        index = {"classid": PG_CLASS, "objid": key.index.oid, "refclassid": PG_CONSTRAINT, "deptype": "i"}
        yield {**index, "refobjid": key.constraint}
        for number in key.numbers:
            table = {"refclassid": PG_CLASS, "refobjid": key.table.oid, "refobjsubid": number, "deptype": "a"}
            yield {"classid": PG_CONSTRAINT, "objid": key.constraint, **table}


def _pg_indexes(objects: Objects) -> Iterable[Row]:
    for key in objects.keys:
        names = {"schemaname": key.table.schema, "tablename": key.table.name, "indexname": key.index.name}
        columns = [one.name for one in key.index.attributes]
        yield {**names, "indexdef": index_definition(key.index.name, key.table.schema, key.table.name, columns)}


def index_definition(index: str, schema: str, table: str, columns: list[str]) -> str:
    """The statement that would make the index of a primary key."""
    place = f"{shown(schema)}.{shown(table)}"
    return f"CREATE UNIQUE INDEX {shown(index)} ON {place} USING btree ({', '.join(map(shown, columns))})"


def shown(name: str) -> str:
    """The name as PostgreSQL prints it: in quotes only where it needs them, keywords aside."""
    plain = name and not name[0].isdigit() and all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in name)
    return name if plain else quoted(name)


def _activity(objects: Objects) -> Iterable[Row]:
    yield {
        "datid": objects.oids["database", objects.described.database],
        "datname": objects.described.database,
        "pid": objects.described.process,
        "usesysid": OWNER,
        "usename": objects.described.user,
        "application_name": settings_of(objects.described)["application_name"],
        "state": "active",
        "backend_type": "client backend",
    }


def _table_statistics(objects: Objects) -> Iterable[Row]:
    for one in objects.own:
        if one.kind == "r" and one.described:
            shared = {"relid": one.oid, "schemaname": one.schema, "relname": one.name}
            yield {**shared, "n_live_tup": one.described.rows}


def _index_statistics(objects: Objects) -> Iterable[Row]:
    for key in objects.keys:
        names = {"schemaname": key.table.schema, "relname": key.table.name, "indexrelname": key.index.name}
        yield {**names, "relid": key.table.oid, "indexrelid": key.index.oid}


def _fixed(*rows: Row) -> Callable[[Objects], Iterable[Row]]:
    return lambda _: rows


def _one_role(objects: Objects) -> Iterable[Row]:
    return (_role(objects),)


def _access_methods(_: Objects) -> Iterable[Row]:
    methods = {"heap": 2, "btree": 403, "hash": 405, "gist": 783, "gin": 2742, "spgist": 4000, "brin": 3580}
    for name, oid in methods.items():
        yield {"oid": oid, "amname": name, "amhandler": "-", "amtype": "t" if name == "heap" else "i"}


def _collations(_: Objects) -> Iterable[Row]:
    shared = {"collnamespace": 11, "collowner": OWNER, "collisdeterministic": True, "collencoding": -1}
    yield {"oid": 100, "collname": "default", "collprovider": "d", **shared}
    for oid, name in ((950, "C"), (951, "POSIX")):
        yield {"oid": oid, "collname": name, "collprovider": "c", "collcollate": name, "collctype": name, **shared}


def _ranges(_: Objects) -> Iterable[Row]:
    subtypes = {3904: (23, 4451), 3906: (1700, 4532), 3908: (1114, 4533), 3910: (1184, 4534)}
    subtypes |= {3912: (1082, 4535), 3926: (20, 4536)}
    for oid, (subtype, multirange) in subtypes.items():
        shared = {"rngcanonical": "-", "rngsubdiff": "-"}
        yield {"rngtypid": oid, "rngsubtype": subtype, "rngmultitypid": multirange, **shared}


def _database_statistics(objects: Objects) -> Iterable[Row]:
    described = objects.described
    yield {"datid": objects.oids["database", described.database], "datname": described.database}


ROWS: dict[str, Callable[[Objects], Iterable[Row]]] = {
    "pg_am": _access_methods,
    "pg_attribute": _pg_attribute,
    "pg_authid": _one_role,
    "pg_class": _pg_class,
    "pg_collation": _collations,
    "pg_constraint": _pg_constraint,
    "pg_database": _pg_database,
    "pg_depend": _pg_depend,
    "pg_description": _pg_description,
    "pg_index": _pg_index,
    "pg_indexes": _pg_indexes,
    "pg_language": _fixed(
        {"oid": 12, "lanname": "internal", "lanowner": OWNER},
        {"oid": 13, "lanname": "c", "lanowner": OWNER},
        {"oid": 14, "lanname": "sql", "lanowner": OWNER, "lanpltrusted": True},
    ),
    "pg_namespace": _pg_namespace,
    "pg_proc": _pg_proc,
    "pg_range": _ranges,
    "pg_rewrite": _pg_rewrite,
    "pg_roles": _one_role,
    "pg_settings": _pg_settings,
    "pg_shadow": _one_role,
    "pg_stat_activity": _activity,
    "pg_stat_all_indexes": _index_statistics,
    "pg_stat_all_tables": _table_statistics,
    "pg_stat_database": _database_statistics,
    "pg_stat_user_indexes": _index_statistics,
    "pg_stat_user_tables": _table_statistics,
    "pg_stat_xact_user_tables": _table_statistics,
    "pg_statio_all_indexes": _index_statistics,
    "pg_statio_all_tables": _table_statistics,
    "pg_statio_user_indexes": _index_statistics,
    "pg_statio_user_tables": _table_statistics,
    "pg_tables": _tables,
    "pg_tablespace": _fixed(
        {"oid": 1663, "spcname": "pg_default", "spcowner": OWNER},
        {"oid": 1664, "spcname": "pg_global", "spcowner": OWNER},
    ),
    "pg_type": _pg_type,
    "pg_user": _one_role,
    "pg_views": _views,
}
"""Relations with rows. A value without a column in the relation is ignored."""
