"""Detects changes of tables that the log does not contain: a table dropped, or dropped and created again under its name, and partitions
of a root that were detached, attached with rows, truncated or rewritten.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from engine.model.fault import FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.position import Lsn
from engine.model.source import PartitionRewrite
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.catalog import names_of, one_look
from engine.sources.postgres.connect import Connector

_CREATED_IN_PLACE = 2
"""Most command ids (cmin) between the rows of the partition and of its row type if CREATE TABLE … PARTITION OF made both. CREATE TABLE
followed by ATTACH PARTITION lies further apart."""
LEFT_KEPT = 10_000
"""Most former partitions remembered per root. The log may contain changes of them up to the log's end at the check that found them
missing; changes after that mean that they were attached again for a while."""

_OIDS = """
SELECT n.nspname, c.relname, c.oid, c.relkind = 'p' FROM unnest(%s::text[], %s::text[]) AS w(s, t)
JOIN pg_namespace n ON n.nspname = w.s
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t AND c.relkind IN ('r', 'p')
"""
_LEAVES = """
SELECT n.nspname, c.relname, p.relid::oid, p.relid::text, l.relfilenode::bigint, l.xmin::text::bigint,
       i.xmin = t.xmin AND i.cmin::text::int - t.cmin::text::int BETWEEN 0 AND %s,
       coalesce(i.xmin::text::bigint, 0)
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
    """A partition. `writer`: the (sub)transaction (xmin) that wrote its pg_class row, from the same snapshot as `relfilenode`.

    `joined`: xmin of its pg_inherits row, which made it a partition of its parent; 0 = unknown (fingerprints of older versions). Freezing
    does not change it. DETACH CONCURRENTLY writes the row again, and the partition is not listed from then on.
    `seen`: found in the catalog; otherwise only named by relation records.
    """

    name: str
    relfilenode: int
    writer: int
    created_in_place: bool
    joined: int = 0
    seen: bool = True


@dataclass(frozen=True, slots=True)
class TablesLook:
    """Changes since the previous check.

    `faults`: each changed table with a description. `rewrites`: the tables of `faults` whose partitions were only added or got new
    storage, which a TRUNCATE of the root or a DDL message may explain. `replaced`: the tables that were dropped or created again, with the
    OID that has the name now. `marks`: fingerprint of each root's partitions, for `PartitionWatch.remember`. `below`: current partitions;
    `left`: former ones, with the log's end after the check that found them missing. `renamed`: old name to new name.
    """

    faults: Mapping[TableName, str]
    rewrites: Mapping[TableName, PartitionRewrite] = field(default_factory=dict)
    replaced: Mapping[TableName, RelationId] = field(default_factory=dict)
    marks: Mapping[TableName, str] = field(default_factory=dict)
    renamed: Mapping[TableName, TableName] = field(default_factory=dict)
    below: Mapping[TableName, frozenset[RelationId]] = field(default_factory=dict)
    left: Mapping[TableName, Mapping[RelationId, Lsn]] = field(default_factory=dict)
    sent_otherwise: Mapping[TableName, FaultKind] = field(default_factory=dict)
    """Those of `faults` that concern what is sent of a table."""

    def joined(self, later: TablesLook) -> TablesLook:
        """Both results as one; for a table in both, the later one counts."""
        rewrites = {n: r for n, r in self.rewrites.items() if n not in later.faults}
        return TablesLook(
            {**self.faults, **later.faults},
            {**rewrites, **later.rewrites},
            {**self.replaced, **later.replaced},
            later.marks,
            {**self.renamed, **later.renamed},
            later.below,
            later.left,
            {**self.sent_otherwise, **later.sent_otherwise},
        )


