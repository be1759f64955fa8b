"""Types of columns as DuckDB names them, and the SQL that prints their values as fields of COPY text.

A value that its canonical type cannot hold is printed with a NUL character, which `line_of` replaces by a byte that is no UTF-8: no column
can hold it, so the row is refused, and never changed in silence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.duckdb.value_text import scalar_text
from engine.model.schema import SourceType
from engine.model.values import Kind, ValueType

_OIDS = {
    "bool": 16,
    "bytea": 17,
    "int8": 20,
    "int2": 21,
    "int4": 23,
    "text": 25,
    "json": 114,
    "float4": 700,
    "float8": 701,
    "date": 1082,
    "time": 1083,
    "timestamp": 1114,
    "timestamptz": 1184,
    "interval": 1186,
    "timetz": 1266,
    "numeric": 1700,
    "uuid": 2950,
}
"""OIDs of the canonical types in relation records."""
_CANONICAL: dict[str, tuple[str, Kind]] = {
    "BOOLEAN": ("bool", Kind.BOOL),
    "TINYINT": ("int2", Kind.INT16),
    "UTINYINT": ("int2", Kind.INT16),
    "SMALLINT": ("int2", Kind.INT16),
    "USMALLINT": ("int4", Kind.INT32),
    "INTEGER": ("int4", Kind.INT32),
    "UINTEGER": ("int8", Kind.INT64),
    "BIGINT": ("int8", Kind.INT64),
    "HUGEINT": ("numeric", Kind.INT64),
    "UHUGEINT": ("numeric", Kind.INT64),
    "BIGNUM": ("numeric", Kind.INT64),
    "VARINT": ("numeric", Kind.INT64),
    "FLOAT": ("float4", Kind.FLOAT32),
    "DOUBLE": ("float8", Kind.FLOAT64),
    "VARCHAR": ("text", Kind.TEXT),
    "JSON": ("json", Kind.TEXT),
    "BIT": ("text", Kind.INT64),
    "BLOB": ("bytea", Kind.BYTES),
    "DATE": ("date", Kind.DATE),
    "TIME": ("time", Kind.TIME),
    "TIME WITH TIME ZONE": ("timetz", Kind.TIME),
    "TIME_NS": ("time", Kind.TIME),
    "TIMESTAMP": ("timestamp", Kind.TIMESTAMP),
    "TIMESTAMP_S": ("timestamp", Kind.TIMESTAMP),
    "TIMESTAMP_MS": ("timestamp", Kind.TIMESTAMP),
    "TIMESTAMP_NS": ("timestamp", Kind.TIMESTAMP),
    "TIMESTAMP WITH TIME ZONE": ("timestamptz", Kind.TIMESTAMPTZ),
    "UUID": ("uuid", Kind.UUID),
}
"""The canonical type of each type without parameters, and how its values are printed: numbers of every kind as those of 64 bits."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_ENUM = "ENUM("
_NANOSECONDS = {"TIMESTAMP_NS": "TIMESTAMP", "TIME_NS": "TIME"}
"""Types with more digits than their canonical type holds, and the type with as many. Values that need more are refused."""
_REFUSED = "chr(0)"
_NULL = r"'\N'"
_DATE = r"[0-9]{4,6}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6}0*)?)?"
_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?[iI]nf(inity)?|[nN]a[nN]"
_TEXTS = {
    "BOOLEAN": r"(?i)true|false|t|f|1|0",
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT"),
        r"[+-]?[0-9]+",
    ),
    "FLOAT": _NUMBER,
    "DOUBLE": _NUMBER,
    "VARCHAR": "",
    "DATE": _DATE,
    "TIME": _TIME,
    "TIMESTAMP": f"{_DATE}([ T]{_TIME})?",
    "TIMESTAMP WITH TIME ZONE": rf"{_DATE}[ T]{_TIME} ?(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)",
    "UUID": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}
