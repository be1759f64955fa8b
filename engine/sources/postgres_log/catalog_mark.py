"""Fingerprint of the catalog rows of tables (called a mark in the code). Equal fingerprints of two readings: the tables did not change.

The fingerprint is built from the transaction ids (xmin) of the catalog rows, because every change of a catalog row writes a new row
version. Statistics and freezing update rows in place and do not change it. A partition that was attached and detached between two
readings does not show in it; if the partition had rows, its relation records in the log show it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass

from psycopg import sql

from engine.model.identity import TableName
from engine.model.source import CatalogAt
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import FILTER_VERSION
from engine.sources.postgres.partition_watch import PartitionWatch
from engine.sources.postgres_log.position import end_of_log, written_now

_FIRST_OF_USERS = 16384
"""FirstNormalObjectId. Types with lower OIDs belong to the server and do not change."""

_NOT_BY_ITSELF = 1 << 30
"""psycopg's `prepare_threshold` that turns automatic preparation off; only the query of this module is prepared, explicitly. For a few
tables it takes longer to plan than to execute."""

_MARK = """
SELECT concat_ws(' ',
 (SELECT sum(hash_record_extended(ROW(c.oid, c.xmin), 0)) FROM pg_class c WHERE c.oid = ANY(%(stored)s::oid[])),
 (SELECT sum(hash_record_extended(ROW(a.attrelid, a.attnum, a.xmin), 0))
  FROM pg_attribute a WHERE a.attrelid = ANY(%(tables)s::oid[]) AND a.attnum > 0),
 (SELECT sum(hash_record_extended(ROW(i.indexrelid, i.xmin), 0)) FROM pg_index i WHERE i.indrelid = ANY(%(tables)s::oid[])),
 (SELECT sum(hash_record_extended(ROW(h.inhrelid, h.inhparent, h.xmin), 0))
  FROM pg_inherits h WHERE h.inhparent = ANY(%(stored)s::oid[])),
 (SELECT sum(hash_record_extended(ROW(e.oid, e.xmin), 0)) FROM pg_enum e WHERE e.enumtypid = ANY(%(types)s::oid[])),
 (SELECT sum(hash_record_extended(ROW(n.oid, n.xmin), 0)) FROM pg_namespace n WHERE n.nspname = ANY(%(schemas)s)),
 (SELECT sum(hash_record_extended(ROW(p.oid, p.xmin), 0)) FROM pg_publication p WHERE p.pubname = ANY(%(publications)s)),
 (SELECT sum(hash_record_extended(ROW(r.oid, r.xmin), 0))
  FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid WHERE p.pubname = ANY(%(publications)s)){schemas})
"""
_MARK_OF_SCHEMAS = """,
 (SELECT sum(hash_record_extended(ROW(s.oid, s.xmin), 0))
  FROM pg_publication p JOIN pg_publication_namespace s ON s.pnpubid = p.oid WHERE p.pubname = ANY(%(publications)s))"""
_TYPES = """
WITH RECURSIVE made(oid) AS (
    SELECT a.atttypid FROM pg_attribute a
    WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= %s
    UNION
    SELECT p.oid FROM made JOIN pg_type q ON q.oid = made.oid CROSS JOIN LATERAL (
        VALUES (q.typelem), (q.typbasetype)
        UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE q.oid IN (r.rngtypid, r.rngmultitypid)
        UNION ALL SELECT b.atttypid FROM pg_attribute b
                  WHERE b.attrelid = q.typrelid AND b.attnum > 0 AND NOT b.attisdropped) AS p(oid)
    WHERE p.oid >= %s)
SELECT q.oid, q.typrelid::bigint FROM made JOIN pg_type q ON q.oid = made.oid
"""


@dataclass(frozen=True, slots=True)
class _Types:
    """User-defined types that columns are made of. `relations`: pg_class rows that hold the fields of composite types."""

    oids: tuple[int, ...] = ()
    relations: tuple[int, ...] = ()


class CatalogMarks:
    """Reads fingerprints of the tables that a `PartitionWatch` has checked. Any thread may use it."""

    def __init__(self, watch: PartitionWatch) -> None:
        self._watch = watch
        self._lock = threading.Lock()
        self._types = _Types()

    def looked(self, connection: PostgresConnection, names: Collection[TableName]) -> None:
        """Record that the watch has checked these tables. Fingerprints include the current types of their columns from now on."""
        tables, _ = self._watch.numbers(names)
        rows = connection.execute(_TYPES, [list(tables), _FIRST_OF_USERS, _FIRST_OF_USERS]).fetchall()
        found = _Types(tuple(sorted(row[0] for row in rows)), tuple(sorted(row[1] for row in rows if row[1])))
        with self._lock:
            self._types = found

    def read(
        self,
        connection: PostgresConnection,
        names: Collection[TableName],
        publications: Collection[str],
        *,
        now: bool,
    ) -> CatalogAt:
        """A position, and a fingerprint read after it, which includes every change that was committed before the position.

        `now`: the position is after every commit so far (see `position.written_now`); otherwise it is the current end of the log.
        """
        tables, below = self._watch.numbers(names)
        with self._lock:
            types = self._types
        position = written_now(connection) if now else end_of_log(connection)
        connection.prepare_threshold = _NOT_BY_ITSELF
        schemas = _MARK_OF_SCHEMAS if connection.info.server_version >= FILTER_VERSION else ""
        row = connection.execute(
            sql.SQL(_MARK).format(schemas=sql.SQL(schemas)),
            {
                "stored": [*tables, *below],
                "tables": [*tables, *types.relations],
                "types": list(types.oids),
                "schemas": sorted({name.schema for name in names}),
                "publications": list(publications),
            },
            prepare=True,
        ).fetchone()
        return CatalogAt(position, str(row[0]) if row is not None else "")
