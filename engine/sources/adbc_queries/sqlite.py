"""SQLite read by its driver of ADBC, which takes the type of a column from the values that come first.

So the statement begins with a row that has a value of each type, and reads a value only if it is of the type that the column's declared
type stands for; another one ends the statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.sources.arrow_rows.driver import Name, quoted_name
from engine.sources.arrow_rows.forms import Form

_MARK = '"'
_AFFINITIES = (
    ("INT", "BIGINT"),
    ("CHAR", "VARCHAR"),
    ("CLOB", "VARCHAR"),
    ("TEXT", "VARCHAR"),
    ("BLOB", "BLOB"),
    ("REAL", "DOUBLE"),
    ("FLOA", "DOUBLE"),
    ("DOUB", "DOUBLE"),
)
_SENT = {"BIGINT": pa.int64(), "VARCHAR": pa.string(), "BLOB": pa.binary(), "DOUBLE": pa.float64()}
_FIRST = {"BIGINT": "0", "VARCHAR": "''", "BLOB": "x'00'", "DOUBLE": "0.5"}
_CLASSES = {"BIGINT": "'integer'", "VARCHAR": "'text'", "BLOB": "'blob'", "DOUBLE": "'real'"}
_REFUSED = "abs(-9223372036854775807 - 1)"
"""An expression that ends a statement: there is no such number."""


def form_of(declared: str) -> Form:
    """The form of a column by its declared type, as SQLite determines its affinity. One without a type may have values of any."""
    upper = declared.upper()
    if not upper:
        return Form(None)
    read = next((read for part, read in _AFFINITIES if part in upper), None)
    return Form("VARCHAR", pa.string()) if read is None else Form(read, _SENT[read])


def select_all(name: Name, columns: Sequence[tuple[str, str, Form]]) -> str:
    """A statement for these columns of a table, with their declared types; the column after them is 1 for a first row to leave out."""
    first = ", ".join([*(_FIRST[form.read or "VARCHAR"] for _, _, form in columns), "1"])
    values = ", ".join([*(_value(f"t.{quoted_name(c, _MARK)}", kind, form) for c, kind, form in columns), "0"])
    table = ".".join(quoted_name(part, _MARK) for part in name)
    return f"SELECT {first} UNION ALL SELECT {values} FROM {table} AS t"


def _value(x: str, declared: str, form: Form) -> str:
    if form.read == "VARCHAR" and not any(part in declared.upper() for part, _ in _AFFINITIES):
        short = f"printf('%!.15g', {x})"
        real = f"CASE WHEN CAST({short} AS REAL) = {x} THEN {short} ELSE printf('%!.17g', {x}) END"
        whens = f"WHEN 'integer' THEN CAST({x} AS TEXT) WHEN 'real' THEN {real} WHEN 'text' THEN {x}"
    else:
        whens = f"WHEN {_CLASSES[form.read or 'VARCHAR']} THEN {x}"
    return f"CASE typeof({x}) {whens} WHEN 'null' THEN NULL ELSE {_REFUSED} END"


def without_first(reader: Any) -> Iterator[Any]:
    """The batches without the row that was there for the types."""
    for batch in reader:
        yield batch.filter(pc.equal(batch.column(batch.num_columns - 1), 0))
