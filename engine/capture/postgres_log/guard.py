"""Changes below a partitioned root that the log does not tell of: detached partitions, ones attached full, truncated or rewritten ones."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.capture.postgres_log.connect import Connector
from engine.model.identity import TableName
from engine.model.subscription import TableSpec

_CREATED_IN_PLACE = 2
"""CREATE TABLE … PARTITION OF enters the partition two commands behind its row type; CREATE and ATTACH lie further apart."""

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


class PartitionWatch:
    """Remembers what was below each root at the first look, and tells what changed since. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[TableName, dict[int, _Member]] = {}

    def look(self, connector: Connector, tables: Sequence[TableSpec]) -> Mapping[TableName, str]:
        """Roots under which something changed, with what, in words. Each change is told once."""
        found = _read(connector, [t.source for t in tables])
        faults: dict[TableName, str] = {}
        with self._lock:
            for root, members in found.items():
                before = self._seen.get(root)
                self._seen[root] = members
                change = _change(before, members) if before is not None else None
                if change is not None:
                    faults[root] = change
        return faults


def _read(connector: Connector, names: Sequence[TableName]) -> dict[TableName, dict[int, _Member]]:
    with connector.session() as connection:
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
