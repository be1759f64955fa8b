"""Tables that are read along their key at no great cost."""

from __future__ import annotations

from collections.abc import Collection

from engine.postgres.sessions import PostgresConnection
from engine.sources.query_diff.table_walk import LEAST_BYTES

_LEAST_CORRELATION = 0.9
"""Correlation of key and place, as ANALYZE estimates it, from which a scan of the index reads few pages twice. Not measured."""
_IN_ORDER = """
SELECT i.indrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname AND NOT s.inherited
WHERE i.indrelid = ANY (%s::oid[]) AND i.indisunique AND c.relkind = 'r' AND pg_relation_size(c.oid) >= %s
  AND abs(s.correlation) >= %s
  AND NOT EXISTS (SELECT FROM pg_index o WHERE o.indrelid = i.indrelid AND o.indexrelid <> i.indexrelid
                  AND (o.indisunique OR o.indisexclusion))
"""


def in_key_order(connection: PostgresConnection, relations: Collection[int]) -> frozenset[int]:
    """Those large tables whose rows lie about in the order of their key, and whose key is all that is unique in them."""
    rows = connection.execute(_IN_ORDER, [list(relations), LEAST_BYTES, _LEAST_CORRELATION]).fetchall()
    return frozenset(int(relation) for (relation,) in rows)
