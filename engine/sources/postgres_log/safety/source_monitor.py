"""Checks the source's slot, publications, catalog and partitions every few seconds while a subscription runs.

`wal_retention` judges the slot's retained WAL; the run carries out the resulting actions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId, TableName
from engine.model.patterns import TablePattern
from engine.model.position import ZERO, Lsn
from engine.model.schema import KeyMode, TableSchema
from engine.model.source import CatalogAt, GuardReading, PartitionRewrite
from engine.model.subscription import TableSpec
from engine.model.table_state import TableStateKind
from engine.sources.postgres_log.safety.observed_partitions import (
    ObservedPartition,
    ObservedPartitionsReading,
    is_covered,
    is_missed,
)
from engine.sources.postgres_log.safety.wal_retention import RetentionActions
from engine.tables.context import RunContext
from engine.tables.ddl_messages import CertifiedSchema
from engine.tables.known_catalog import Settled
from engine.tables.planner import CatalogSchema
from engine.tables.registry import TableEntry
from engine.tables.schema_change import Unchanged, judge, with_definitions, without_fills
from engine.tables.start_point import NOT_FOLLOWED, why_not_described
from engine.tables.state import Copying, Live, Parked, Registered, Reloading

_WITH_ROWS = (TableStateKind.LIVE, TableStateKind.PAUSED, TableStateKind.CATCHING_UP)

Care = Callable[[GuardReading], RetentionActions]


def _none_told(number: int) -> Container[int]:
    del number
    return ()


def _no_care(reading: GuardReading) -> RetentionActions:
    del reading
    return RetentionActions(persist=False, hold_copies=False)


def _not_settled(settled: Settled) -> None:
    del settled


def _no_leaves() -> ObservedPartitionsReading:
    return ObservedPartitionsReading()


def _not_noted(marks: Mapping[TableId, str], as_of: Lsn) -> None:
    del marks, as_of


def _not_learnt(learnt: CatalogSchema) -> None:
    del learnt


def _not_anchored(anchors: Iterable[CertifiedSchema]) -> None:
    del anchors


def _not_renamed(old: TableName, new: TableName) -> None:
    del old, new


@dataclass(frozen=True, slots=True)
class _Undecided:
    """A root whose partitions got new storage. The log will show whether a TRUNCATE of the root was the reason.

    `lost`: after the check the table waited for a new copy, which contains the change.
    """

    name: TableName
    detail: str
    rewrite: PartitionRewrite
    lost: bool


class SourceMonitor:
    """Watches one source for one run. `checked`: the publications are known to have been correct up to this position.

    Inputs: `truncated_by`: tables that a (sub)transaction truncated, as far as the log was read (`captured`); `made_below`: roots that a
    table became a partition of; `leaves_told`: partitions that sealed batches named since the last call; `care`: judges the retained WAL
    and whether the slot must be dropped.
    Outputs: `note`: fingerprints of live tables without faults, and the end of the last batch sealed when the check began; `learnt`:
    schemas that only the catalog shows; `renamed`: a table's old and new name; `anchored`: schemas that the catalog confirms while the
    DDL capture is in force; `settled`: checks that left nothing to do.
    """

    def __init__(
        self,
        parts: RunContext,
        captured: Callable[[], Lsn],
        confirm: Callable[[], None],
        truncated_by: Callable[[int], Container[int]] = _none_told,
        note: Callable[[Mapping[TableId, str], Lsn], None] = _not_noted,
        care: Care = _no_care,
        learnt: Callable[[CatalogSchema], None] = _not_learnt,
        renamed: Callable[[TableName, TableName], None] = _not_renamed,
        anchored: Callable[[Iterable[CertifiedSchema]], None] = _not_anchored,
        made_below: Callable[[int], Container[int]] = _none_told,
        leaves_told: Callable[[], ObservedPartitionsReading] = _no_leaves,
        settled: Callable[[Settled], None] = _not_settled,
    ) -> None:
        self._settled = settled
        self._more = False
        """Whether the current check found something or left something undecided; only a check that did neither certifies what it saw."""
        self._to_be_copied: set[TableName] = set()
        """Tables that were replaced or dropped on the source, whose copy has not begun: it will read the table that exists then."""
        self._compared: frozenset[TableId] = frozenset()
        """Live tables whose catalog schema equals the known one."""
        self._leaves_told = leaves_told
        self._anchored = anchored
        self._made_below = made_below
        self._parts = parts
        self._captured = captured
        self._confirm = confirm
        self._truncated_by = truncated_by
        self._note = note
        self._care = care
        self._learnt = learnt
        self._renamed = renamed
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
        self._looking = threading.Lock()
        self.checked = ZERO
        self.source_end: Lsn | None = None
        self.retained_bytes: int | None = None

    def _learn(self, reading: GuardReading) -> None:
        """Report schemas that the catalog shows and the log does not: a DDL change without a later row change sends no relation record.

        Not for roots whose partitions may have been rewritten: that is decided first.
        """
        doubted = self._doubted(reading)
        source = self._parts.source
        rows = [e for e in self._parts.book.all() if isinstance(e.state, Live) or (e.copy and e.copy.followed)]
        live = [e for e in rows if e.spec.source not in doubted]
        paused = [e for e in self._parts.book.in_state(TableStateKind.PAUSED) if e.spec.source not in doubted]
        parked = [e for e in self._parts.book.in_state(TableStateKind.PARKED) if e.spec.source not in doubted]
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
                self._parts.book.park(entry.table, _renewed_for(entry, now).value, found, known=entry)
        self._withdraw([entry for entry in [*live, *paused] if entry.spec.source not in described])
        mark = mark if source.ddl.mark() == mark else ""
        seen_by = source.log.current()
        self._anchored(self._anchor(live, described, mark, as_of))
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
                self._learnt(CatalogSchema(entry.table, entry.schema, now, seen_by, since))
            elif not fresh and (settled := with_definitions(entry.schema, now)) != entry.schema:
                self._learnt(CatalogSchema(entry.table, entry.schema, settled, seen_by))

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

    def _find(self) -> None:
        """Report new tables that match a pattern, each once. A table that is only being renamed is not new."""
        patterns, told = self._patterns, self._found
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
            if (relation, name) not in told
            and name not in names
            and relation not in relations
            and any(pattern.takes(name) for pattern in patterns)
        }
        if new:
            specs = [TableSpec(TableId(""), name, name) for name in new.values()]
            followed = self._parts.source.describe(specs)
            unfit = [spec for spec in specs if spec.source not in followed]
            whys = {spec.source: why_not_described(self._parts.source, spec).kind for spec in unfit}
            self._parts.reporter.found(
                {name: whys.get(name) is not FaultKind.TABLE_NO_IDENTITY for name in new.values()}
            )
            self._found = frozenset(told | new.items())

    def _part_from_roots(self) -> None:
        """Park tables that became partitions of other replicated tables: the log contains their changes under the root from then on."""
        live = {e.schema.relation: e for e in self._parts.book.in_state(*_WITH_ROWS) if e.schema is not None}
        roots = self._parts.source.partitioned.roots(live.keys()) if live else {}
        for relation, root in roots.items():
            if self._parts.book.by_name(root) is not None:
                self._more = True
                detail = f"it is a partition of {root} now, and its rows come with that table"
                self._parts.book.park(live[relation].table, FaultKind.TABLE_IS_PARTITION.value, detail)

    def _explained(self, entry: TableEntry, now: TableSchema | None) -> str | None:
        """Why a new copy repairs a parked table: the cause is gone, or it comes from a new schema. None if a copy would not help."""
        if now is None or entry.reason is None:
            return None
        if entry.reason.code == FaultKind.TABLE_MISSING:
            return "the table is there again"
        if entry.reason.code == FaultKind.TABLE_NOT_LOGGED:
            return "its changes are in the log again" if self._parts.book.renews(_renewed_for(entry, now)) else None
        if entry.reason.code == FaultKind.TABLE_NO_IDENTITY:
            again = self._parts.book.renews(FaultKind.TABLE_STRUCTURE_CHANGED) and now.mode is not KeyMode.APPEND
            return "it has a replica identity again" if again else None
        if entry.reason.code != FaultKind.NET_CHANGE_ANOMALY or entry.schema is None:
            return None
        rewritten = now.relation == entry.schema.relation and now.relfilenode != entry.schema.relfilenode
        return "the table was rewritten, with other values than the log has for its rows" if rewritten else None

    def _withdraw(self, unfit: Sequence[TableEntry]) -> None:
        """Park tables whose changes cannot be replicated any more. Tables that lost their replica identity are also removed from the
        publication, because UPDATE and DELETE on them would fail.

        `unfit`: live and paused tables that `Source.describe` left out.
        """
        for entry in unfit:
            fault = why_not_described(self._parts.source, entry.spec)
            if fault.kind in NOT_FOLLOWED:
                self._parts.book.park(entry.table, fault.kind.value, fault.detail, known=entry)
        lost = [e for e in self._parts.book.in_state(TableStateKind.PARKED) if _lost_identity(e)]
        if fresh := [e.spec for e in lost if e.table not in self._withdrawn]:
            self._parts.source.publications.withdraw(fresh, self._parts.spec.slot)
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

    def run(self, stop: threading.Event) -> None:
        """Check periodically until `stop`. Raises EngineFault if changes may be missing or the slot does not exist."""
        while not stop.is_set():
            self.look()
            stop.wait(self._parts.settings.guard_interval_s)

    def look(self) -> Settled | None:
        """Make one check, which begins after the call; from any thread. A position counts as checked only if it was captured before.

        None if the check found something or left something undecided.
        """
        with self._looking:
            return self._look()

    def _look(self) -> Settled | None:
        self._more, began_us = False, self._parts.clock.wall_us()
        captured = self._captured()
        leaves_told = self._leaves_told()
        tables = self._tables()
        at = self._parts.source.log.catalog_at(tables, self._parts.spec.slot, now=False)
        reading = self._parts.source.catalog.look(tables, self._parts.spec.slot)
        self._last = reading
        for old, new in reading.renamed.items():
            self._renamed(old, new)
        self._judge_slot(reading)
        if tables == self._tables():
            self._judge_publications(reading)
            self.checked = max(self.checked, captured)
        else:
            self._more = True
        self._judge_partitions(reading)
        self._judge_leaves(reading, leaves_told.below)
        self._note_marks(reading, leaves_told.as_of)
        self._learn(reading)
        self._part_from_roots()
        self._find()
        self.source_end = self._parts.source.log.current()
        self.retained_bytes = reading.slot.retained_bytes
        orders = self._care(reading)
        if orders.drop is not None:
            raise EngineFault(FaultKind.SLOT_DROPPED, self._parts.spec.slot, orders.drop)
        settled = self._settles(reading, at, began_us)
        self._confirm()
        return settled

    def _settles(self, reading: GuardReading, at: CatalogAt, began_us: int) -> Settled | None:
        doubted = (reading.partition_faults.keys() - self._to_be_copied) | {one.name for one in self._undecided}
        if self._more or doubted or reading.renamed or self._leaves_open(reading):
            return None
        settled = Settled(at, self._compared, began_us)
        self._settled(settled)
        return settled

    def _leaves_open(self, reading: GuardReading) -> bool:
        """Whether partitions that the log named remain for the next check."""
        book = self._parts.book
        entries = [
            (entry, below) for root, below in self._leaves.items() if (entry := book.by_relation(root)) is not None
        ]
        return any(
            entry.followed and not _all_met(reading, entry.spec.source, below) for entry, below in entries
        ) or any(is_missed(book.by_relation(leaf), told.end) for _, below in entries for leaf, told in below.items())

    def has_met(self, table: TableId, partitions: Set[RelationId], end: Lsn) -> bool:
        """Whether checks have seen all these partitions of the table, which the log names up to `end`."""
        entry, last = self._parts.book.get(table), self._last
        return (
            entry is not None and last is not None and all(last.has_met(entry.spec.source, p, end) for p in partitions)
        )

    def _judge_slot(self, reading: GuardReading) -> None:
        slot = reading.slot
        if not slot.exists:
            raise EngineFault(FaultKind.LOG_GAP, self._parts.spec.slot, "the replication slot was dropped by someone")
        if slot.invalidation or slot.wal_status == "lost":
            detail = f"the source invalidated the replication slot ({slot.invalidation or 'log removed'})"
            raise EngineFault(FaultKind.LOG_GAP, self._parts.spec.slot, detail)

    def _judge_publications(self, reading: GuardReading) -> None:
        if reading.publication_faults:
            detail = "; ".join(reading.publication_faults)
            raise EngineFault(FaultKind.PUBLICATION_CHANGED, self._parts.spec.slot, detail)

    def _judge_partitions(self, reading: GuardReading) -> None:
        self._to_be_copied = set()
        for name, detail in reading.partition_faults.items():
            rewrite = reading.partition_rewrites.get(name)
            if name in reading.replaced and self._follows(name, reading.replaced[name]):
                self._parts.source.catalog.accept(name, reading.replaced[name])
                if self._waits_for_copy(name):
                    self._to_be_copied.add(name)
                continue
            if rewrite is None:
                self._park(name, _kind(reading, name), detail)
            else:
                entry = self._parts.book.by_name(name)
                lost = entry is not None and not entry.followed
                self._undecided.append(_Undecided(name, detail, rewrite, lost))
        self._decide()

    def _judge_leaves(
        self, reading: GuardReading, told_now: Mapping[RelationId, Mapping[RelationId, ObservedPartition]]
    ) -> None:
        """Park roots whose log contains changes of partitions that no check has seen: these were attached and detached between two checks,
        and the log does not contain the rows that they brought and took along.

        Partitions named since the previous check began are left to the next one: a commit is in the log before the catalog shows it.
        """
        leaves_told, self._leaves = self._leaves, told_now
        for root, leaves in leaves_told.items():
            entry = self._parts.book.by_relation(root)
            if entry is not None:
                self._miss_parts(entry, leaves)
            if entry is None or not entry.followed:
                continue  # It is being copied again, or will be.
            name = entry.spec.source
            if name not in reading.below:
                if entry.spec.source in reading.renamed.values():
                    self._leaves = {**self._leaves, root: {**leaves, **self._leaves.get(root, {})}}
                continue
            for leaf, told in leaves.items():
                if leaf != root and not reading.has_met(name, leaf, told.end) and not is_covered(entry, told.end):
                    detail = f"partition {told.name} was attached and detached between two checks, and the log holds rows of it"
                    self._parts.book.park(entry.table, FaultKind.TABLE_PARTITIONS_CHANGED.value, detail)
                    self._more = True
                    break

    def _miss_parts(self, root: TableEntry, leaves: Mapping[RelationId, ObservedPartition]) -> None:
        """Park replicated tables that were partitions of another root: the log has their changes of that time under the root."""
        for leaf, told in leaves.items():
            own = self._parts.book.by_relation(leaf)
            if own is not None and own is not root and is_missed(own, told.end):
                detail = (
                    f"it was a partition of {root.spec.source} between two checks, and its changes came with that table"
                )
                self._parts.book.park(own.table, FaultKind.TABLE_PARTITIONS_CHANGED.value, detail)
                self._more = True

    def _follows(self, name: TableName, relation: RelationId) -> bool:
        """Whether `relation`, which has the name now, is the table that is or was copied: a reload came before this check."""
        entry = self._parts.book.by_name(name)
        if entry is None:
            return True
        if isinstance(entry.state, Registered | Copying | Reloading):
            return entry.copy is None or entry.copy.schema.relation == relation
        return entry.schema is not None and entry.schema.relation == relation

    def _waits_for_copy(self, name: TableName) -> bool:
        """Whether the table is not replicated yet. A replicated one must be compared with the catalog, which the next check does."""
        entry = self._parts.book.by_name(name)
        return entry is None or (isinstance(entry.state, Registered | Copying | Reloading) and entry.copy is None)

    def _decide(self) -> None:
        """Park undecided tables that the log does not explain. Those that it may still explain wait until it was read that far."""
        captured = self._captured()
        waiting: list[_Undecided] = []
        for one in self._undecided:
            root = one.rewrite.root
            if all(root in self._truncated_by(xid) for xid in one.rewrite.writers) and all(
                root in self._made_below(partition) for partition in one.rewrite.attached
            ):
                continue
            if captured < one.rewrite.seen_by:
                waiting.append(one)
            elif not (one.lost and self._is_taken_up(one.name)):
                self._park(one.name, FaultKind.TABLE_PARTITIONS_CHANGED, one.detail)
        self._undecided = waiting

    def _is_taken_up(self, name: TableName) -> bool:
        """Whether a table that waited for a new copy has it, or is about to get it."""
        entry = self._parts.book.by_name(name)
        return entry is not None and not isinstance(entry.state, Parked)

    def _park(self, name: TableName, kind: FaultKind, detail: str) -> None:
        entry = self._parts.book.by_name(name)
        self._more = True
        if entry is not None:
            self._parts.book.park(entry.table, kind.value, detail)

    def _doubted(self, reading: GuardReading) -> Set[TableName]:
        return reading.partition_faults.keys() | {one.name for one in self._undecided}

    def _note_marks(self, reading: GuardReading, as_of: Lsn) -> None:
        """Pass on fingerprints for a later start to compare with; not for tables with a fault that parks them or is undecided."""
        doubted = self._doubted(reading)
        marks = {}
        for name, mark in reading.marks.items():
            entry = self._parts.book.by_name(name) if name not in doubted else None
            if entry is None or entry.schema is None or not isinstance(entry.state, Live):
                continue
            if _all_met(reading, name, self._leaves.get(entry.schema.relation, {})):
                marks[entry.table] = mark
        if marks:
            self._note(marks, as_of)


def _all_met(reading: GuardReading, root: TableName, leaves: Mapping[RelationId, ObservedPartition]) -> bool:
    return all(reading.has_met(root, leaf, told.end) for leaf, told in leaves.items())


def _lost_identity(entry: TableEntry) -> bool:
    return entry.reason is not None and entry.reason.code == FaultKind.TABLE_NO_IDENTITY


def _renewed_for(entry: TableEntry, now: TableSchema) -> FaultKind:
    """The fault kind given as the reason for a parked table's new copy, once the cause of the parking is gone."""
    below = entry.reason is not None and entry.reason.code == FaultKind.TABLE_NOT_LOGGED and now.relfilenode == 0
    return FaultKind.TABLE_PARTITIONS_CHANGED if below else FaultKind.TABLE_STRUCTURE_CHANGED


def _kind(reading: GuardReading, name: TableName) -> FaultKind:
    """The fault kind of a table whose change the log does not contain."""
    stands = reading.replaced.get(name)
    if stands is None:
        return FaultKind.TABLE_PARTITIONS_CHANGED
    return FaultKind.TABLE_STRUCTURE_CHANGED if stands else FaultKind.TABLE_MISSING
