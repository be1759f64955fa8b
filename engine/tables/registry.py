"""The tables of one running subscription: their states, and the structures that the log has announced of them.

Every change of a state goes through `apply`; listeners see it in order. Guarded by one lock, held for moments only.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from engine.model.copies import KeyBound
from engine.model.fault import FaultKind
from engine.model.identity import BatchId, RelationId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.subscription import SchemaPolicy, TableSpec
from engine.model.subscription_state import Reason
from engine.model.table_state import Refused, TableStateKind
from engine.platform.fault_policy import RENEWED, policy
from engine.tables.state import (
    Approve,
    AwaitApproval,
    Chunk,
    ChunkBegun,
    ChunkVoided,
    Copy,
    Copying,
    CopyLost,
    CopyStarted,
    CopyVoided,
    Fault,
    Hold,
    Live,
    Parked,
    PartitionReload,
    Partitions,
    PartitionsBegun,
    Reloading,
    TableEvent,
    TableState,
    awaits_approval,
    awaits_recopy,
    copy_of,
    kept_from,
    kind_of,
    outdates_plans,
    transition,
)


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One table. `schema`: its structure after the last planned batch. `kept`: the one that the target keeps, where changes of the
    source's are not followed. `generation`: what was planned of the table under another one does not count any more."""

    spec: TableSpec
    state: TableState
    schema: TableSchema | None = None
    kept: TableSchema | None = None
    generation: int = 0

    @property
    def table(self) -> TableId:
        return self.spec.table

    @property
    def kind(self) -> TableStateKind:
        return kind_of(self.state)

    @property
    def shown(self) -> TableStateKind:
        """The kind of its state for everyone outside the run."""
        return TableStateKind.RELOADING if awaits_recopy(self.state) else self.kind

    @property
    def reason(self) -> Reason | None:
        """Why it is parked, or copied again without being asked for."""
        return self.state.reason if isinstance(self.state, Parked | Reloading) else None

    @property
    def copy(self) -> Copy | None:
        return copy_of(self.state)

    @property
    def reload(self) -> PartitionReload | None:
        return self.state.reload if isinstance(self.state, Live) else None

    @property
    def chunk(self) -> Chunk | None:
        """What is being added to its copy, or replaces some of its partitions."""
        holder = self.copy or self.reload
        return holder.chunk if holder is not None else None

    @property
    def keeps_from(self) -> BatchId | None:
        """First batch whose changes have to be kept for it, or for a part of it."""
        reload = self.reload
        return kept_from(self.state) if reload is None else reload.kept_from

    @property
    def followed(self) -> bool:
        """Whether its structure is the one that the source has: it does not wait for a new copy, or one is being made."""
        match self.state:
            case Parked(then=then):
                return isinstance(then, AwaitApproval)
            case Reloading(copy=copy):
                return copy is not None
            case _:
                return True


TableListener = Callable[[TableEntry, Lsn | None], None]

RENEWALS = 5
"""New copies of a table one after another that did not get it live: then it parks."""
_RENEWAL = "None needed: the table is copied again, and its old rows stay readable until then."


