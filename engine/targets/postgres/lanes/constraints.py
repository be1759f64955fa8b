"""Finds tables whose rows depend on each other by more than the key."""

from __future__ import annotations

from collections.abc import Sequence

from engine.postgres.sessions import PostgresConnection

_SQL = """
SELECT t.name FROM unnest(%s::text[]) AS t(name)
CROSS JOIN LATERAL (SELECT array_agg(p.relid) || t.name::regclass AS relids FROM pg_partition_tree(t.name::regclass) AS p) AS tree
WHERE EXISTS (SELECT FROM pg_index AS i
              WHERE i.indrelid = ANY (tree.relids) AND (i.indisunique OR i.indisexclusion) AND NOT i.indisprimary)
   OR (current_setting('session_replication_role') <> 'replica'
       AND EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = ANY (tree.relids) AND g.tgenabled <> 'D'))
   OR EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = ANY (tree.relids) AND g.tgenabled IN ('R', 'A'))
"""


def tied_tables(connection: PostgresConnection, tables: Sequence[str]) -> set[str]:
    """Those of the tables (full quoted names) that have another unique key, or triggers that fire for us, which includes foreign keys.

    Two transactions that change different rows of them may still wait for each other.
    """
    return {row[0] for row in connection.execute(_SQL, [list(tables)]).fetchall()}
