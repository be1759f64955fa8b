"""Rows by stamps: a column that every insert and update sets to the time, or to any other value that never gets smaller.

A cycle by stamps reads the rows whose stamps are not older than the newest one that the last cycle saw. Why these are all rows that were
inserted or updated since:

- SQLite has one writer at a time: a transaction has the write lock of the file from its first write to its end, with either journal. It
  sees what all transactions before it committed: a deferred one that read an earlier state may not write (SQLITE_BUSY).
- What the last cycle saw are transactions that had ended when it read. A transaction that it did not see got the write lock after all of
  them had released it.
- A stamp that the writing statement computes (CURRENT_TIMESTAMP, `strftime(…, 'now')`, in the statement or in a trigger) is computed under
  the lock: SQLite computes the constants of a statement after it began its write. So it is not smaller than the stamps of the
  transactions before, as long as the clock is not set back. It may be equal, since times have whole seconds or milliseconds: rows with an
  equal stamp are read again. So no overlap for late commits is needed, however long transactions last.
- The clock: cycles read `overlap_s` more (`earlier`), if the form of the stamps is known. The trigger that checks offer writes the larger
  one of the time and the newest stamp of the table, so that it does not depend on the clock, while that row is there.

Stamps are compared by SQLite, with affinity and collation of the column, and by its index. Values of another storage class than the newest
stamp have no place in the order of the others, so rows with such stamps, NULL among them, are always read; infinity and bytes are never the
newest stamp. Floats that SQLite reads from text may differ in their last bits: `earlier` returns a smaller one.

Not found before a cycle that compares all rows: changes whose stamp the application computed before it had the lock (another writer may
commit a newer one in between), or did not set; and deletes without a flag. Stamps of another file, or of an older schema, do not count: a
table that was made again may have other rows with the same stamps (see `ComparedTable.generation`). The library's branch with
`BEGIN CONCURRENT`, of which no release has it, computes stamps before the lock, like such an application.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from engine.model.schema import TableSchema
from engine.model.source import TableSplit
from engine.sources.query_diff.stamps import Stamp
from engine.sources.sqlite.catalog import Structure, literal, quoted
from engine.sources.sqlite.splits import columns_read, condition, select_lines
from engine.sources.sqlite.types import TEXT

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""A text that a column with numeric affinity holds as a number."""
_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})([ T])([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)")
"""How a time begins that SQLite's functions print, or ISO 8601."""
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3), (1e8, 1.0))
"""Least values that are taken as times since 1970, and how many of their units a second has: nanoseconds down to whole seconds. For a
number that is no time, a few more rows are read."""
_JULIAN = range(2_000_000, 3_000_000)
"""Values that are taken as Julian days: from 764 to 3501."""
_DAY_S = 86_400.0
"""Seconds."""
_FLOAT_SHARE = 2.0**-45
"""By which share a float is made smaller, at least: some of its last bits (52 are stored)."""
_LARGEST = 1e300
"""Floats beyond it might become infinite."""


def rows_since(schema: TableSchema, structure: Structure, since: Stamp) -> TableSplit:
    """The rows whose stamps are not older, and which meet the row filter."""
    return _split(schema, _since(select_lines(schema, structure), structure, since, [condition(schema)]))


def left_since(schema: TableSchema, structure: Structure, since: Stamp) -> TableSplit:
    """The keys of rows whose stamps are not older, and which do not meet the row filter."""
    keys = select_lines(replace(schema, columns=schema.key_columns), structure)
    return _split(schema, _since(keys, structure, since, [f"{condition(schema)} IS NOT TRUE"]))


def newest(schema: TableSchema, structure: Structure, column: str) -> TableSplit:
    """A line for `newest_of`. Rows outside the row filter count: their changes are read too."""
    return _split(schema, _newest(structure, column))


def _split(schema: TableSchema, query: str) -> TableSplit:
    return TableSplit(schema.relation, query, 0, 0, reads=schema.name, columns=columns_read(schema))


