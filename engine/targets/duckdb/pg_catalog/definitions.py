"""The relations and types of PostgreSQL's catalog, parsed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from engine.targets.duckdb.pg_catalog import (
    catalog_columns,
    function_definitions,
    information_schema_columns,
    type_definitions,
)

PG_CATALOG = "pg_catalog"
INFORMATION_SCHEMA = "information_schema"


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column of a catalog relation. `type`: PostgreSQL's internal name (`int4`, `_text`)."""

    name: str
    type: str
    required: bool


@dataclass(frozen=True, slots=True)
class CatalogRelation:
    """A relation of the catalog. `kind`: pg_class.relkind."""

    schema: str
    name: str
    oid: int
    kind: str
    columns: tuple[CatalogColumn, ...]


@dataclass(frozen=True, slots=True)
class BuiltinType:
    """A row of pg_type without what can be derived from the rest."""

    oid: int
    name: str
    array: int
    length: int
    by_value: bool
    typtype: str
    category: str
    preferred: bool
    delimiter: str
    element: int
    collation: int
    alignment: str
    storage: str
    input: str
    shown: str
    """The name in SQL, as format_type returns it."""


@dataclass(frozen=True, slots=True)
class ValueFunction:
    """A function that reads or writes the values of a built-in type. `result`, `arguments`: OIDs of types."""

    oid: int
    name: str
    result: int
    arguments: tuple[int, ...]
    volatility: str
    strict: bool


@cache
def value_functions() -> tuple[ValueFunction, ...]:
    """The input, output, receive and send functions of all built-in types."""
    found = []
    for text in function_definitions.DEFINITIONS.strip().replace("\n", "; ").split("; "):
        oid, name, result, arguments, letters = text.split(" ")
        types = tuple(int(one) for one in arguments.split(","))
        found.append(ValueFunction(int(oid), name, int(result), types, letters[0], letters[1] == "t"))
    return tuple(found)


@cache
def relations() -> dict[tuple[str, str], CatalogRelation]:
    """Catalog relations by schema and name."""
    found = {}
    for schema, module, default in (
        (PG_CATALOG, catalog_columns, "oid"),
        (INFORMATION_SCHEMA, information_schema_columns, "name"),
    ):
        for line in module.DEFINITIONS.replace("\n ", " ").splitlines():
            name, oid, kind, *columns = line.split()
            parsed = tuple(_column(text, default) for text in columns)
            found[schema, name] = CatalogRelation(schema, name, int(oid), kind, parsed)
    return found


def _column(text: str, default: str) -> CatalogColumn:
    name, _, kind = text.removesuffix("!").partition(":")
    return CatalogColumn(name, kind or default, text.endswith("!"))


@cache
def builtin_types() -> tuple[BuiltinType, ...]:
    """Built-in types, each followed by its array type where it has one."""
    found = []
    for line in type_definitions.DEFINITIONS.splitlines():
        oid, name, array, length, by_value, *letters, input_function = line.split(" ")[:14]
        typtype, category, preferred, delimiter, element, collation, alignment, storage = letters
        shown = line.split(" ")[14].replace("_", " ") if line.count(" ") == 14 else name
        base = BuiltinType(
            oid=int(oid),
            name=name,
            array=int(array),
            length=int(length),
            by_value=by_value == "t",
            typtype=typtype,
            category=category,
            preferred=preferred == "t",
            delimiter=delimiter,
            element=int(element),
            collation=int(collation),
            alignment=alignment,
            storage=storage,
            input=input_function,
            shown=shown,
        )
        found.append(base)
        if base.array and base.name != "record":
            found.append(_array_of(base))
    return tuple(found)


def _array_of(base: BuiltinType) -> BuiltinType:
    return BuiltinType(
        oid=base.array,
        name="_" + base.name,
        array=0,
        length=-1,
        by_value=False,
        typtype="b",
        category="A",
        preferred=False,
        delimiter=base.delimiter,
        element=base.oid,
        collation=base.collation,
        alignment="d" if base.alignment == "d" else "i",
        storage="x",
        input="array_in",
        shown=base.shown + "[]",
    )


@cache
def type_oids() -> dict[str, int]:
    """OIDs of built-in types by internal name."""
    return {one.name: one.oid for one in builtin_types()}


@cache
def type_names() -> dict[int, str]:
    """The inverse of `type_oids`."""
    return {one.oid: one.name for one in builtin_types()}


@cache
def type_aliases() -> dict[str, str]:
    """Internal names of built-in types by their names in SQL, in lower case without quotes."""
    shown = {one.shown.strip('"'): one.name for one in builtin_types()}
    return {**shown, "int": "int4", "decimal": "numeric", "float": "float8", "char": "bpchar", '"char"': "char"}
