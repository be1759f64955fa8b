"""What a batch does to copies: the changes of rows that an unfinished copy holds, and the chunks that the batch takes.

At every batch boundary the hidden table of an unfinished copy holds the source's rows up to some key as of that position, and the
target's record has the key. So a copy continues from there after any crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.copy.key_range_filter import KeyRange, KeyUnordered, RowsHeld, RowUnknown, restrict_to_range
from engine.copy.partition_filter import PartitionFilter, partition_rows
from engine.model.batch import TableChanges, TablePart
from engine.model.copies import KeyBound, StandingCopy
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.schema import TableSchema
from engine.model.target import PartitionSwap, TableCommit, TargetProgress
from engine.net import decode_copy_text
from engine.tables.copy_admission import CopyAdmission
from engine.tables.planner import PlannedBatch
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.state import Chunk, ChunkTaken, ChunkVoided, CopyAltered

Tell = Callable[[TableId, str], None]


@dataclass
class _Deciding:
    """What the batch at hand does to copies."""

    going: set[TableId] = field(default_factory=set)
    """Copies that are complete up to their key as of the batch's end, once it is written."""
    generations: dict[TableId, int] = field(default_factory=dict)
    taken: dict[TableId, Chunk] = field(default_factory=dict)
    swapped: set[TableId] = field(default_factory=set)
    """Tables whose partitions are exchanged."""
    changed: set[TableId] = field(default_factory=set)
    """The batch truncates them or changes their structure: a chunk that is being read may hold deleted rows, or not fit."""