def _since(lines: str, structure: Structure, since: Stamp, conditions: list[str]) -> str:
    """One query for each range of the order of stamps, which an index on them finds."""
    parts = (" AND ".join([part, *conditions]) for part in _ranges(structure, since))
    return " UNION ALL ".join(f"{lines} WHERE {part}" for part in parts)


def _ranges(structure: Structure, since: Stamp) -> list[str]:
    """Conditions that no two of which a row meets. Numbers are smaller than texts, and texts than bytes."""
    stamp = f"t.{quoted(since.column)}"
    (column,) = (each for each in structure.columns if each.name == since.column)
    found = [f"{stamp} >= {literal(since.value)}"]
    if column.nullable:
        found.append(f"{stamp} IS NULL")
    if column.kind.name != TEXT and not _NUMBER.fullmatch(since.value):
        found.append(f"{stamp} < ''")
    return found


def _newest(structure: Structure, column: str) -> str:
    name = quoted(column)
    shown = f"CASE typeof({name}) WHEN 'real' THEN penstock_real({name}) ELSE CAST({name} AS TEXT) END"
    rows = f"SELECT {name} FROM {quoted(structure.name)} WHERE {name} < x'' AND {name} IS NOT 9e999 ORDER BY {name} DESC LIMIT 1"
    return f"SELECT CAST(hex({shown}) || char(10) AS BLOB) FROM ({rows})"


def newest_of(pieces: Iterable[bytes], structure: Structure, column: str, overlap_s: float) -> str | None:
    """The newest stamp, less so many seconds, as text; None if there is none, or if it is no text that can be written in SQL."""
    text = b"".join(pieces)
    if not text:
        return None
    try:
        value = bytes.fromhex(text.decode("ascii")).decode()
    except UnicodeDecodeError:
        return None
    textual = any(each.name == column and each.kind.name == TEXT for each in structure.columns)
    return None if "\0" in value else earlier(value, overlap_s, textual=textual)


def earlier(value: str, seconds: float, *, textual: bool) -> str | None:
    """A stamp that is so many seconds older, if it has the form of a time; never a newer one. `textual`: numbers are compared as texts.
    None if there is none that can be written in SQL."""
    if (time := _TIME.match(value)) is not None:
        return _earlier_time(time, seconds) or value
    if textual or not _NUMBER.fullmatch(value):
        return value
    return _earlier_number(value, seconds)


def _earlier_time(time: re.Match[str], seconds: float) -> str | None:
    """The beginning of the text suffices: what follows makes it greater. None if there is no such time."""
    day, between, clock = time.groups()
    try:
        moved = datetime.fromisoformat(f"{day} {clock}") - timedelta(seconds=math.ceil(seconds))
    except (ValueError, OverflowError):
        return None
    return moved.isoformat(between, "seconds" if len(clock) > len("00:00") else "minutes")


def _earlier_number(value: str, seconds: float) -> str | None:
    try:
        whole = int(value)
    except ValueError:
        found = float(value)
        if abs(found) > _LARGEST:
            return None
        return repr(found - max(seconds * _units(found), abs(found) * _FLOAT_SHARE))
    return str(max(-(2**63), whole - math.ceil(seconds * _units(whole))))


def _units(value: float) -> float:
    """Units of a second in a number that may be a time; 0 if it is none."""
    if _JULIAN.start <= value < _JULIAN.stop:
        return 1 / _DAY_S
    return next((units for least, units in _UNITS if value >= least), 0.0)


def is_comparable(connection: sqlite3.Connection, structure: Structure, column: str) -> bool:
    """Whether this SQLite has the collation by which the column is sorted: programs may have their own."""
    try:
        connection.execute(f"EXPLAIN {_newest(structure, column)}").fetchone()
    except sqlite3.OperationalError:
        return False
    return True


def is_indexed(connection: sqlite3.Connection, structure: Structure, column: str) -> bool:
    """Whether an index finds the rows with recent stamps."""
    name = quoted(column)
    query = f"SELECT 1 FROM {quoted(structure.name)} AS t WHERE t.{name} >= {literal('2')}"
    plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query}")]
    return bool(plan) and all(step.startswith("SEARCH") for step in plan)
