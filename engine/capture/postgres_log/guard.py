"""Changes of tables that the log does not tell of: dropped, made again under their name, and what happens below a partitioned root.

Below a root these are partitions that are detached, attached full, truncated or rewritten.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.capture.postgres_log.connect import Connector, PostgresConnection
from engine.model.identity import TableName
from engine.model.subscription import TableSpec

_CREATED_IN_PLACE = 2
"""CREATE TABLE … PARTITION OF enters the partition two commands behind its row type; CREATE and ATTACH lie further apart."""

_OIDS = """
SELECT n.nspname, c.relname, c.oid FROM unnest(%s::text[], %s::text[]) AS w(s, t)
JOIN pg_namespace n ON n.nspname = w.s JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t
"""
_LEAVES = """
SELECT n.nspname, c.relname, p.relid::oid, p.relid::text, coalesce(pg_relation_filenode(p.relid), 0)::bigint,
       i.xmin = t.xmin AND i.cmin::text::int - t.cmin::text::int BETWEEN 0 AND %s
FROM unnest(%s::text[], %s::text[]) AS w(s, t)
JOIN pg_namespace n ON n.nspname = w.s
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t AND c.relkind = 'p'
CROSS JOIN LATERAL pg_partition_tree(c.oid) AS p
LEFT JOIN pg_inherits i ON i.inhrelid = p.relid
JOIN pg_class l ON l.oid = p.relid
LEFT JOIN pg_type t ON t.oid = l.reltype
WHERE p.relid <> c.oid
"""


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    relfilenode: int
    created_in_place: bool


class TableWatch:
    """Remembers tables, and what was below each root, at the first look, and tells what changed since. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._below: dict[TableName, dict[int, _Member]] = {}
        self._oids: dict[TableName, int] = {}
        self._gone: set[TableName] = set()

    @property
    def gone(self) -> frozenset[TableName]:
        """Tables that were dropped, and maybe made again, since they were first seen; until `settle`."""
        with self._lock:
            return frozenset(self._gone)

    def settle(self, tables: Sequence[TableSpec]) -> None:
        """These tables are taken up anew: what they are at the next look counts."""
        with self._lock:
            for spec in tables:
                if spec.source in self._gone:
                    self._gone.discard(spec.source)
                    self._oids.pop(spec.source, None)
                    self._below.pop(spec.source, None)

    def look(self, connector: Connector, tables: Sequence[TableSpec]) -> Mapping[TableName, str]:
        """Tables that changed, with what, in words. Each change is told once."""
        names = [t.source for t in tables]
        with connector.session() as connection:
            oids = _oids(connection, names)
            below = _below(connection, names)
        faults: dict[TableName, str] = {}
        with self._lock:
            for name in names:
                change = self._changed(name, oids.get(name))
                if change is None and name in below:
                    before = self._below.get(name)
                    change = _change(before, below[name]) if before is not None else None
                if name in below:
                    self._below[name] = below[name]
                if change is not None:
                    faults[name] = change
        return faults

    def _changed(self, name: TableName, oid: int | None) -> str | None:
        before = self._oids.get(name)
        if before is None:
            if oid is not None:
                self._oids[name] = oid
            return None
        if oid == before or name in self._gone:
            return None
        self._gone.add(name)
        return "the table was dropped" if oid is None else "the table was dropped and created again"


def _oids(connection: PostgresConnection, names: Sequence[TableName]) -> dict[TableName, int]:
    rows = connection.execute(_OIDS, [[n.schema for n in names], [n.name for n in names]]).fetchall()
    return {TableName(schema, name): oid for schema, name, oid in rows}


def _below(connection: PostgresConnection, names: Sequence[TableName]) -> dict[TableName, dict[int, _Member]]:
    rows = connection.execute(
        _LEAVES, [_CREATED_IN_PLACE, [n.schema for n in names], [n.name for n in names]]
    ).fetchall()
    found: dict[TableName, dict[int, _Member]] = {}
    for schema, name, oid, text, filenode, in_place in rows:
        found.setdefault(TableName(schema, name), {})[oid] = _Member(text, filenode, bool(in_place))
    return found


def _change(before: Mapping[int, _Member], now: Mapping[int, _Member]) -> str | None:
    for oid, member in before.items():
        if oid not in now:
            return f"partition {member.name} was detached or dropped"
        if now[oid].relfilenode != member.relfilenode:
            return f"partition {member.name} was truncated or rewritten"
    for oid, member in now.items():
        if oid not in before and not member.created_in_place:
            return f"partition {member.name} was attached"
    return None
