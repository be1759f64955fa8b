"""Checks whether a user's table can hold the rows of a source table, and what must change if it cannot. Pure.

A column is compatible if its type represents every value of the source's column exactly, without rounding, truncation or padding. Users'
and extensions' types receive the source's text, and may reject it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.model.identity import TableName
from engine.model.schema import Column, SourceType, TableSchema
from engine.targets.identifiers import qualified, quoted
from engine.targets.postgres.types import postgres_type

_TEXTS = frozenset({"text", "varchar", "name"})
_WIDER = {("int2", "int4"), ("int2", "int8"), ("int4", "int8")}
_DIGITS = {"int2": 5, "int4": 10, "int8": 19}
_AT_LEAST = frozenset({"varchar", "varbit"})
_FRACTIONS = frozenset({"time", "timetz", "timestamp", "timestamptz"})
_FINEST = 6
"""Fractional digits of a second if none are declared."""


@dataclass(frozen=True, slots=True)
class StandingColumn:
    """A column of an existing table. `kind`: its type in the form of source types, domains resolved; `type`: its text in SQL."""

    name: str
    kind: SourceType
    type: str
    required: bool
    """NOT NULL."""
    filled: bool
    """It gets a value in rows that do not name it."""
    generated: bool
    always: bool
    """GENERATED ALWAYS AS IDENTITY."""
    usable: bool
    """The user has USAGE on its type."""


@dataclass(frozen=True, slots=True)
class StandingTable:
    """An existing table. `unique`: the columns of each of its unique indexes over all rows."""

    columns: tuple[StandingColumn, ...]
    unique: tuple[frozenset[str], ...] = ()
    partition_key: str | None = None
    """In PostgreSQL's text form."""

    def column(self, name: str) -> StandingColumn | None:
        return next((column for column in self.columns if column.name == name), None)


def misfits(target: TableName, table: StandingTable, schema: TableSchema, *, but: Collection[str] = ()) -> list[str]:
    """What makes the table incompatible with rows of `schema`, each with a remedy; empty if it is compatible. `but`: names of columns
    that may be missing."""
    found = []
    for column in schema.columns:
        standing = table.column(column.name)
        if standing is not None:
            found += _misfit(target, column, standing)
        elif column.name not in but:
            adding = f"ADD COLUMN {quoted(column.name)} {shown(postgres_type(column))}"
            found.append(f"it has no column {column.name!r}: {_alter(target)} {adding}")
    ours = {column.name for column in schema.columns}
    for standing in table.columns:
        if standing.name not in ours and standing.required and not standing.filled:
            remedy = f"{_alter(target)} ALTER COLUMN {quoted(standing.name)} DROP NOT NULL, or give it a default"
            found.append(
                f"its column {standing.name!r}, which the source lacks, is NOT NULL without a default: {remedy}"
            )
    return found


def key_misfits(target: TableName, table: StandingTable, schema: TableSchema) -> list[str]:
    """Like `misfits`, for the unique index by which changes find their rows."""
    key = frozenset(schema.key)
    if not key or key in table.unique:
        return []
    listed = ", ".join(map(quoted, schema.key))
    where = (
        f"; it is partitioned by {table.partition_key}, whose columns the key must contain"
        if table.partition_key
        else ""
    )
    return [
        f"it has no primary key or unique index on just ({listed}): {_alter(target)} ADD PRIMARY KEY ({listed}){where}"
    ]


def fits(column: Column, standing: SourceType) -> bool:
    """Whether a column of this type represents every value of `column` exactly."""
    source = SourceType("text") if column.map_as == "text" else column.type
    return _takes(source, standing)


def shown(type_: str) -> str:
    """The usual spelling of a type."""
    return type_.removeprefix("pg_catalog.")


def _misfit(target: TableName, column: Column, standing: StandingColumn) -> list[str]:
    name = quoted(column.name)
    if standing.generated and column.generated:
        return []
    if standing.generated:
        remedy = "make it an ordinary column, or rename it"
        return [f"its column {column.name!r} is generated there, and holds values of its own on the source: {remedy}"]
    if not standing.usable:
        remedy = "GRANT USAGE on the type and on its schema to the user of the connection"
        return [f"the type {standing.type} of its column {column.name!r} may not be used: {remedy}"]
    if fits(column, standing.kind):
        return []
    wanted = shown(postgres_type(column))
    remedy = f"{_alter(target)} ALTER COLUMN {name} TYPE {wanted}"
    if standing.kind.name in _TEXTS and wanted != "text":
        remedy += ', or give the column "map_as": "text"'
    return [f"its column {column.name!r} of type {standing.type} does not hold every {wanted}: {remedy}"]


def _alter(target: TableName) -> str:
    return f"ALTER TABLE {qualified(target)}"


def _takes(source: SourceType, standing: SourceType) -> bool:
    if source.element is not None and standing.element is not None:
        return _takes(source.element, standing.element)
    if source.element is not None:
        return _is_text(source) and _takes(SourceType("text"), standing)
    if standing.element is not None:
        return False
    if source.name == standing.name and not _is_foreign(source):
        return _same_holds(source, standing)
    if source.name in _DIGITS and standing.name == "numeric":
        digits, scale = standing.digits or (_DIGITS[source.name], 0)
        return scale == 0 and digits >= _DIGITS[source.name]
    if (source.name, standing.name) in _WIDER:
        return True
    if not _is_text(source):
        return False
    # Values passed as text are accepted by text columns, and by types that only their owner knows.
    limit = source.modifier if source.name == "varchar" else -1
    return (
        standing.name == "text" or _is_foreign(standing) or (standing.name == "varchar" and _at_least(standing, limit))
    )


def _same_holds(source: SourceType, standing: SourceType) -> bool:
    if source.name in _AT_LEAST:
        return _at_least(standing, source.modifier)
    if source.name in _FRACTIONS:
        return _fraction(standing) >= _fraction(source)
    if source.name == "numeric" and standing.digits is not None and source.digits is not None:
        (digits, scale), (there, other) = source.digits, standing.digits
        return scale == other and there >= digits
    return standing.modifier in (-1, source.modifier)


def _is_text(source: SourceType) -> bool:
    """Whether values are passed as text, and would be stored as text in a table of ours."""
    if source.element is not None:
        return _is_text(source.element) and source.element.name not in _TEXTS
    return source.name in _TEXTS or postgres_type(Column("c", source, 1)) == "pg_catalog.text"


def _is_foreign(kind: SourceType) -> bool:
    """Whether it is none of PostgreSQL's own types: those have bare names."""
    return "." in kind.name


def _at_least(standing: SourceType, limit: int) -> bool:
    return standing.modifier < 0 or 0 <= limit <= standing.modifier


def _fraction(kind: SourceType) -> int:
    return kind.modifier if kind.modifier >= 0 else _FINEST