class CopyCatchUp:
    """Used by the commit thread; `standing` may be called from any. For each batch: `begin`, `commit_of` each table, `written`."""

    def __init__(self, book: TableRegistry, admission: CopyAdmission, incomplete: Tell) -> None:
        """`incomplete` is called with the table and the reason when a copy begins again because the log lacks a value that it needs."""
        self._book = book
        self._admission = admission
        self._incomplete = incomplete
        self._copies: dict[TableId, tuple[int, StandingCopy]] = {}
        """With the table's generation: under another one it is another copy, or none."""
        self._left: set[TableId] = set()
        """Recorded on the target as unfinished copies, though they are not continued."""
        self._now = _Deciding()

    def take_up(self, progress: TargetProgress) -> None:
        """Read the target's record when a run begins. Copies that the registry does not follow are not continued."""
        for table, standing in progress.copies.items():
            entry = self._book.get(table)
            if entry is not None and entry.copy is not None and entry.copy.followed:
                self._copies[table] = (entry.generation, standing)
            else:
                self._left.add(table)
        self._now.going = set(self._copies)

    def standing(self, table: TableId) -> StandingCopy | None:
        """The record of a copy on the target, None where it has none."""
        known = self._copies.get(table)
        return None if known is None else known[1]

    @property
    def left(self) -> tuple[TableId, ...]:
        """Copies that end with the current batch: the target deletes their records."""
        return tuple((self._copies.keys() | self._left) - self._now.going)

    @property
    def taken(self) -> Collection[TableId]:
        """Tables of which the current batch takes a chunk, for their copies or their partitions."""
        return self._now.taken.keys() | self._now.swapped

    def begin(self) -> None:
        """Forget what was decided for the batch before."""
        self._now = _Deciding()

    def concerns(self, planned: PlannedBatch, table: TableId) -> bool:
        """Whether the batch's changes of this table are for a copy of it, and not for the table that readers see."""
        chunk = planned.chunks.get(table)
        if table in planned.followed or (chunk is not None and chunk.partitions is None):
            return True
        entry = self._book.get(table)
        # The planner assumes that its last chunk is taken. A copy that was given up does not count for its successor.
        return entry is not None and self._known(entry) is not None

    def _known(self, entry: TableEntry) -> StandingCopy | None:
        """The table's copy on the target, None where there is none or it was given up since."""
        generation, known = self._copies.get(entry.table, (None, None))
        return known if generation == entry.generation else None

    def commit_of(
        self,
        planned: PlannedBatch,
        table: TableId,
        changes: Sequence[TableChanges],
        missed: Sequence[TableChanges],
    ) -> TableCommit | None:
        """What the batch writes to the copy, None where that is nothing. Raises EngineFault where the table cannot continue."""
        entry = self._book.get(table)
        if entry is None:
            return None
        known = self._known(entry) if any(p.table == table for p in planned.parts) else None
        part = planned.part(table)
        chunk = _still(planned.chunks.get(table), entry)
        if part is None or (known is None and (chunk is None or not chunk.first)):
            return None
        schema = part.versions[-1]
        held: list[TableChanges] = []
        if known is not None:
            try:
                keys = KeyRange(schema, None, known.upto, decode_copy_text)
                held = [restrict_to_range(one, keys) for one in changes]
            except (RowUnknown, KeyUnordered) as trouble:
                self._begin_anew(table, trouble)
                return None
            if any(one.truncated for one in held):
                self._now.changed.add(table)
                self._book.apply(table, ChunkVoided())
                chunk = None
        lower = known.upto if known is not None else None
        added = self._missed_by(chunk, table, schema, lower, missed) if chunk is not None else None
        if added is None:
            chunk = None
            if known is None:
                return None
        self._now.going.add(table)
        commit = self._commit(entry, schema, [*held, *_after(held, added or ())], known, chunk)
        needed = chunk is not None or commit.changes or table in planned.restructured
        return commit if needed else None

    def swap_of(
        self, planned: PlannedBatch, part: TablePart, missed: Sequence[TableChanges], *, aside: bool
    ) -> PartitionSwap | None:
        """What the batch exchanges of a live table's partitions; None where that is nothing, or void.

        `aside`: rows of the table are in quarantine. They may be rows of the partitions, so the chunk is void then. Raises EngineFault
        where what the chunk missed cannot be applied.
        """
        entry, table = self._book.get(part.table), part.table
        chunk = _still(planned.reloads.get(table), entry) if entry is not None else None
        if chunk is None or chunk.partitions is None:
            return None
        if aside:
            self._book.apply(table, ChunkVoided(chunk.number))
            return None
        schema, partitions = part.versions[-1], chunk.partitions
        changes = self._missed_by(chunk, table, schema, None, missed)
        if changes is None:
            return None
        self._now.swapped.add(table)
        rows = partition_rows(partitions.regions, schema, decode_copy_text)
        return PartitionSwap(rows, changes, partitions.reasons, partitions.request, chunk.hidden_name)

    def _missed_by(
        self,
        chunk: Chunk,
        table: TableId,
        schema: TableSchema,
        lower: KeyBound | None,
        missed: Sequence[TableChanges],
    ) -> tuple[TableChanges, ...] | None:
        """Of the changes since the chunk's snapshot, those of its rows; None where the chunk is void. `lower`: where its rows begin.

        A void chunk is read again. Raises EngineFault where the table cannot continue.
        """
        if chunk.is_whole:
            return tuple(missed)
        for one in missed:
            if one.fault is not None and one.fault.code != FaultKind.TABLE_STRUCTURE_CHANGED:
                raise EngineFault(FaultKind(one.fault.code), table, one.fault.detail)
        try:
            if not any(one.fault for one in missed):
                rows: RowsHeld = KeyRange(schema, lower, chunk.upto, decode_copy_text)
                if chunk.partitions is not None:
                    rows = PartitionFilter(chunk.partitions.regions, schema, decode_copy_text)
                return tuple(restrict_to_range(one, rows) for one in missed)
        except (RowUnknown, KeyUnordered):
            pass
        self._book.apply(table, ChunkVoided(chunk.number))
        return None

    def _commit(
        self,
        entry: TableEntry,
        schema: TableSchema,
        changes: Sequence[TableChanges],
        known: StandingCopy | None,
        chunk: Chunk | None,
    ) -> TableCommit:
        table = entry.table
        commit = TableCommit(table, schema, entry.spec.target, tuple(one for one in changes if not one.is_empty))
        if chunk is not None:
            self._now.taken[table] = chunk
        if chunk is not None and chunk.is_last:
            return replace(commit, handover=True)
        self._now.generations[table] = entry.generation
        rows, size, chunks = (known.rows, known.bytes, known.chunks) if known is not None else (0, 0, 0)
        if chunk is not None and chunk.upto is not None:
            copy = StandingCopy(table, schema, chunk.upto, rows + chunk.rows, size + chunk.bytes, chunks + 1)
            return replace(commit, copy=copy)
        return replace(commit, copy=replace(known, schema=schema) if known is not None else None)

    def _begin_anew(self, table: TableId, trouble: RowUnknown | KeyUnordered) -> None:
        self._admission.restart_copy(table)
        if isinstance(trouble, RowUnknown):
            self._incomplete(table, "a row came into the copied part whose unchanged columns the log left out")
        else:
            self._incomplete(table, "a key has a value without a place in the order of the others")

    def refused(self, table: TableId) -> None:
        """The target refused the table's part of the batch: the table parks."""
        self._now.going.discard(table)
        self._now.taken.pop(table, None)

    def written(self, commits: Mapping[TableId, TableCommit]) -> None:
        """The target has committed the batch with these parts."""
        gone = self.left
        for table, commit in commits.items():
            if commit.copy is not None and table in self._now.generations:
                before = self.standing(table)
                if before is not None and before.schema != commit.schema:
                    self._now.changed.add(table)
                self._copies[table] = (self._now.generations[table], commit.copy)
                self._book.apply(table, CopyAltered(commit.schema.logged))
            elif commit.handover:
                self._copies.pop(table, None)
        for table in gone:
            self._copies.pop(table, None)
        self._left.clear()
        for table, chunk in self._now.taken.items():
            self._book.apply(table, ChunkTaken(chunk.number))
        for table in self._now.changed:
            self._book.apply(table, ChunkVoided())


def _still(chunk: Chunk | None, entry: TableEntry) -> Chunk | None:
    """The chunk where the table still has it, else None.

    Decided by its number, not by the table's generation: a copy continues without a chunk that is void, and batches apply to it.
    """
    now = entry.chunk
    return chunk if chunk is not None and now is not None and now.number == chunk.number else None


def _after(first: Sequence[TableChanges], then: Sequence[TableChanges]) -> list[TableChanges]:
    """`then` with piece numbers that follow those of `first`."""
    after = 1 + max((one.piece for one in first), default=0)
    return [replace(one, piece=one.piece + after) for one in then]