"""By type that a column of text may be declared as: regular expression of the texts that it holds exactly. Others are refused: DuckDB would
round some of them, and read others in ways that depend on its version."""
_SYNONYMS = {
    "BOOL": "BOOLEAN",
    "INT2": "SMALLINT",
    "INT": "INTEGER",
    "INT4": "INTEGER",
    "INT8": "BIGINT",
    "REAL": "FLOAT",
    "FLOAT4": "FLOAT",
    "FLOAT8": "DOUBLE",
    "DOUBLE PRECISION": "DOUBLE",
    "TEXT": "VARCHAR",
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
}
_DECLARED_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_WIDEST_DECIMAL = 38
"""Digits of the widest decimal of DuckDB."""


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """How values of a column are read. `declared`: DuckDB's name of the type; `value`: how one is printed; `pattern`: of the texts that
    hold a value, for a column that is read as text."""

    declared: str
    type: SourceType
    value: ValueType
    pattern: str | None = None


def kind_of(declared: str) -> ColumnKind | None:
    """The kind of a column by DuckDB's name of its type; None if its values cannot be read exactly."""
    if declared.startswith(_ENUM) and declared.endswith(")"):
        return ColumnKind(declared, _source_type("text"), ValueType(Kind.TEXT))
    digits = _DECIMAL.fullmatch(declared)
    if digits is not None:
        return _decimal(declared, int(digits[1]), int(digits[2]))
    if declared == "UBIGINT":
        return ColumnKind(declared, _source_type("numeric", _modifier(20, 0)), ValueType(Kind.INT64))
    found = _CANONICAL.get(declared)
    if found is not None:
        return ColumnKind(declared, _source_type(found[0]), ValueType(found[1]))
    return ColumnKind(declared, _source_type("interval"), ValueType(Kind.TEXT)) if declared == "INTERVAL" else None


def text_kind_of(declared: str) -> ColumnKind | None:
    """The kind of a column of text by the type that the user declared; None if there is no such type."""
    name = " ".join(declared.upper().split())
    digits = _DECLARED_DECIMAL.fullmatch(name)
    if digits is not None:
        precision, scale = int(digits[1]), int(digits[2] or 0)
        if not 1 <= precision <= _WIDEST_DECIMAL or scale > precision:
            return None
        found, pattern = _decimal(f"DECIMAL({precision},{scale})", precision, scale), _decimal_pattern(scale)
        return ColumnKind(found.declared, found.type, found.value, pattern)
    name = _SYNONYMS.get(name, name)
    plain = kind_of(name) if name in _TEXTS else None
    return None if plain is None else ColumnKind(plain.declared, plain.type, plain.value, _TEXTS[name])


def _decimal(declared: str, precision: int, scale: int) -> ColumnKind:
    value = ValueType(Kind.DECIMAL, precision=precision, scale=scale)
    return ColumnKind(declared, _source_type("numeric", _modifier(precision, scale)), value)


def _decimal_pattern(scale: int) -> str:
    fraction = rf"(\.[0-9]{{0,{scale}}}0*)?"
    return rf"[+-]?[0-9]+{fraction}|[+-]?\.[0-9]{{1,{scale}}}0*" if scale else rf"[+-]?[0-9]+{fraction}"


def _modifier(precision: int, scale: int) -> int:
    return (precision << 16 | scale) + 4


def _source_type(name: str, modifier: int = -1) -> SourceType:
    return SourceType(name, modifier, oid=_OIDS[name])


def printed(x: str, kind: ColumnKind, *, key: bool) -> str:
    """SQL of the field for the value `x`, an expression without side effects. `key`: NULL identifies no row."""
    null = f"{_REFUSED} || 'NULL'" if key else _NULL
    if not kind.pattern:
        return f"coalesce({_field(x, kind)}, {null})"
    # A text that is no value of the type, or not exactly one.
    read = f"CASE WHEN regexp_full_match({x}, '{kind.pattern}') THEN TRY_CAST({x} AS {kind.declared}) END"
    refused = f"CASE WHEN {x} IS NULL THEN {null} ELSE {_REFUSED} || {_escaped(x)} END"
    return f"coalesce({_field(f'({read})', kind)}, {refused})"


