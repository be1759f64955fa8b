"""Reloads of some partitions of a live table: which are requested, which differ, and how their rows are read.

The table stays live. The rows of those partitions are a chunk: one snapshot of them is copied into a hidden table, and from the
snapshot's position on the table's changes are both applied and kept. The first batch that reaches the position takes the chunk in one
target transaction: it applies the batch to the table and the kept changes of the chunk's rows to the hidden table, then it exchanges
the rows within the partitions' bounds. So no reader sees rows of two loads at once, and a reload that ends early leaves the table
unchanged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from engine.copy.host import CopyHost
from engine.copy.job import CopyTable
from engine.copy.partition_filter import partition_rows
from engine.copy.reload_requests import PartitionChoice, ReloadRequests, WantedPartitions
from engine.model.batch import TableFault
from engine.model.copies import CopyProgress
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId
from engine.model.partitions import LoadReason, Loads, Partition, generation_of
from engine.model.position import Lsn
from engine.model.quarantine import RefusedPolicy
from engine.model.schema import TableSchema
from engine.model.source import ExportedSnapshot, TableSplit
from engine.model.target import TableRecord, TargetReader
from engine.net import decode_copy_text
from engine.platform.failpoints import Failpoint, hit
from engine.platform.fault_policy import Action, policy
from engine.tables.context import RunContext
from engine.tables.registry import TableEntry
from engine.tables.reporter import LoadedPartition
from engine.tables.schema_change import Unchanged, judge
from engine.tables.state import (
    Chunk,
    ChunkRead,
    ChunkTaken,
    ChunkVoided,
    Live,
    Partitions,
    PartitionsBegun,
    ReadProgress,
)
from engine.verify.compare import VerifyTable, verify_tables
from engine.verify.verdict import VerdictStatus

TRIES = 5
"""After this many reads whose chunks no batch could take, the reload fails. A void chunk is rare; five in a row have a lasting cause."""


class PartitionReloader:
    """Requests come from any thread; `next` and `make` belong to the copy thread, `in_place` to the commit thread.

    A CopyListener of its own copies.
    """

    def __init__(self, parts: RunContext, reloads: ReloadRequests, host: CopyHost) -> None:
        self._parts = parts
        self._host = host
        self._lock = threading.Lock()
        self.reloads = reloads
        self._wanted = reloads.wanted
        """Belongs to the reload requests, which outlive the run."""
        self._left: set[TableId] = set()
        """Tables whose hidden tables are to be dropped."""

    def ask(self, request: str, table: TableId, choice: PartitionChoice) -> None:
        """Reload some partitions. Has no effect where a reload of the table is open already."""
        # In one step for a hand-over of the whole table, which it follows or precedes.
        with self._parts.book.lock:
            with self._lock:
                if table in self._wanted:
                    return
                self._wanted[table] = WantedPartitions(request, table, choice)
            self.reloads.begin(request, [table])

    def cancel(self, request: str) -> TableId | None:
        """Cancel a reload. Returns the table whose copy is to end, None where the request is not open here."""
        with self._lock:
            found = next((w for w in self._wanted.values() if w.request == request), None)
            if found is None:
                return None
            # Under the lock: until it is cancelled, other threads must see it as a reload of partitions.
            self.reloads.cancelled(request)
        self._end(found.table)
        return found.table

    @property
    def wanted(self) -> bool:
        """Whether a reload of partitions is open."""
        with self._lock:
            return bool(self._wanted)

    def next(self) -> TableId | None:
        """A table whose partitions are to be read now. In the copy thread."""
        with self._lock:
            waiting, left = list(self._wanted), list(self._left)
            self._left.clear()
        for table in left:
            entry = self._parts.book.get(table)
            if entry is not None and isinstance(entry.state, Live) and entry.reload is None:
                self._parts.target.discard_copy(table)
        for table in waiting:
            entry = self._parts.book.get(table)
            if entry is None or not isinstance(entry.state, Live):
                state = "gone" if entry is None else entry.kind.value
                self.give_up(table, FaultKind.PARTITIONS_NOT_LOADED, f"the table is {state} by now")
            elif entry.reload is None:
                return table
        return None

    def give_up(self, table: TableId, kind: FaultKind, detail: str) -> None:
        """End the reload as failed. The table stays live and unchanged."""
        with self._lock:
            self._wanted.pop(table, None)
        self._end(table)
        self.reloads.failed(table, TableFault(kind.value, detail))

    def _end(self, table: TableId) -> None:
        """Void what was read. Its hidden table is dropped later, by `next`: a batch that was planned with it may still read it."""
        book = self._parts.book
        with book.lock:
            entry = book.get(table)
            ended = entry.reload if entry is not None else None
            if ended is not None:
                book.apply(table, ChunkVoided())
        if ended is not None and ended.chunk is not None and ended.chunk.progress is ReadProgress.READ:
            with self._lock:
                self._left.add(table)

    def in_place(self, table: TableId, chunk: Chunk, position: Lsn) -> None:
        """A batch that ends at `position` has taken the chunk."""
        partitions = chunk.partitions
        with self._lock:
            wanted = self._wanted.get(table)
            asked = wanted is not None and partitions is not None and wanted.request == partitions.request
            if asked:
                del self._wanted[table]
        self._parts.book.apply(table, ChunkTaken(chunk.number))
        if asked and partitions is not None:
            # Else it was cancelled while the batch was written, and another one may have been requested.
            self._report_partitions(table, partitions.reasons)
            self.reloads.finished(table, position)

    def whole_in_place(self, table: TableId, served: Collection[str]) -> None:
        """A batch has handed over a copy of the whole table, which also ends a reload of its partitions if that is one of `served`."""
        with self._lock:
            wanted = self._wanted.get(table)
            if wanted is not None and wanted.request in served:
                del self._wanted[table]
        reasons = {part.name: part.reason for part in self.reloads.loaded(table)}
        if reasons:
            self._report_partitions(table, reasons)

    def make(
        self, table: TableId, run: Callable[[ExportedSnapshot, CopyTable], None], whole: Callable[[str, TableId], None]
    ) -> bool:
        """Read a table's partitions. `run` copies under a snapshot; `whole` requests a copy of the whole table for the request.

        False: the source's catalog shows a structure that the log has not reached; try again later. Raises EngineFault where the fault
        concerns more than the reload.
        """
        with self._lock:
            wanted = self._wanted.get(table)
        if wanted is None or self._is_done(wanted):
            return True
        if wanted.tries >= TRIES:
            self.give_up(table, FaultKind.PARTITIONS_NOT_LOADED, f"they were read {TRIES} times and did not get in")
            return True
        try:
            if wanted.choice.names is None and not wanted.reasons and not self._find_changed(wanted, whole):
                return True
            if not self._host.defer(partial(PartitionsBegun, wanted.request), [table]):
                return True  # It is no longer live: `next` gives the reload up.
            with self._parts.source.copies.snapshot(self._parts.settings.snapshot_timeout_s) as snapshot:
                copied = self._copy_under(wanted, snapshot)
                if copied is not None:
                    run(snapshot, copied)
            return copied is not None
        except EngineFault as fault:
            if policy(fault.kind).action not in {Action.PARK_TABLE, Action.TELL}:
                raise
            self.give_up(table, fault.kind, fault.detail)
            return True
        finally:
            entry = self._parts.book.get(table)
            reload = entry.reload if entry is not None else None
            if reload is not None and (reload.chunk is None or reload.chunk.progress is ReadProgress.READING):
                self._parts.book.apply(table, ChunkVoided())

    def _is_done(self, wanted: WantedPartitions) -> bool:
        """Whether an earlier run has loaded them and ended before it could report that."""
        known = self._loads(wanted.table)
        done = {name: load for name, load in known.items() if load.request == wanted.request}
        if not done:
            return False
        with self._lock:
            self._wanted.pop(wanted.table, None)
        self._report_partitions(wanted.table, {name: load.reason for name, load in done.items()})
        self.reloads.finished(wanted.table, max(load.position for load in done.values()))
        return True

    def _copy_under(self, wanted: WantedPartitions, snapshot: ExportedSnapshot) -> CopyTable | None:
        """What to read; None where the source's catalog shows a structure that the log has not reached."""
        entry = self._parts.book.get(wanted.table)
        if entry is None or entry.reload is None:
            return None
        schema = self._parts.source.describe([entry.spec]).get(entry.spec.source)
        if schema is None or entry.schema is None or not isinstance(judge(entry.schema, schema), Unchanged):
            return None
        why = hindrance(entry)
        if why is not None:
            raise EngineFault(FaultKind.PARTITION_NOT_COMPARABLE, str(schema.name), why)
        tree = self._parts.source.partitioned.partitions(schema, snapshot.name)
        if not wanted.reasons:
            wanted.reasons = dict.fromkeys(wanted.choice.names or (), LoadReason.ASKED)
        chosen = _chosen(tree, wanted.reasons, schema)
        regions = tuple(part.region for part in chosen if part.region is not None)
        partition_rows(regions, schema, decode_copy_text)
        below = _with_those_below(tree, chosen, wanted.reasons)
        reasons = {str(part.name): reason for part, reason in below.items()}
        splits = self._splits(entry, schema, frozenset(part.relation for part in below if part.leaf))
        if splits is None:
            return None
        partitions = Partitions(wanted.request, regions, reasons)
        chunk = self._parts.admission.begin_partitions(wanted.table, schema, snapshot.position, partitions)
        if chunk is None:
            return None
        self._report_partitions(wanted.table, reasons)
        return CopyTable(entry.spec, schema, splits, load=chunk.hidden_name)

    def _splits(
        self, entry: TableEntry, schema: TableSchema, leaves: frozenset[RelationId]
    ) -> tuple[TableSplit, ...] | None:
        """What to read of these leaves; None where one of them no longer exists."""
        every = self._parts.source.copies.splits(schema, entry.spec, self._parts.settings.copy_chunk_bytes)
        found = tuple(split for split in every if split.storage in leaves)
        return found if {split.storage for split in found} == leaves else None

    def _find_changed(self, wanted: WantedPartitions, whole: Callable[[str, TableId], None]) -> bool:
        """Compare each partition at one position. False where no partition is to be loaded."""
        table = wanted.table
        with self._host.cut() as (snapshot, reader):
            progress = self._parts.target.progress(self._parts.spec.name)
            record = progress.tables.get(table) if progress is not None else None
            entry = self._parts.book.get(table)
            if record is None or entry is None or not isinstance(entry.state, Live):
                return False
            tree = [
                part for part in self._parts.source.partitioned.partitions(record.schema, snapshot.name) if part.leaf
            ]
            known = all(part.region is not None for part in tree) and hindrance(entry) is None
            reasons = self._differing(entry, record, tree, snapshot, reader) if known else {}
        if not tree:
            raise EngineFault(FaultKind.PARTITION_UNKNOWN, str(entry.spec.source), "the table is not partitioned")
        unknown = next((f"{part.name}: {part.obstacle}" for part in tree if part.region is None), hindrance(entry))
        if unknown is not None:
            self._parts.reporter.event("info", FaultKind.PARTITION_NOT_COMPARABLE, str(entry.spec.source), unknown)
            self._report_partitions(table, {str(part.name): LoadReason.UNKNOWN for part in tree})
            with self._lock:
                self._wanted.pop(table, None)
            whole(wanted.request, table)
            return False
        if not reasons:
            with self._lock:
                self._wanted.pop(table, None)
            self.reloads.finished(table, snapshot.position)
            return False
        wanted.reasons = reasons
        return True

    def _differing(
        self,
        entry: TableEntry,
        record: TableRecord,
        tree: Sequence[Partition],
        snapshot: ExportedSnapshot,
        reader: TargetReader,
    ) -> dict[str, LoadReason]:
        """The partitions whose rows differ, and those that cannot be compared, each with the reason to load it."""
        found: dict[str, LoadReason] = {}
        for part in tree:
            rows = partition_rows([part.region or ()], record.schema, decode_copy_text)
            compared = VerifyTable(entry.spec, record, rows=rows, storage=frozenset({part.relation}))
            (verdict,) = verify_tables(
                self._parts.source, reader, replace(snapshot, position=reader.position), [compared], decode_copy_text
            )
            if verdict.status is VerdictStatus.DIFFERENT:
                found[str(part.name)] = LoadReason.CHANGED
            elif verdict.status is VerdictStatus.NOT_COMPARED:
                found[str(part.name)] = LoadReason.UNKNOWN
        return found

    def _report_partitions(self, table: TableId, reasons: Mapping[str, LoadReason]) -> None:
        known = self._loads(table)
        loaded = [LoadedPartition(n, reason, generation_of(known, n)) for n, reason in sorted(reasons.items())]
        self.reloads.partitions(table, loaded)

    def _loads(self, table: TableId) -> Loads:
        progress = self._parts.target.progress(self._parts.spec.name)
        return progress.loads.get(table, {}) if progress is not None else {}

    # CopyListener, called by the copy thread.

    def on_table_copied(self, table: TableId, position: Lsn, rows: int) -> None:
        """The next batch that reaches `position` takes the chunk."""
        hit(Failpoint.PARTITIONS_READ)
        entry = self._parts.book.get(table)
        chunk = entry.chunk if entry is not None and entry.reload is not None else None
        if chunk is not None:
            self._count(table)
            self._parts.book.apply(table, ChunkRead(chunk.number, rows, 0))
            self._host.flush(position)

    def on_table_failed(self, table: TableId, fault: TableFault) -> None:
        self.give_up(table, FaultKind(fault.code), fault.detail)

    def on_table_lost(self, table: TableId, detail: str) -> None:
        self._count(table)
        self._parts.reporter.event("warning", FaultKind.COPY_LOST.value, str(table), detail)

    def _count(self, table: TableId) -> None:
        with self._lock:
            wanted = self._wanted.get(table)
        if wanted is not None:
            wanted.tries += 1

    def on_progress(self, progress: CopyProgress) -> None:
        if progress.begun:
            hit(Failpoint.COPY_RUNNING)
        self.reloads.progressed(progress)


