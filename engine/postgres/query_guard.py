"""Determines which functions a reader's statement may not call: those that do more than compute.

The main barrier is the reader's role, which may only read the subscription's tables. But some functions that everyone may call have
effects, or block others: advisory locks, notifications, settings, signals to sessions, SQL in a string. PostgreSQL declares all of them
VOLATILE, so volatile functions are rejected except those named here.
"""

from __future__ import annotations

import re

from engine.postgres.sessions import PostgresConnection

HARMLESS = frozenset(
    {
        "clock_timestamp",
        "gen_random_uuid",
        "pg_indexes_size",
        "pg_relation_size",
        "pg_sleep",
        "pg_sleep_for",
        "pg_sleep_until",
        "pg_table_size",
        "pg_total_relation_size",
        "random",
        "random_normal",
        "timeofday",
        "uuidv4",
        "uuidv7",
    }
)
"""PostgreSQL's own volatile functions that a statement may call: they change nothing and hold no lock."""

_WORD = re.compile(r"[^\W\d][\w$]*")
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_ESCAPED_NAME = re.compile(r'u&"', re.IGNORECASE)
_BETWEEN = r'"?(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/|\*/)*'
_VOLATILE = """
SELECT p.proname, bool_or(coalesce(t.typtype IN ('c', 'p'), false))
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace LEFT JOIN pg_type t ON t.oid = p.proargtypes[0]
WHERE p.provolatile = 'v' AND p.proname = ANY (%s) AND NOT (n.nspname = 'pg_catalog' AND p.proname = ANY (%s))
    AND NOT starts_with(n.nspname, 'pg_temp_') GROUP BY 1 ORDER BY 1
"""
"""Volatile functions with these names, and whether one can be called like a column of a row: `row.name`."""


def refusal(connection: PostgresConnection, sql: str) -> str | None:
    """Why the statement is rejected, as text for its author; None if it is permitted.

    Strings and comments are not distinguished from code: anything that could be a call is rejected.
    """
    if _ESCAPED_NAME.search(sql):
        return 'names written with U&"…" are not available in queries'
    words = set(_WORD.findall(sql))
    names = words | {word.lower() for word in words} | {name.replace('""', '"') for name in _QUOTED.findall(sql)}
    volatile = connection.execute(_VOLATILE, [sorted(names), sorted(HARMLESS)]).fetchall()
    for name, of_a_row in volatile:
        if _might_call(name, sql, of_a_row=of_a_row):
            return f"the function {name} is VOLATILE and may have side effects; it is not available in queries"
    return None


def _might_call(name: str, sql: str, *, of_a_row: bool) -> bool:
    """`name` followed by parentheses; or after a dot, which also calls a function `of_a_row`."""
    written = re.escape(name.replace('"', '""'))
    call = rf"(?<![\w$]){written}(?![\w$]){_BETWEEN}\("
    attribute = rf'\.{_BETWEEN}"?{written}(?![\w$])'
    return re.search(f"{call}|{attribute}" if of_a_row else call, sql, re.IGNORECASE | re.DOTALL) is not None
