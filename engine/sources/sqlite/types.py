"""Types of SQLite's columns, and the SQL that prints their values as fields of COPY text.

A value whose storage class is not the column's is printed so that no column can hold it, as text that is not UTF-8: the row is refused, and
never changed in silence.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.schema import SourceType

_OIDS = {"int8": 20, "float8": 701, "text": 25, "bytea": 17}
INTEGER, REAL, TEXT, BLOB, NUMERIC, ANY = "integer", "real", "text", "blob", "numeric", "any"
_CANONICAL = {INTEGER: "int8", REAL: "float8", TEXT: "text", BLOB: "bytea", NUMERIC: "text", ANY: "text"}
TYPES = {name: SourceType(name, oid=oid) for name, oid in _OIDS.items()}
_REFUSED = "CAST(x'FF' AS TEXT)"
_NULL = r"'\N'"
_DIGITS = 15
"""Digits before the point from which PostgreSQL prints an exponent."""


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """What a column holds: an affinity of SQLite, or `any` without one."""

    name: str

    @property
    def type(self) -> SourceType:
        return TYPES[_CANONICAL[self.name]]


def kind_of(declared: str, *, strict: bool) -> ColumnKind:
    """The kind of a column by its declared type, as SQLite determines its affinity."""
    upper = declared.upper()
    if not upper or (strict and upper == "ANY"):
        return ColumnKind(ANY)
    for part, kind in (("INT", INTEGER), ("CHAR", TEXT), ("CLOB", TEXT), ("TEXT", TEXT), ("BLOB", BLOB)):
        if part in upper:
            return ColumnKind(kind)
    if any(part in upper for part in ("REAL", "FLOA", "DOUB")):
        return ColumnKind(REAL)
    return ColumnKind(NUMERIC)


def real_text(value: float) -> str:
    """A float as PostgreSQL prints it: the shortest text that reads back as the same one."""
    text = repr(value)
    if not text.endswith(".0"):
        return text
    sign, digits = text[: text.startswith("-")], text[:-2].lstrip("-")
    if len(digits) <= _DIGITS:
        return sign + digits
    kept = digits.rstrip("0")
    return f"{sign}{kept[0]}{'.' * (len(kept) > 1)}{kept[1:]}e+{len(digits) - 1}"


def _escaped(x: str) -> str:
    for code, letter in ((92, "\\"), (9, "t"), (10, "n"), (13, "r")):
        x = f"replace({x}, char({code}), '\\{letter}')"
    return x


def _real(x: str) -> str:
    """Exact: a division of whole numbers below 2**53 by a power of ten is the float nearest to that decimal, which 15 digits show."""
    return (
        f"CASE WHEN abs({x}) < 1e9 AND CAST(round({x} * 1e6) AS INTEGER) / 1e6 = {x} THEN printf('%.15g', {x} + 0.0)"
        f" WHEN {x} = 9e999 THEN 'Infinity' WHEN {x} = -9e999 THEN '-Infinity' ELSE penstock_real({x}) END"
    )


def printed(x: str, kind: ColumnKind, *, key: bool) -> str:
    """SQL of the field for the value `x`, an expression without side effects. `key`: NULL identifies no row."""
    refused = f"{_REFUSED} || typeof({x}) || ' ' || CASE typeof({x}) WHEN 'blob' THEN hex({x}) ELSE {_escaped(f'CAST({x} AS TEXT)')} END"
    null = f"{_REFUSED} || 'NULL'" if key else _NULL
    whens = {
        INTEGER: f"WHEN 'integer' THEN {x}",
        REAL: f"WHEN 'real' THEN {_real(x)}",
        TEXT: f"WHEN 'text' THEN {_escaped(x)}",
        BLOB: rf"WHEN 'blob' THEN '\\x' || lower(hex({x}))",
    }
    whens[NUMERIC] = whens[ANY] = f"{whens[TEXT]} {whens[INTEGER]} {whens[REAL]}"
    return f"CASE typeof({x}) {whens[kind.name]} WHEN 'null' THEN {null} ELSE {refused} END"
