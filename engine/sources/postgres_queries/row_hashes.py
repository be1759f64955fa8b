"""SQL for the hash of a row: two numbers of 64 bits.

A row has the same hash as before if it is the same, bit by bit, and another one if any value changed: 1.0 and 1.00, 0 and -0, or texts
that a collation takes for equal are changes. So values are not hashed by their types' own hash functions where those take different values
for equal, or fold 64 bits to 32, but by the bytes that the type sends.

`hash_record_extended` adds up the hashes of a record's values, each times a power of 31. A digest of a range is the exclusive or of such
sums, in which two rows that exchanged values would often cancel out. So the hashes of a row's values begin with the hash of its key, which
makes those of two rows independent, and a row without values other than NULL has that of its key.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from engine.model.schema import Column
from engine.sources.query_diff.database import ComparedTable

VALUES = "values"
"""The form of the hashes. Stores of earlier releases have those of the row's text, which is slower: the empty form."""
_FIRST_USER_OID = 16384
"""Types of users and domains have such OIDs: what a function of their name does is not known."""
_AS_THEY_ARE = frozenset({"bool", "bytea", "date", "int2", "int4", "oid", "uuid"})
"""Types whose hash function takes all bits of a value, and of which equal values are the same bits."""
_SENT = {
    "bpchar": "bpcharsend",
    "float4": "float4send",
    "float8": "float8send",
    "int8": "int8send",
    "interval": "interval_send",
    "money": "cash_send",
    "numeric": "numeric_send",
    "time": "time_send",
    "timestamp": "timestamp_send",
    "timestamptz": "timestamptz_send",
    "timetz": "timetz_send",
}
"""Functions of the schema pg_catalog that give the bytes of a value."""
_TEXTS = frozenset({"text", "varchar"})
_KEY_HASHES = {
    "int2": "hashint2extended({0}, {1})",
    "int4": "hashint4extended({0}, {1})",
    "int8": "hashfloat8extended({0}::float8, {1}) # hashint8extended({0}, {1})",
    "uuid": "uuid_hash_extended({0}, {1})",
}
"""Hashes of a key of one column, faster than that of a record: digests of a table of 9 columns with a key of int8 take 15 to 18 % less
time (measured).

hashint8extended folds the halves of a number by exclusive or. Two numbers that fold to the same and are the same float8 do not exist: they
would be within 2048 of each other, so they would have the same upper half, or lie at both sides of a multiple of 2^32, where the upper
halves differ in bits that the lower ones cannot make up for.
"""


def hashes(table: ComparedTable) -> tuple[sql.Composable, sql.Composable]:
    """The two hashes of a row, over `hashed_parts`."""
    if table.hashes != VALUES:
        return sql.SQL("hashtextextended(t, 0)"), sql.SQL("hashtextextended(t, 1)")
    if not _others(table):
        return sql.SQL("s0"), sql.SQL("s1")
    return sql.SQL("hash_record_extended(t, s0) # s0"), sql.SQL("hash_record_extended(t, s1) # s1")


def hashed_parts(table: ComparedTable) -> list[sql.Composable]:
    """What `hashes` needs of a row, as columns of a query over the table."""
    if table.hashes != VALUES:
        row = sql.SQL(", ").join(sql.Identifier(column.on_source) for column in table.schema.columns)
        return [sql.SQL('(ROW({}))::text COLLATE "C" AS t').format(row)]
    others = _others(table)
    parts = [sql.SQL("{} AS {}").format(_key_hash(table, seed), sql.Identifier(f"s{seed}")) for seed in (0, 1)]
    return [*parts, sql.SQL("ROW({}) AS t").format(_values(others))] if others else list(parts)


def _key_hash(table: ComparedTable, seed: int) -> sql.Composed:
    columns = table.schema.key_columns
    form = _KEY_HASHES.get(columns[0].type.name) if len(columns) == 1 and _is_built_in(columns[0]) else None
    if form is None:
        return sql.SQL("hash_record_extended(ROW({}), {})").format(_values(columns), sql.Literal(seed))
    return sql.SQL(form).format(sql.Identifier(columns[0].on_source), sql.Literal(seed))


def _is_built_in(column: Column) -> bool:
    return 0 < column.type.oid < _FIRST_USER_OID


def _others(table: ComparedTable) -> list[Column]:
    return [column for column in table.schema.columns if column.name not in table.schema.key]


def _values(columns: Sequence[Column]) -> sql.Composed:
    return sql.SQL(", ").join(_value(column) for column in columns)


def _value(column: Column) -> sql.Composed:
    """An expression whose hash changes whenever the column's value does."""
    name, kind = sql.Identifier(column.on_source), column.type
    # Not a cast to text, which leaves out the blanks at the end of a bpchar: a record prints what the type's output function gives.
    form = '(ROW({}))::text COLLATE "C"'
    if _is_built_in(column):
        if kind.name in _AS_THEY_ARE:
            form = "{}"
        elif kind.name in _SENT:
            form = f"pg_catalog.{_SENT[kind.name]}({{}})"
        elif kind.name in _TEXTS:
            form = '{} COLLATE "C"'
    return sql.SQL(form).format(name)
