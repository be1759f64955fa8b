"""The kinds of a driver's columns, and the SQL that loads its rows into DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.duckdb.value_text import quoted
from engine.model.schema import SourceType
from engine.model.values import Kind, ValueType
from engine.sources.arrow_rows.forms import NUMERIC_TEXT
from engine.sources.arrow_rows.process import FoundColumn
from engine.sources.duckdb.catalog import ReadColumn
from engine.sources.duckdb.types import ColumnKind, kind_of, text_kind_of

_ANY_NUMBER = ColumnKind(
    "VARCHAR",
    SourceType("numeric", -1, oid=1700),
    ValueType(Kind.TEXT),
    r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity",
)
_FIRST_DAY = "DATE '4714-11-24 (BC)'"
"""The first day of PostgreSQL. Arrow has no infinite times: what drivers give instead of them is before it."""
_TIMES = {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}
_REFUSED = "error('a time that is infinite, or too early')"
_TEXTS = {"VARCHAR", NUMERIC_TEXT}
"""What columns come as that can be declared as another type."""


class UnfitColumnError(Exception):
    """A table's columns cannot be read as declared; the text says why."""


def kinds_of(
    columns: Sequence[FoundColumn], declared: Mapping[str, str]
) -> list[tuple[str, str, ColumnKind | None, bool]]:
    """The columns with their kinds. `declared`: types of columns of text by name.

    Raises UnfitColumnError.
    """
    names = [column.name for column in columns]
    if len({name.lower() for name in names}) < len(names):
        raise UnfitColumnError("two columns have names that differ in case at most")
    unknown = [name for name in declared if name not in names]
    if unknown:
        raise UnfitColumnError(f"`columns` in capture.tables names columns that it does not have: {', '.join(unknown)}")
    return [(column.name, column.shown, _kind_of(column, declared.get(column.name)), True) for column in columns]


def _kind_of(column: FoundColumn, declared: str | None) -> ColumnKind | None:
    if column.read is None:
        return None
    if declared is not None:
        if column.read not in _TEXTS:
            what = f"`columns` in capture.tables gives {column.name} a type, but its values do not come as text"
            raise UnfitColumnError(what)
        found = text_kind_of(declared)
        if found is None:
            what = f"`columns` in capture.tables gives {column.name} a type that text is not read as: {declared}"
            raise UnfitColumnError(what)
        return found
    if column.text is not None:
        return text_kind_of(column.text)
    return _ANY_NUMBER if column.read == NUMERIC_TEXT else kind_of(column.read)


def loaded(columns: Sequence[tuple[FoundColumn, ReadColumn]], rows: str) -> str:
    """A query for rows whose columns are named by their places, with the names and types of a table's columns. `rows`: their name in SQL.

    A time that the driver cannot have read as such is an error.
    """
    fields = [
        f"{_value(f'c{place}', found.read)} AS {quoted(column.name)}" for place, (found, column) in enumerate(columns)
    ]
    return f"SELECT {', '.join(fields)} FROM {rows}"


def _value(x: str, read: str | None) -> str:
    if read in _TIMES:
        return f"CASE WHEN NOT isfinite({x}) OR {x} < CAST({_FIRST_DAY} AS {read}) THEN {_REFUSED} ELSE {x} END"
    if read == "UUID":
        return f"CAST(lower(hex({x})) AS UUID)"
    if read == NUMERIC_TEXT:
        return f"CASE lower({x}) WHEN 'nan' THEN 'NaN' WHEN 'inf' THEN 'Infinity' WHEN '-inf' THEN '-Infinity' ELSE {x} END"
    return x
