"""Reads the sequences of tables' columns and their current values, on a source and on a target."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from psycopg import sql

from engine.model.identity import TableName
from engine.model.sequences import SequencesRefused, SequenceValue
from engine.postgres.sessions import PostgresConnection

_AT_ONCE = 500
"""Sequences read by one statement; each takes a lock until the transaction ends."""
_NAMED = 10
"""Most names that an error message lists."""

_OF_COLUMNS = """
SELECT tn.nspname, t.relname, a.attname, sn.nspname, s.relname, q.seqincrement, q.seqmin, q.seqmax,
       has_schema_privilege(sn.oid, 'USAGE') AND has_sequence_privilege(s.oid, 'SELECT'),
       has_sequence_privilege(s.oid, 'UPDATE')
FROM unnest(%s::text[], %s::text[]) AS asked (schema, name)
JOIN pg_namespace tn ON tn.nspname = asked.schema
JOIN pg_class t ON t.relnamespace = tn.oid AND t.relname = asked.name AND t.relkind IN ('r', 'p')
JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN LATERAL (
    SELECT d.objid AS sequence FROM pg_depend d
    WHERE d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
      AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid AND d.refobjsubid = a.attnum
    UNION
    SELECT d.refobjid FROM pg_attrdef f
    JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_class'::regclass
    WHERE f.adrelid = t.oid AND f.adnum = a.attnum
) used ON true
JOIN pg_class s ON s.oid = used.sequence AND s.relkind = 'S'
JOIN pg_namespace sn ON sn.oid = s.relnamespace
JOIN pg_sequence q ON q.seqrelid = s.oid
ORDER BY 1, 2, a.attnum, 4, 5
"""
"""Sequences that a column owns (identity, serial, OWNED BY), and those in its default. One sequence may serve several columns."""


@dataclass(frozen=True, slots=True)
class ColumnSequence:
    """A sequence of a column, with its limits and the session user's privileges on it."""

    table: TableName
    column: str
    name: TableName
    increment: int
    least: int
    most: int
    may_read: bool
    may_set: bool


def sequences_of(connection: PostgresConnection, tables: Collection[TableName]) -> list[ColumnSequence]:
    """The sequences of all columns of these tables, in column order; missing tables have none."""
    names = sorted(set(tables))
    asked = [[table.schema for table in names], [table.name for table in names]]
    return [
        ColumnSequence(TableName(*row[0:2]), row[2], TableName(*row[3:5]), *row[5:])
        for row in connection.execute(_OF_COLUMNS, asked).fetchall()
    ]


def values_of(connection: PostgresConnection, names: Collection[TableName]) -> dict[TableName, SequenceValue]:
    """The current values of these sequences; always the latest, because sequences are not transactional."""
    ordered = list(dict.fromkeys(names))
    found: dict[TableName, SequenceValue] = {}
    for first in range(0, len(ordered), _AT_ONCE):
        part = ordered[first : first + _AT_ONCE]
        looks = [
            sql.SQL("SELECT {}, last_value, is_called FROM {}").format(number, sql.Identifier(name.schema, name.name))
            for number, name in enumerate(part)
        ]
        for number, last, called in connection.execute(sql.SQL(" UNION ALL ").join(looks)).fetchall():
            found[part[number]] = SequenceValue(last, called)
    return found


def refuse_forbidden(forbidden: Sequence[ColumnSequence], database: str, may_not: str, rights: str) -> None:
    """Raise SequencesRefused if `forbidden` is not empty. `database`: the connection's name; `rights`: privileges of the missing GRANT."""
    if not forbidden:
        return
    names = sorted({str(one.name) for one in forbidden})
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} others" if len(names) > _NAMED else "")
    raise SequencesRefused(
        "sequence_privilege",
        f"{database}: the user of the connection may not {may_not} {listed}",
        f"GRANT {rights} ON SEQUENCE … TO that user, and USAGE on the schema of the sequence, then repeat the request.",
    )
