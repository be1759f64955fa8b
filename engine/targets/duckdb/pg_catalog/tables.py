"""The catalog's relations as tables of an empty in-memory DuckDB, made when a statement first names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import duckdb
import pyarrow as pa

from engine.targets.duckdb.pg_catalog import catalog_rows, information_schema_rows
from engine.targets.duckdb.pg_catalog.catalog_rows import Row, index_definition, shown
from engine.targets.duckdb.pg_catalog.definitions import (
    PG_CATALOG,
    CatalogColumn,
    builtin_types,
    relations,
    value_functions,
)
from engine.targets.duckdb.pg_catalog.description import Description
from engine.targets.duckdb.pg_catalog.functions import functions, macro, with_used
from engine.targets.duckdb.pg_catalog.objects import Objects, Relation
from engine.targets.duckdb.pg_catalog.settings import settings_of
from engine.targets.identifiers import quoted

SCHEMAS = {PG_CATALOG: "pgc", "information_schema": "pgi"}
"""Schemas of the tables: DuckDB has views of its own in the schemas with PostgreSQL's names."""
_MEMORY = "256MB"
_ARROW: dict[str, Any] = {
    "bool": pa.bool_(),
    "bytea": pa.binary(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "numeric": pa.decimal128(38, 6),
    "oid": pa.uint32(),
    "xid": pa.uint32(),
    "timestamptz": pa.timestamp("us", "UTC"),
    "interval": pa.month_day_nano_interval(),
    "int2vector": pa.list_(pa.int16()),
    "oidvector": pa.list_(pa.uint32()),
}
"""Types of columns; all others are text."""
_ZEROS: dict[str, Any] = {"bool": False, "timestamptz": None, "int2vector": [], "oidvector": []}
_NUMBERS = frozenset({"int2", "int4", "int8", "float4", "float8", "oid", "xid"})
_MODIFIED = {"numeric": "n", "varchar": "l", "bpchar": "l"} | dict.fromkeys(
    ("timestamp", "timestamptz", "time", "timetz", "interval", "bit", "varbit"), "m"
)
"""How format_type shows the modifier of a type."""


class CatalogTables:
    """An instance of DuckDB with the catalog of a description. It reads no files and no network, and its configuration is locked."""

    def __init__(self, described: Description) -> None:
        self._objects = Objects(described)
        self.connection = duckdb.connect(
            ":memory:",
            config={
                "autoload_known_extensions": "false",
                "autoinstall_known_extensions": "false",
                "allow_community_extensions": "false",
                "python_enable_replacements": "false",
                "memory_limit": _MEMORY,
                "threads": "1",
                "temp_directory": "",
            },
        )
        self.connection.execute("SET GLOBAL TimeZone = 'UTC'")
        self.connection.execute("SET enable_progress_bar = false")
        self.connection.execute("SET GLOBAL integer_division = true")
        self.connection.execute("SET GLOBAL enable_external_access = false")
        self.connection.execute("SET GLOBAL lock_configuration = true")
        self.functions = functions(described)
        self._made: set[tuple[str, str]] = set()
        self._callable: set[str] = set()
        self.connection.execute(";".join(f"CREATE SCHEMA {schema}" for schema in (*SCHEMAS.values(), "x")))
        self._make_lookups()
        # Functions read it.
        self.need([(PG_CATALOG, "pg_namespace")], ())

    def close(self) -> None:
        self.connection.close()

    def need(self, named: Iterable[tuple[str, str]], called: Iterable[str]) -> None:
        """Make catalog relations, given by PostgreSQL's schema and name, and functions, unless they exist."""
        for schema, name in named:
            if (schema, name) not in self._made:
                module = catalog_rows if schema == PG_CATALOG else information_schema_rows
                rows = module.ROWS[name](self._objects) if name in module.ROWS else ()
                self._make(SCHEMAS[schema], name, relations()[schema, name].columns, rows)
                self._made.add((schema, name))
        missing = [name for name in with_used(self.functions, called) if name not in self._callable]
        self._callable.update(missing)
        self.connection.execute(";".join(["BEGIN", *(macro(name, self.functions[name]) for name in missing), "COMMIT"]))

    def _make(self, schema: str, name: str, columns: tuple[CatalogColumn, ...], rows: Iterable[Row]) -> None:
        listed = list(rows)
        given = {key for row in listed for key in row}
        arrays = []
        for one in columns:
            zero = _zero(one) if one.required else None
            kind = arrow_type(one.type)
            if one.name in given or not listed or zero == []:
                arrays.append(pa.array([row.get(one.name, zero) for row in listed], kind))
            else:
                arrays.append(pa.repeat(pa.scalar(zero, kind), len(listed)))
        self._load(schema, name, pa.table(arrays, names=[one.name for one in columns]))

    def _load(self, schema: str, name: str, table: Any) -> None:
        self.connection.register("loaded", table)
        self.connection.execute(f"CREATE TABLE {schema}.{quoted(name)} AS SELECT * FROM temp.main.loaded")
        self.connection.unregister("loaded")

    def _make_lookups(self) -> None:
        """Tables that functions read and statements cannot name."""
        objects = self._objects
        text, oid = pa.string(), pa.uint32()
        for name, fields, rows in (
            ("names", _NAMES, _names(objects)),
            (
                "relations",
                {"oid": oid, "visible": pa.bool_()},
                ((one.oid, one.oid in objects.visible) for one in objects.everything),
            ),
            ("comments", {"oid": oid, "kind": text, "number": pa.int32(), "text": text}, _comments(objects)),
            ("types", _TYPES, _types(objects)),
            ("type_keys", {"key": text, "oid": oid, "shown": text}, _type_keys(objects)),
            ("procs", _PROCS, _procs()),
            ("index_parts", {"oid": oid, "number": pa.int32(), "text": text}, _index_parts(objects)),
            ("constraints", {"oid": oid, "text": text}, _constraints(objects)),
            ("settings", {"name": text, "value": text}, settings_of(objects.described).items()),
        ):
            columns = list(zip(*rows, strict=True)) or [()] * len(fields)
            arrays = [pa.array(values, kind) for values, kind in zip(columns, fields.values(), strict=True)]
            self._load("x", name, pa.table(arrays, names=list(fields)))


def arrow_type(name: str) -> Any:
    """Arrow's type for a column of a catalog relation."""
    if name.startswith("_"):
        return pa.list_(_ARROW.get(name[1:], pa.string()))
    return _ARROW.get(name, pa.string())


def _zero(column: CatalogColumn) -> Any:
    if column.type.startswith("_"):
        return []
    return 0 if column.type in _NUMBERS else _ZEROS.get(column.type, "")


_NAMES = {"key": pa.string(), "oid": pa.uint32(), "shown": pa.string(), "definition": pa.string(), "bytes": pa.int64()}
_PROCS = dict.fromkeys(("key", "oid", "name", "result", "arguments"), pa.string()) | {"oid": pa.uint32()}
_TYPES = {"oid": pa.uint32(), "head": pa.string(), "tail": pa.string(), "kind": pa.string(), "visible": pa.bool_()}


def _names(objects: Objects) -> Iterator[tuple[str, int, str, str | None, int | None]]:
    """What a text may call a relation: its number, and its name in all forms that denote it."""
    found: dict[str, tuple[int, str, str | None, int | None]] = {}
    for one in objects.everything:
        visible = one.oid in objects.visible
        described = one.described
        row = (
            one.oid,
            _local(one, visible),
            described.definition if described else None,
            described.bytes if described else None,
        )
        names = {shown(one.name), quoted(one.name)}
        schemas = {shown(one.schema), quoted(one.schema)}
        keys = {f"{schema}.{name}" for schema in schemas for name in names} | {str(one.oid)}
        for key in keys | (names if visible else set()):
            found.setdefault(key, row)
    yield from ((key, *row) for key, row in found.items())


def _local(one: Relation, visible: bool) -> str:
    """The name with its schema where it would not be found without."""
    return shown(one.name) if visible else f"{shown(one.schema)}.{shown(one.name)}"


def _comments(objects: Objects) -> Iterator[tuple[int, str, int, str]]:
    kinds = {catalog_rows.PG_CLASS: "pg_class", catalog_rows.PG_NAMESPACE: "pg_namespace"}
    for row in catalog_rows.ROWS["pg_description"](objects):
        yield row["objoid"], kinds[row["classoid"]], row["objsubid"], row["description"]


def _types(objects: Objects) -> Iterator[tuple[int, str, str, str, bool]]:
    for one in builtin_types():
        element = one.name.removeprefix("_") if one.category == "A" else one.name
        head, blank, tail = one.shown.partition(" with") if element.startswith("time") else (one.shown, "", "")
        if not blank and one.shown.endswith("[]"):
            head, blank, tail = one.shown.removesuffix("[]"), "", "[]"
        yield one.oid, head, blank + tail, _MODIFIED.get(element, "-"), True
    for relation in objects.own:
        visible = relation.oid in objects.visible
        name = _local(relation, visible)
        yield relation.row_type, name, "", "-", visible
        yield objects.oids["array", relation.schema, relation.name], name, "[]", "-", visible


def _type_keys(objects: Objects) -> Iterator[tuple[str, int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for one in builtin_types():
        for name in (one.name, one.shown):
            found.setdefault(name, (one.oid, one.shown))
            found.setdefault(f"pg_catalog.{name}", (one.oid, one.shown))
        found.setdefault(str(one.oid), (one.oid, one.shown))
    for relation in objects.own:
        name = _local(relation, relation.oid in objects.visible)
        found.setdefault(name.lower(), (relation.row_type, name))
        found.setdefault(str(relation.row_type), (relation.row_type, name))
    yield from ((key, *row) for key, row in found.items())


def _procs() -> Iterator[tuple[str, int, str, str, str]]:
    types = {one.oid: one.shown for one in builtin_types()}
    for one in value_functions():
        arguments = ", ".join(types[oid] for oid in one.arguments)
        for key in (one.name, str(one.oid)):
            yield key, one.oid, one.name, types[one.result], arguments


def _index_parts(objects: Objects) -> Iterator[tuple[int, int, str]]:
    for key in objects.keys:
        columns = [one.name for one in key.index.attributes]
        yield key.index.oid, 0, index_definition(key.index.name, key.table.schema, key.table.name, columns)
        yield from ((key.index.oid, number, shown(name)) for number, name in enumerate(columns, start=1))


def _constraints(objects: Objects) -> Iterator[tuple[int, str]]:
    for key in objects.keys:
        yield key.constraint, f"PRIMARY KEY ({', '.join(shown(one.name) for one in key.index.attributes)})"