class PartitionWatch:
    """Remembers the OIDs of tables and the partitions of each root, and reports changes between two checks.

    The first check is compared with the fingerprints that `remember` set. Any thread may use it.
    """

    def __init__(self, end: Callable[[Connector], Lsn]) -> None:
        """`end`: reads the current end of the source's log."""
        self._end = end
        self._lock = threading.Lock()
        self._below: dict[TableName, dict[int, _Member]] = {}
        self._left: dict[TableName, dict[RelationId, Lsn]] = {}
        """Former partitions of each root, in the order in which they left, with the log's end when that was noticed."""
        self._oids: dict[TableName, int] = {}
        self._gone: dict[TableName, int] = {}
        """OID that had the table's name when its loss was reported; 0 = none."""

    @property
    def dropped_tables(self) -> frozenset[TableName]:
        """Tables that were dropped, and possibly created again, since they were first seen; until `watch_again`."""
        with self._lock:
            return frozenset(self._gone)

    def unseen(self, tables: Sequence[TableSpec]) -> list[TableSpec]:
        """The given tables that no check has seen yet; they are watched from the next check on."""
        with self._lock:
            return [t for t in tables if t.source not in self._oids]

    def remember(self, marks: Mapping[TableName, str]) -> None:
        """Set fingerprints of roots that an earlier check, possibly of another object, has read; the next check compares with them."""
        seen = {name: _from_mark(mark) for name, mark in marks.items()}
        with self._lock:
            for name, (oid, members) in seen.items():
                self._oids[name], self._below[name] = oid, members

    def accept(self, name: TableName, relation: RelationId) -> None:
        """Watch `relation`, which has the name of a table reported as gone; the last check is its base. No-op after `watch_again`."""
        with self._lock:
            if self._gone.pop(name, None) is not None:
                self._oids[name] = relation

    def watch_again(self, tables: Sequence[TableSpec], stands: Mapping[TableName, int]) -> None:
        """Start to watch these tables again with the OIDs of `stands`; the next check sets the base for their partitions.

        A table that was created again after it was reported as dropped is not included: that is still to be reported.
        """
        with self._lock:
            for name in {spec.source for spec in tables} & stands.keys():
                if self._gone.get(name) == stands[name]:
                    del self._gone[name]
                    self._below.pop(name, None)
                    self._oids[name] = stands[name]

    def numbers(self, names: Collection[TableName]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """OIDs of the given tables that a check has seen, including tables that replaced one of them; and OIDs of all their partitions."""
        with self._lock:
            tables = {oid for name in names for oid in (self._oids.get(name, 0), self._gone.get(name, 0)) if oid}
            below = {oid for name in names for oid in self._below.get(name, ())}
        return tuple(sorted(tables)), tuple(sorted(below))

    def check_tables(self, connector: Connector, tables: Sequence[TableSpec]) -> Mapping[TableName, str]:
        """Changed tables with a description. Each change is reported once."""
        return self.examine(connector, tables).faults

    def examine(self, connector: Connector, tables: Sequence[TableSpec]) -> TablesLook:
        """As `check_tables`, with the facts that distinguish a TRUNCATE of a root from one of a partition. Each change is reported once."""
        names = {t.source for t in tables}
        with connector.session() as connection, one_look(connection):
            oids, roots = _oids(connection, names)
            below = _below(connection, names)
            away = self._known(names - oids.keys())
            elsewhere = names_of(connection, away) if away else {}
        # Read after the catalog: every transaction that the catalog showed has committed before this position.
        seen_by = self._end(connector)
        for name in roots:
            below.setdefault(name, {})
        faults: dict[TableName, str] = {}
        doubts: dict[TableName, tuple[frozenset[int], frozenset[RelationId]]] = {}
        replaced: dict[TableName, RelationId] = {}
        with self._lock:
            renamed = self._renamed(names - oids.keys(), {o: n for o, n in elsewhere.items() if n not in names})
            for name in sorted(names - renamed.keys()):
                change = self._changed(name, oids.get(name))
                if change is not None:
                    replaced[name] = RelationId(oids.get(name, 0))
                if change is None and name in below and name in self._below:
                    before = self._below[name]
                    change = _change(before, below[name])
                    seen = {number: member for number, member in before.items() if member.seen}
                    attached, rewritten = _attached(seen, below[name]), _rewritten(seen, below[name])
                    if change is None and (attached or rewritten):
                        change = (
                            f"partition {below[name][min(attached)].name} was attached"
                            if attached
                            else f"partition {rewritten[0].name} was truncated or rewritten"
                        )
                        doubts[name] = frozenset(member.writer for member in rewritten), attached
                if name in below:
                    self._leave(name, self._below.get(name, {}).keys() - below[name].keys(), seen_by)
                    self._below[name] = below[name]
                if change is not None:
                    faults[name] = change
            marks = {n: _to_mark(oids[n], below[n]) for n in roots if n not in self._gone}
            met = {n: frozenset(map(RelationId, below[n])) for n in roots}
            left = {n: dict(self._left.get(n, {})) for n in roots}
        rewrites = {
            name: PartitionRewrite(RelationId(oids.get(name, 0)), by, seen_by, attached)
            for name, (by, attached) in doubts.items()
        }
        return TablesLook(faults, rewrites, replaced, marks, renamed, met, left)

    def _leave(self, name: TableName, gone: Collection[int], seen_by: Lsn) -> None:
        left = self._left.setdefault(name, {})
        for number in map(RelationId, gone):
            left.pop(number, None)
            left[number] = seen_by
        for oldest in list(left)[:-LEFT_KEPT]:
            del left[oldest]

    def _known(self, names: Collection[TableName]) -> list[int]:
        with self._lock:
            return [oid for name in names if (oid := self._stood(name))]

    def _stood(self, name: TableName) -> int:
        """The OID last seen under the name; 0 = none."""
        return self._gone.get(name, self._oids.get(name, 0))

    def _renamed(
        self, missing: Collection[TableName], elsewhere: Mapping[int, TableName]
    ) -> dict[TableName, TableName]:
        """Tables that were renamed, old name to new name; they are watched under the new name from now on.

        A table that took the name of another watched table is not renamed: it replaces that table, and is missing under its old name.
        """
        found = {}
        for name in missing:
            new = elsewhere.get(self._stood(name))
            if new is None:
                continue
            found[name] = new
            self._oids[new] = self._oids.pop(name)
            if name in self._gone:
                self._gone[new] = self._gone.pop(name)
            if name in self._below:
                self._below[new] = self._below.pop(name)
                self._left[new] = self._left.pop(name, {})
        return found

    def _changed(self, name: TableName, oid: int | None) -> str | None:
        before = self._oids.get(name)
        if before is None:
            if oid is not None:
                self._oids[name] = oid
            return None
        if oid == before or (name in self._gone and (oid is None or oid == self._gone[name])):
            return None
        self._gone[name] = oid or 0
        return "the table was dropped" if oid is None else "the table was dropped and created again"


def marks_of(connector: Connector, names: Collection[TableName]) -> dict[TableName, str]:
    """Current fingerprints of the given tables that are partitioned."""
    with connector.session() as connection, one_look(connection):
        oids, roots = _oids(connection, names)
        below = _below(connection, roots)
    return {name: _to_mark(oids[name], below.get(name, {})) for name in roots}


def _to_mark(oid: int, members: Mapping[int, _Member]) -> str:
    """Fingerprint of a root and its partitions as text; equal if there is no change that a later check would report."""
    listed = [[number, member.name, member.relfilenode, member.joined] for number, member in sorted(members.items())]
    return _written(oid, listed)


def mark_told(mark: str, below: Mapping[RelationId, TableName]) -> str:
    """The fingerprint with these partitions added, which only relation records named; the same text if it contains all of them."""
    oid, listed, *sending = json.loads(mark)
    had = {number for number, *_ in listed}
    more = [[leaf, str(name), None, 0] for leaf, name in below.items() if leaf not in had]
    return _written(oid, [*listed, *more], *sending) if more else mark


def _written(oid: int, listed: Sequence[Sequence[object]], *sending: object) -> str:
    return json.dumps([oid, listed, *sending], ensure_ascii=False, separators=(",", ":"))


def _from_mark(mark: str) -> tuple[int, dict[int, _Member]]:
    oid, listed, *_ = json.loads(mark)
    members = {
        number: _Member(name, filenode or 0, 0, True, joined[0] if joined else 0, seen=filenode is not None)
        for number, name, filenode, *joined in listed
    }
    return oid, members


def _oids(
    connection: PostgresConnection, names: Collection[TableName]
) -> tuple[dict[TableName, int], frozenset[TableName]]:
    """OIDs of the tables that exist, and the set of those that are partitioned."""
    rows = connection.execute(_OIDS, [[n.schema for n in names], [n.name for n in names]]).fetchall()
    oids = {TableName(schema, name): oid for schema, name, oid, _ in rows}
    return oids, frozenset(TableName(schema, name) for schema, name, _, partitioned in rows if partitioned)


def _below(connection: PostgresConnection, names: Collection[TableName]) -> dict[TableName, dict[int, _Member]]:
    rows = connection.execute(
        _LEAVES, [_CREATED_IN_PLACE, [n.schema for n in names], [n.name for n in names]]
    ).fetchall()
    found: dict[TableName, dict[int, _Member]] = {}
    for schema, name, oid, text, filenode, writer, in_place, joined in rows:
        found.setdefault(TableName(schema, name), {})[oid] = _Member(text, filenode, writer, bool(in_place), joined)
    return found


def _change(before: Mapping[int, _Member], now: Mapping[int, _Member]) -> str | None:
    for oid, member in before.items():
        if oid not in now:
            return f"partition {member.name} was detached or dropped"
        if member.joined and member.joined != now[oid].joined:
            return f"partition {member.name} was detached and attached again"
    return None


def _attached(before: Mapping[int, _Member], now: Mapping[int, _Member]) -> frozenset[RelationId]:
    """New partitions that may have had rows when they were attached."""
    return frozenset(RelationId(o) for o, member in now.items() if o not in before and not member.created_in_place)


def _rewritten(before: Mapping[int, _Member], now: Mapping[int, _Member]) -> list[_Member]:
    """Partitions whose storage changed. A new partition has a relfilenode equal to its OID, or none, unless it was rewritten."""
    return [
        member
        for oid, member in now.items()
        if member.relfilenode != (before[oid].relfilenode if oid in before else oid if member.relfilenode else 0)
    ]