def hindrance(entry: TableEntry) -> str | None:
    """Why the table cannot be reloaded by partition; None where it can."""
    if entry.spec.key:
        return "its key is a declared one"
    if entry.spec.skipped:
        return "not all its operations are followed"
    if entry.spec.refused_rows is RefusedPolicy.SET_ASIDE:
        return "rows of it that the target refuses are set aside"
    return "the target keeps an older structure" if entry.kept is not None else None


def _chosen(tree: Sequence[Partition], names: Mapping[str, LoadReason], schema: TableSchema) -> list[Partition]:
    """The partitions of these names. Raises EngineFault(PARTITION_UNKNOWN, PARTITION_NOT_COMPARABLE)."""
    known = {str(part.name): part for part in tree}
    missing = [name for name in names if name not in known]
    if missing:
        listed = ", ".join(known) if known else "none: the table is not partitioned"
        detail = f"{schema.name} has no partition {', '.join(missing)}; it has {listed}"
        raise EngineFault(FaultKind.PARTITION_UNKNOWN, str(schema.name), detail)
    chosen = [known[name] for name in names]
    for part in chosen:
        if part.region is None:
            detail = f"which rows are in {part.name} cannot be determined on the target: {part.obstacle}"
            raise EngineFault(FaultKind.PARTITION_NOT_COMPARABLE, str(schema.name), detail)
    return chosen


def _with_those_below(
    tree: Sequence[Partition], chosen: Sequence[Partition], reasons: Mapping[str, LoadReason]
) -> dict[Partition, LoadReason]:
    """These partitions and all partitions of them. One that is not named itself has the reason of the one above it."""
    found = {part.relation: reasons[str(part.name)] for part in chosen}
    waiting = [part.relation for part in chosen]
    while waiting:
        above = waiting.pop()
        for part in tree:
            if part.parent == above and part.relation not in found:
                found[part.relation] = found[above]
                waiting.append(part.relation)
    return {part: found[part.relation] for part in tree if part.relation in found}
