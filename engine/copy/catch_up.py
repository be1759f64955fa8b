"""Unfinished copies that batches apply to: what of each batch concerns the rows that they hold, and what each batch adds to them.

At every batch boundary the hidden table of such a copy holds the source's rows up to some key as of that position, and the target's
record says which key. So a copy goes on there after any crash.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.copy.key_range_filter import KeyRange, KeyUnordered, RowUnknown, restrict_to_range
from engine.model.batch import TableChanges
from engine.model.copies import StandingCopy
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.schema import TableSchema
from engine.model.target import TableCommit, TargetProgress
from engine.net import decode_copy_text
from engine.tables.planner import PlannedBatch
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.state import Chunk, ChunkTaken, ChunkVoided, CopyAltered

Tell = Callable[[TableId, str], None]


@dataclass
class _Deciding:
    """What the batch at hand does to copies."""

    going: set[TableId] = field(default_factory=set)
    """Copies that hold all up to its end behind it."""
    generations: dict[TableId, int] = field(default_factory=dict)
    taken: dict[TableId, Chunk] = field(default_factory=dict)
    changed: set[TableId] = field(default_factory=set)
    """Truncated, or of another structure behind it: rows that are being added may be gone, or not fit."""


class CopyCatchUp:
    """Used by the commit thread; `standing` may be asked from any. For each batch: `begin`, `commit_of` each table, `written`."""

    def __init__(self, book: TableRegistry, incomplete: Tell) -> None:
        """`incomplete` is told of copies that begin again since the log left out what a row holds that came into them."""
        self._book = book
        self._incomplete = incomplete
        self._copies: dict[TableId, tuple[int, StandingCopy]] = {}
        """With the table's generation: under another one it is another copy, or none."""
        self._left: set[TableId] = set()
        """Recorded on the target as going on, though they do not."""
        self._now = _Deciding()

    def take_up(self, progress: TargetProgress) -> None:
        """What the target's record says when a run begins. Copies that the book does not follow do not go on."""
        for table, standing in progress.copies.items():
            entry = self._book.get(table)
            if entry is not None and entry.copy is not None and entry.copy.followed:
                self._copies[table] = (entry.generation, standing)
            else:
                self._left.add(table)
        self._now.going = set(self._copies)

    def standing(self, table: TableId) -> StandingCopy | None:
        """How far a copy is, as the target has it."""
        known = self._copies.get(table)
        return None if known is None else known[1]

    @property
    def left(self) -> tuple[TableId, ...]:
        """Copies that do not go on behind the batch at hand."""
        return tuple((self._copies.keys() | self._left) - self._now.going)

    def begin(self) -> None:
        """Another batch is to be decided on."""
        self._now = _Deciding()

    def concerns(self, planned: PlannedBatch, table: TableId) -> bool:
        """Whether the batch's changes of this table are for a copy of it, and not for the table that readers see."""
        chunk = planned.chunks.get(table)
        if table in planned.followed or (chunk is not None and chunk.partitions is None):
            return True
        entry = self._book.get(table)
        # Planned as if its last chunk were in. A copy that was given up stays out of the way of the one that came after it.
        return entry is not None and self._known(entry) is not None

    def _known(self, entry: TableEntry) -> StandingCopy | None:
        """The table's copy on the target, where it was not given up since."""
        generation, known = self._copies.get(entry.table, (None, None))
        return known if generation == entry.generation else None

    def commit_of(
        self,
        planned: PlannedBatch,
        table: TableId,
        changes: Sequence[TableChanges],
        missed: Sequence[TableChanges],
        restructured: Container[TableId],
    ) -> TableCommit | None:
        """What the batch does to the copy, None where that is nothing. Raises EngineFault where the table cannot go on."""
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
        added = self._added(table, schema, known, chunk, missed) if chunk is not None else None
        if added is None:
            chunk = None
            if known is None:
                return None
        self._now.going.add(table)
        commit = self._commit(entry, schema, [*held, *_behind(held, added or [])], known, chunk)
        needed = chunk is not None or commit.changes or table in restructured
        return commit if needed else None

    def _added(
        self,
        table: TableId,
        schema: TableSchema,
        known: StandingCopy | None,
        chunk: Chunk,
        missed: Sequence[TableChanges],
    ) -> list[TableChanges] | None:
        """What the chunk has missed; None where it is void."""
        if chunk.is_whole:
            return list(missed)
        for one in missed:
            if one.fault is not None and one.fault.code != FaultKind.TABLE_STRUCTURE_CHANGED:
                raise EngineFault(FaultKind(one.fault.code), table, one.fault.detail)
        try:
            if not any(one.fault for one in missed):
                lower = known.upto if known is not None else None
                keys = KeyRange(schema, lower, chunk.upto, decode_copy_text)
                return [restrict_to_range(one, keys) for one in missed]
        except (RowUnknown, KeyUnordered):
            pass
        self._book.apply(table, ChunkVoided())
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
        self._book.restart_copy(table)
        if isinstance(trouble, RowUnknown):
            self._incomplete(table, "a row came into the copied part whose unchanged columns the log left out")
        else:
            self._incomplete(table, "a key has a value without a place in the order of the others")

    def refused(self, table: TableId) -> None:
        """The target did not take it: the table parks."""
        self._now.going.discard(table)
        self._now.taken.pop(table, None)

    def written(self, commits: Mapping[TableId, TableCommit]) -> None:
        """The batch is on the target, with these commits."""
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
    """The chunk where it is the one that the table waits for.

    By its number, not by the generation: a copy goes on without a chunk that is void, and so does what batches do to it.
    """
    now = entry.chunk
    return chunk if chunk is not None and now is not None and now.number == chunk.number else None


def _behind(first: Sequence[TableChanges], then: Sequence[TableChanges]) -> list[TableChanges]:
    """The latter as pieces behind those of the former."""
    after = 1 + max((one.piece for one in first), default=0)
    return [replace(one, piece=one.piece + after) for one in then]
