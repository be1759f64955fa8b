"""Reloads of some partitions of a live table: which are asked for, how their rows are read, and how a batch puts them into place.

The table stays live. A hidden table gets the rows of those partitions as one snapshot sees them; from that position on the table's
changes are kept beside being applied. The first batch at or behind the position brings both together in one target transaction: the
table gets the batch, the hidden table what concerns its rows since the snapshot, and then its rows take the place of those that the
table has within the partitions' bounds. So no reader sees rows of two loads at once, and whatever ends a reload leaves the table as
it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from engine.copy.host import CopyHost
from engine.copy.job import CopyTable
from engine.copy.key_range_filter import KeyUnordered, RowUnknown, restrict_to_range
from engine.copy.partition_filter import PartitionFilter, partition_rows
from engine.copy.reload_requests import PartitionChoice, ReloadRequests, WantedPartitions
from engine.model.batch import TableChanges, TableFault
from engine.model.copies import CopyProgress
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId
from engine.model.partitions import LoadReason, Loads, Partition, generation_of
from engine.model.position import Lsn
from engine.model.quarantine import RefusedPolicy
from engine.model.schema import TableSchema
from engine.model.source import CopyChunk, ExportedSnapshot
from engine.model.target import PartitionSwap, TableRecord, TargetReader
from engine.net import decode_copy_text
from engine.platform.failpoints import Failpoint, hit
from engine.platform.fault_policy import Action, policy
from engine.tables.context import RunContext
from engine.tables.planner import PlannedBatch
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.reporter import LoadedPartition
from engine.tables.schema_change import Unchanged, judge
from engine.tables.state import Chunk, ChunkRead, ChunkTaken, ChunkVoided, Live, Partitions, ReadProgress
from engine.verify.compare import VerifyTable, verify_tables
from engine.verify.verdict import VerdictStatus

TRIES = 5
"""Reads one after another that came to nothing: then the reload has failed."""


def swap_of(
    planned: PlannedBatch, table: TableId, schema: TableSchema, missed: Sequence[TableChanges], book: TableRegistry
) -> PartitionSwap | None:
    """What the batch puts into place of a table's partitions; None where that is nothing, or void by now.

    Raises EngineFault where what came since the snapshot cannot be applied: the table cannot go on.
    """
    chunk, entry = planned.reloads.get(table), book.get(table)
    now = entry.chunk if entry is not None else None
    # By its number, not by the generation: batches still apply to a table of which a chunk of partitions is void.
    if chunk is None or chunk.partitions is None or now is None or now.number != chunk.number:
        return None
    regions = chunk.partitions.regions
    for one in missed:
        if one.fault is not None:
            raise EngineFault(FaultKind(one.fault.code), table, one.fault.detail)
    try:
        wanted = PartitionFilter(regions, schema, decode_copy_text)
        changes = tuple(restrict_to_range(one, wanted) for one in missed)
    except (RowUnknown, KeyUnordered):
        book.apply(table, ChunkVoided(chunk.number))
        return None
    rows = partition_rows(regions, schema, decode_copy_text)
    return PartitionSwap(rows, changes, chunk.partitions.reasons, chunk.partitions.request, _name(chunk))


class PartitionReloader:
    """Asked from any thread; `make` belongs to the copy thread, `in_place` to the commit thread.

    It hears of its copies as a CopyListener.
    """

    def __init__(self, parts: RunContext, reloads: ReloadRequests, host: CopyHost) -> None:
        self._parts = parts
        self._host = host
        self._lock = threading.Lock()
        self.reloads = reloads
        self._wanted = reloads.wanted
        """Outlives the run."""
        self._left: set[TableId] = set()
        """Tables whose hidden tables nobody wants any more."""

    def ask(self, request: str, table: TableId, choice: PartitionChoice) -> None:
        """Load some partitions anew. Asking again changes nothing."""
        with self._lock:
            if table in self._wanted:
                return
            self._wanted[table] = WantedPartitions(request, table, choice)
        self.reloads.begin(request, [table])

    def cancel(self, request: str) -> TableId | None:
        """Nobody wants this reload any more; the table whose copy is to end."""
        with self._lock:
            found = next((w for w in self._wanted.values() if w.request == request), None)
            if found is None:
                return None
            # With the lock, so that it is seen as one of partitions as long as it is open.
            self.reloads.cancelled(request)
        self._end(found.table)
        return found.table

    @property
    def wanted(self) -> bool:
        """Whether partitions are being read, or wait for it."""
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
        """The reload has failed; the table goes on as it is."""
        with self._lock:
            self._wanted.pop(table, None)
        self._end(table)
        self.reloads.failed(table, TableFault(kind.value, detail))

    def _end(self, table: TableId) -> None:
        """What was read is of no use any more. A batch that is planned with it may still be looking at the hidden table."""
        ended = self._parts.book.end_reload(table)
        if ended is not None and ended.chunk is not None and ended.chunk.progress is ReadProgress.READ:
            with self._lock:
                self._left.add(table)

    def in_place(self, table: TableId, chunk: Chunk, position: Lsn) -> None:
        """A batch that ends at `position` has put its rows into place."""
        partitions = chunk.partitions
        with self._lock:
            wanted = self._wanted.get(table)
            asked = wanted is not None and partitions is not None and wanted.request == partitions.request
            if asked:
                del self._wanted[table]
        self._parts.book.apply(table, ChunkTaken(chunk.number))
        if asked and partitions is not None:
            # Else it was cancelled while the batch was written, and maybe another one requested.
            self._tell(table, partitions.reasons)
            self.reloads.finished(table, position)

    def whole_in_place(self, table: TableId) -> None:
        """A batch has put a copy of the whole table into place; maybe one in the place of some partitions."""
        with self._lock:
            self._wanted.pop(table, None)
        reasons = {part.name: part.reason for part in self.reloads.loaded(table)}
        if reasons:
            self._tell(table, reasons)

    def make(
        self, table: TableId, run: Callable[[ExportedSnapshot, CopyTable], None], whole: Callable[[str, TableId], None]
    ) -> bool:
        """Read a table's partitions. `run` copies under a snapshot; `whole` has all of the table copied anew for the request.

        False where the log has not told of something yet that the source's catalog shows. Raises EngineFault where that concerns more
        than the reload.
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
            if not self._host.begin_load(table, wanted.request):
                return True  # It is not live any more, which is looked at again.
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
        """Whether a run that is over had put them into place, and could not say so any more."""
        known = self._loads(wanted.table)
        done = {name: load for name, load in known.items() if load.request == wanted.request}
        if not done:
            return False
        with self._lock:
            self._wanted.pop(wanted.table, None)
        self._tell(wanted.table, {name: load.reason for name, load in done.items()})
        self.reloads.finished(wanted.table, max(load.position for load in done.values()))
        return True

    def _copy_under(self, wanted: WantedPartitions, snapshot: ExportedSnapshot) -> CopyTable | None:
        """What to read; None where the source shows another structure than the log has told of yet."""
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
        pieces = self._pieces(entry, schema, frozenset(part.relation for part in below if part.leaf))
        if pieces is None:
            return None
        partitions = Partitions(wanted.request, regions, reasons)
        chunk = self._parts.book.begin_partitions(wanted.table, schema, snapshot.position, partitions)
        if chunk is None:
            return None
        self._tell(wanted.table, reasons)
        return CopyTable(entry.spec, schema, pieces, load=_name(chunk))

    def _pieces(
        self, entry: TableEntry, schema: TableSchema, leaves: frozenset[RelationId]
    ) -> tuple[CopyChunk, ...] | None:
        """What to read of these leaves; None where one of them is not there any more."""
        every = self._parts.source.copies.copy_chunks(schema, entry.spec, self._parts.settings.copy_chunk_bytes)
        chunks = tuple(chunk for chunk in every if chunk.storage in leaves)
        return chunks if {chunk.storage for chunk in chunks} == leaves else None

    def _find_changed(self, wanted: WantedPartitions, whole: Callable[[str, TableId], None]) -> bool:
        """Compare each partition at one position. False where nothing remains to be loaded by partition."""
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
            self._tell(table, {str(part.name): LoadReason.UNKNOWN for part in tree})
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
        """The partitions whose rows are not the same, and those of which that cannot be told."""
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

    def _tell(self, table: TableId, reasons: Mapping[str, LoadReason]) -> None:
        known = self._loads(table)
        loaded = [LoadedPartition(n, reason, generation_of(known, n)) for n, reason in sorted(reasons.items())]
        self.reloads.partitions(table, loaded)

    def _loads(self, table: TableId) -> Loads:
        progress = self._parts.target.progress(self._parts.spec.name)
        return progress.loads.get(table, {}) if progress is not None else {}

    # What the coordinator tells, from the copy thread.

    def on_table_copied(self, table: TableId, position: Lsn, rows: int) -> None:
        """The next batch at or behind `position` puts its rows into place."""
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


def _name(chunk: Chunk) -> str:
    """Identifies its hidden table among those of other reloads and copies of the run."""
    return f"{chunk.partitions.request if chunk.partitions is not None else ''}-{chunk.number}"


def hindrance(entry: TableEntry) -> str | None:
    """Why nothing of the table can be loaded by partition."""
    if entry.spec.key:
        return "its key is a declared one"
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
    """These partitions and all that are parts of them, which are loaded for the same reason where they are not named themselves."""
    found = {part.relation: reasons[str(part.name)] for part in chosen}
    waiting = [part.relation for part in chosen]
    while waiting:
        above = waiting.pop()
        for part in tree:
            if part.parent == above and part.relation not in found:
                found[part.relation] = found[above]
                waiting.append(part.relation)
    return {part: found[part.relation] for part in tree if part.relation in found}