class TableRegistry:
    """All tables of a subscription. Safe to use from any thread."""

    def __init__(self, listener: TableListener, policy_: SchemaPolicy = SchemaPolicy.APPLY) -> None:
        self._policy = policy_
        self._renewed: Counter[TableId] = Counter()
        self._numbers = 0
        """Of generations and chunks: each is used once in a run."""
        self._whole: set[TableId] = set()
        self._handing_over: frozenset[TableId] = frozenset()
        self._kept_from: dict[TableId, BatchId | None] = {}
        """By when the last snapshot for copies was taken."""
        self._entries: dict[TableId, TableEntry] = {}
        self._lock = threading.RLock()
        self._listener = listener
        self._watch: Callable[[TableEntry], None] | None = None
        self._void: Callable[[TableId], None] | None = None

    def watch(self, ended: Callable[[TableEntry], None], void: Callable[[TableId], None] | None = None) -> None:
        """Also call `ended` with every table that parks or leaves, and `void` with those whose chunk, or reload of partitions, ended."""
        self._watch = ended
        self._void = void

    def retire(self) -> None:
        """The run of this registry is over: what its threads still move is not reported."""
        with self._lock:
            self._listener = lambda _entry, _position: None
            self._watch = None

    def add(self, entry: TableEntry) -> None:
        """Add a table, or replace what is known of it, and call the listener."""
        with self._lock:
            self._entries[entry.table] = replace(entry, generation=self._number())
            self._listener(self._entries[entry.table], None)

    def report(self) -> None:
        """Call the listener with every table, in order with what moves meanwhile."""
        with self._lock:
            for entry in self._entries.values():
                self._listener(entry, None)

    def forget(self, table: TableId) -> None:
        with self._lock:
            self._entries.pop(table, None)

    def all(self) -> list[TableEntry]:
        with self._lock:
            return list(self._entries.values())

    def get(self, table: TableId) -> TableEntry | None:
        with self._lock:
            return self._entries.get(table)

    def in_state(self, *kinds: TableStateKind) -> list[TableEntry]:
        return [entry for entry in self.all() if entry.kind in kinds]

    def by_relation(self, relation: RelationId) -> TableEntry | None:
        """The table that the source has under this number. One that is followed comes first: another may have had it before."""
        found = [e for e in self.all() if e.schema is not None and e.schema.relation == relation]
        return _first([*(e for e in found if e.followed), *found])

    def by_name(self, name: TableName) -> TableEntry | None:
        return _first(e for e in self.all() if e.spec.source == name and e.kind is not TableStateKind.REMOVED)

    def apply(self, table: TableId, event: TableEvent, position: Lsn | None = None) -> TableEntry | Refused:
        """Move a table by `event`, as of `position`; a refusal leaves everything as it was."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is None:
                return Refused("the table is not part of the subscription")
            after = transition(entry.state, event)
            if isinstance(after, Refused):
                return after
            moved = replace(_with_structures(entry, event), state=after)
            if outdates_plans(entry.state, event, after):
                moved = replace(moved, generation=self._number())
            self._entries[table] = moved
            self._tell(entry, event, moved, position)
            return moved

    def _tell(self, before: TableEntry, event: TableEvent, after: TableEntry, position: Lsn | None) -> None:
        """Call whoever has to know. What only adds to a copy, or to a reload of partitions, is reported by whoever makes it."""
        table = after.table
        if isinstance(after.state, Live) and not isinstance(before.state, Live):
            del self._renewed[table]
            self._whole.discard(table)
        lost = isinstance(event, ChunkVoided | CopyVoided) and before.copy is not None and before.copy.chunk is not None
        if self._void is not None and (lost or (before.reload is not None and after.reload is None)):
            self._void(table)
        again = isinstance(before.state, Reloading) and isinstance(event, CopyStarted | CopyLost | CopyVoided)
        if after.kind is before.kind and not (again or isinstance(event, Fault | Hold)):
            return
        held = isinstance(event, Hold) and awaits_approval(before.state)
        self._listener(after, None if held else position)
        if self._watch is not None and after.kind in {TableStateKind.PARKED, TableStateKind.REMOVED} and not held:
            self._watch(after)

    def amend(self, table: TableId, *, spec: TableSpec | None = None, schema: TableSchema | None = None) -> None:
        """Change what is known of a table without a change of state; what is None stays. A table that is gone stays gone."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is not None:
                self._entries[table] = replace(entry, spec=spec or entry.spec, schema=schema or entry.schema)

    def keep_structure(self, table: TableId, kept: TableSchema) -> None:
        """The target keeps this structure, whatever the source does."""
        with self._lock:
            entry = self._entries.get(table)
            if entry is not None:
                self._entries[table] = replace(entry, kept=kept)

    @contextmanager
    def handing_over(self, tables: frozenset[TableId]) -> Iterator[None]:
        """A batch may be putting the copies of these tables into place: meanwhile no other begins where they stand. One at a time.

        A generation does not do that: it says what was planned too early, while this keeps a copy from beginning too early.
        """
        with self._lock:
            self._handing_over = tables
        try:
            yield
        finally:
            with self._lock:
                self._handing_over = frozenset()

    def snapshot_follows(self, tables: Iterable[TableId]) -> None:
        """Copies of these tables are to begin under a snapshot that is taken now: what is kept for them must not begin after it."""
        with self._lock:
            self._kept_from = {t: kept_from(entry.state) for t in tables if (entry := self._entries.get(t)) is not None}

    def _may_begin(self, table: TableId) -> TableEntry | None:
        """The entry of a table that waits for a copy which may begin now, under the last snapshot."""
        entry = self._entries.get(table)
        if entry is None or not isinstance(entry.state, Copying | Reloading) or table in self._handing_over:
            return None
        # The first batch that is kept, not the generation: a copy that goes on keeps that, and yet may have begun to wait again since
        # the snapshot, so that it lacks what came between the two.
        kept = kept_from(entry.state)
        return entry if kept == self._kept_from.get(table, kept) else None

    def begin_chunk(self, table: TableId, schema: TableSchema, position: Lsn, upto: KeyBound | None) -> Chunk | None:
        """The next rows of a copy, up to and with the key `upto` (None: all of them), are being read under a snapshot of `position`.

        Returns None if the table does not wait for them now.
        """
        with self._lock:
            entry = self._may_begin(table)
            if entry is None:
                return None
            first = entry.copy is None or not entry.copy.followed
            chunk = Chunk(self._number(), schema, position, upto, first)
            return None if isinstance(self.apply(table, ChunkBegun(chunk)), Refused) else chunk

    def restart_copy(self, table: TableId) -> None:
        """An unfinished copy cannot go on: it begins again with nothing, and is then made under one snapshot."""
        with self._lock:
            self._whole.add(table)
            self.apply(table, CopyVoided())

    def is_whole(self, table: TableId) -> bool:
        """Whether the table is to be copied under one snapshot."""
        with self._lock:
            return table in self._whole

    def begin_reload(self, table: TableId, request: str, number: BatchId) -> bool:
        """Rows of some of a live table's partitions are to be read; changes are kept for them from batch `number` on. Between two
        plannings only. False where it is not live."""
        with self._lock:
            return not isinstance(self.apply(table, PartitionsBegun(request, number)), Refused)

    def begin_partitions(
        self, table: TableId, schema: TableSchema, position: Lsn, partitions: Partitions
    ) -> Chunk | None:
        """The rows of these partitions are being read under a snapshot of `position`. None if the reload ended."""
        with self._lock:
            chunk = Chunk(self._number(), schema, position, None, first=False, partitions=partitions)
            return None if isinstance(self.apply(table, ChunkBegun(chunk)), Refused) else chunk

    def end_reload(self, table: TableId) -> PartitionReload | None:
        """The reload of partitions is void, whichever it is. Returns what ended."""
        with self._lock:
            entry = self._entries.get(table)
            ended = entry.reload if entry is not None else None
            if ended is not None:
                self.apply(table, ChunkVoided())
            return ended

    def park(
        self, table: TableId, code: str, detail: str, position: Lsn | None = None, *, known: TableEntry | None = None
    ) -> bool:
        """Park a table with a fault's code and its remedy; where that is a new copy that nobody has to ask for, until it begins.

        `known`: what the fault was found for; a table that moved on since is left alone, and False returned.
        """
        kind = FaultKind(code)
        if kind is FaultKind.SCHEMA_CHANGE_WAITING:
            return True  # `Hold` did it.
        with self._lock:
            entry = self._entries.get(table)
            if known is not None and entry != known:
                return False
            # Whatever else is found before its new copy has begun, that copy puts right as well.
            began = entry is None or not isinstance(entry.state, Reloading) or entry.copy is not None
            recopy = self.renews(kind) and self._renewed[table] + began <= RENEWALS
            self._renewed[table] += recopy and began
            reason = Reason(code, detail, _RENEWAL if recopy else policy(kind).remedy)
            self.apply(table, Fault(reason, recopy), position)
            return True

    def renews(self, kind: FaultKind) -> bool:
        """Whether a table with this fault is copied again by itself."""
        return kind in RENEWED and self._policy is SchemaPolicy.APPLY

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers


def _with_structures(entry: TableEntry, event: TableEvent) -> TableEntry:
    """The structures that an event brings with it: those of a copy that begins count from then on."""
    match event:
        case ChunkBegun(chunk=Chunk(schema=schema, first=True)):
            return replace(entry, schema=schema, kept=None)
        case Hold(kept=kept):
            return entry if awaits_approval(entry.state) else replace(entry, kept=kept)
        case Approve():
            return replace(entry, kept=None)
        case _:
            return entry


def _first(entries: Iterable[TableEntry]) -> TableEntry | None:
    return next(iter(entries), None)
