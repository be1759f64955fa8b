"""Whether a view means the same as in the snapshot under which it is read.

A snapshot shows the rows of that time, but names and definitions as they are now: of a view that is replaced, or over a table that is
truncated, one would read rows that never were there together.
"""

from __future__ import annotations

from engine.model.identity import RelationId
from engine.postgres.sessions import PostgresConnection

ViewMark = tuple[tuple[object, ...], ...]
"""Versions of the catalog rows of a view and of everything that it reads. Empty for what is no view."""
_MARK = """
WITH RECURSIVE held(oid, kind) AS (
    SELECT oid, relkind FROM pg_class WHERE oid = %s AND relkind IN ('v', 'm')
    UNION
    SELECT c.oid, c.relkind FROM held CROSS JOIN LATERAL (
        SELECT d.refobjid AS oid FROM pg_rewrite r
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
        WHERE r.ev_class = held.oid AND held.kind = 'v'
        UNION ALL SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = held.oid) AS found
    JOIN pg_class c ON c.oid = found.oid)
SELECT c.oid, c.relfilenode, CASE WHEN c.relkind IN ('v', 'm') THEN c.relnamespace || '.' || c.relname END,
       (SELECT array_agg(r.xmin::text ORDER BY r.oid) FROM pg_rewrite r WHERE r.ev_class = c.oid),
       (SELECT array_agg(a.xmin::text ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND c.relkind IN ('v', 'm'))
FROM held JOIN pg_class c ON c.oid = held.oid ORDER BY c.oid
"""
"""A materialized view has rows of its own, so what it was made of does not count. A table that is truncated, or written again, gets another
relfilenode."""


def mark_of_view(connection: PostgresConnection, relation: RelationId) -> ViewMark:
    """As the transaction's snapshot shows it; outside a transaction, as it is now. One that is the same after the rows were read as in
    their snapshot was the same all the time: versions do not come back."""
    rows = connection.execute(_MARK, [relation]).fetchall()
    return tuple(tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in rows)
