"""Types of MariaDB's columns: the canonical type of each, and the SQL that prints a value as canonical COPY text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

OIDS = {
    "bytea": 17,
    "int8": 20,
    "int2": 21,
    "int4": 23,
    "text": 25,
    "float4": 700,
    "float8": 701,
    "inet": 869,
    "date": 1082,
    "timestamp": 1114,
    "timestamptz": 1184,
    "numeric": 1700,
    "uuid": 2950,
}
"""OIDs of the canonical types in relation records."""
_WIDEST_DECIMAL = 38
"""Digits of the widest decimal that targets hold as a number."""
_INTEGERS = {
    ("tinyint", False): "int2",
    ("tinyint", True): "int2",
    ("smallint", False): "int2",
    ("smallint", True): "int4",
    ("mediumint", False): "int4",
    ("mediumint", True): "int4",
    ("int", False): "int4",
    ("int", True): "int8",
    ("bigint", False): "int8",
}
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
_BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_SHAPES = frozenset(
    {
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
    }
)
_SORTED = frozenset({"date", "datetime", "char", "varchar", "binary", "varbinary", "decimal"})
_BITS = re.compile(r"bit\((\d+)\)")


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column in information_schema. `precision`, `scale`: of a number; `fraction`: digits of a second; `collation`: of a text."""

    name: str
    data_type: str
    column_type: str
    precision: int | None
    scale: int | None
    fraction: int | None
    nullable: bool
    collation: str = field(default="", repr=False)
    """Not part of the repr, of which tables' marks are made."""


@dataclass(frozen=True, slots=True)
class Printed:
    """The canonical type with its modifier, and the SQL of a value's text with `{}` for the value. `ordered`: a literal of the text, or
    the number itself (`number`), sorts as the value does."""

    name: str
    modifier: int
    sql: str
    ordered: bool = False
    number: bool = False

    @property
    def oid(self) -> int:
        return OIDS[self.name]


_PLAIN = "{}"
_CHARACTERS = "CAST({} AS CHAR)"
"""For types that would also be the type of IFNULL with a text."""
_ESCAPED = (
    r"REPLACE(REPLACE(REPLACE(REPLACE(CONVERT({} USING utf8mb4) COLLATE utf8mb4_bin, '\\', '\\\\'), '\t', '\\t'), '\n', '\\n'),"
    r" '\r', '\\r')"
)
HEX_MARK = r"\x"
"""What the text of bytes begins with, before their hexadecimal digits."""
_HEX = r"CONCAT('\\\\x', LOWER(HEX({})))"


def printed(facts: ColumnFacts) -> Printed | None:
    """How values of the column are printed; None if they cannot be replicated."""
    kind = facts.data_type
    unsigned, padded = "unsigned" in facts.column_type, "zerofill" in facts.column_type
    whole = f"CAST({_PLAIN} AS UNSIGNED)" if padded else _PLAIN
    if (kind, unsigned) in _INTEGERS:
        return Printed(_INTEGERS[kind, unsigned], -1, whole, ordered=True, number=True)
    if kind == "bigint":
        return Printed("numeric", numeric_modifier(20, 0), whole, ordered=True, number=True)
    if kind == "decimal":
        return _decimal(int(facts.precision or 10), int(facts.scale or 0), padded=padded)
    if kind in {"float", "double"}:
        return Printed("float4" if kind == "float" else "float8", -1, "CAST({} AS DOUBLE)")
    if kind == "date":
        return Printed("date", -1, _PLAIN, ordered=True)
    if kind == "datetime":
        return Printed("timestamp", -1, _shortened("{}", facts.fraction), ordered=True)
    if kind == "timestamp":
        return Printed("timestamptz", -1, _instant(facts.fraction))
    if kind == "year":
        return Printed("int2", -1, "CAST({} AS UNSIGNED)", ordered=True, number=True)
    if kind == "time":
        return Printed("text", -1, _PLAIN)
    if kind in _TEXTS:
        return Printed("text", -1, _ESCAPED, ordered=kind in _SORTED)
    if kind in _BYTES:
        return Printed("bytea", -1, _HEX, ordered=kind in _SORTED)
    if kind == "bit":
        found = _BITS.fullmatch(facts.column_type)
        return Printed("text", -1, f"LPAD(BIN({{}} + 0), {found[1] if found else 1}, '0')")
    if kind == "uuid":
        return Printed("uuid", -1, _CHARACTERS)
    if kind in {"inet4", "inet6"}:
        return Printed("inet", -1, _CHARACTERS)
    if kind in _SHAPES:
        return Printed("bytea", -1, _HEX.format("ST_AsWKB({})"))
    return None


def numeric_modifier(precision: int, scale: int) -> int:
    """The modifier of a numeric of this precision and scale."""
    return (precision << 16 | scale) + 4


def _decimal(precision: int, scale: int, *, padded: bool) -> Printed:
    text = f"CAST({{}} AS DECIMAL({precision}, {scale}))" if padded else _PLAIN
    if precision > _WIDEST_DECIMAL:
        return Printed("text", -1, text, ordered=True, number=True)
    return Printed("numeric", numeric_modifier(precision, scale), text, ordered=True, number=True)


def _shortened(text: str, fraction: int | None) -> str:
    """Without zeros at the end of the fraction of a second, nor its point."""
    return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))" if fraction else text


def _instant(fraction: int | None) -> str:
    """In UTC whatever the time zone of the session; a zero date stays one."""
    text = _shortened("CONCAT(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL UNIX_TIMESTAMP({}) SECOND)", fraction)
    return f"IF(UNIX_TIMESTAMP({{0}}) = 0, '0000-00-00 00:00:00', CONCAT({text.replace('{}', '{0}')}, '+00'))"


def recorded_text(how: Printed, value: str) -> str:
    """SQL of the value's COPY text, for triggers, in whose mode a text that is too large for the server is an error; NULL is a field of
    its own."""
    return rf"IFNULL({how.sql.format(value)}, '\\N')"


def recorded_line(values: list[str]) -> str:
    """SQL of a line of COPY text, without its end, for triggers."""
    return rf"CONCAT_WS('\t', {', '.join(values)})"


def read_text(value: str, text: str) -> str:
    """SQL of the value's field, given that of its text. NULL is a field of its own; a text that is too large for the server stays NULL."""
    return rf"IF({value} IS NULL, '\\N', {text})"


def read_line(values: list[str]) -> str:
    """SQL of a line of COPY text, without its end; NULL if one of its texts is too large for the server, or the line is."""
    return "CONCAT(" + r", '\t', ".join(values) + ")"