def _field(x: str, kind: ColumnKind) -> str:
    """SQL of the field; NULL for NULL."""
    coarser = _NANOSECONDS.get(kind.declared)
    if coarser is not None:
        held = scalar_text(f"CAST({x} AS {coarser})", kind.value)
        exact = f"CAST(CAST({x} AS {coarser}) AS {kind.declared}) = {x}"
        return (
            f"CASE WHEN {exact} THEN {_with_era(held)} WHEN {x} IS NOT NULL THEN {_REFUSED} || CAST({x} AS VARCHAR) END"
        )
    if kind.type.name == "interval":
        return _interval(x)
    if kind.value.kind in {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ}:
        return _with_era(scalar_text(x, kind.value))
    if kind.value.kind is Kind.BYTES:
        return rf"'\' || {scalar_text(x, kind.value)}"
    return _escaped(f"CAST({x} AS VARCHAR)") if kind.value.kind is Kind.TEXT else scalar_text(x, kind.value)


def _escaped(x: str) -> str:
    for code, letter in ((92, "\\"), (9, "t"), (10, "n"), (13, "r")):
        x = f"replace({x}, chr({code}), '\\{letter}')"
    return x


def _with_era(text: str) -> str:
    """DuckDB puts the era after the date, PostgreSQL to the end."""
    return f"CASE WHEN contains({text}, ' (BC)') THEN replace({text}, ' (BC)', '') || ' BC' ELSE {text} END"


def _interval(x: str) -> str:
    """As PostgreSQL prints it: fields that are not 0, with a sign where the one before is below 0."""
    year, month, day, hour, minute, micros = (
        f"datepart('{part}', {x})" for part in ("year", "month", "day", "hour", "minute", "microsecond")
    )
    months_below = f"({year} < 0 OR {month} < 0)"
    below = f"CASE WHEN {day} = 0 THEN {months_below} ELSE {day} < 0 END"
    plus = f"CASE WHEN {day} > 0 AND {months_below} THEN '+' ELSE '' END"
    digits = f"lpad(CAST(abs({micros}) % 1000000 AS VARCHAR), 6, '0')"
    fraction = f"CASE WHEN {micros} % 1000000 = 0 THEN '' ELSE '.' || rtrim({digits}, '0') END"
    clock = " || ':' || ".join(map(_two_digits, (f"abs({hour})", f"abs({minute})", f"abs({micros}) // 1000000")))
    sign = f"CASE WHEN {hour} < 0 OR {minute} < 0 OR {micros} < 0 THEN '-' WHEN {below} THEN '+' ELSE '' END"
    no_time = f"{hour} = 0 AND {minute} = 0 AND {micros} = 0 AND ({year} <> 0 OR {month} <> 0 OR {day} <> 0)"
    time = f"CASE WHEN {no_time} THEN '' ELSE {sign} || {clock} || {fraction} END"
    return f"rtrim({_part(year, 'year')} || {_part(month, 'mon')} || {plus} || {_part(day, 'day')} || {time})"


def _part(value: str, unit: str) -> str:
    return f"CASE {value} WHEN 0 THEN '' WHEN 1 THEN '1 {unit} ' ELSE {value} || ' {unit}s ' END"


def _two_digits(number: str) -> str:
    text = f"CAST({number} AS VARCHAR)"
    return f"lpad({text}, CAST(greatest(2, length({text})) AS INTEGER), '0')"


def line_of(fields: Sequence[str], rows: str) -> str:
    """A query for lines of COPY text as blobs, from the fields' SQL and the rows that it is about, a part of a query from FROM on."""
    text = " || chr(9) || ".join(fields)
    pairs = "regexp_replace(hex(encode(line)), '(..)', '\\1 ', 'g')"
    marked = f"unhex(replace(replace({pairs}, '00 ', 'FF '), ' ', ''))"
    return (
        f"SELECT CASE WHEN contains(line, chr(0)) THEN {marked} ELSE encode(line) END AS line"
        f" FROM (SELECT {text} || chr(10) AS line {rows})"
    )
