"""Changes of tables that the log does not tell of: dropped, made again under their name, and what happens below a partitioned root.

Below a root these are partitions that are detached, attached full, truncated or rewritten.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from engine.model.identity import RelationId, TableName
from engine.model.position import Lsn
from engine.model.source import PartitionRewrite
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres_log.catalog import names_of, one_look
from engine.sources.postgres_log.connect import Connector
from engine.sources.postgres_log.position import current

_CREATED_IN_PLACE = 2
"""CREATE TABLE … PARTITION OF enters the partition two commands behind its row type; CREATE and ATTACH lie further apart."""
LEFT_KEPT = 10_000
"""How many of the partitions that left a root are known; the log may tell of changes in them until it is read up to the look that
found them gone, and where it does behind that, they were back for a while."""

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
    """A partition. `writer`: the (sub)transaction that wrote its row in pg_class, from the same snapshot as `relfilenode`.

    `joined`: the one that wrote its row in pg_inherits, which made it a partition of its parent; 0 = unknown, in marks of before this was
    kept. Freezing leaves it as it is. DETACH CONCURRENTLY writes the row once more, and from then on the partition is not shown.
    `seen`: by a look; others were only named by the log.
    """

    name: str
    relfilenode: int
    writer: int
    created_in_place: bool
    joined: int = 0
    seen: bool = True


@dataclass(frozen=True, slots=True)
class TablesLook:
    """What changed since the look before.

    `faults`: each table with what changed, in words. `rewrites`: those of them where partitions only came, or got other storage, which a
    truncate of the root, or the DDL capture, may explain. `replaced`: those that were dropped or made again, with what stands there now.
    `marks`: what is below each root, for `PartitionWatch.remember`. `below`: what is there, `left`: what was, and the log's end behind
    the look that found it gone. `renamed`: tables that go by another name now.
    """

    faults: Mapping[TableName, str]
    rewrites: Mapping[TableName, PartitionRewrite] = field(default_factory=dict)
    replaced: Mapping[TableName, RelationId] = field(default_factory=dict)
    marks: Mapping[TableName, str] = field(default_factory=dict)
    renamed: Mapping[TableName, TableName] = field(default_factory=dict)
    below: Mapping[TableName, frozenset[RelationId]] = field(default_factory=dict)
    left: Mapping[TableName, Mapping[RelationId, Lsn]] = field(default_factory=dict)

    def joined(self, later: TablesLook) -> TablesLook:
        """Both looks as one; what the later one says of a table counts."""
        rewrites = {n: r for n, r in self.rewrites.items() if n not in later.faults}
        return TablesLook(
            {**self.faults, **later.faults},
            {**rewrites, **later.rewrites},
            {**self.replaced, **later.replaced},
            later.marks,
            {**self.renamed, **later.renamed},
            later.below,
            later.left,
        )


class PartitionWatch:
    """Remembers tables, and what was below each root, at the first look or before, and tells what changed since.

    Any thread may use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._below: dict[TableName, dict[int, _Member]] = {}
        self._left: dict[TableName, dict[RelationId, Lsn]] = {}
        """What was below each root before, the last to leave last, and where the log ended when that had been seen."""
        self._oids: dict[TableName, int] = {}
        self._gone: dict[TableName, int] = {}
        """What stood there when it was told; 0 = nothing."""

    @property
    def gone(self) -> frozenset[TableName]:
        """Tables that were dropped, and maybe made again, since they were first seen; until `settle`."""
        with self._lock:
            return frozenset(self._gone)

    def unseen(self, tables: Sequence[TableSpec]) -> list[TableSpec]:
        """Those of these tables that no look has met yet: they are watched from the next one on."""
        with self._lock:
            return [t for t in tables if t.source not in self._oids]

    def remember(self, marks: Mapping[TableName, str]) -> None:
        """What an earlier look, of this watch or another, saw below these roots: the next look is compared with that."""
        seen = {name: _from_mark(mark) for name, mark in marks.items()}
        with self._lock:
            for name, (oid, members) in seen.items():
                self._oids[name], self._below[name] = oid, members

    def accept(self, name: TableName, relation: RelationId) -> None:
        """A table told as gone is followed as it is now; what the last look saw of it counts. Nothing where it was settled since."""
        with self._lock:
            if self._gone.pop(name, None) is not None:
                self._oids[name] = relation

    def settle(self, tables: Sequence[TableSpec], stands: Mapping[TableName, int]) -> None:
        """These tables are taken up anew, as `stands` has them; what is below them at the next look counts.

        Not what came back since it was told as dropped: that is still to be told.
        """
        with self._lock:
            for name in {spec.source for spec in tables} & stands.keys():
                if self._gone.get(name) == stands[name]:
                    del self._gone[name]
                    self._below.pop(name, None)
                    self._oids[name] = stands[name]

    def numbers(self, names: Collection[TableName]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The numbers of these tables as far as a look met them, also of what took the place of one; and of all that is below them."""
        with self._lock:
            tables = {oid for name in names for oid in (self._oids.get(name, 0), self._gone.get(name, 0)) if oid}
            below = {oid for name in names for oid in self._below.get(name, ())}
        return tuple(sorted(tables)), tuple(sorted(below))

    def look(self, connector: Connector, tables: Sequence[TableSpec]) -> Mapping[TableName, str]:
        """Tables that changed, with what, in words. Each change is told once."""
        return self.examine(connector, tables).faults

    def examine(self, connector: Connector, tables: Sequence[TableSpec]) -> TablesLook:
        """As `look`, with what it takes to tell a truncate of a root from one of a partition. Each change is told once."""
        names = {t.source for t in tables}
        with connector.session() as connection, one_look(connection):
            oids, roots = _oids(connection, names)
            below = _below(connection, names)
            away = self._known(names - oids.keys())
            elsewhere = names_of(connection, away) if away else {}
        # Read behind the catalog: every transaction whose work was seen there has committed before this position.
        seen_by = current(connector)
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
        """What was last seen under the name; 0 = nothing."""
        return self._gone.get(name, self._oids.get(name, 0))

    def _renamed(
        self, missing: Collection[TableName], elsewhere: Mapping[int, TableName]
    ) -> dict[TableName, TableName]:
        """Tables that are not under their name any more but under another one; from now on they are known by that.

        One that has the name of another table of ours is that table now, and gone from where it was.
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
    """The marks of those of these tables that are partitioned, as they are now."""
    with connector.session() as connection, one_look(connection):
        oids, roots = _oids(connection, names)
        below = _below(connection, roots)
    return {name: _to_mark(oids[name], below.get(name, {})) for name in roots}


def _to_mark(oid: int, members: Mapping[int, _Member]) -> str:
    """A root and its members as text; equal where nothing changed that a later look would tell."""
    listed = [[number, member.name, member.relfilenode, member.joined] for number, member in sorted(members.items())]
    return _written(oid, listed)


def mark_told(mark: str, below: Mapping[RelationId, TableName]) -> str:
    """The mark with these partitions, which the log named and no look has met; the same text where it has them all."""
    oid, listed = json.loads(mark)
    had = {number for number, *_ in listed}
    more = [[leaf, str(name), None, 0] for leaf, name in below.items() if leaf not in had]
    return _written(oid, [*listed, *more]) if more else mark


def _written(oid: int, listed: Sequence[Sequence[object]]) -> str:
    return json.dumps([oid, listed], ensure_ascii=False, separators=(",", ":"))


def _from_mark(mark: str) -> tuple[int, dict[int, _Member]]:
    oid, listed = json.loads(mark)
    members = {
        number: _Member(name, filenode or 0, 0, True, joined[0] if joined else 0, seen=filenode is not None)
        for number, name, filenode, *joined in listed
    }
    return oid, members


def _oids(
    connection: PostgresConnection, names: Collection[TableName]
) -> tuple[dict[TableName, int], frozenset[TableName]]:
    """The tables that exist, by number, and which of them are partitioned."""
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
    """New members that may have had rows when they came."""
    return frozenset(RelationId(o) for o, member in now.items() if o not in before and not member.created_in_place)


def _rewritten(before: Mapping[int, _Member], now: Mapping[int, _Member]) -> list[_Member]:
    """Members with other storage than before; one that is new was made with storage of its own number, or with none."""
    return [
        member
        for oid, member in now.items()
        if member.relfilenode != (before[oid].relfilenode if oid in before else oid if member.relfilenode else 0)
    ]
