"""Checks the source while a subscription runs: its reader, the tables that it sends, its catalog and its partitions.

`retention_guard` judges the retained log; the run applies all findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from engine.model.fault import FaultKind
from engine.model.identity import RelationId, TableId, TableName
from engine.model.patterns import TablePattern
from engine.model.position import ZERO, Lsn
from engine.model.schema import KeyMode, TableSchema
from engine.model.source import CatalogAt, GuardReading, PartitionRewrite, ReaderStatus, SourceTerms
from engine.model.subscription import TableSpec
from engine.model.table_state import TableStateKind
from engine.safety.findings import (
    Certified,
    Finding,
    Fingerprinted,
    LogRetained,
    Park,
    Renamed,
    SchemaLearnt,
    SourceGone,
    TablesAppeared,
)
from engine.safety.log_evidence import LogEvidence
from engine.safety.observed_partitions import ObservedPartition, is_covered, is_missed
from engine.tables.context import RunContext
from engine.tables.ddl_messages import CertifiedSchema
from engine.tables.known_catalog import Settled
from engine.tables.planner import CatalogSchema
from engine.tables.registry import TableEntry
from engine.tables.schema_change import Unchanged, judge, with_definitions, without_fills
from engine.tables.start_point import NOT_FOLLOWED, why_not_described
from engine.tables.state import Copying, Live, Parked, Registered, Reloading

_WITH_ROWS = (TableStateKind.LIVE, TableStateKind.PAUSED, TableStateKind.CATCHING_UP)


@dataclass(frozen=True, slots=True)
class _Undecided:
    """A root whose partitions got new storage. The log will show whether a TRUNCATE of the root was the reason.

    `lost`: after the check the table waited for a new copy, which contains the change.
    """

    name: TableName
    kind: FaultKind
    detail: str
    rewrite: PartitionRewrite
    lost: bool


class SourceMonitor:
    """Watches one source for one run. One check at a time, which the caller sees to.

    `checked`: the source is known to have sent every change up to this position.
    """

    def __init__(self, parts: RunContext, evidence: LogEvidence, captured: Callable[[], Lsn]) -> None:
        """`evidence`: what the log shows up to the position that `captured` returns."""
        self._more = False
        """Whether the current check found something or left something undecided; only a check that did neither certifies what it saw."""
        self._to_be_copied: set[TableName] = set()
        """Tables that were replaced or dropped on the source, whose copy has not begun: it will read the table that exists then."""
        self._compared: frozenset[TableId] = frozenset()
        """Live tables whose catalog schema equals the known one."""
        self._parts = parts
        self._evidence = evidence
        self._captured = captured
        self._undecided: list[_Undecided] = []
        self._last: GuardReading | None = None
        """Result of the last check."""
        self._leaves: Mapping[RelationId, Mapping[RelationId, ObservedPartition]] = {}
        """Partitions that the log had named when the last check began and that no check had seen."""
        self._roots: dict[TableId, TableSchema] = {}
        """Schemas of partitioned tables at the last check."""
        self._patterns = parts.spec.patterns
        self._found: frozenset[tuple[RelationId, TableName]] = frozenset()
        """Tables already reported for the current patterns."""
        self._withdrawn: frozenset[TableId] = frozenset()
        """Tables parked because they have no replica identity, checked since."""
        self._anchors: dict[TableId, CertifiedSchema] = {}
        self.checked = ZERO
        self.source_end: Lsn | None = None
        self.reader: ReaderStatus | None = None
        """As the last check found it."""
        self._looked_us: int | None = None

    def looked_us(self, applied: Lsn) -> int | None:
        """The time in µs since 1970 up to which changes have been looked for, and are applied up to `applied`; None for a log, which needs
        no cycles, and before the first cycle is applied."""
        cycle = self.reader.last_cycle if self.reader is not None else None
        if cycle is not None and cycle.position <= applied:
            self._looked_us = cycle.taken_us
        return self._looked_us

    @property
    def held_since_us(self) -> int:
        """See ReaderStatus, as the last check found it."""
        return self.reader.held_since_us if self.reader is not None else 0

    def _learn(self, reading: GuardReading) -> Iterator[Finding]:
        """Report schemas that the catalog shows and the log does not: a DDL change without a later row change sends no relation record.

        Not for roots whose partitions may have been rewritten: that is decided first.
        """
        doubted = self._doubted(reading)
        source = self._parts.source
        rows = [e for e in self._parts.book.all() if isinstance(e.state, Live) or (e.copy and e.copy.followed)]
        live = [e for e in rows if e.spec.source not in doubted]
        paused = [e for e in self._parts.book.all().in_state(TableStateKind.PAUSED) if e.spec.source not in doubted]
        parked = [e for e in self._parts.book.all().in_state(TableStateKind.PARKED) if e.spec.source not in doubted]
        mark, as_of = source.ddl.mark(), source.log.current()
        described = source.describe([entry.spec for entry in [*live, *paused, *parked]])
        self._compared = frozenset(e.table for e in live if isinstance(e.state, Live))
        for entry in [*live, *paused, *parked]:
            if entry.spec.source not in described:
                self._roots.pop(entry.table, None)
        for entry in parked:
            now = described.get(entry.spec.source)
            found = self._explained(entry, now)
            if now is not None and found is not None and not self._is_fresh(entry, now):
                yield Park(entry.table, _renewed_for(entry, now), found, entry)
        yield from self._withdraw([entry for entry in [*live, *paused] if entry.spec.source not in described])
        mark = mark if source.ddl.mark() == mark else ""
        seen_by = source.log.current()
        if anchors := self._anchor(live, described, mark, as_of):
            yield Certified(tuple(anchors))
        for entry in live:
            now = described.get(entry.spec.source)
            if now is None or entry.schema is None or now.relation != entry.schema.relation:
                self._more = True
                continue
            fresh, same = self._is_fresh(entry, now), isinstance(judge(entry.schema, now), Unchanged)
            self._more |= not same
            if not fresh and not same:
                anchor = self._anchors.get(entry.table)
                since = anchor.as_of if anchor is not None and anchor.schema is entry.schema else None
                yield SchemaLearnt(CatalogSchema(entry.table, entry.schema, now, seen_by, since))
            elif not fresh and (settled := with_definitions(entry.schema, now)) != entry.schema:
                yield SchemaLearnt(CatalogSchema(entry.table, entry.schema, settled, seen_by))

    def _is_fresh(self, entry: TableEntry, now: TableSchema) -> bool:
        """Whether the previous check read another schema for this partitioned table.

        Partitions are checked before the schemas are read, so only the next check shows what happened to them in between.
        """
        fresh = now.relfilenode == 0 and self._roots.get(entry.table) != now
        if fresh:
            self._roots[entry.table] = now
        return fresh

    def look_for(self, patterns: tuple[TablePattern, ...]) -> None:
        """Report new tables that match these patterns, from the next check on. From any thread."""
        self._patterns, self._found = patterns, frozenset()

    def _find(self) -> Iterator[Finding]:
        """Report new tables that match a pattern, each once. A table that is only being renamed is not new."""
        patterns, known = self._patterns, self._found
        if not patterns:
            return
        standing = self._parts.source.standing({pattern.schema for pattern in patterns})
        entries = self._parts.book.all()
        names = {entry.spec.source for entry in entries}
        schemas = [s for entry in entries for s in (entry.schema, entry.copy.schema if entry.copy else None)]
        relations = {schema.relation for schema in schemas if schema is not None}
        new = {
            relation: name
            for relation, name in standing.items()
            if (relation, name) not in known
            and name not in names
            and relation not in relations
            and any(pattern.takes(name) for pattern in patterns)
        }
        if new:
            specs = [TableSpec(TableId(""), name, name) for name in new.values()]
            followed = self._parts.source.describe(specs)
            unfit = [spec for spec in specs if spec.source not in followed]
            whys = {spec.source: why_not_described(self._parts.source, spec).kind for spec in unfit}
            yield TablesAppeared({n: whys.get(n) is not FaultKind.TABLE_NO_IDENTITY for n in new.values()})
            self._found = frozenset(known | new.items())

    def _part_from_roots(self) -> Iterator[Finding]:
        """Park tables that became partitions of other replicated tables: the log contains their changes under the root from then on."""
        live = {e.schema.relation: e for e in self._parts.book.all().in_state(*_WITH_ROWS) if e.schema is not None}
        roots = self._parts.source.partitioned.roots(live.keys()) if live else {}
        for relation, root in roots.items():
            if self._parts.book.all().by_name(root) is not None:
                self._more = True
                detail = f"it is a partition of {root} now, and its rows come with that table"
                yield Park(live[relation].table, FaultKind.TABLE_IS_PARTITION, detail)

    def _explained(self, entry: TableEntry, now: TableSchema | None) -> str | None:
        """Why a new copy repairs a parked table: the cause is gone, or it comes from a new schema. None if a copy would not help."""
        if now is None or entry.reason is None:
            return None
        if entry.reason.code == FaultKind.TABLE_MISSING:
            return "the table is there again"
        if entry.reason.code == FaultKind.TABLE_NOT_LOGGED:
            return "its changes are in the log again" if self._parts.parking.renews(_renewed_for(entry, now)) else None
        if entry.reason.code == FaultKind.TABLE_NOT_SENT:
            again = self._parts.parking.renews(FaultKind.TABLE_SENT_OTHERWISE)
            return "each of its changes is sent again" if again else None
        if entry.reason.code == FaultKind.TABLE_NO_IDENTITY:
            again = self._parts.parking.renews(FaultKind.TABLE_STRUCTURE_CHANGED) and now.mode is not KeyMode.APPEND
            return "it has a replica identity again" if again else None
        if entry.reason.code == FaultKind.TABLE_NODES_DIFFER:
            again = self._parts.parking.renews(FaultKind.TABLE_STRUCTURE_CHANGED)
            return "it has the same structure on all nodes again" if again else None
        if entry.reason.code != FaultKind.NET_CHANGE_ANOMALY or entry.schema is None:
            return None
        rewritten = now.relation == entry.schema.relation and now.relfilenode != entry.schema.relfilenode
        return "the table was rewritten, with other values than the log has for its rows" if rewritten else None

    def _withdraw(self, unfit: Sequence[TableEntry]) -> Iterator[Finding]:
        """Park tables whose changes cannot be replicated any more. Tables that lost their replica identity are also removed from the
        publication, because UPDATE and DELETE on them would fail.

        `unfit`: live and paused tables that `Source.describe` left out.
        """
        for entry in unfit:
            fault = why_not_described(self._parts.source, entry.spec)
            if fault.kind in NOT_FOLLOWED:
                yield Park(entry.table, fault.kind, fault.detail, entry)
        lost = [e for e in self._parts.book.all().in_state(TableStateKind.PARKED) if _lost_identity(e)]
        if fresh := [e.spec for e in lost if e.table not in self._withdrawn]:
            self._parts.source.sent_tables.withdraw(fresh, self._parts.spec.reader)
        self._withdrawn = frozenset(e.table for e in lost)

    def _anchor(
        self, live: Sequence[TableEntry], described: Mapping[TableName, TableSchema], mark: str, as_of: Lsn
    ) -> list[CertifiedSchema]:
        """Record the schemas that the catalog confirms while the DDL capture with this mark is in force; returns the new ones."""
        before, self._anchors = self._anchors, {}
        found = []
        for entry in live if mark else ():
            anchor, now = before.get(entry.table), described.get(entry.spec.source)
            if entry.schema is None:
                continue
            if anchor is not None and anchor.schema is entry.schema and anchor.mark == mark:
                self._anchors[entry.table] = anchor
            elif now is not None and without_fills(now) == without_fills(entry.schema):
                self._anchors[entry.table] = CertifiedSchema(entry.schema, mark, as_of)
                found.append(self._anchors[entry.table])
        return found

    def _tables(self) -> tuple[TableSpec, ...]:
        """The tables that are expected in the publications, under their current names."""
        return tuple(e.spec for e in self._parts.book.all() if e.kind is not TableStateKind.REMOVED)

    def check(self) -> Iterator[Finding]:
        """Make one check; each finding must have been applied before the next is asked for. A position counts as checked only if it was
        captured before. Raises EngineFault if the source cannot be reached."""
        self._more, began_us = False, self._parts.clock.wall_us()
        captured, observed = self._captured(), self._evidence.take_partitions()
        source, reader, tables = self._parts.source, self._parts.spec.reader, self._tables()
        at = source.log.catalog_at(tables, reader, now=False)
        reading = source.safety.check(tables, reader)
        self._last = reading
        for old, new in reading.renamed.items():
            yield Renamed(old, new)
        yield from _judge_reader(self._parts.source.terms, reading)
        if tables == self._tables():
            if reading.sending_faults:
                yield SourceGone(FaultKind.PUBLICATION_CHANGED, "; ".join(reading.sending_faults))
            self.checked = max(self.checked, captured)
        else:
            self._more = True
        yield from self._judge_partitions(reading)
        yield from self._judge_leaves(reading, observed.below)
        if marks := self._marks(reading):
            yield Fingerprinted(marks, observed.as_of)
        yield from self._learn(reading)
        yield from self._part_from_roots()
        yield from self._find()
        self.source_end = source.log.current()
        self.reader = reading.reader
        yield LogRetained(reading)
        yield from self._settles(reading, at, began_us)

    def _settles(self, reading: GuardReading, at: CatalogAt, began_us: int) -> Iterator[Settled]:
        unseen = any(log.away is not None for log in reading.reader.logs)
        doubted = (reading.partition_faults.keys() - self._to_be_copied) | {one.name for one in self._undecided}
        if not (self._more or unseen or doubted or reading.renamed or self._leaves_open(reading)):
            yield Settled(at, self._compared, began_us)

    def _leaves_open(self, reading: GuardReading) -> bool:
        """Whether partitions that the log named remain for the next check."""
        book = self._parts.book
        entries = [
            (entry, below)
            for root, below in self._leaves.items()
            if (entry := book.all().by_relation(root)) is not None
        ]
        return any(
            entry.followed and not _all_met(reading, entry.spec.source, below) for entry, below in entries
        ) or any(
            is_missed(book.all().by_relation(leaf), seen.end) for _, below in entries for leaf, seen in below.items()
        )

    def has_met(self, table: TableId, partitions: Set[RelationId], end: Lsn) -> bool:
        """Whether checks have seen all these partitions of the table, which the log names up to `end`."""
        entry, last = self._parts.book.get(table), self._last
        return (
            entry is not None and last is not None and all(last.has_met(entry.spec.source, p, end) for p in partitions)
        )

    def _judge_partitions(self, reading: GuardReading) -> Iterator[Finding]:
        self._to_be_copied = set()
        for name, detail in reading.partition_faults.items():
            rewrite = reading.partition_rewrites.get(name)
            if name in reading.replaced and self._follows(name, reading.replaced[name]):
                self._parts.source.safety.accept(name, reading.replaced[name])
                if self._waits_for_copy(name):
                    self._to_be_copied.add(name)
                continue
            if rewrite is None:
                yield from self._park(name, _kind(reading, name), detail)
            else:
                entry = self._parts.book.all().by_name(name)
                lost = entry is not None and not entry.followed
                self._undecided.append(_Undecided(name, _kind(reading, name), detail, rewrite, lost))
        yield from self._decide()

    def _judge_leaves(
        self, reading: GuardReading, observed: Mapping[RelationId, Mapping[RelationId, ObservedPartition]]
    ) -> Iterator[Finding]:
        """Park roots whose log contains changes of partitions that no check has seen: these were attached and detached between two checks,
        and the log does not contain the rows that they brought and took along.

        Partitions named since the previous check began are left to the next one: a commit is in the log before the catalog shows it.
        """
        before, self._leaves = self._leaves, observed
        for root, leaves in before.items():
            entry = self._parts.book.all().by_relation(root)
            if entry is not None:
                yield from self._miss_parts(entry, leaves)
            if entry is None or not entry.followed:
                continue  # It is being copied again, or will be.
            name = entry.spec.source
            if name not in reading.below:
                if entry.spec.source in reading.renamed.values():
                    self._leaves = {**self._leaves, root: {**leaves, **self._leaves.get(root, {})}}
                continue
            for leaf, seen in leaves.items():
                if leaf != root and not reading.has_met(name, leaf, seen.end) and not is_covered(entry, seen.end):
                    detail = f"partition {seen.name} was attached and detached between two checks, and the log holds rows of it"
                    self._more = True
                    yield Park(entry.table, FaultKind.TABLE_PARTITIONS_CHANGED, detail)
                    break

    def _miss_parts(self, root: TableEntry, leaves: Mapping[RelationId, ObservedPartition]) -> Iterator[Finding]:
        """Park replicated tables that were partitions of another root: the log has their changes of that time under the root."""
        for leaf, seen in leaves.items():
            own = self._parts.book.all().by_relation(leaf)
            if own is not None and own is not root and is_missed(own, seen.end):
                detail = (
                    f"it was a partition of {root.spec.source} between two checks, and its changes came with that table"
                )
                self._more = True
                yield Park(own.table, FaultKind.TABLE_PARTITIONS_CHANGED, detail)

    def _follows(self, name: TableName, relation: RelationId) -> bool:
        """Whether `relation`, which has the name now, is the table that is or was copied: a reload came before this check."""
        entry = self._parts.book.all().by_name(name)
        if entry is None:
            return True
        if isinstance(entry.state, Registered | Copying | Reloading):
            return entry.copy is None or entry.copy.schema.relation == relation
        return entry.schema is not None and entry.schema.relation == relation

    def _waits_for_copy(self, name: TableName) -> bool:
        """Whether the table is not replicated yet. A replicated one must be compared with the catalog, which the next check does."""
        entry = self._parts.book.all().by_name(name)
        return entry is None or (isinstance(entry.state, Registered | Copying | Reloading) and entry.copy is None)

    def _decide(self) -> Iterator[Finding]:
        """Park undecided tables that the log does not explain. Those that it may still explain wait until it was read that far."""
        captured = self._captured()
        waiting: list[_Undecided] = []
        for one in self._undecided:
            root = one.rewrite.root
            if all(root in self._evidence.truncated_by(xid) for xid in one.rewrite.writers) and all(
                root in self._evidence.made_below(partition) for partition in one.rewrite.attached
            ):
                continue
            if captured < one.rewrite.seen_by:
                waiting.append(one)
            elif not (one.lost and self._is_taken_up(one.name)):
                yield from self._park(one.name, one.kind, one.detail)
        self._undecided = waiting

    def _is_taken_up(self, name: TableName) -> bool:
        """Whether a table that waited for a new copy has it, or is about to get it."""
        entry = self._parts.book.all().by_name(name)
        return entry is not None and not isinstance(entry.state, Parked)

    def _park(self, name: TableName, kind: FaultKind, detail: str) -> Iterator[Finding]:
        entry = self._parts.book.all().by_name(name)
        self._more = True
        if entry is not None:
            yield Park(entry.table, kind, detail)

    def _doubted(self, reading: GuardReading) -> Set[TableName]:
        return reading.partition_faults.keys() | {one.name for one in self._undecided}

    def _marks(self, reading: GuardReading) -> dict[TableId, str]:
        """Fingerprints for a later start to compare with; without tables with a fault that parks them or is undecided."""
        doubted = self._doubted(reading)
        marks = {}
        for name, mark in reading.marks.items():
            entry = self._parts.book.all().by_name(name) if name not in doubted else None
            if entry is None or entry.schema is None or not isinstance(entry.state, Live):
                continue
            if _all_met(reading, name, self._leaves.get(entry.schema.relation, {})):
                marks[entry.table] = mark
        return marks


def _judge_reader(terms: SourceTerms, reading: GuardReading) -> Iterator[Finding]:
    lost = (
        reading.reader.lost
        if reading.reader.exists
        else f"the {terms.reader} was dropped by another user of the source"
    )
    if lost is not None:
        yield SourceGone(FaultKind.LOG_GAP, lost)


def _all_met(reading: GuardReading, root: TableName, leaves: Mapping[RelationId, ObservedPartition]) -> bool:
    return all(reading.has_met(root, leaf, seen.end) for leaf, seen in leaves.items())


def _lost_identity(entry: TableEntry) -> bool:
    """Whether the source may refuse updates of the table while it is published: also for a filter outside its replica identity."""
    codes = {FaultKind.TABLE_NO_IDENTITY, FaultKind.TABLE_COLUMNS_UNFIT}
    return entry.reason is not None and entry.reason.code in codes


def _renewed_for(entry: TableEntry, now: TableSchema) -> FaultKind:
    """The fault kind given as the reason for a parked table's new copy, once the cause of the parking is gone."""
    if entry.reason is not None and entry.reason.code == FaultKind.TABLE_NOT_SENT:
        return FaultKind.TABLE_SENT_OTHERWISE
    below = entry.reason is not None and entry.reason.code == FaultKind.TABLE_NOT_LOGGED and now.relfilenode == 0
    return FaultKind.TABLE_PARTITIONS_CHANGED if below else FaultKind.TABLE_STRUCTURE_CHANGED


def _kind(reading: GuardReading, name: TableName) -> FaultKind:
    """The fault kind of a table whose change the log does not contain."""
    present = reading.replaced.get(name)
    if present is None:
        return reading.sent_otherwise.get(name, FaultKind.TABLE_PARTITIONS_CHANGED)
    return FaultKind.TABLE_STRUCTURE_CHANGED if present else FaultKind.TABLE_MISSING
