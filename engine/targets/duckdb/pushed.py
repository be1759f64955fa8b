"""Converts conditions that DuckDB pushes into the scan of a table: from Arrow's expression, over the connection, to SQL. Pure.

A query process requests rows from the engine with such a condition: comparisons of columns with constants, without computations. Any
other condition is omitted; the query process then filters all rows itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from engine.duckdb.value_text import literal
from engine.targets.identifiers import quoted

Condition = list[Any]
"""`["and" | "or" | "not" | "=" …, …]` in JSON types; a column is its number, a constant a text that DuckDB casts to the column's type."""

_ENTRY = re.compile(r"(call|end|field_ref|literal|options): '(\w*)'")
_COMPARED = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_JOINED = {"and_kleene": "and", "or_kleene": "or"}
_MOST_VALUES = 10_000
"""Most values of an IN list that becomes part of the scan's statement; DuckDB filters a longer one itself. Not measured."""


class _NotExactError(Exception):
    """The condition cannot be converted exactly."""


def scan_column(number: int) -> str:
    """The column's name between engine and query process."""
    return f"c{number}"


def condition_of(expression: Any, schema: Any) -> Condition | None:
    """Convert a pyarrow expression over columns named by `scan_column`; None if it cannot be converted exactly."""
    # pyarrow exposes the parts of an expression in its serialized form only: nodes in the metadata, constants in the columns.
    with pa.ipc.open_file(expression.__reduce__()[1][0]) as file:
        text = file.schema.to_string(show_field_metadata=False, truncate_metadata=False)
        constants = file.get_batch(0).columns if file.num_record_batches else []
    entries = _ENTRY.findall(text[text.rindex("-- schema metadata --") :])
    try:
        condition, rest = _read(entries, constants, schema)
    except (_NotExactError, LookupError, ValueError, OverflowError, pa.ArrowException):
        return None
    return None if rest else condition


def _read(entries: list[tuple[str, str]], constants: Sequence[Any], schema: Any) -> tuple[Condition, list[Any]]:
    (kind, name), rest = entries[0], entries[1:]
    if kind != "call":
        raise _NotExactError
    arguments: list[Any] = []
    options = None
    while rest[0][0] != "end":
        kind, value = rest[0]
        if kind == "call":
            part, rest = _read(rest, constants, schema)
            arguments.append(part)
            continue
        rest = rest[1:]
        if kind == "field_ref":
            arguments.append(int(value.removeprefix("c")))
        elif kind == "literal":
            arguments.append(constants[int(value)][0])
        else:
            options = constants[int(value)][0]
    return _called(name, arguments, options, schema), rest[1:]


def _called(name: str, arguments: list[Any], options: Any, schema: Any) -> Condition:
    if name in _JOINED and all(isinstance(argument, list) for argument in arguments):
        return [_JOINED[name], *arguments]
    if name == "invert" and isinstance(arguments[0], list):
        return ["not", arguments[0]]
    column = arguments[0]
    if name == "if_else" and _is_guarded_list(arguments):
        return list(arguments[1])
    if not isinstance(column, int):
        raise _NotExactError
    kind = schema.field(scan_column(column)).type
    if name in _COMPARED and isinstance(arguments[1], pa.Scalar):
        return [_COMPARED[name], column, _text(arguments[1], kind)]
    if name == "is_valid" or (name == "is_null" and not options["nan_is_null"].as_py()):
        return ["null" if name == "is_null" else "not null", column]
    if name == "is_in":
        values = options["value_set"].values
        if len(values) > _MOST_VALUES:
            raise _NotExactError
        return ["in", column, *(_text(value, kind) for value in values)]
    raise _NotExactError


def _is_guarded_list(arguments: list[Any]) -> bool:
    """`if_else(is_valid(c), is_in(c, …), NULL)`: DuckDB's own IN, which is NULL for NULL."""
    valid, found, otherwise = arguments
    return bool(
        isinstance(valid, list)
        and isinstance(found, list)
        and isinstance(otherwise, pa.Scalar)
        and valid == ["not null", found[1]]
        and found[0] == "in"
        and not otherwise.is_valid
    )


def _text(scalar: Any, kind: Any) -> str:
    """The constant as text that casts to exactly the same value."""
    if scalar.type != kind or not scalar.is_valid:
        raise _NotExactError
    value = scalar.as_py()
    if isinstance(value, str) and "\0" not in value:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return "".join(f"\\x{byte:02X}" for byte in value)
    if pa.types.is_date(kind):
        return str(value.isoformat())
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return str(value.replace(tzinfo=None).isoformat(sep=" ")) + ("+00" if kind.tz else "")
    if pa.types.is_time(kind) and kind.unit == "us":
        return str(value.isoformat())
    raise _NotExactError


def condition_sql(condition: Condition, columns: Sequence[tuple[str, str]]) -> str:
    """SQL of a condition over these columns, (name, type) each. Raises ValueError if it is malformed."""
    match condition:
        case ["and" | "or" as word, *parts] if parts:
            return "(" + f" {word} ".join(condition_sql(part, columns) for part in parts) + ")"
        case ["not", list() as part]:
            return f"(not {condition_sql(part, columns)})"
        case ["null" | "not null" as word, int() as column]:
            return f"{_named(column, columns)} is {word}"
        case ["in", int() as column, *values] if values:
            return f"{_named(column, columns)} in ({', '.join(_constant(value, column, columns) for value in values)})"
        case ["=" | "<>" | "<" | "<=" | ">" | ">=" as sign, int() as column, str() as value]:
            return f"{_named(column, columns)} {sign} {_constant(value, column, columns)}"
    message = "not a condition"
    raise ValueError(message)


def _named(column: int, columns: Sequence[tuple[str, str]]) -> str:
    return quoted(columns[column][0])


def _constant(value: Any, column: int, columns: Sequence[tuple[str, str]]) -> str:
    if not isinstance(value, str):
        message = "a constant that is no text"
        raise TypeError(message)
    return f"CAST({literal(value)} AS {columns[column][1]})"
