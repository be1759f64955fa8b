"""The type of a target column: the source's own if every supported server has it, else text. Pure."""

from __future__ import annotations

from engine.model.schema import Column, SourceType
from engine.targets.identifiers import quoted

# fmt: off
_EVERYWHERE = frozenset({
    "bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "money", "text", "varchar",
    "bpchar", "name", "bytea", "date", "time", "timetz", "timestamp", "timestamptz", "interval", "uuid",
    "json", "jsonb", "jsonpath", "inet", "cidr", "macaddr", "macaddr8", "bit", "varbit", "point", "line",
    "lseg", "box", "path", "polygon", "circle", "tsvector", "tsquery", "int4range", "int8range", "numrange",
    "daterange", "tsrange", "tstzrange", "int4multirange", "int8multirange", "nummultirange",
    "datemultirange", "tsmultirange", "tstzmultirange", "pg_lsn", "xid8",
})
# fmt: on
"""Types that every server since 14 has."""
MARK_TYPE = "pg_catalog.timestamptz"
"""Type of the column of deletion times."""
_LENGTHS = frozenset({"varchar", "bpchar"})
_PRECISIONS = frozenset({"time", "timetz", "timestamp", "timestamptz", "bit", "varbit"})


def postgres_type(column: Column) -> str:
    """The type's name in DDL."""
    if column.map_as == "text":
        return "pg_catalog.text"
    return _type(column.type)


def own_type(kind: SourceType) -> str:
    """Name of one of PostgreSQL's own types, whichever versions have it."""
    name = kind.name if kind.name.isidentifier() and kind.name != "char" else quoted(kind.name)
    return f"pg_catalog.{name}{_modifier(kind)}"


def _type(source: SourceType) -> str:
    if source.element is not None:
        element = _type(source.element)
        return "pg_catalog.text" if element == "pg_catalog.text" and source.element.name != "text" else f"{element}[]"
    if source.name not in _EVERYWHERE:
        return "pg_catalog.text"
    return f"pg_catalog.{source.name}{_modifier(source)}"


def _modifier(source: SourceType) -> str:
    """The declared limit if it is simple; a column without it holds the same values and more."""
    number = source.modifier
    if number < 0:
        return ""
    if source.name == "numeric" and source.digits is not None:
        return "({},{})".format(*source.digits)
    if source.name in _LENGTHS and number > 4:
        return f"({number - 4})"
    return f"({number})" if source.name in _PRECISIONS else ""
